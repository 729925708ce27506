"""Pod classes: pods whose spec bytes are equal share one request vector, one mask and one score vector.

Also the reading of labels and annotations that name a gang or a quota. Pure functions of bytes, cached by them.
"""

import re
from functools import lru_cache
from typing import Final, Literal

import msgspec
from msgspec import Struct

from state.model.limits import ANNOTATED_MAX, CLASSES_MAX, DIGITS_MAX, REQUEST_MAX
from state.model.seen import EMPTY, Natural, PodSeen, Preemption

GPU: Final = "nvidia.com/gpu"
GPU_CORE: Final = "koordinator.sh/gpu-core"
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
GPU_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"
GPU_WHOLE_PERCENT: Final = "koordinator.sh/gpu"
#: Resources that cards give, not the kubelet: never counted as a node's plain amounts.
CARD_RESOURCES: Final = (GPU_CORE, GPU_MEMORY, GPU_RATIO, GPU_SHARED, GPU_WHOLE_PERCENT)

#: Sets of card resources that may be asked for together, apart from the count of shared GPUs.
_CARD_SETS: Final = (
    {GPU_WHOLE_PERCENT},
    {GPU_MEMORY},
    {GPU_RATIO},
    {GPU_CORE, GPU_MEMORY},
    {GPU_CORE, GPU_RATIO},
)
_PERCENT_DEVICES: Final = ("koordinator.sh/rdma", "koordinator.sh/fpga")
_NPU_RESOURCES: Final = ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")

_GROUP_LABELS: Final = ("pod-group.scheduling.sigs.k8s.io", "scheduling.x-k8s.io/pod-group")
_LIGHT_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
_LIGHT_MIN: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_GANG: Final = "gang.scheduling.koordinator.sh/"
_DURATION_PART: Final = re.compile("([0-9]*)(?:[.]([0-9]*))?(h|ms|m|s|us|\u00b5s|\u03bcs|ns)")
_UNITS_NS: Final = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ns": 1,
}
_MATCH_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
MATCH_POLICIES: Final = ("once-satisfied", "waiting-and-running", "only-waiting")
_QUOTA_LABEL: Final = "quota.scheduling.koordinator.sh/name"
_NOT_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
_QUOTA_PREEMPTIBLE: Final = "quota.scheduling.koordinator.sh/preemptible"
_SUB_PRIORITY: Final = "koordinator.sh/priority"
#: So much of what an annotation says is repeated in a message.
_SHOWN: Final = 253
_INT32: Final = re.compile("[+-]?[0-9]{1,10}")


class TolerationSeen(Struct, forbid_unknown_fields=True, frozen=True):
    """As in Kubernetes."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Requirement(Struct, forbid_unknown_fields=True, frozen=True):
    """One node selector requirement."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class Term(Struct, forbid_unknown_fields=True, frozen=True):
    """One node selector term."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class SpecSeen(Struct, forbid_unknown_fields=True, frozen=True):
    """The fields of `schemas.observations.PodSpec`."""

    scheduler_name: str
    requests: dict[str, Natural]
    priority: int = 0
    preemption_policy: Preemption = "PreemptLowerPriority"
    invalid: str | None = None
    unsupported: tuple[str, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: tuple[Term, ...] | None = None
    tolerations: tuple[TolerationSeen, ...] = ()


class PodClass(Struct, frozen=True, eq=False):
    """A spec worked out: `requests` without card resources, with `pods`; `cards` whole GPUs; why it can't be placed.

    `by_kubelet`: the GPUs are plain counted where no device report is; others exist only as devices.
    """

    spec: SpecSeen
    requests: tuple[tuple[str, int], ...]
    cards: int
    by_kubelet: bool
    invalid: str
    unsupported: str
    selective: bool
    priority: int


class Membership(Struct, frozen=True):
    """What labels and annotations say: the gang's name, an annotation gang's own numbers, the quota label.

    `conflicts`: spellings that say different things, each with the one that counts first.
    """

    gang: str = ""
    from_pods: bool = False
    min_member: int = 0
    mode: str = "Strict"
    groups: tuple[str, ...] = ()
    wait_us: int = 0
    match: str = ""
    quota: str = ""
    sub_priority: int = 0
    conflicts: tuple[str, ...] = ()


_spec_decoder = msgspec.json.Decoder(SpecSeen)
_map_decoder = msgspec.json.Decoder(dict[str, str])


def check_pod(seen: PodSeen) -> None:
    """Raises `msgspec.ValidationError` if a part of the pod that stays raw bytes is not what it should be."""
    _check_spec(bytes(seen.spec))
    if seen.labels is not EMPTY:
        _check_map(bytes(seen.labels))
    if seen.annotations is not EMPTY:
        _check_map(bytes(seen.annotations))


@lru_cache(maxsize=CLASSES_MAX)
def _check_spec(raw: bytes) -> None:
    _spec_decoder.decode(raw)


@lru_cache(maxsize=CLASSES_MAX)
def _check_map(raw: bytes) -> None:
    _map_decoder.decode(raw)


def parse_class(raw: bytes) -> PodClass:
    """The class of a pod spec's bytes."""
    spec = _spec_decoder.decode(raw)
    cards, invalid, shared = card_demand(spec.requests)
    huge = sorted(name for name, amount in spec.requests.items() if amount > REQUEST_MAX)
    if huge:
        invalid = f"{huge[0]} {spec.requests[huge[0]]} is more than any node can have"
    plain = {
        name: min(amount, REQUEST_MAX)
        for name, amount in spec.requests.items()
        if amount and name not in CARD_RESOURCES
    }
    plain["pods"] = plain.get("pods", 0) + 1
    unsupported = ", ".join(
        (*spec.unsupported, *(("shared GPUs (koordinator.sh/gpu-*)",) if shared else ()))
    )
    return PodClass(
        spec=spec,
        requests=tuple(sorted(plain.items())),
        cards=cards,
        by_kubelet=spec.requests.get(GPU, 0) > 0,
        invalid=spec.invalid or invalid,
        unsupported=unsupported,
        selective=bool(spec.node_selector) or spec.affinity is not None,
        priority=spec.priority,
    )


def card_demand(requests: dict[str, int]) -> tuple[int, str, bool]:
    """(whole cards, why the request is invalid or "", it asks for part of a card) of a pod's requests.

    Accepted sets and the value rule are those of semantics 3.2; parts of cards are decided by a later issue.
    """
    asked = {
        name: requests[name]
        for name in (GPU, *CARD_RESOURCES, *_NPU_RESOURCES)
        if requests.get(name, 0) > 0
    }
    for name in _PERCENT_DEVICES:
        if requests.get(name, 0) > 100 and requests[name] % 100:
            return 0, f"{name} {requests[name]} is neither at most 100 nor a multiple of 100", False
    names = frozenset(asked)
    if not names or names == {GPU}:
        return asked.get(GPU, 0), "", False
    if names.intersection(_NPU_RESOURCES):
        return 0, "", True
    if names - {GPU_SHARED} not in _CARD_SETS or names == {GPU_SHARED, GPU_WHOLE_PERCENT}:
        return 0, f"the GPU resources {', '.join(sorted(names))} can't be asked for together", False
    count = asked.get(GPU_SHARED, 0)
    for name in sorted(names & {GPU_CORE, GPU_RATIO, GPU_WHOLE_PERCENT}):
        if count and (asked[name] % count or asked[name] > 100 * count):
            return 0, f"{name} {asked[name]} can't be divided among {count} shared GPUs", False
        if not count and asked[name] > 100 and asked[name] % 100:
            return 0, f"{name} {asked[name]} is neither at most 100 nor a multiple of 100", False
    percent = asked.get(GPU_WHOLE_PERCENT, asked.get(GPU_RATIO, 0))
    cards = percent // 100
    whole = percent and percent % 100 == 0 and asked.get(GPU_CORE, percent) == percent
    if whole and count in (0, cards):
        return cards, "", False
    return 0, "", True


@lru_cache(maxsize=CLASSES_MAX)
def parse_labels(raw: bytes) -> dict[str, str]:
    """A pod's labels from their bytes; shared, so never to be changed."""
    return _map_decoder.decode(raw)


def refuses_preemption(labels_raw: bytes) -> bool:
    """Whether a pod's labels forbid to preempt it."""
    labels = parse_labels(labels_raw)
    return labels.get(_NOT_PREEMPTIBLE) == "true" or labels.get(_QUOTA_PREEMPTIBLE) == "false"


def parse_membership(labels_raw: bytes, annotations_raw: bytes, group: str = "") -> Membership:
    """Gang and quota of a pod from its labels' and kept annotations' bytes (resolution order of semantics 1.1).

    `group`: the scheduling group of Kubernetes that its spec names, by either field; it goes before all labels.
    """
    labels, annotations = _map_decoder.decode(labels_raw), _map_decoder.decode(annotations_raw)
    quota, sub_priority = labels.get(_QUOTA_LABEL, ""), _whole(labels.get(_SUB_PRIORITY, ""))
    names = [(group_field(group), group)] if group else []
    names += _said(labels, "label", *_GROUP_LABELS, _LIGHT_NAME)
    names += _said(annotations, "annotation", _GANG + "name")
    if not names:
        return Membership(quota=quota, sub_priority=sub_priority)
    if group or any(labels.get(key) for key in _GROUP_LABELS):
        return Membership(
            gang=names[0][1],
            quota=quota,
            sub_priority=sub_priority,
            conflicts=_conflicts(names),
        )
    minimums = _said(labels, "label", _LIGHT_MIN)
    minimums += _said(annotations, "annotation", _GANG + "min-available")
    minimum = _natural(minimums[0][1]) if minimums else 0
    return Membership(
        gang=names[0][1],
        from_pods=True,
        min_member=minimum,
        mode=gang_mode(annotations),
        groups=gang_groups(annotations),
        wait_us=gang_wait_us(annotations),
        match=gang_match(annotations),
        quota=quota,
        sub_priority=sub_priority,
        conflicts=_conflicts(names) + _conflicts(minimums) + match_conflicts(annotations),
    )


def group_field(group: str) -> str:
    """The field of a pod's spec that names the scheduling group."""
    return "spec.workloadRef" if "/" in group else "spec.schedulingGroup"


def _said(where: dict[str, str], kind: str, *keys: str) -> list[tuple[str, str]]:
    """What these keys say, in the order in which they count: (spelling, value)."""
    return [(f"{kind} {key}", where[key]) for key in keys if where.get(key)]


def _conflicts(said: list[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(
        f"{said[0][0]} says {said[0][1][:_SHOWN]}, which counts; {spelling} says {value[:_SHOWN]}"
        for spelling, value in said[1:]
        if value != said[0][1]
    )


def gang_mode(annotations: dict[str, str]) -> str:
    """`Strict` unless the annotation says exactly `NonStrict`."""
    return "NonStrict" if annotations.get(_GANG + "mode") == "NonStrict" else "Strict"


def gang_match(annotations: dict[str, str]) -> str:
    """The match policy that the annotations give, by either key; empty: none that is known, so the policy's default."""
    said = annotations.get(_GANG + "match-policy") or annotations.get(_MATCH_ALIAS, "")
    return said if said in MATCH_POLICIES else ""


def match_conflicts(annotations: dict[str, str]) -> tuple[str, ...]:
    """The two keys of the match policy say different things."""
    return _conflicts(_said(annotations, "annotation", _GANG + "match-policy", _MATCH_ALIAS))


def gang_groups(annotations: dict[str, str]) -> tuple[str, ...]:
    """The gangs (`ns/name`, sorted) that bind only together with this one; empty: alone."""
    try:
        names = msgspec.json.decode(annotations.get(_GANG + "groups", "[]"), type=list[str])
    except msgspec.DecodeError:
        return ()
    return tuple(sorted(dict.fromkeys(names)))


def gang_wait_us(annotations: dict[str, str]) -> int:
    """The gang's own wait time in microseconds, from a Go duration such as `1h30m` or `1.5h`; 0: none is given."""
    text, total_ns, at = annotations.get(_GANG + "waiting-time", "").removeprefix("+"), 0, 0
    while part := _DURATION_PART.match(text, at):
        whole, fraction = part[1], part[2] or ""
        if not whole + fraction or max(len(whole), len(fraction)) > DIGITS_MAX:
            return 0
        digits = int(whole + fraction)
        total_ns += digits * _UNITS_NS[part[3]] // 10 ** len(fraction)
        at = part.end()
    if at != len(text):
        return 0
    return min(-(-total_ns // 1_000), ANNOTATED_MAX)


def _whole(text: str) -> int:
    """A 32-bit number with a sign; 0 for anything else."""
    number = int(text) if _INT32.fullmatch(text) else 0
    return number if -(1 << 31) <= number < 1 << 31 else 0


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        return 0
    return min(int(text), ANNOTATED_MAX)

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
_DURATION_PART: Final = re.compile("([0-9]+)([hmsu]+)")
_UNITS_US: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_MATCH_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
MATCH_POLICIES: Final = ("once-satisfied", "waiting-and-running", "only-waiting")
_QUOTA_LABEL: Final = "quota.scheduling.koordinator.sh/name"
_SUB_PRIORITY: Final = "koordinator.sh/priority"
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
    """What labels and annotations say: the gang's name, an annotation gang's own numbers, the quota label."""

    gang: str = ""
    from_pods: bool = False
    min_member: int = 0
    total: int = 0
    mode: str = "Strict"
    groups: tuple[str, ...] = ()
    wait_us: int = 0
    match: str = ""
    quota: str = ""
    sub_priority: int = 0


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


def parse_membership(labels_raw: bytes, annotations_raw: bytes) -> Membership:
    """Gang and quota of a pod from its labels' and kept annotations' bytes (resolution order of semantics 1.1)."""
    labels, annotations = _map_decoder.decode(labels_raw), _map_decoder.decode(annotations_raw)
    quota, sub_priority = labels.get(_QUOTA_LABEL, ""), _whole(labels.get(_SUB_PRIORITY, ""))
    for key in _GROUP_LABELS:
        if labels.get(key):
            return Membership(gang=labels[key], quota=quota, sub_priority=sub_priority)
    name = labels.get(_LIGHT_NAME) or annotations.get(_GANG + "name", "")
    if not name:
        return Membership(quota=quota, sub_priority=sub_priority)
    minimum = _natural(labels.get(_LIGHT_MIN) or annotations.get(_GANG + "min-available", ""))
    total = max(_natural(annotations.get(_GANG + "total-number", "")), minimum)
    return Membership(
        gang=name,
        from_pods=True,
        min_member=minimum,
        total=total,
        mode=gang_mode(annotations),
        groups=gang_groups(annotations),
        wait_us=gang_wait_us(annotations),
        match=gang_match(annotations),
        quota=quota,
        sub_priority=sub_priority,
    )


def gang_mode(annotations: dict[str, str]) -> str:
    """`Strict` unless the annotation says exactly `NonStrict`."""
    return "NonStrict" if annotations.get(_GANG + "mode") == "NonStrict" else "Strict"


def gang_match(annotations: dict[str, str]) -> str:
    """The match policy that the annotations give, by either key; empty: none that is known, so the policy's default."""
    said = annotations.get(_GANG + "match-policy") or annotations.get(_MATCH_ALIAS, "")
    return said if said in MATCH_POLICIES else ""


def gang_groups(annotations: dict[str, str]) -> tuple[str, ...]:
    """The gangs (`ns/name`, sorted) that bind only together with this one; empty: alone."""
    try:
        names = msgspec.json.decode(annotations.get(_GANG + "groups", "[]"), type=list[str])
    except msgspec.DecodeError:
        return ()
    return tuple(sorted(dict.fromkeys(names)))


def gang_wait_us(annotations: dict[str, str]) -> int:
    """The gang's own wait time in microseconds; 0: not given (whole Go units from hours to microseconds)."""
    text, total, at = annotations.get(_GANG + "waiting-time", ""), 0, 0
    while part := _DURATION_PART.match(text, at):
        factor = _UNITS_US.get(part[2])
        if len(part[1]) > DIGITS_MAX or factor is None:
            return 0
        total, at = total + int(part[1]) * factor, part.end()
    return min(total, ANNOTATED_MAX) if at == len(text) else 0


def _whole(text: str) -> int:
    """A 32-bit number with a sign; 0 for anything else."""
    number = int(text) if _INT32.fullmatch(text) else 0
    return number if -(1 << 31) <= number < 1 << 31 else 0


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX):
        return 0
    return min(int(text), ANNOTATED_MAX)

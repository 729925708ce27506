"""Policy: cluster settings that change decisions. Record 1 of the journal holds all of it; later records change fields.

Field names are the reference's argument names. Durations are Go durations in manifests (`120s`) and microseconds in
the journal. A field that a later issue brings is added there, with a default that keeps earlier decisions.
"""

import re
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from schemas.errors import InvalidMessage

#: The longest duration that Go knows, in microseconds (292 years): sums with a timestamp fit 64 bits.
DURATION_US_MAX: Final = (2**63 - 1) // 1_000
PLACEMENTS_MAX: Final = 100_000
_TEXT_MAX: Final = 64
_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)")


def duration_us(text: str) -> int:
    """Microseconds of a Go duration such as `1h30m` or `2.5s`, to the nearest.

    Raises `ValueError` when it is none, or longer than Go's longest.
    """
    position, total_ns = 0, Fraction(0)
    for match in _DURATION.finditer(text[:_TEXT_MAX]):
        if match.start() != position:
            break
        total_ns += Fraction(match[1]) * _UNITS_NS[match[2]]
        position = match.end()
    duration = round(total_ns / 1_000)
    if position != len(text) or not text or duration > DURATION_US_MAX:
        raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m, of at most 292 years")
    return duration


_SECONDS_MAX: Final = 1_000_000_000
MatchPolicy = Literal["once-satisfied", "waiting-and-running", "only-waiting"]
#: Microseconds; longer ones would not fit the core's integers.
Duration = Annotated[PositiveInt, Field(le=DURATION_US_MAX)]
Limit = Annotated[int, Field(ge=0, le=1_000_000)]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class GangPolicy(_Group):
    """CoschedulingArgs of Koordinator (first two) and of upstream (`permit…`, `podGroup…`: seconds, percent).

    `kubernetesWorkloads`: what Kubernetes itself has (PodGroup, Workload) declares gangs; off: its pods are held.
    A gang that does not fit holds nothing: so `podGroupRejectPercentage` is 0, not upstream's 10. `writeStatus`:
    PodGroups get their status and events from us.
    """

    defaultTimeout: Duration = 600_000_000  # noqa: N815  (the reference's argument names)
    defaultMatchPolicy: MatchPolicy = "once-satisfied"  # noqa: N815
    permitWaitingTimeSeconds: Annotated[PositiveInt, Field(le=_SECONDS_MAX)] = 60  # noqa: N815
    podGroupBackoffSeconds: Annotated[int, Field(ge=0, le=_SECONDS_MAX)] = 0  # noqa: N815
    podGroupRejectPercentage: Annotated[int, Field(ge=0, le=100)] = 0  # noqa: N815
    enablePreemption: bool = False  # noqa: N815
    kubernetesWorkloads: bool = False  # noqa: N815
    writeStatus: bool = True  # noqa: N815


class QuotaPolicy(_Group):
    """ElasticQuotaArgs. Stored; enforced by a later issue."""

    monitorAllQuotas: bool = False  # noqa: N815
    delayEvictTime: Duration = 120_000_000  # noqa: N815
    enableRuntimeQuota: bool = True  # noqa: N815
    enableMinQuotaScale: bool = True  # noqa: N815
    enableCheckParentQuota: bool = False  # noqa: N815
    checkAllDimensions: bool = False  # noqa: N815
    guaranteeUsage: bool = False  # noqa: N815


class DevicePolicy(_Group):
    """DeviceShareArgs. Stored; a later issue shares cards."""

    scorer: str = "LeastAllocated"


class EvictionPolicy(_Group):
    """Evictions. `budgetDeadline`: how long a PodDisruptionBudget may hold an eviction back, in microseconds.

    The limits (0: none) are of victims of preemption in a minute. After `futileMax` victims of one owner on one node
    in vain for one claimant no more of them are evicted for it.
    """

    budgetDeadline: Duration = 600_000_000  # noqa: N815
    perNodePerMinute: Limit = 0  # noqa: N815
    perNamespacePerMinute: Limit = 0  # noqa: N815
    perMinute: Limit = 0  # noqa: N815
    futileMax: Limit = 3  # noqa: N815


class QueuePolicy(_Group):
    """The queue. A unit that has been its head for `holdAfter` and waits for room has nodes kept for it, at most
    `holdNodesPercent` of all and at most for `holdFor`. `holdAfter` 0: never. Times in microseconds.
    """

    holdAfter: Annotated[int, Field(ge=0, le=DURATION_US_MAX)] = 0  # noqa: N815
    holdFor: Duration = 1_800_000_000  # noqa: N815
    holdNodesPercent: Annotated[int, Field(ge=1, le=100)] = 10  # noqa: N815


class PreemptionPolicy(_Group):
    """Preemption by priority. `pods`: of single pods; of gangs see `gangs.enablePreemption`.

    `respectBudgets`: who is covered by an exhausted PodDisruptionBudget is no victim; else only the last choice.
    `nominatedFor`: so long the room of victims is kept for who claimed it, in microseconds.
    """

    pods: bool = True
    respectBudgets: bool = True  # noqa: N815
    nominatedFor: Duration = 300_000_000  # noqa: N815


class BackoffPolicy(_Group):
    """Back-off of a pod whose bind was refused: initial, doubled each time up to max, in microseconds."""

    initial: Duration = 10_000_000
    max: Duration = 300_000_000


class CyclePolicy(_Group):
    """Bounds of one scheduling cycle."""

    placementsMax: Annotated[PositiveInt, Field(le=PLACEMENTS_MAX)] = 500  # noqa: N815


class Policy(_Group):
    """The full policy. `schedulerNames`: whose pods are ours."""

    schedulerNames: tuple[str, ...] = ("lockstep",)  # noqa: N815
    gangs: GangPolicy = GangPolicy()
    quota: QuotaPolicy = QuotaPolicy()
    devices: DevicePolicy = DevicePolicy()
    evictions: EvictionPolicy = EvictionPolicy()
    preemption: PreemptionPolicy = PreemptionPolicy()
    queue: QueuePolicy = QueuePolicy()
    backoff: BackoffPolicy = BackoffPolicy()
    cycle: CyclePolicy = CyclePolicy()


def policy_change(spec: dict[str, Any]) -> dict[str, Any]:
    """The journal's form of a manifest's policy fields: validated, durations as microseconds, only the named fields.

    Raises `InvalidMessage` that names the field.
    """
    plain = _with_durations(spec)
    if isinstance(plain.get("schedulerNames"), list):
        plain["schedulerNames"] = tuple(plain["schedulerNames"])
    try:
        checked = Policy.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise InvalidMessage("InvalidField", f"policy field {field}: {first['msg']}") from error
    return checked.model_dump(mode="json", exclude_unset=True)


def full_policy(spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """The full effective policy for record 1: the defaults of this build with `spec` over them."""
    full = Policy().model_dump(mode="json")
    for name, value in policy_change(spec or {}).items():
        full[name] = {**full[name], **value} if isinstance(value, dict) else value
    return full


def _with_durations(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_durations(item) for key, item in value.items()}
    if isinstance(value, str) and _DURATION.match(value):
        try:
            return duration_us(value)
        except ValueError:
            return value
    return value

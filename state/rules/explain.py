"""Diagnoses in words: one code, a sentence, and amounts to read. Pure; nothing here decides."""

from msgspec import Struct

from state.model.diagnoses import Code, Diagnosis
from state.model.limits import NAMED_MAX
from state.model.workloads import workload_of

_WORDS = {
    "InsufficientResources": "without enough room",
    "KeptForHead": "kept for what waits at the head of the queue",
    "NoDevice": "without enough free devices",
    "NodeSelectorMismatch": "not matching the node selector or affinity",
    "Tainted": "cordoned or tainted",
}


class Misfit(Struct, frozen=True):
    """Why a pod class has no node now: how many nodes for which reason, and what is short everywhere."""

    nodes: dict[str, int]
    resources: dict[str, dict[str, int]]


def misfit_code(misfit: Misfit) -> Code:
    """The reason that must change first: room where the class may go at all, else what keeps it away."""
    for code in (
        Code.NO_DEVICE,
        Code.INSUFFICIENT_RESOURCES,
        Code.KEPT_FOR_HEAD,
        Code.TAINTED,
        Code.NODE_SELECTOR_MISMATCH,
    ):
        if misfit.nodes.get(code):
            return code
    return Code.INSUFFICIENT_RESOURCES


def misfit_text(misfit: Misfit) -> str:
    """A sentence for people."""
    if not misfit.nodes:
        return "there are no nodes"
    parts = [f"{count} {_WORDS[name]}" for name, count in misfit.nodes.items()]
    short = [
        f"{name} (wants {amounts['want']}, at most {amounts['have']} free)"
        for name, amounts in misfit.resources.items()
    ]
    text = f"no node fits: {', '.join(parts)}"
    return f"{text}; short of {', '.join(short)}" if short else text


def pod_misfit(misfit: Misfit) -> Diagnosis:
    """Diagnosis of a single pod without a node."""
    return Diagnosis(
        code=misfit_code(misfit), details=_details(misfit), message=misfit_text(misfit)
    )


def gang_misfit(
    misfit: Misfit, gang: str, placeable: int, needed: int, min_member: int, *, odd: str
) -> Diagnosis:
    """Diagnosis of the members of a gang that does not fit whole; `odd`: the first who doesn't, of members who are not
    alike.
    """
    details = {
        "gang": gang,
        "min_member": min_member,
        "placeable": placeable,
        "needed": needed,
        **({"member": odd} if odd else {}),
        **_details(misfit),
    }
    next_one = f"the next one, {odd}," if odd else "the next one"
    return Diagnosis(
        code=misfit_code(misfit),
        details={name: details[name] for name in sorted(details)},
        message=(
            f"{placeable} of {needed} members that gang {gang} still needs can be placed; "
            f"for {next_one} {misfit_text(misfit)}"
        ),
    )


def members_missing(gang: str, needed: int, min_member: int) -> Diagnosis:
    """Diagnosis of the members of a gang that has too few. Not how many: each that came would change it for all."""
    return Diagnosis(
        code=Code.WAITING_FOR_MEMBERS,
        details={"gang": gang, "min_member": min_member, "needed": needed},
        message=f"gang {gang} has fewer ready members than the {needed} that it still needs (minMember {min_member})",
    )


def group_missing(gang: str) -> Diagnosis:
    """Diagnosis of the members of a gang that nothing declares."""
    message = f"PodGroup {gang} does not exist, and the pods don't say how many members it needs"
    if workload := workload_of(gang):
        pod_group = gang.removeprefix(f"{workload}/").partition("/")[0]
        message = f"Workload {workload} does not exist, or has no pod group {pod_group}"
    return Diagnosis(code=Code.WAITING_FOR_GROUP, details={"gang": gang}, message=message)


def partner_waits(gang: str, partner: str, reason: Diagnosis) -> Diagnosis:
    """Diagnosis of the members of a gang whose partner can't start."""
    return Diagnosis(
        code=Code.WAITING_FOR_GROUP,
        details={"gang": gang, "partner": partner, "reason": reason.code},
        message=f"gang {gang} binds only together with {partner}: {reason.message}",
    )


def backing_off(gang: str, until_us: int) -> Diagnosis:
    """Diagnosis of the members of a gang that was rejected and is not tried for a while."""
    return Diagnosis(
        code=Code.BACKING_OFF,
        details={"gang": gang, "until_us": until_us},
        message=f"gang {gang} did not fit and backs off (podGroupBackoffSeconds)",
    )


def room_missing(gang: str, resources: dict[str, dict[str, int]]) -> Diagnosis:
    """Diagnosis of the members of a gang whose `minResources` are not free."""
    short = ", ".join(
        f"{name} (wants {amounts['want']}, {amounts['have']} free)"
        for name, amounts in resources.items()
    )
    return Diagnosis(
        code=Code.INSUFFICIENT_RESOURCES,
        details={"gang": gang, "resources": resources},
        message=f"minResources of gang {gang} are not free: short of {short}",
    )


def timed_out(unit: str) -> Diagnosis:
    """Diagnosis of members that held room until the wait time was over."""
    return Diagnosis(
        code=Code.TIMED_OUT,
        details={"gang": unit},
        message=f"the wait time of {unit} ran out before all of it had a node; what it held is free",
    )


def gave_way(gang: str, unit: str) -> Diagnosis:
    """Diagnosis of who let go of room that it held, for what comes before it; `gang` empty for a single pod."""
    details: dict[str, object] = {"for": unit, "gang": gang} if gang else {"for": unit}
    who = f"gang {gang} let go of the room it held" if gang else "let go of the room kept for it"
    return Diagnosis(code=Code.GAVE_WAY, details=details, message=f"{who}, for {unit}")


def preempting(gang: str, nodes: list[str], victims: list[str]) -> Diagnosis:
    """Diagnosis of pods whose room comes free when victims have left; `gang` empty for a single pod."""
    details: dict[str, object] = {
        "nodes_kept": nodes[:NAMED_MAX],
        "victims": victims[:NAMED_MAX],
    }
    if gang:
        details = {"gang": gang, **details}
    until = f"{_named(victims)} left" if victims else "the pods that leave there are gone"
    return Diagnosis(
        code=Code.PREEMPTING,
        details=details,
        message=f"room on {_named(nodes)} is kept until {until}",
    )


def _named(names: list[str]) -> str:
    """The first names, and how many more: every member of a gang is told all of it."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def no_longer_kept(gang: str, node: str) -> Diagnosis:
    """Diagnosis of a pod for which a node's room was kept too long, or whose node is gone; `gang` may be empty."""
    details: dict[str, object] = {"gang": gang} if gang else {}
    return Diagnosis(
        code=Code.TIMED_OUT,
        details={**details, "node": node},
        message=f"room on {node} is no longer kept: its time is over, or the node is gone",
    )


def eviction_futile(unit: str, why: str) -> Diagnosis:
    """Diagnosis of a unit for which more evictions lead nowhere."""
    return Diagnosis(
        code=Code.EVICTION_FUTILE,
        details={"unit": unit, "why": why},
        message=f"more evictions for {unit} are futile: {why}",
    )


def evictions_limited(unit: str, until_us: int) -> Diagnosis:
    """Diagnosis of a unit that would evict more than policy allows in a minute; `until_us` 0: it always would."""
    allowed = "no more evictions now" if until_us else "so many evictions in no minute"
    return Diagnosis(
        code=Code.EVICTIONS_LIMITED,
        details={"unit": unit, "until_us": until_us},
        message=f"less important pods would make room for {unit}, but policy allows {allowed}",
    )


def with_conflicts(diagnosis: Diagnosis, conflicts: tuple[str, ...]) -> Diagnosis:
    """The diagnosis of a pod whose labels and annotations contradict each other: it names what they say, too."""
    if not conflicts:
        return diagnosis
    details = {**diagnosis.details, "conflicts": list(conflicts)}
    return Diagnosis(
        code=diagnosis.code,
        details={name: details[name] for name in sorted(details)},
        message=f"{diagnosis.message} ({'; '.join(conflicts)})",
    )


def node_closed(gang: str, node: str) -> Diagnosis:
    """Diagnosis of a member whose node left, or is closed to it or too small now."""
    return Diagnosis(
        code=Code.GAVE_WAY,
        details={"gang": gang, "node": node},
        message=f"held room on {node}, which is gone, closed to it or too small now",
    )


def _details(misfit: Misfit) -> dict[str, object]:
    details: dict[str, object] = {"nodes": misfit.nodes}
    if misfit.resources:
        details["resources"] = misfit.resources
    return details

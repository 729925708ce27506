"""What an answer of the API server means for a command. Pure: no calls, no clock, no logging.

The sink (`streams.sink.sink`) asks here after each call. A verdict is an end (`CommandEnded`), or
the next step: read the pod, or try again. A lost answer, a 5xx or a throttled bind is never an end.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from schemas.envelope import BindPod, EvictPod
from schemas.observations import CommandEnded, FoundPod
from streams.sink.api import UNKNOWN, Response
from streams.sink.found import found_pod

#: Client errors that say nothing about the command: credentials in rotation, the server's own time
#: limit, throttling.
_NOT_ABOUT_THE_COMMAND = frozenset({401, 408, 425, 429})
_MESSAGE_MAX = 1024


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Not known yet. `uncertain`: the call may have taken effect, or may still; the next attempt
    reads first.

    `budget`: a PodDisruptionBudget holds the eviction back, which becomes a refusal at the
    command's deadline.
    """

    uncertain: bool
    why: Response
    budget: bool = False


@dataclass(frozen=True, slots=True)
class ReadPod:
    """A conflict: the pod itself must say what happened."""

    why: Response


@dataclass(frozen=True, slots=True)
class NotDone:
    """The pod is there, with the command's uid, and shows no effect of the command."""

    pod: Mapping[str, Any]


def judge(command: BindPod | EvictPod, answer: Response) -> CommandEnded | TryAgain | ReadPod:
    """The answer to a Binding or an Eviction."""
    if answer.ok:
        return _ended(command, "Applied", answer)
    if isinstance(command, EvictPod) and held_by_budget(answer):
        return TryAgain(uncertain=False, why=answer, budget=True)
    if answer.status == 409:
        return ReadPod(answer)
    if answer.status == UNKNOWN or answer.status >= 500:
        return TryAgain(uncertain=True, why=answer)
    if answer.status == 404:
        return _ended(command, "Stale", answer)
    if answer.status in _NOT_ABOUT_THE_COMMAND or answer.status < 400:
        return TryAgain(uncertain=False, why=answer)
    return _ended(command, "Refused", answer)


def judge_pod(
    command: BindPod | EvictPod, read: Response, why: Response
) -> CommandEnded | TryAgain | NotDone:
    """What a read of the pod shows; `why` is the conflict that led to it, or the read itself."""
    if read.status == 404:
        return _ended(command, "Stale", why)
    if read.status != 200:
        return TryAgain(uncertain=True, why=read)
    found = found_pod(read.body)
    if found.uid != command.uid:
        return _ended(command, "Stale", why, found)
    if isinstance(command, EvictPod):
        if found.deleted_us is not None:
            return _ended(command, "Applied", why, found)
        return NotDone(read.body)
    # The node, too: in a log that lost its end an id is given a second time.
    if found.command_id == command.id and found.node == command.node:
        return _ended(command, "Applied", why)
    if found.node or found.deleted_us is not None or found.phase in ("Succeeded", "Failed"):
        return _ended(command, "Stale", why, found)
    return NotDone(read.body)


def judge_conflict(
    command: BindPod | EvictPod, conflict: Response, read: Response
) -> CommandEnded | TryAgain:
    """The end after a 409. A bind that the pod itself forbids (a gate, say) is refused; an eviction
    tries again.
    """
    verdict = judge_pod(command, read, conflict)
    if not isinstance(verdict, NotDone):
        return verdict
    if isinstance(command, EvictPod):
        return TryAgain(uncertain=False, why=conflict)
    return _ended(command, "Refused", conflict, found_pod(verdict.pod))


def withdrawn(command: BindPod | EvictPod) -> CommandEnded:
    """The answer to a withdrawal that came in time."""
    return CommandEnded(command_id=command.id, uid=command.uid, outcome="Withdrawn")


def refused_by_budget(command: EvictPod, answer: Response) -> CommandEnded:
    """The end of an eviction whose disruption budget held until its deadline."""
    return _ended(command, "Refused", answer)


def held_by_budget(answer: Response) -> bool:
    """A PodDisruptionBudget stands in the way, as opposed to a server that is busy.

    Two budgets over one pod are answered with 500, which no retry will mend: it counts as held,
    too.
    """
    if answer.status == 500:
        return "more than one PodDisruptionBudget" in answer.message
    causes = (answer.body.get("details") or {}).get("causes") or ()
    return answer.status == 429 and any(_is_budget(cause) for cause in causes)


def _is_budget(cause: Mapping[str, Any]) -> bool:
    return cause.get("reason") == "DisruptionBudget"


def _ended(
    command: BindPod | EvictPod,
    outcome: Literal["Applied", "Stale", "Refused"],
    answer: Response,
    found: FoundPod | None = None,
) -> CommandEnded:
    return CommandEnded(
        command_id=command.id,
        uid=command.uid,
        outcome=outcome,
        status=answer.status,
        message="" if outcome == "Applied" else answer.message[:_MESSAGE_MAX],
        found=found,
    )

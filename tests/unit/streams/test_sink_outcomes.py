"""What an answer means, as a table: which ends a command, which asks for a read, which is tried again."""

from typing import Any

import pytest

from schemas.observations import CommandEnded
from streams.sink.api import Response
from streams.sink.outcomes import ReadPod, TryAgain, judge, judge_conflict
from tests.contracts.fake_api_server import held_by_budget
from tests.unit.streams.sink_world import bind, evict

CONFLICT = Response(409, "Conflict", "no")
BUDGET = held_by_budget("the budget")


def outcome(verdict: object) -> str:
    """A verdict in one word."""
    if isinstance(verdict, CommandEnded):
        return verdict.outcome
    if isinstance(verdict, ReadPod):
        return "read"
    assert isinstance(verdict, TryAgain)
    return "budget" if verdict.budget else "uncertain" if verdict.uncertain else "again"


@pytest.mark.parametrize(
    ("answer", "of_bind", "of_eviction"),
    [
        (Response(200), "Applied", "Applied"),
        (Response(201), "Applied", "Applied"),
        (Response(0), "uncertain", "uncertain"),
        (Response(302), "again", "again"),
        (Response(400), "Refused", "Refused"),
        (Response(401), "again", "again"),
        (Response(403), "Refused", "Refused"),
        (Response(404), "Stale", "Stale"),
        (CONFLICT, "read", "read"),
        (Response(422), "Refused", "Refused"),
        (Response(429), "again", "again"),
        (BUDGET, "again", "budget"),
        (Response(500), "uncertain", "uncertain"),
        (Response(500, "", "more than one PodDisruptionBudget"), "uncertain", "budget"),
        (Response(503), "uncertain", "uncertain"),
        (Response(504), "uncertain", "uncertain"),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Response) else None,
)
def test_answers(answer: Response, of_bind: str, of_eviction: str) -> None:
    """Every class of status has its meaning, the same for both commands but for budgets."""
    assert (of_bind, of_eviction) == (
        outcome(judge(bind(), answer)),
        outcome(judge(evict(), answer)),
    )


def pod(**facts: Any) -> Response:
    """A read of the pod `a`."""
    metadata = {"uid": facts.get("uid", "uid-a"), "resourceVersion": "5"}
    if "deleted" in facts:
        metadata["deletionTimestamp"] = facts["deleted"]
    if "command" in facts:
        metadata["annotations"] = {"lockstep.dev/command-id": facts["command"]}
    body = {
        "metadata": metadata,
        "spec": {"nodeName": facts.get("node")},
        "status": {"phase": facts.get("phase")},
    }
    return Response(200, body=body)


@pytest.mark.parametrize(
    ("read", "of_bind", "of_eviction"),
    [
        (Response(404), "Stale", "Stale"),
        (Response(500), "uncertain", "uncertain"),
        (Response(403), "uncertain", "uncertain"),
        (pod(), "Refused", "again"),
        (pod(uid="other"), "Stale", "Stale"),
        (pod(uid="other", node="n1", command="7.0"), "Stale", "Stale"),
        (pod(node="n1", command="7.0"), "Applied", "again"),
        (pod(node="n1", command="6.0"), "Stale", "again"),
        (pod(node="n2", command="7.0"), "Stale", "again"),
        (pod(node="n1"), "Stale", "again"),
        (pod(deleted="2026-01-01T00:00:00Z"), "Stale", "Applied"),
        (pod(node="n1", command="7.0", deleted="2026-01-01T00:00:00Z"), "Applied", "Applied"),
        (pod(phase="Failed"), "Stale", "again"),
    ],
)
def test_conflicts(read: Response, of_bind: str, of_eviction: str) -> None:
    """After a 409 the pod decides; a bind is Applied only with its own command id on the very pod."""
    assert (of_bind, of_eviction) == (
        outcome(judge_conflict(bind(), CONFLICT, read)),
        outcome(judge_conflict(evict(), CONFLICT, read)),
    )


def test_long_messages_are_cut() -> None:
    """A refusal's message cannot make a result too large for the log."""
    verdict = judge(bind(), Response(403, "", "x" * 100_000))
    assert isinstance(verdict, CommandEnded)
    assert 1024 == len(verdict.message)

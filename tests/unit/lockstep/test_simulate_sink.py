"""The simulated sink: it ends a command only when the outcome is known."""

from typing import Any

import pytest

from lockstep.simulate_sink import RETRY_US, SimulatedSink
from producers.simulated.cluster import Cluster
from producers.simulated.faults import Call, Reply
from state.model.decision import Command, Decision

UID = "00000000-0000-4000-8000-000000000001"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "uid": UID},
    "spec": {"containers": [{"name": "main"}]},
}


def decision(*commands: Command, withdrawn: tuple[str, ...] = (), **fields: Any) -> Decision:
    """A decision with those commands."""
    rest: dict[str, Any] = {
        "sequence": 1,
        "record_hash": "",
        "previous_digest": "",
        "timestamp_us": 0,
        "changes": (),
        "ended": (),
        "diagnoses": (),
        "requests": (),
        "next_deadline_us": 0,
        "work_left": False,
        "digest": "",
        "data": b"",
    }
    return Decision(commands=commands, withdrawn=withdrawn, **{**rest, **fields})


def bind(uid: str = UID) -> Command:
    """Bind a to n1."""
    return Command(id="1.0", kind="BindPod", name="a", namespace="default", node="n1", uid=uid)


def evict(deadline_us: int = 100) -> Command:
    """Evict a."""
    return Command(
        id="1.1",
        kind="EvictPod",
        name="a",
        namespace="default",
        uid=UID,
        reason="test",
        deadline_us=deadline_us,
    )


def started() -> tuple[Cluster, SimulatedSink]:
    """A cluster with the pod, and its sink."""
    cluster = Cluster(0)
    cluster.apply(POD)
    return cluster, SimulatedSink(cluster)


def outcomes(sink: SimulatedSink) -> list[str]:
    """The ends that are known now."""
    return [end.outcome for end in sink.act()]


def test_a_bind_ends_applied_and_carries_its_id() -> None:
    """The pod is bound once, under the command's id."""
    cluster, sink = started()
    sink.take(decision(bind()))
    assert ["Applied"] == outcomes(sink)
    assert [] == outcomes(sink)
    pod = cluster.read_pod("default", "a")
    assert pod is not None
    assert {"lockstep.dev/command-id": "1.0"} == pod["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("status", "outcome"), [(403, "Refused"), (422, "Refused"), (404, "Stale")]
)
def test_a_final_answer_ends_the_bind(status: int, outcome: str) -> None:
    """What the API server says for good is the end."""
    cluster, sink = started()
    cluster.faults.refused["default", "a"] = [status]
    sink.take(decision(bind()))
    assert [outcome] == outcomes(sink)


def test_an_unknown_outcome_is_read_before_it_is_tried_again() -> None:
    """The bind took effect although the answer got lost: one bind, one end."""
    cluster, sink = started()
    calls: list[str] = []

    def lose_the_answer(call: Call) -> Reply | None:
        calls.append(call.verb)
        if len(calls) == 1:
            cluster.bind("default", "a", UID, "n1", {"lockstep.dev/command-id": "1.0"})
            return Reply(504, "timeout")
        return None

    cluster.faults.intercept = lose_the_answer
    sink.take(decision(bind()))
    assert [] == outcomes(sink)
    assert RETRY_US == sink.next_event_us
    cluster.advance_to(RETRY_US)
    assert ["Applied"] == outcomes(sink)
    assert ["bind", "bind"] == calls  # the first call, and its effect


def test_a_delayed_bind_waits_and_cannot_be_withdrawn() -> None:
    """The call is on its way: its end is what the API server says in the end."""
    cluster, sink = started()
    cluster.faults.delayed["default", "a"] = True
    sink.take(decision(bind()))
    sink.take(decision(withdrawn=("1.0",)))
    assert [] == outcomes(sink)
    cluster.delete("Pod", "default", "a")
    cluster.faults.delayed.clear()
    assert ["Stale"] == outcomes(sink)


def test_a_bind_of_another_uid_is_stale() -> None:
    """The namesake of the pod is not touched, and the end says what was found."""
    cluster, sink = started()
    sink.take(decision(bind(uid=UID[:-1] + "2")))
    (end,) = sink.act()
    assert ("Stale", UID) == (end.outcome, end.found and end.found.uid)
    pod = cluster.read_pod("default", "a")
    assert pod is not None
    assert "nodeName" not in pod["spec"]


def test_a_withdrawn_command_that_waits_for_its_next_try_ends_withdrawn() -> None:
    """After an answer that left it open the pod is read, then the command is given up."""
    cluster, sink = started()
    cluster.faults.refused["default", "a"] = [503]
    sink.take(decision(bind()))
    assert [] == outcomes(sink)
    sink.take(decision(withdrawn=("1.0",)))
    cluster.advance_to(RETRY_US)
    assert ["Withdrawn"] == outcomes(sink)


def test_a_budget_is_asked_again_until_the_deadline() -> None:
    """Held back, then refused; or carried out as soon as the budget yields."""
    cluster, sink = started()
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {}},
    }
    cluster.apply(budget)
    cluster.bind("default", "a", UID, "n1", {})
    sink.take(decision(evict()))
    assert [] == outcomes(sink)
    assert 100 == sink.next_event_us
    cluster.advance_to(100)
    (end,) = sink.act()
    assert ("Refused", 429) == (end.outcome, end.status)
    sink.take(decision(evict(deadline_us=200)))
    assert [] == outcomes(sink)
    cluster.delete("PodDisruptionBudget", "default", "keep")
    assert ["Applied"] == outcomes(sink)


def test_open_commands_are_recovered_from_the_decisions() -> None:
    """What has ended is not carried out again, what has not is."""
    _, sink = started()
    history = [decision(bind(), evict()), decision(ended=("1.1",))]
    sink.recover(history)
    assert ["Applied"] == outcomes(sink)


def test_statuses_are_written_to_the_object() -> None:
    """A PatchStatus needs no end."""
    cluster, sink = started()
    patch = Command(
        id="1.0",
        kind="PatchStatus",
        name="a",
        namespace="default",
        uid=UID,
        resource="pods",
        fields={"reason": "Unschedulable"},
    )
    sink.take(decision(patch))
    assert [] == outcomes(sink)
    pod = cluster.read_pod("default", "a")
    assert pod is not None
    assert "Unschedulable" == pod["status"]["reason"]

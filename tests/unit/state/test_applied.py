"""A request of an administrator counts once, however often it is delivered; how long its id is remembered."""

import pytest

from state import invariants, snapshot
from state.model.limits import APPLIED_KEPT
from tests.builders import Core, Json, node, pod

ADMIN = "state.transitions.admin.APPLIED_KEPT"


def change(identity: str, patience: int) -> Json:
    """A change of policy."""
    return {
        "kind": "PolicyChanged",
        "id": identity,
        "spec": {"quota": {"delayEvictTime": patience}},
    }


def evict(identity: str) -> Json:
    """A request for a pod that is not there: its answer says that it was taken."""
    request = {"kind": "EvictRequested", "id": identity, "namespace": "default", "name": "ghost"}
    return {**request, "uid": "", "reason": "drain"}


def ids(core: Core) -> list[str]:
    """What is remembered, by id."""
    return sorted(core.state.tables["applied"])


def test_a_request_that_is_delivered_twice_is_taken_once() -> None:
    """In the same record, in the next one, and after a restart from a snapshot."""
    core = Core()
    decision = core.see(evict("a"), evict("a"), topic="admin")
    assert ["a"] == [answer.id for answer in decision.requests]
    assert () == tuple(core.see(evict("a"), topic="admin").requests)
    core.state = snapshot.decode(snapshot.encode(core.state))
    assert () == tuple(core.see(evict("a"), topic="admin").requests)


def test_an_older_policy_that_is_delivered_again_changes_nothing_back() -> None:
    """The newer one stays in force."""
    core = Core()
    for each in (change("a", 1), change("b", 2), change("a", 1)):
        core.see(each, topic="admin")
    assert 2 == core.state.tables["policy"]["policy"].spec["quota"]["delayEvictTime"]  # type: ignore[union-attr]


def test_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sequence of its record, then by its id; a snapshot in between changes no byte of a decision."""
    monkeypatch.setattr(ADMIN, 3)
    plain, restarted = Core(), Core()
    for batch in (("z", "y"), ("b",), ("a",), ("c", "d")):
        restarted.state = snapshot.decode(snapshot.encode(restarted.state))
        decisions = [core.see(*map(evict, batch), topic="admin") for core in (plain, restarted)]
        assert decisions[0].data == decisions[1].data
    assert ["a", "c", "d"] == ids(plain) == ids(restarted)
    invariants.check(plain.state)
    assert ["b"] == [answer.id for answer in plain.see(evict("b"), topic="admin").requests]
    assert ["b", "c", "d"] == ids(plain)


def test_more_than_the_bound_is_mended_at_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A State of a build that kept more."""
    core = Core()
    core.see(*map(evict, "abcdefgh"), topic="admin")
    monkeypatch.setattr(ADMIN, 3)
    core.see(node("n"), pod("p"))
    assert 9 == len(ids(core))
    core.see(evict("i"), topic="admin")
    assert ["g", "h", "i"] == ids(core)


def test_ten_thousand_are_remembered() -> None:
    """The bound itself: of 10,100 requests the first hundred are forgotten, and nothing grows."""
    core = Core()
    names = [f"{index:05}" for index in range(APPLIED_KEPT + 100)]
    for first in range(0, len(names), 100):
        core.see(*map(evict, names[first : first + 100]), topic="admin")
    assert 10_000 == APPLIED_KEPT == len(ids(core))
    assert names[100:] == ids(core)
    assert () == tuple(core.see(evict(names[100]), topic="admin").requests)

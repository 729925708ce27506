"""How long a pod or a gang waited, and for what, from the decisions alone."""

from state.waits import Waits
from tests.builders import Core, Json, ended, gone, member, node, pod, podgroup

SECOND_US = 1_000_000


def told(core: Core, **whom: str) -> Json:
    """The split of all decisions so far, up to now."""
    waits = Waits(**whom)
    for decision in core.decisions:
        waits.take(decision.data)
    return waits.split(core.journal.now_us)


def test_a_pod_waits_for_room_then_for_its_bind() -> None:
    """Three seconds without room, two until the bind was told; what comes after that is no waiting."""
    core = Core()
    core.see(node("n", 100), pod("b", node="n"))
    core.see(pod("a"))
    seen_us = core.journal.now_us
    core.see(gone("pods", "b"), advance_us=3 * SECOND_US)
    (bind,) = [c.id for d in core.decisions for c in d.commands if c.kind == "BindPod"]
    core.see(ended(bind), advance_us=2 * SECOND_US)
    core.see(advance_us=9 * SECOND_US)
    assert {
        "causes_us": {"Binding": 2 * SECOND_US, "InsufficientResources": 3 * SECOND_US},
        "since_us": seen_us,
        "total_us": 5 * SECOND_US,
    } == told(core, uid="uid-a")


def test_what_is_still_waited_for_counts_until_now() -> None:
    """No decision ends it."""
    core = Core()
    core.see(pod("a"))
    core.see(advance_us=4 * SECOND_US)
    assert {"InsufficientResources": 4 * SECOND_US} == told(core, uid="uid-a")["causes_us"]


def test_a_gang_waits_as_its_first_member_does() -> None:
    """Two seconds for members, then three for room; a member that left is not waited for any more."""
    core = Core()
    core.see(node("n", 150), podgroup("g", 2), member("g-0", "g"))
    core.see(member("g-1", "g"), advance_us=2 * SECOND_US)
    core.see(gone("pods", "g-0"), gone("pods", "g-1"), advance_us=3 * SECOND_US)
    core.see(advance_us=9 * SECOND_US)
    found = told(core, gang="default/g")
    assert {"InsufficientResources": 3 * SECOND_US, "WaitingForMembers": 2 * SECOND_US} == found[
        "causes_us"
    ]
    assert 5 * SECOND_US == found["total_us"]


def test_a_stranger_has_not_waited() -> None:
    """Nothing in the decisions is about it."""
    core = Core()
    core.see(pod("a"))
    assert {"causes_us": {}, "since_us": None, "total_us": 0} == told(core, gang="default/g")


def test_a_history_without_its_head_goes_on_from_state() -> None:
    """The pods of State where it begins wait from there on."""
    core = Core()
    core.see(pod("a"))
    waits, begun_us = Waits(uid="uid-a"), core.journal.now_us
    waits.begin(core.state.pods.values(), begun_us)
    for name in ("b", "c"):
        waits.take(core.see(pod(name), advance_us=SECOND_US).data)
    assert {"InsufficientResources": 2 * SECOND_US} == waits.split(core.journal.now_us)["causes_us"]
    assert begun_us == waits.split(core.journal.now_us)["since_us"]

"""Resets: etcd was restored, or a list is late; whose word counts, and what is doubted until somebody can tell."""

import pytest

from state import invariants
from state.model.decision import Answer
from state.model.limits import LIST_PATIENCE_US
from tests.builders import Core, cards, ended, gone, member, node, pod, podgroup
from tests.unit.state.test_sync import RESYNC, finished, listed, names, started, still


def test_after_a_history_reset_the_lists_objects_win() -> None:
    """Lower versions, lost binds and lost deletions are as the restored server says; then all goes on."""
    core = Core()
    core.see(node("n", 2_000))
    core.see(*listed("e", 100, pod("bound", 900, rv=90, node="n"), pod("lost", 9_000, rv=95)))
    core.see(gone("pods", "back", rv=101))
    restored = [pod("bound", 800, rv=40), pod("back", rv=45)]
    decision = core.see(*listed("reset", 50, *restored))
    assert ["back", "bound"] == names(core)
    assert (40, "") == (core.pod("bound").rv, core.pod("bound").node)
    assert 50 == core.state.syncs["pods"].list_rv
    assert RESYNC == decision.requests
    invariants.check(core.state)
    core.see(*listed("again", 60, *restored))
    assert {"bound": "n", "back": "n"} == core.binds()


def test_a_history_reset_leaves_open_binds_open() -> None:
    """What an open command holds stays held until its end."""
    core = Core()
    core.see(node("n", 1_000))
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(*listed("r", 50, pod("p", 900, rv=40)))
    assert ("n", command) == (core.pod("p").assumed, core.pod("p").command)
    core.see(ended(command), topic="results")
    assert "n" == core.pod("p").node


def test_a_pod_that_returns_with_an_open_command_waits_for_its_end() -> None:
    """A reset brings back a pod that was taken for gone: it gets no second command before the first one's end."""
    core = Core()
    core.see(node("n"))
    command = core.see(*listed("e", 100, pod("p", rv=90))).commands[0].id
    core.see(gone("pods", "p", rv=101))
    core.see(*listed("r", 50, pod("p", rv=40)))
    core.see(*listed("again", 60, pod("p", rv=40)))
    assert command == core.pod("p").command
    invariants.check(core.state)
    decision = core.see(ended(command, "Withdrawn"), topic="results")
    assert ["BindPod"] == [item.kind for item in decision.commands]


def test_a_pod_that_returns_holds_what_its_open_bind_may_still_take() -> None:
    """Room and cards are not given to another pod before the bind has ended."""
    core = Core()
    asks = {"requests": {"cpu": 900, "memory": 1, "nvidia.com/gpu": 1}}
    core.see(node("n", 1_000, gpus=1), topic="nodes")
    core.see(cards("n", 1), topic="devices")
    command = core.see(*listed("e", 100, pod("p", rv=90, spec=asks))).commands[0].id
    held = core.pod("p").allocations
    core.see(gone("pods", "p", rv=101))
    core.see(*listed("r", 50, pod("p", rv=40, spec=asks)))
    core.see(*listed("again", 60, pod("p", rv=40, spec=asks), pod("q", rv=41, spec=asks)))
    assert core.state.synced()
    assert ("n", held, {"p": "n"}) == (
        core.pod("p").assumed,
        core.pod("p").allocations,
        core.binds(),
    )
    invariants.check(core.state)
    core.see(ended(command), topic="results")
    assert ("n", held) == (core.pod("p").node, core.pod("p").allocations)


def test_what_a_belated_list_undid_the_next_one_puts_right() -> None:
    """An old list looks like a reset; the resync that it asks for brings everything back."""
    core = Core()
    core.see(started("new", 100), {**pod("a", rv=90), "epoch": "new"}, finished("new", 100))
    assert RESYNC == core.see(started("old", 50), finished("old", 50)).requests
    assert [] == names(core)
    core.see(started("next", 110), {**pod("a", rv=90), "epoch": "next"}, finished("next", 110))
    assert ["a"] == names(core)


@pytest.mark.parametrize("shown", [40, 90], ids=["an older version", "a fact less"])
def test_a_belated_list_that_takes_something_back_is_doubted_though_it_never_finishes(
    shown: int,
) -> None:
    """The later list has finished its objects before; what was taken back after that, no list has said anew."""
    core = Core()
    core.see(*listed("e", 100, pod("p", rv=90, phase="Running", node="n")))
    core.see(started("old", 95, whole=True), started("new", 110, whole=True, heard=5))
    core.see({**pod("p", rv=90, phase="Failed", node="n"), "epoch": "new"})
    belated = core.see({**pod("p", rv=shown, phase="Running", node="n"), "epoch": "old"})
    core.see(finished("new", 110))
    assert (RESYNC, "Running", False) == (
        belated.requests,
        core.pod("p").phase,
        core.state.synced(),
    )
    core.see(*listed("next", 111, pod("p", rv=90, phase="Failed", node="n")))
    assert ("Failed", True) == (core.pod("p").phase, core.state.synced())


def test_a_list_below_the_newest_object_is_a_reset() -> None:
    """Restored to a point above the last list: what came after that point never happened."""
    core = Core()
    core.see(node("n", 1_000))
    core.see(*listed("e", 100, pod("p", 900, rv=90)))
    core.see(pod("p", 900, rv=110, node="n"), pod("late", rv=112), gone("pods", "back", rv=114))
    decision = core.see(*listed("reset", 105, pod("p", 900, rv=90), pod("back", rv=95)))
    assert (["back", "p"], "", RESYNC) == (names(core), core.pod("p").node, decision.requests)
    core.see(*listed("again", 106, pod("p", 900, rv=90), pod("back", rv=95)))
    assert not core.state.syncs["pods"].doubted
    invariants.check(core.state)


def test_versions_that_were_bumped_do_not_hide_a_reset() -> None:
    """A list that shows an older version than it should have seen is of another history: the next whole one wins."""
    core = Core()
    core.see(node("n", 2_000))
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(pod("p", 900, rv=110, node="n"), ended(command))
    decision = core.see(*listed("bumped", 1_100, pod("p", 900, rv=90)))
    assert ("n", RESYNC, False) == (core.pod("p").node, decision.requests, core.state.synced())
    core.see(*listed("wins", 1_101, pod("p", 900, rv=90)))
    assert (90, "", False) == (core.pod("p").rv, core.pod("p").node, core.state.synced())
    core.see(pod("p", 900, rv=110, node="n"))
    assert "" == core.pod("p").node, "late news of the history that is gone"
    assert 1 == len(bind_ids(core)), "nothing is placed in doubt"
    core.see(*listed("confirms", 1_102, pod("p", 900, rv=90)))
    assert (2, True) == (len(bind_ids(core)), core.state.synced())


def bind_ids(core: Core) -> list[str]:
    """Ids of all binds so far."""
    commands = [command for decision in core.decisions for command in decision.commands]
    return [command.id for command in commands if command.kind == "BindPod"]


def test_a_version_that_two_objects_have_is_of_two_histories() -> None:
    """etcd was restored and gave versions a second time: a list that shows another node at ours counts."""
    core = Core()
    core.see(node("n", 1_000, rv=87, uid="before"), topic="nodes")
    after = {**node("n", 2_000, rv=87, uid="after"), "epoch": "e"}
    core.see(started("e", 124, "nodes"), after, finished("e", 124, "nodes"), topic="nodes")
    assert not core.state.synced()
    again = [
        started("w", 125, "nodes", whole=True),
        {**after, "epoch": "w"},
        finished("w", 125, "nodes"),
    ]
    core.see(*again, topic="nodes")
    assert "after" == core.state.nodes["n"].uid


@pytest.mark.parametrize("shown", ["whole", "still"])
def test_a_bind_that_only_a_result_told_may_have_been_undone(shown: str) -> None:
    """A list that began after the result and lacks the node contradicts it; one that began before does not."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    said = {"whole": {**pod("p", 900, rv=90), "epoch": "after"}, "still": still("after", "p", 90)}
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(started("before", 101, whole=True))
    core.see(ended(command), topic="results")
    core.see({**pod("p", 900, rv=90), "epoch": "before"}, finished("before", 101))
    assert ("n", True) == (core.pod("p").node, core.state.synced())
    core.see(started("after", 1_100), said[shown], finished("after", 1_100))
    assert ("n", False) == (core.pod("p").node, core.state.synced())
    core.see(*listed("wins", 1_101, pod("p", 900, rv=90)))
    assert "" == core.pod("p").node


def test_a_list_that_comes_late_contradicts_no_result() -> None:
    """Asked for before the bind was known, it lay in its topic while the result overtook it; it clears no doubt."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    told = core.see(ended(command), topic="results").sequence
    late = (
        started("late", 101, whole=True, heard=told - 1),
        {**pod("p", 900, rv=90), "epoch": "late"},
    )
    core.see(*late, finished("late", 101))
    assert ("n", True) == (core.pod("p").node, core.state.synced())
    doubted = core.see(*listed("reset", 50, pod("p", 900, rv=40))).sequence
    core.see(started("late2", 102, whole=True, heard=doubted - 1), still("late2", "p", 40))
    decision = core.see(finished("late2", 102))
    assert ((), False) == (
        decision.requests,
        core.state.synced(),
    )  # the reset has asked, and is yet to be heard
    core.see(
        started("e2", 103, whole=True, heard=doubted), still("e2", "p", 40), finished("e2", 103)
    )
    assert core.state.synced()


def doubting() -> tuple[Core, int]:
    """A core that doubts, for a list looked like a reset; and since which sequence."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    core.see(*listed("e", 100, pod("p", rv=90)))
    return core, core.see(*listed("reset", 50, pod("p", rv=40))).sequence


def test_a_list_that_can_settle_a_doubt_is_not_closed_by_one_that_cannot() -> None:
    """Two informers list at one version, and the one that has heard of the doubt began later and ends later. It was
    closed as the same again, and whoever was asked before was gone: nothing was placed any more.
    """
    core, doubted = doubting()
    core.see(started("behind", 101, cold=True, heard=doubted - 1))
    core.see(started("aware", 101, cold=True, heard=doubted))
    core.see(still("behind", "p", 40), finished("behind", 101))
    assert ["aware"] == list(core.state.lists)
    core.see(still("aware", "p", 40), finished("aware", 101))
    assert core.state.synced()


def test_a_doubt_that_nobody_settles_is_asked_after_again() -> None:
    """Whoever was asked for the list may have ended before it began one."""
    core, doubted = doubting()
    core.see(started("behind", 101, whole=True, heard=doubted - 1), still("behind", "p", 40))
    assert () == core.see(finished("behind", 101)).requests
    for _ in range(2):
        until_asked(core)
    assert not core.state.synced()
    core.see(*listed("next", 102, pod("p", rv=40)))
    assert core.state.synced()
    assert 0 == core.see().next_deadline_us


def until_asked(core: Core) -> None:
    """Time passes until the core asks for a list of pods."""
    wait_us = core.decisions[-1].next_deadline_us - core.state.timestamp_us
    assert LIST_PATIENCE_US - 1_000_000 < wait_us <= LIST_PATIENCE_US
    assert () == core.see(advance_us=wait_us - 1).requests
    assert RESYNC == core.see(advance_us=1).requests


@pytest.mark.parametrize("said", [{"cold": True}, {"whole": True}], ids=["cold", "asked for"])
def test_a_told_bind_that_a_restore_undid_before_a_list_that_had_not_heard_of_it_is_asked_after(
    said: dict[str, bool],
) -> None:
    """No watch will ever speak of the pod, and no other list may come: State would say for ever that it is bound."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    told = core.see(ended(command), topic="results").sequence
    restored = {**pod("p", 900, rv=90), "epoch": "r"}
    core.see(started("r", 1_100, heard=told - 1, **said), restored, finished("r", 1_100))
    assert "n" == core.pod("p").node
    until_asked(core)
    put_right(core)


def test_a_bind_that_is_told_after_the_list_that_lacks_it_is_asked_after() -> None:
    """The list is of a restored etcd, and what it lacks was told to us only after it had finished."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(*listed("r", 1_100, pod("p", 900, rv=90)))
    core.see(ended(command), topic="results")
    assert ("n", True) == (core.pod("p").node, core.state.synced())
    until_asked(core)
    put_right(core)


def test_a_bind_that_is_told_in_the_record_in_which_a_list_begins_is_asked_after() -> None:
    """The result stands before the list that lacks it, and the list may still be the older one."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(ended(command), started("r", 1_100, whole=True))
    core.see({**pod("p", 900, rv=90), "epoch": "r"}, finished("r", 1_100))
    assert ("n", True) == (core.pod("p").node, core.state.synced())
    until_asked(core)
    put_right(core)


def put_right(core: Core) -> None:
    """The list that was asked for contradicts the bind, the next one wins, the one after that settles it."""
    core.see(*listed("asked", 1_101, pod("p", 900, rv=90)))
    assert not core.state.synced()
    core.see(*listed("wins", 1_102, pod("p", 900, rv=90)))
    assert "" == core.pod("p").node
    core.see(*listed("settles", 1_103, pod("p", 900, rv=90)))
    assert (2, True) == (len(bind_ids(core)), core.state.synced())


def test_a_told_bind_that_is_seen_soon_is_not_asked_after() -> None:
    """A list was under way while the pod was bound, as ever so often: the watch shows it, and nobody lists again."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(*listed("late", 101, pod("p", 900, rv=90)))
    core.see(ended(command), topic="results")
    core.see(pod("p", 900, rv=102, node="n"))
    decision = core.see(advance_us=LIST_PATIENCE_US)
    assert ((), 0) == (decision.requests, decision.next_deadline_us)


def test_what_is_asked_after_is_asked_again_until_a_list_has_come() -> None:
    """The informer may be gone."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(*listed("r", 1_100, pod("p", 900, rv=90)))
    core.see(ended(command), topic="results")
    until_asked(core)
    until_asked(core)


@pytest.mark.parametrize(("whole", "asked"), [(False, RESYNC), (True, ())])
def test_a_list_that_may_be_older_than_a_result_is_followed_by_another(
    whole: bool, asked: tuple[Answer, ...]
) -> None:
    """Its informer was behind: nobody can tell whether the bind was undone. The list that was asked for is the last."""
    core = Core()
    core.see(node("n", 2_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    told = core.see(ended(command), topic="results").sequence
    core.see(started("behind", 1_100, whole=whole, heard=told - 1))
    decision = core.see(still("behind", "p", 90), finished("behind", 1_100))
    assert (asked, "n", True) == (decision.requests, core.pod("p").node, core.state.synced())


def test_a_result_from_before_a_reset_is_doubted() -> None:
    """What the sink did may have been undone: the lists that follow decide."""
    core = Core()
    core.see(node("n", 1_000), topic="nodes")
    command = core.see(*listed("e", 100, pod("p", 900, rv=90))).commands[0].id
    core.see(*listed("r", 50, pod("p", 900, rv=40)))
    core.see(*listed("confirms", 51, pod("p", 900, rv=40)))
    assert core.state.synced()
    decision = core.see(ended(command), topic="results")
    assert (RESYNC, False) == (decision.requests, core.state.synced())
    core.see(*listed("wins", 52, pod("p", 900, rv=40)))
    core.see(*listed("clears", 53, pod("p", 900, rv=40)))
    assert (2, True) == (len(bind_ids(core)), core.state.synced())


def test_late_news_of_what_a_list_has_said_changes_nothing() -> None:
    """A version up to that of the finished list is known from it."""
    core = Core()
    core.see(node("n"), topic="nodes")
    core.see(*listed("e", 1_100, pod("p", rv=90, spec={"scheduler_name": "other"})))
    core.see(pod("p", rv=110, node="n"))
    assert (90, "") == (core.pod("p").rv, core.pod("p").node)


def test_a_gang_whose_binds_were_undone_starts_anew() -> None:
    """No member is bound any more, so the minimum is placed whole or not at all."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(node("n"), topic="nodes")
    core.see(*listed("e", 100, member("a", "g", rv=90), member("b", "g", rv=91)))
    core.see(member("a", "g", rv=101, node="n"), member("b", "g", rv=102, node="n"))
    assert core.state.gangs["default/g"].satisfied
    core.see(*listed("r", 95, member("a", "g", rv=90), member("b", "g", rv=91)))
    assert not core.state.gangs["default/g"].satisfied


def test_a_gang_whose_only_bound_member_was_deleted_and_came_back_unbound_starts_anew() -> None:
    """Its bind and its deletion were undone; of a member that is deleted and stays so it remains satisfied."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(node("n"), topic="nodes")
    core.see(*listed("e", 100, member("a", "g", rv=90), member("b", "g", rv=91)))
    core.see(member("a", "g", rv=101, node="n"), gone("pods", "a", rv=110))
    assert core.state.gangs["default/g"].satisfied
    core.see(*listed("r", 1_100, member("a", "g", rv=90), member("b", "g", rv=91)))
    assert not core.state.gangs["default/g"].satisfied


def test_a_bind_that_a_restore_undid_keeps_its_room_while_it_is_open() -> None:
    """It was seen, its end was not told yet, and history was reset: it may be carried out again (seed 438)."""
    core = Core()
    core.see(node("n", 100), pod("a", rv=20))
    (command,) = [c.id for d in core.decisions for c in d.commands if c.kind == "BindPod"]
    core.see(pod("a", rv=30, node="n", phase="Running"))
    listing = {"resource": "pods", "epoch": "e"}
    core.see({**listing, "kind": "SyncStarted", "producer": "t", "cold": False, "list_rv": 25})
    core.see({**pod("a", rv=20), "epoch": "e"})
    assert ("", "n", command) == (core.pod("a").node, core.pod("a").assumed, core.pod("a").command)
    invariants.check(core.state)

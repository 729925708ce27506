"""How commands end: the first end counts, everything held is kept or freed exactly once, refusals back off."""

import pytest

from state import invariants
from tests.builders import Core, Json, ended, gone, node, pod

SECOND = 1_000_000


def bound_to(name: str, node_name: str | None, **fields: object) -> Json:
    """What the sink found when it read the pod."""
    return {"uid": f"uid-{name}", "rv": 9, "node": node_name, **fields}


def started(cpu: int = 900, **policy: object) -> tuple[Core, str]:
    """A core with one pod assumed on one node, and the id of its bind."""
    core = Core(**policy)
    decision = core.see(node("n", 1_000), pod("p", cpu))
    return core, decision.commands[0].id


def used(core: Core, name: str = "n") -> int:
    """milli-CPU used on the node."""
    return int(core.state.columns.used[0, core.state.nodes[name].ord])


def end(core: Core, *said: Json, **options: object) -> list[str]:
    """Folds results; the kinds of the commands that follow."""
    decision = core.see(*said, topic="results", **options)
    invariants.check(core.state)
    return [command.kind for command in decision.commands if command.kind != "PatchStatus"]


def test_a_commands_id_is_its_sequence_and_index() -> None:
    """So that deciding again gives the same id."""
    core = Core()
    decision = core.see(node("n"), pod("a"), pod("b"))
    sequence = core.state.sequence
    assert [f"{sequence}.0", f"{sequence}.1"] == [command.id for command in decision.commands]


def test_applied_binds() -> None:
    """The pod is bound, the room is held, the command is closed and reported as ended."""
    core, command = started()
    assert [] == end(core, ended(command))
    pod_row = core.pod("p")
    assert ("n", "", "", 900) == (pod_row.node, pod_row.assumed, pod_row.command, used(core))
    assert ((command,), {}) == (core.decisions[-1].ended, core.state.commands)


@pytest.mark.parametrize("update_first", [True, False])
def test_result_and_own_update_in_either_order_end_in_the_same_state(update_first: bool) -> None:
    """Whichever comes first binds; the other is no news."""
    core, command = started()
    said = [ended(command), pod("p", 900, rv=2, node="n", phase="Running")]
    for item in reversed(said) if update_first else said:
        core.see(item, topic="results")
        assert 900 == used(core)
    row = core.pod("p")
    assert ("n", "", "", "Running") == (row.node, row.assumed, row.command, row.phase)
    invariants.check(core.state)


def test_the_first_end_counts() -> None:
    """A refusal after Applied, and Applied after a refusal, are dropped."""
    core, command = started()
    end(core, ended(command), ended(command, "Refused", status=403))
    assert ("n", 900, (command,)) == (core.pod("p").node, used(core), core.decisions[-1].ended)
    core, command = started()
    end(core, ended(command, "Refused", status=403))
    end(core, ended(command))
    assert ("", 0, ()) == (core.pod("p").node, used(core), core.decisions[-1].ended)


def test_an_end_of_another_pods_command_is_none() -> None:
    """A log that lost its end gave the id to another pod before: what became of that says nothing here."""
    core, command = started()
    end(core, {**ended(command), "uid": "uid-other"})
    assert ("", "n", command) == (core.pod("p").node, core.pod("p").assumed, core.pod("p").command)
    end(core, {**ended(command), "uid": "uid-p"})
    assert ("n", (command,)) == (core.pod("p").node, core.decisions[-1].ended)


def test_an_unknown_command_changes_nothing() -> None:
    """An end of a command that was never given, or long ago."""
    core, _ = started()
    end(core, ended("999.0"))
    assert ["positions"] == [change.table for change in core.decisions[-1].changes]


@pytest.mark.parametrize("outcome", ["Refused", "Withdrawn"])
def test_an_end_without_bind_frees_exactly_once(outcome: str) -> None:
    """The room is free after the end, and not twice."""
    core, command = started()
    core.see(pod("other", 100, node="n"))
    end(core, ended(command, outcome, status=403), ended(command, outcome, status=403))
    assert used(core) in (100, 1_000)  # 1,000: a withdrawn pod is bound anew at once
    assert ("Refused" == outcome) == (100 == used(core))


def test_withdrawn_is_tried_again_at_once() -> None:
    """It was our own wish; nothing speaks against the pod."""
    core, command = started()
    assert ["BindPod"] == end(core, ended(command, "Withdrawn"))


def test_a_refusal_backs_off_and_gives_others_the_room() -> None:
    """The refused pod waits; the next in order takes its place."""
    core, command = started()
    core.see(pod("q", 900))
    assert ["BindPod"] == end(core, ended(command, "Refused", status=403, message="no"))
    assert ("BackingOff", {"p": "n", "q": "n"}) == (core.code("p"), core.binds())
    details = core.pod("p").diagnosis.details
    assert (1, 403) == (details["attempts"], details["status"])


def test_back_off_doubles_up_to_its_bound() -> None:
    """2, 4, 5, 5 seconds; each decision says when the next try is due, and nothing is tried before."""
    core, command = started(backoff={"initial": "2s", "max": "5s"})
    for seconds in (2, 4, 5, 5):
        end(core, ended(command, "Refused", status=422))
        due = core.journal.now_us + seconds * SECOND
        assert due == core.decisions[-1].next_deadline_us
        assert () == core.see(advance_us=seconds * SECOND - 1).commands
        decision = core.see(advance_us=1)
        assert ["BindPod"] == [item.kind for item in decision.commands]
        assert 0 == decision.next_deadline_us
        command = decision.commands[0].id


def test_a_bind_ends_the_back_off() -> None:
    """The next pod life begins with the first wait again."""
    core, command = started(backoff={"initial": "2s", "max": "60s"})
    end(core, ended(command, "Refused", status=403))
    command = core.see(advance_us=2 * SECOND).commands[0].id
    end(core, ended(command))
    assert (0, 0) == (core.pod("p").attempts, core.pod("p").backoff_us)


def test_back_off_holds_against_news_and_room() -> None:
    """Neither a new label nor a new node shortens the wait."""
    core, command = started()
    end(core, ended(command, "Refused", status=403))
    core.see(pod("p", 900, rv=2, labels={"x": "y"}), node("m", 4_000))
    assert {} == core.state.commands


def test_one_due_pod_of_two() -> None:
    """The next deadline is the earliest that is still to come."""
    core = Core(backoff={"initial": "10s", "max": "10s"})
    decision = core.see(node("n", 4_000), pod("a"), pod("b"))
    first, second = (command.id for command in decision.commands)
    end(core, ended(first, "Refused", status=403))
    due = core.decisions[-1].next_deadline_us
    end(core, ended(second, "Refused", status=403), advance_us=3 * SECOND)
    assert due == core.decisions[-1].next_deadline_us
    decision = core.see(advance_us=7 * SECOND)
    assert ["a"] == [command.name for command in decision.commands]
    assert due + 3 * SECOND == decision.next_deadline_us


def test_stale_with_nothing_found_means_that_the_pod_is_gone() -> None:
    """404: its room is free, and late news of it is dropped."""
    core, command = started()
    end(core, ended(command, "Stale", status=404))
    core.see(pod("p", 900, rv=2))
    assert ({}, 0) == (core.state.pods, used(core))


def test_stale_with_another_uid_found_means_that_the_pod_is_gone() -> None:
    """The name belongs to a successor."""
    core, command = started()
    end(core, ended(command, "Stale", found={**bound_to("p", None), "uid": "successor"}))
    assert {} == core.state.pods


def test_a_conflict_folds_what_was_found() -> None:
    """Bound by somebody else to another node: that is where it is."""
    core, command = started()
    core.see(node("m", 1_000))
    end(core, ended(command, "Stale", status=409, found=bound_to("p", "m")))
    assert ("m", 0, 900) == (core.pod("p").node, used(core, "n"), used(core, "m"))


def test_a_refusal_of_a_pod_that_is_bound_after_all_frees_nothing() -> None:
    """Reality wins: what was found, or its own update, says where it is."""
    core, command = started()
    end(core, ended(command, "Refused", status=403, found=bound_to("p", "n")))
    assert ("n", 900, 0) == (core.pod("p").node, used(core), core.pod("p").backoff_us)


def test_a_terminating_pod_that_was_found_is_not_tried_again() -> None:
    """The deletionTimestamp that the sink read is a fact."""
    core, command = started()
    assert [] == end(core, ended(command, "Stale", found=bound_to("p", None, deleted_us=5)))
    assert (0, 5) == (used(core), core.pod("p").deleted_us)


def test_a_pod_that_is_gone_frees_its_room_before_its_command_ends() -> None:
    """The command stays open until its end, which then concerns nobody."""
    core, command = started()
    core.see(gone("pods", "p"))
    assert (0, [command]) == (used(core), list(core.state.commands))
    end(core, ended(command))
    assert ({}, (command,), 0) == (core.state.commands, core.decisions[-1].ended, used(core))


def test_a_late_bind_after_a_refusal_is_folded_over_capacity() -> None:
    """A lost sink bound it after all, while another pod has its room."""
    core, command = started()
    core.see(pod("q", 900))
    end(core, ended(command, "Refused", status=403))
    core.see(pod("p", 900, rv=2, node="n"))
    invariants.check(core.state)
    assert ("n", 1_800) == (core.pod("p").node, used(core))

"""Folding what was seen: higher versions win, facts only appear, uids tell successors, any order of kinds will do."""

from typing import Any

import pytest

from state import invariants
from state.model.limits import LABEL_SETS_A_POD
from tests.builders import (
    GIB,
    START_US,
    Core,
    Json,
    cards,
    ended,
    gone,
    member,
    node,
    pod,
    podgroup,
)

CORE = "koordinator.sh/gpu-core"


def held(*minors: int) -> tuple[Json, ...]:
    """Whole cards, as a bound pod's annotation says."""
    amounts = {
        CORE: 100,
        "koordinator.sh/gpu-memory": 80 * GIB,
        "koordinator.sh/gpu-memory-ratio": 100,
    }
    return tuple({"type": "gpu", "minor": minor, "resources": amounts} for minor in minors)


def used(core: Core, name: str, resource: str = "cpu") -> int:
    """What the columns say is used on the node."""
    columns = core.state.columns
    return int(columns.used[columns.axes[resource], core.state.nodes[name].ord])


def card_pod(name: str, count: int, **fields: Any) -> Json:
    """A pod that asks for whole GPUs by the kubelet's name."""
    requests = {"cpu": 100, "memory": GIB, "nvidia.com/gpu": count}
    return pod(name, spec={"requests": requests}, **fields)


def minors(core: Core, name: str) -> list[int]:
    """The cards that the pod holds."""
    return [card.minor for card in core.pod(name).allocations]


@pytest.mark.parametrize(
    ("fact", "value", "row"),
    [
        ("node", "n", "n"),
        ("deleted_us", START_US, START_US),
        ("started_us", START_US, START_US),
        ("phase", "Failed", "Failed"),
        ("phase", "Succeeded", "Succeeded"),
    ],
)
def test_facts_only_appear(fact: str, value: Any, row: Any) -> None:
    """News without a fact takes it not back, be it older, equal or newer; older news may bring it."""
    for versions in ((5, 4), (5, 5), (5, 6)):
        core = Core()
        core.see(pod("p", rv=versions[0], **{fact: value}))
        core.see(pod("p", rv=versions[1]))
        assert row == getattr(core.pod("p"), fact), versions
    core = Core()
    core.see(pod("p", rv=5))
    core.see(pod("p", rv=4, **{fact: value}))
    assert row == getattr(core.pod("p"), fact)


def test_allocations_are_a_fact() -> None:
    """A newer observation without the annotation leaves the cards with the pod."""
    core = Core()
    core.see(node("n", gpus=4), cards("n", 4), card_pod("p", 2, node="n", allocations=held(1, 2)))
    core.see(card_pod("p", 2, rv=2, node="n"))
    assert [1, 2] == minors(core, "p")


def test_older_news_changes_nothing_else() -> None:
    """Labels of an older version are not taken, those of a newer one are."""
    core = Core()
    core.see(pod("p", rv=5, labels={"x": "new"}))
    core.see(pod("p", rv=4, labels={"x": "old"}))
    assert b'{"x":"new"}' == bytes(core.pod("p").labels)
    core.see(pod("p", rv=6, labels={"x": "newest"}))
    assert b'{"x":"newest"}' == bytes(core.pod("p").labels)


def test_an_equal_version_changes_no_row() -> None:
    """The same news once more leaves positions as the only change."""
    core = Core()
    core.see(node("n"), pod("p", cpu=9_000), cards("n", 2))
    decision = core.see(node("n"), pod("p", cpu=9_000), cards("n", 2))
    assert ["positions"] == [change.table for change in decision.changes]
    assert () == decision.commands


def test_a_uid_that_is_gone_stays_gone() -> None:
    """Late news of a deleted pod, node or device is dropped, also when the deletion came first."""
    core = Core()
    core.see(gone("pods", "p"), gone("nodes", "n"))
    core.see(node("n", rv=7), pod("p", rv=7), topic="nodes")
    assert ({}, {}) == (core.state.pods, core.state.nodes)


def test_a_successor_under_the_same_name_is_another_object() -> None:
    """The deletion of the old uid, before or after the new one's arrival, leaves the new one."""
    for late in (False, True):
        core = Core()
        core.see(pod("p"), node("n"))
        news = [gone("pods", "p", rv=5), pod("p", rv=6, uid="new")]
        core.see(*(reversed(news) if late else news))
        assert "new" == core.pod("p").uid
        assert "uid-p" not in core.state.pods


def test_pods_on_an_unknown_node_are_counted_when_it_joins() -> None:
    """A bound pod before its node takes its room from the start."""
    core = Core()
    core.see(pod("bound", 3_000, node="n", spec={"scheduler_name": "other"}))
    core.see(node("n", 4_000), pod("p", 2_000))
    assert {} == core.binds()
    assert 3_000 == used(core, "n")


def test_a_node_returns_under_another_uid_with_its_pods() -> None:
    """Its pods hold their room there; the old uid's deletion, late, changes nothing."""
    core = Core()
    core.see(node("n", 4_000), pod("bound", 3_000, node="n"))
    core.see(gone("nodes", "n", rv=5))
    assert {} == core.state.nodes
    core.see(node("n", 4_000, rv=6, uid="second"), pod("p", 2_000))
    core.see(gone("nodes", "n", rv=5))
    assert ({}, 3_000) == (core.binds(), used(core, "n"))
    invariants.check(core.state)


def test_a_freed_ordinal_is_given_to_the_next_node() -> None:
    """The lowest free ordinal is taken, so that columns stay dense."""
    core = Core()
    core.see(*(node(name) for name in "abc"))
    core.see(gone("nodes", "a"), gone("nodes", "b"))
    core.see(node("d", rv=200), node("e", rv=201), node("f", rv=202))
    assert {"c": 2, "d": 0, "e": 1, "f": 3} == {
        name: row.ord for name, row in core.state.nodes.items()
    }


def test_a_node_that_shrinks_keeps_its_pods_and_gets_no_more() -> None:
    """Reality wins: used is above allocatable, and shown."""
    core = Core()
    core.see(node("n", 4_000), pod("bound", 3_000, node="n"))
    core.see(node("n", 1_000, rv=2), pod("p", 100))
    assert ({}, 3_000) == (core.binds(), used(core, "n"))


def test_a_pod_bound_by_somebody_else_is_folded_as_it_is() -> None:
    """Over capacity if need be."""
    core = Core()
    core.see(node("n", 1_000), pod("p", 900))
    core.see(pod("foreign", 900, node="n", spec={"scheduler_name": "other"}))
    assert 1_800 == used(core, "n")
    invariants.check(core.state)


def test_a_finished_pod_holds_nothing() -> None:
    """Succeeded frees the room at once, and wakes who waits for it."""
    core = Core()
    core.see(node("n", 1_000), pod("done", 900, node="n"), pod("p", 900))
    assert {} == core.binds()
    core.see(pod("done", 900, rv=2, node="n", phase="Succeeded"))
    assert {"p": "n"} == core.binds()


def test_a_terminating_pod_holds_its_room_and_is_not_placed() -> None:
    """A deletionTimestamp frees nothing; a pod that waits is not bound any more."""
    core = Core()
    core.see(
        node("n", 1_000),
        pod("leaving", 900, node="n", deleted_us=START_US),
        pod("dying", 10, deleted_us=START_US),
        pod("p", 900),
    )
    assert ({}, 900) == (core.binds(), used(core, "n"))


def test_a_resize_in_place_changes_what_the_pod_holds() -> None:
    """A smaller request gives room to who waits for it."""
    core = Core()
    core.see(node("n", 1_000), pod("big", 900, node="n"), pod("p", 500))
    core.see(pod("big", 400, rv=2, node="n"))
    assert ({"p": "n"}, 900) == (core.binds(), used(core, "n"))


def test_the_pods_own_update_that_it_is_bound_ends_the_assumption() -> None:
    """The room is held once, before, between and after update and result."""
    core = Core()
    decision = core.see(node("n"), pod("p", 900))
    core.see(pod("p", 900, rv=2, node="n"))
    assert ("n", "", 900) == (core.pod("p").node, core.pod("p").assumed, used(core, "n"))
    core.see(ended(decision.commands[0].id), topic="results")
    assert ("n", "", 900) == (core.pod("p").node, core.pod("p").command, used(core, "n"))


def test_a_pod_bound_elsewhere_than_assumed_moves_its_room() -> None:
    """What was assumed on one node is free there once the API server names another."""
    core = Core()
    core.see(node("a", 1_000), pod("p", 900))
    core.see(node("b", 1_000), pod("p", 900, rv=2, node="b"))
    assert (0, 900) == (used(core, "a"), used(core, "b"))


def test_a_cordoned_or_tainted_node_is_passed_over_until_it_is_not() -> None:
    """Each change is looked at anew."""
    core = Core()
    core.see(node("n", unschedulable=True), pod("p"))
    assert "Tainted" == core.code("p")
    core.see(node("n", rv=2, taints=({"key": "k", "effect": "NoSchedule"},)))
    assert {} == core.binds()
    core.see(node("n", rv=3))
    assert {"p": "n"} == core.binds()


def test_gpus_without_a_device_report_are_counted_plainly() -> None:
    """Two GPUs in allocatable, two pods of one each; the third waits; nobody gets a minor."""
    core = Core()
    core.see(node("n", gpus=2), *(card_pod(f"p{index}", 1) for index in range(3)))
    assert ({"p0", "p1"}, "InsufficientResources") == (set(core.binds()), core.code("p2"))
    assert [] == minors(core, "p0")


def test_cards_that_a_pod_holds_take_nothing_from_a_node_without_report() -> None:
    """A bound pod's allocation before the Device object: the kubelet's count limits, then the report does."""
    core = Core()
    core.see(node("n", gpus=4), card_pod("bound", 2, node="n", allocations=held(0, 1)))
    invariants.check(core.state)
    core.see(card_pod("p", 1))
    assert {"p": "n"} == core.binds()


def test_cards_held_before_the_report_are_not_given_again() -> None:
    """Two cards bound, then the Device object, then a pod asks for one of two more (semantics 7-D8)."""
    core = Core()
    core.see(node("n", gpus=4), card_pod("bound", 2, node="n", allocations=held(0, 1)))
    core.see(cards("n", 4), topic="devices")
    core.see(card_pod("p", 2), card_pod("q", 1))
    assert ([2, 3], "InsufficientResources") == (minors(core, "p"), core.code("q"))


def test_an_unhealthy_card_and_a_busy_one_leave_none() -> None:
    """Two cards, one unhealthy, one busy: the node is filtered out (semantics 7-D2)."""
    core = Core()
    core.see(
        node("n", gpus=2),
        cards("n", 2, unhealthy=(0,)),
        card_pod("busy", 1, node="n", allocations=held(1)),
        card_pod("p", 1),
    )
    assert ({}, "NoDevice") == (core.binds(), core.code("p"))
    core.see(cards("n", 2, rv=2), topic="devices")
    assert [0] == minors(core, "p")


def test_the_agents_report_wins_over_the_object() -> None:
    """Whatever the Device object says, before or after, the agent's cards count; a new boot starts its count anew."""
    core = Core()
    agent = {**cards("n", 1), "source": "agent", "uid": "agent/n", "boot_id": "b1", "rv": 9}
    core.see(node("n", gpus=4), cards("n", 4, rv=50), agent, topic="devices")
    core.see(cards("n", 4, rv=60), topic="devices")
    core.see(card_pod("p", 2))
    assert "NoDevice" == core.code("p")
    core.see({**agent, "devices": cards("n", 2)["devices"], "rv": 1}, topic="devices")
    assert "NoDevice" == core.code("p")
    core.see(
        {**agent, "boot_id": "b2", "devices": cards("n", 2)["devices"], "rv": 1}, topic="devices"
    )
    assert [0, 1] == minors(core, "p")


def test_the_end_of_the_device_object_leaves_the_agents_report() -> None:
    """They are two rows with two uids."""
    core = Core()
    agent = {**cards("n", 1), "source": "agent", "uid": "agent/n", "boot_id": "b"}
    core.see(node("n", gpus=4), cards("n", 4), agent, topic="devices")
    core.see(gone("devices.scheduling.koordinator.sh", "device-n"), topic="devices")
    assert ["n/agent"] == sorted(core.state.tables["devices"])


def test_a_share_of_percent_needs_a_device_report() -> None:
    """`koordinator.sh/gpu` exists only as devices: a node without report has none."""
    core = Core()
    spec = {"requests": {"koordinator.sh/gpu": 200, "memory": GIB}}
    core.see(node("n", gpus=8), pod("p", spec=spec))
    assert ({}, "NoDevice") == (core.binds(), core.code("p"))
    core.see(cards("n", 4), topic="devices")
    assert [0, 1] == minors(core, "p")


@pytest.mark.parametrize(
    ("requests", "count", "code"),
    [
        ({"koordinator.sh/gpu": 150}, 0, "InvalidRequest"),
        ({CORE: 50}, 0, "InvalidRequest"),
        ({CORE: 150, "koordinator.sh/gpu-memory-ratio": 150}, 0, "InvalidRequest"),
        ({CORE: 200, "koordinator.sh/gpu-memory-ratio": 200}, 2, None),
        ({"koordinator.sh/gpu-memory-ratio": 150}, 0, "InvalidRequest"),
        ({"koordinator.sh/gpu-memory-ratio": 100}, 1, None),
        (
            {"koordinator.sh/gpu-memory": 8 * GIB, "koordinator.sh/gpu-memory-ratio": 50},
            0,
            "InvalidRequest",
        ),
        ({"nvidia.com/gpu": 1, "koordinator.sh/gpu": 100}, 0, "InvalidRequest"),
        ({"koordinator.sh/gpu.shared": 1}, 0, "InvalidRequest"),
        (
            {"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-memory-ratio": 101},
            0,
            "InvalidRequest",
        ),
        (
            {"koordinator.sh/gpu.shared": 1, "koordinator.sh/gpu-memory-ratio": 200},
            0,
            "InvalidRequest",
        ),
        (
            {"koordinator.sh/gpu.shared": 2, CORE: 200, "koordinator.sh/gpu-memory-ratio": 200},
            2,
            None,
        ),
        (
            {"koordinator.sh/gpu.shared": 2, CORE: 300, "koordinator.sh/gpu-memory-ratio": 200},
            0,
            "InvalidRequest",
        ),
        ({"koordinator.sh/gpu": 50}, 0, "UnsupportedConstraint"),
        ({"koordinator.sh/gpu-memory": 8 * GIB}, 0, "UnsupportedConstraint"),
        ({"koordinator.sh/fpga": 201}, 0, "InvalidRequest"),
    ],
)
def test_sets_of_device_resources(requests: dict[str, int], count: int, code: str | None) -> None:
    """The table of semantics 3.2, as far as whole cards are decided now."""
    core = Core()
    core.see(node("n", gpus=8), cards("n", 8), pod("p", spec={"requests": requests}))
    assert (count, code) == (len(minors(core, "p")), core.code("p"))


def test_amounts_beyond_reason_stop_nobody() -> None:
    """A request near 2^63 is invalid, bound ones are counted up to a bound, and sums don't overflow."""
    core = Core()
    most = (1 << 63) - 1
    core.see(node("n", most), pod("absurd", most), pod("p", 100))
    assert ("InvalidRequest", {"p": "n"}) == (core.code("absurd"), core.binds())
    core.see(*(pod(f"b{index}", most, node="n") for index in range(50)))
    assert 50 * (1 << 50) + 100 == used(core, "n")
    invariants.check(core.state)
    core.see(pod("q", 100))
    assert "n" == core.binds()["q"]


def test_the_kubelets_pod_count_limits() -> None:
    """Two pods a node, the third waits for the place of one."""
    core = Core()
    core.see(
        node("n", allocatable={"cpu": 4_000, "memory": 64 * GIB, "pods": 2}),
        *(pod(f"p{index}") for index in range(3)),
    )
    assert (2, "InsufficientResources") == (len(core.binds()), core.code("p2"))
    core.see(gone("pods", "p0"))
    assert "n" == core.binds()["p2"]


def test_a_gate_that_is_lifted_lets_the_pod_go() -> None:
    """Gated pods wait with the names of their gates."""
    core = Core()
    core.see(node("n"), pod("p", gates=("a", "b")))
    assert ("Gated", "scheduling gates: a, b") == (
        core.code("p"),
        core.pod("p").diagnosis.message,
    )
    core.see(pod("p", rv=2))
    assert {"p": "n"} == core.binds()


def test_what_this_version_does_not_decide_is_held() -> None:
    """An unsupported constraint is never ignored."""
    core = Core()
    core.see(node("n"), pod("p", spec={"unsupported": ("topologySpreadConstraints",)}))
    assert ({}, "UnsupportedConstraint") == (core.binds(), core.code("p"))


def test_news_of_an_unknown_resource_is_ignored() -> None:
    """A deletion of a kind that the core does not hold changes nothing."""
    core = Core()
    decision = core.see(gone("widgets.example.com", "w"))
    assert ["positions"] == [change.table for change in decision.changes]


def test_a_pod_waits_under_its_own_diagnosis_though_a_namesake_waits_too() -> None:
    """Each uid's condition is written once."""
    core = Core()
    decision = core.see(pod("p", 100), pod("p", 100, uid="other", rv=3))
    patched = [command.uid for command in decision.commands if command.kind == "PatchStatus"]
    assert ["other", "uid-p"] == sorted(patched)


def test_a_uid_keeps_its_name() -> None:
    """News that gives a pod or a PodGroup of a known uid another name or namespace is dropped whole."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(member("p", "g"))
    core.see(member("p", "g", rv=5, namespace="other"))
    core.see(podgroup("h", 3, rv=5, uid="uid-group-g"), topic="podgroups")
    invariants.check(core.state)
    assert ("default", 1) == (core.pod("p").namespace, core.pod("p").rv)
    assert [2] == [gang.min_member for gang in core.state.gangs.values()]


def test_what_was_said_of_pods_that_are_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that no two pods share (a Job's) are kept for pods that are there, not for every pod ever seen."""
    monkeypatch.setattr("state.model.state.LABEL_SETS_MIN", 8)
    core = Core()
    for number in range(100):
        core.see(pod(f"p{number}", labels={"job": f"j{number}"}, rv=10 + 2 * number))
        core.see(gone("pods", f"p{number}", rv=11 + 2 * number))
    assert max(len(core.state.interned), len(core.state.memberships)) <= 8 + LABEL_SETS_A_POD

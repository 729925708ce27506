"""Explain: each kind of answer with the right values, and State as it was before."""

import random
from pathlib import Path

import pytest

from state import snapshot
from state.explain import explain_gang, explain_pod, newest_named
from state.model.state import State
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
from tests.unit.state.test_gang_holds import _mutual
from tests.unit.state.test_gangs import crew, grouped
from tests.unit.state.test_head import MINUTE_US, busy, later, small
from tests.walk import Walk

MODE = "gang.scheduling.koordinator.sh/mode"
SECOND_US = 1_000_000


def about_gang(core: Core, name: str) -> Json:
    """The answer, and that State is as it was."""
    before = snapshot.encode(core.state)
    answer = explain_gang(core.state, f"default/{name}")
    assert before == snapshot.encode(core.state)
    return answer


def about_pod(core: Core, name: str) -> Json:
    """The answer about the pod of that name in namespace default."""
    before = snapshot.encode(core.state)
    uid = newest_named(core.state, "default", name)
    assert uid is not None
    answer = explain_pod(core.state, uid)
    assert before == snapshot.encode(core.state)
    return answer


def counts(answer: Json) -> tuple[int, ...]:
    """Seen, ready, still needed, placeable, missing of the first gang."""
    gang = answer["gangs"][0]
    return tuple(gang[name] for name in ("seen", "ready", "needed", "placeable", "missing"))


def freed(answer: Json) -> dict[str, dict[str, int]]:
    """Node -> what must come free there."""
    return {each["node"]: each["resources"] for each in answer["to_free"]["nodes"]}


def test_a_gang_that_lacks_room_is_told_who_fails_where() -> None:
    """Three of four are placeable; the fourth lacks 50 on one node and 90 on another, and nothing on a tainted one."""
    core = Core()
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    core.see(node("m", 210), node("n", 150), node("t", 8_000, taints=taints))
    core.see(podgroup("g", 4), *crew("g", 4))
    answer = about_gang(core, "g")
    assert ("Waits", "InsufficientResources") == (answer["verdict"], answer["diagnosis"]["code"])
    assert (4, 4, 4, 3, 0) == counts(answer)
    (lacking,) = answer["lacking"]
    assert (["default/g-3"], {"InsufficientResources": 2, "Tainted": 1}) == (
        lacking["pods"],
        lacking["nodes"],
    )
    assert [
        ("n", {"cpu": {"have": 50, "missing": 50, "want": 100}}),
        ("m", {"cpu": {"have": 10, "missing": 90, "want": 100}}),
    ] == [(each["node"], each["resources"]) for each in lacking["closest"]]
    assert {"n": {"cpu": 50}} == freed(answer)


def test_members_that_are_not_there_are_missing() -> None:
    """Two of four are seen and one of them is gated: three are missing, one is placeable, nothing need come free."""
    core = Core()
    core.see(node("n"), podgroup("g", 4), member("g-0", "g"), member("g-1", "g", gates=["wait"]))
    answer = about_gang(core, "g")
    assert (2, 1, 4, 1, 3) == counts(answer)
    assert ({"Gated": ["default/g-1"]}, "WaitingForMembers") == (
        answer["gangs"][0]["not_ready"],
        answer["gangs"][0]["refused"]["code"],
    )
    assert ([], None, None) == (answer["lacking"], answer["to_free"], answer["preemption"])


def test_a_gang_that_nothing_declares() -> None:
    """Members name a PodGroup that does not exist."""
    core = Core()
    core.see(node("n"), *crew("g", 2))
    gang = about_gang(core, "g")["gangs"][0]
    assert (False, 2, "WaitingForGroup") == (
        gang["declared"],
        gang["seen"],
        gang["refused"]["code"],
    )


def test_a_partner_is_explained_too() -> None:
    """`a` fits and waits for `b`, which doesn't: the answer about `a` has both, and who of `b` fails."""
    core = Core()
    core.see(node("n", 300))
    core.see(grouped("a", 2, "a", "b"), grouped("b", 2, "a", "b"), *crew("a", 2), *crew("b", 2))
    answer = about_gang(core, "a")
    assert [("default/a", 2, 2), ("default/b", 2, 1)] == [
        (gang["gang"], gang["needed"], gang["placeable"]) for gang in answer["gangs"]
    ]
    assert [("default/b", ["default/b-1"])] == [
        (each["gang"], each["pods"]) for each in answer["lacking"]
    ]
    assert ["default/a", "default/b"] == answer["queue"]["names"]


def test_a_gang_that_has_what_it_needs() -> None:
    """Placed, with nothing to say about room; its surplus member is named as one that fits nowhere."""
    core = Core()
    core.see(node("n", 200), podgroup("g", 2), *crew("g", 2))
    answer = about_gang(core, "g")
    assert ("Placed", [], None) == (answer["verdict"], answer["lacking"], answer["queue"])
    core.see(member("g-2", "g"))
    core.see(*(ended(c.id) for d in core.decisions for c in d.commands if c.kind == "BindPod"))
    answer = about_gang(core, "g")
    assert ("Placed", ["default/g-2"]) == (answer["verdict"], answer["lacking"][0]["pods"])
    assert {"n": {"cpu": 100}} == freed(answer)


def test_a_pod_that_was_placed_and_one_that_has_finished() -> None:
    """Where it is, and that nothing is asked any more."""
    core = Core()
    core.see(node("n"), pod("a"), pod("b", phase="Succeeded", node="n"))
    answer = about_pod(core, "a")
    assert ("Placed", "n", None) == (
        answer["verdict"],
        answer["pod"]["assumed_node"],
        answer["queue"],
    )
    assert "Finished" == about_pod(core, "b")["verdict"]


def test_a_pod_of_another_scheduler() -> None:
    """It is left alone, and the answer says so."""
    core = Core()
    core.see(node("n"), pod("a", spec={"scheduler_name": "other"}))
    assert "NotOurs" == about_pod(core, "a")["verdict"]


def test_a_member_that_would_fit_alone() -> None:
    """It would have a node by itself; its gang hasn't, and is explained."""
    core = Core()
    core.see(node("n", 150), podgroup("g", 2), *crew("g", 2))
    answer = about_pod(core, "g-1")
    assert ("Waits", "n") == (answer["verdict"], answer["pod"]["alone"]["node"])
    assert (2, 2, 2, 1, 0) == counts(answer)


def test_a_selector_that_no_node_matches() -> None:
    """Every label that is not matched is named, and no room would help."""
    core = Core()
    core.see(node("n", labels={"zone": "b"}), node("m", labels={"zone": "b", "disk": "ssd"}))
    core.see(pod("a", spec={"node_selector": {"disk": "ssd", "zone": "a"}}))
    answer = about_pod(core, "a")
    assert [("n", ["disk=ssd", "zone=a"]), ("m", ["zone=a"])] == [
        (each["node"], each["unmatched"]) for each in answer["lacking"][0]["closest"]
    ]
    assert {"never": 1, "nodes": []} == answer["to_free"]


def test_a_node_that_is_too_small_comes_after_those_that_could_come_free() -> None:
    """An empty node of 4,000 lacks less than a full one of 8,000, and is no use to a pod of 5,000."""
    core = Core()
    core.see(node("small", 4_000), node("large", 8_000), pod("b", 8_000))
    core.see(pod("a", 5_000))
    answer = about_pod(core, "a")
    assert [("large", False, 5_000), ("small", True, 1_000)] == [
        (each["node"], each["small"], each["resources"]["cpu"]["missing"])
        for each in answer["lacking"][0]["closest"]
    ]
    assert {"large": {"cpu": 5_000}} == freed(answer)


def test_whole_gpus_that_are_missing() -> None:
    """Four cards are wanted where two of four are free: two must come free."""
    core = Core()
    wants = {"requests": {"cpu": 100, "memory": GIB, "koordinator.sh/gpu": 400}}
    holds = {"requests": {"cpu": 100, "memory": GIB, "koordinator.sh/gpu": 200}}
    core.see(node("n"), cards("n", 4), pod("b", spec=holds))
    core.see(node("plain"), pod("a", spec=wants))
    answer = about_pod(core, "a")
    near = answer["lacking"][0]["closest"][0]
    assert ("n", "NoDevice", {"have": 2, "missing": 2, "want": 4}) == (
        near["node"],
        near["code"],
        near["cards"],
    )
    assert [("n", 2, {}, ["default/a"])] == [
        (each["node"], each["cards"], each["resources"], each["pods"])
        for each in answer["to_free"]["nodes"]
    ]


def test_evictions_that_would_make_room_are_named_though_policy_has_them_off() -> None:
    """The less important pod holds what the gang needs; with the switch on it is on its way out."""
    core = Core(preemption={"pods": False})
    core.see(node("n", 250), pod("low", 200, spec={"priority": -5}))
    core.see(podgroup("g", 2), *crew("g", 2))
    answer = about_gang(core, "g")
    assert {"n": {"cpu": 150}} == freed(answer)
    plan = answer["preemption"]
    assert (False, True, [{"node": "n", "pod": "default/low", "priority": -5}]) == (
        plan["allowed"],
        plan["helps"],
        plan["victims"],
    )


def test_who_would_leave_with_a_victim_is_named_too() -> None:
    """Its gang leaves as a whole, also from a node that nobody needs."""
    core = Core(preemption={"pods": False}, gangs={"kubernetesWorkloads": True})
    whole = {"group": "scheduling.k8s.io", "disruption": "all"}
    core.see(podgroup("w", 1, **whole), node("n", 200), node("m", 100), topic="podgroups")
    for name, where, cpu in (("a", "n", 200), ("b", "m", 100)):
        spec = {"priority": -5}
        core.see(pod(name, cpu, node=where, scheduling_group="w", spec=spec))
    core.see(podgroup("g", 1), *crew("g", 1, 200))
    plan = about_gang(core, "g")["preemption"]
    assert ["default/a", "default/b"] == [each["pod"] for each in plan["victims"]]


@pytest.mark.parametrize(
    ("low", "high", "why"),
    [
        ({"priority": 0}, {"priority": 0}, "no pod of a lower priority has a node"),
        (
            {"priority": -5},
            {"priority": 0, "preemption_policy": "Never"},
            "its preemptionPolicy is Never",
        ),
        (
            {"priority": -5},
            {"priority": 0, "requests": {"cpu": 900, "memory": GIB}},
            "the less important pods that may be evicted do not hold enough",
        ),
    ],
)
def test_why_evictions_would_not_help(low: Json, high: Json, why: str) -> None:
    """Nobody is less important, the pod never preempts, or all of them together hold too little."""
    core = Core(preemption={"pods": False})
    core.see(node("n", 1_000), pod("fixed", 200, node="n", spec={"priority": 9}))
    core.see(pod("low", 750, spec=low))
    core.see(pod("high", 200, spec=high))
    plan = about_pod(core, "high")["preemption"]
    assert (False, why, []) == (plan["helps"], plan["message"], plan["victims"])


def test_a_nomination_and_who_must_leave() -> None:
    """Room on n is kept for the pod until a time; the victim is still there."""
    core = Core(preemption={"pods": True})
    core.see(node("n", 250), pod("low", 200, spec={"priority": -5}))
    (bind,) = [c.id for d in core.decisions for c in d.commands if c.kind == "BindPod"]
    core.see(ended(bind))
    core.see(pod("high", 200, spec={"priority": 5}))
    answer = about_pod(core, "high")
    (kept,) = answer["nominations"]
    assert ("default/high", "n", ["default/low"]) == (kept["pod"], kept["node"], kept["leaving"])
    assert core.journal.now_us + 300 * SECOND_US == kept["until_us"]
    assert ({"n": {"cpu": 150}}, None) == (freed(answer), answer["preemption"])


def test_who_is_ahead() -> None:
    """By priority, sub-priority, arrival: three are tried before the pod, in that order, one is not."""
    core = Core()
    core.see(node("n", 50))
    label = {"koordinator.sh/priority": "7"}
    core.see(
        pod("mine", created_us=START_US + 5),
        pod("later", created_us=START_US + 6),
        pod("older", created_us=START_US + 4),
        pod("favoured", created_us=START_US + 9, labels=label),
        podgroup("g", 1, created_us=START_US + 9),
        member("g-0", "g", spec={"priority": 3}),
    )
    queue = about_pod(core, "mine")["queue"]
    assert (3, 0, 0, START_US + 5) == (
        queue["ahead"],
        queue["priority"],
        queue["sub_priority"],
        queue["created_us"],
    )
    assert [
        ("gang", ["default/g"], 3, 0),
        ("pod", ["default/favoured"], 0, 7),
        ("pod", ["default/older"], 0, 0),
    ] == [
        (unit["kind"], unit["names"], unit["priority"], unit["sub_priority"])
        for unit in queue["first"]
    ]


def test_what_a_nonstrict_gang_holds_and_until_when() -> None:
    """Two of three hold room until the wait time is over."""
    core = Core()
    loose = podgroup("g", 3, annotations={MODE: "NonStrict"}, schedule_timeout_us=60 * SECOND_US)
    core.see(node("n", 250), loose, *crew("g", 3))
    until_us = core.journal.now_us + 60 * SECOND_US
    answer = about_gang(core, "g")
    assert [("default/g-0", "n", until_us), ("default/g-1", "n", until_us)] == [
        (held["pod"], held["node"], held["until_us"]) for held in answer["holds"]
    ]
    assert ("Waits", 2, {"n": {"cpu": 50}}) == (
        answer["verdict"],
        answer["gangs"][0]["held"],
        freed(answer),
    )
    core.see(advance_us=60 * SECOND_US)
    answer = about_gang(core, "g")
    assert ([], core.state.gangs["default/g"].rest_until_us) == (
        answer["holds"],
        answer["gangs"][0]["rests_until_us"],
    )


def test_a_gang_that_let_go_is_told_for_whom() -> None:
    """The younger of two whose holds each other needed; the older has started with its room."""
    core = _mutual()
    told = about_gang(core, "young")["diagnosis"]
    assert ("GaveWay", "default/old") == (told["code"], told["details"]["for"])
    assert "Placed" == about_gang(core, "old")["verdict"]


def test_room_that_is_kept_for_the_head_of_the_queue() -> None:
    """The head is told that two nodes are its own and until when; for who comes after it they count as kept."""
    core = busy()
    later(core, 10)
    head = about_gang(core, "big")["head"]
    since_us, now_us = core.journal.now_us - 10 * MINUTE_US, core.journal.now_us
    assert (True, ["n0", "n1"], since_us, now_us + 30 * MINUTE_US) == (
        head["is_it"],
        head["nodes"],
        head["since_us"],
        head["until_us"],
    )
    core.see(*[small(f"s{index}") for index in range(3)])
    answer = about_pod(core, "s2")
    assert (False, ["default/big"]) == (answer["head"]["is_it"], answer["head"]["names"])
    assert {"InsufficientResources": 2, "KeptForHead": 2} == answer["lacking"][0]["nodes"]
    assert {"n2": {"cpu": 100}} == freed(answer)


def test_a_node_that_is_kept_comes_after_one_that_could_come_free() -> None:
    """Where only one node is left to others, the closest are that one and a kept one with room."""
    core = busy(nodes=3, holdNodesPercent=70)
    later(core, 10)
    core.see(small("s0"), small("s1"))
    near = about_pod(core, "s1")["lacking"][0]["closest"]
    assert [("n2", "InsufficientResources", 100), ("n0", "KeptForHead", 0)] == [
        (each["node"], each["code"], sum(lack["missing"] for lack in each["resources"].values()))
        for each in near
    ]


def test_before_all_has_been_listed_the_missing_kinds_are_named() -> None:
    """Nothing is placed then, however well it would fit."""
    core = Core(synced=False)
    core.see(node("n"), pod("a"))
    answer = about_pod(core, "a")
    assert ("Waits", "Syncing") == (answer["verdict"], answer["diagnosis"]["code"])
    assert ("pods", True) == (answer["unsynced"][0], "nodes" in answer["unsynced"])


def test_of_namesakes_the_one_that_stays_is_meant() -> None:
    """A pod that is being deleted and its successor have one name."""
    core = Core()
    core.see(node("n"), pod("a", deleted_us=START_US, node="n"), pod("a", uid="uid-successor"))
    assert "uid-successor" == newest_named(core.state, "default", "a")
    core.see(gone("pods", "a", uid="uid-successor"))
    assert "uid-a" == newest_named(core.state, "default", "a")
    assert newest_named(core.state, "default", "b") is None


def test_members_that_differ_go_where_each_lacks_the_least() -> None:
    """The small one lacks 20 on n, the large one 750 on m, and the third fits on neither were it empty."""
    core = Core()
    core.see(node("n", 200), node("m", 1_000), pod("a", 120, node="n"), pod("b", 950, node="m"))
    core.see(podgroup("g", 3), member("g-0", "g", 4_000), member("g-1", "g", 800))
    core.see(member("g-2", "g", 100))
    answer = about_gang(core, "g")
    assert ({"n": {"cpu": 20}, "m": {"cpu": 750}}, 1) == (freed(answer), answer["to_free"]["never"])
    assert [["default/g-2"], ["default/g-1"]] == [
        each["pods"] for each in answer["to_free"]["nodes"]
    ]
    assert [["default/g-0"], ["default/g-1"], ["default/g-2"]] == [
        each["pods"] for each in answer["lacking"]
    ]


@pytest.mark.parametrize("seed", range(12))
def test_what_must_come_free_is_enough(seed: int) -> None:
    """Nodes that grow by exactly what is said take the whole gang of alike members."""
    chance = random.Random(seed)
    core = Core()
    sizes = {f"n{index}": chance.randint(50, 400) for index in range(6)}
    core.see(*(node(name, size) for name, size in sizes.items()))
    core.see(*(pod(f"p{index}", chance.randint(20, 200)) for index in range(6)))
    need = chance.randint(4, 9)
    core.see(podgroup("g", need), *crew("g", need, 150))
    answer = about_gang(core, "g")
    assert ("Waits", True) == (answer["verdict"], bool(answer["lacking"]))
    more = freed(answer)
    never = answer["to_free"]["never"]
    assert need - answer["gangs"][0]["placeable"] - never == sum(
        len(each["pods"]) for each in answer["to_free"]["nodes"]
    )
    core.see(podgroup("g", need - never, rv=2))
    core.see(*(node(name, sizes[name] + more[name]["cpu"], rv=2) for name in sorted(more)))
    assert "Placed" == about_gang(core, "g")["verdict"]


def all_answers(state: State) -> list[Json]:
    """About every gang and every pod."""
    answers = [explain_gang(state, key) for key in sorted(state.gangs)]
    return answers + [explain_pod(state, uid) for uid in sorted(state.pods)]


@pytest.mark.parametrize("seed", range(6))
def test_every_answer_of_a_random_walk(seed: int) -> None:
    """State is as it was, an equal State answers alike, counts add up, and nobody waits who fits, but for groups whose
    partners come later.
    """
    walk = Walk(seed)
    for step in range(90):
        walk.step()
        if step % 6:
            continue
        state = walk.core.state
        before = snapshot.encode(state)
        answers = all_answers(state)
        assert before == snapshot.encode(state)
        assert answers == all_answers(snapshot.decode(before))
        at_rest = state.synced() and not walk.core.decisions[-1].work_left
        for answer in answers:
            for gang in answer["gangs"]:
                assert 0 <= gang["placeable"] <= max(gang["ready"], gang["needed"])
            grouped_ = any(gang["partners"] for gang in answer["gangs"])
            assert "Fits" != answer["verdict"] or grouped_ or not at_rest


def test_the_page_names_every_field() -> None:
    """Whatever an answer has, `docs/explain.md` says what it is."""
    page = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()
    core = busy()
    later(core, 10)
    core.see(podgroup("g", 2), *crew("g", 2, 5_000), pod("low", 10, spec={"priority": -9}))
    for answer in (about_gang(core, "g"), about_pod(core, "g-1")):
        (lacking,) = answer["lacking"]
        parts = (answer, *answer["gangs"], lacking, *lacking["closest"], answer["to_free"])
        parts += (answer["preemption"], answer["queue"], answer["head"], answer.get("pod", {}))
        for name in [name for part in parts for name in part]:
            assert f"`{name}`" in page, name

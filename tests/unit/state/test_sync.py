"""Lists: the gate before the first, what they remove, and how they survive interleaving, repetition and resets."""

import pytest

from schemas.topics import RESOURCES
from state.model.decision import Answer
from state.model.limits import LIST_PATIENCE_US
from state.model.limits import RESOURCES as CORE_RESOURCES
from tests.builders import Core, Json, absent, ended, gone, member, node, pod, podgroup


def started(epoch: str, rv: int, resource: str = "pods", **said: int) -> Json:
    """A list begins; `said`: cold, whole, heard."""
    begun = {"kind": "SyncStarted", "resource": resource, "producer": "test", "epoch": epoch}
    return {**begun, "list_rv": rv, "cold": False, **said}


def still(epoch: str, name: str, rv: int = 1, resource: str = "pods") -> Json:
    """An unchanged object of a list."""
    said = {"kind": "StillThere", "resource": resource, "epoch": epoch}
    return {**said, "uid": f"uid-{name}", "rv": rv}


def finished(epoch: str, rv: int, resource: str = "pods") -> Json:
    """A list ends."""
    return {"kind": "SyncFinished", "resource": resource, "epoch": epoch, "list_rv": rv}


def listed(epoch: str, rv: int, *pods: Json) -> list[Json]:
    """A whole list of pods, each as it is."""
    return [
        started(epoch, rv, whole=True),
        *({**item, "epoch": epoch} for item in pods),
        finished(epoch, rv),
    ]


def names(core: Core) -> list[str]:
    """Pods that the core knows."""
    return sorted(row.name for row in core.state.pods.values())


RESYNC = (Answer(kind="ResyncRequested", resource="pods"),)


def test_the_cores_resources_are_those_of_the_wire() -> None:
    """Names and topics agree, so that no kind is waited for that nobody lists."""
    assert RESOURCES == {name: topic for name, (_, _, topic) in CORE_RESOURCES.items()}


def test_nothing_is_placed_before_every_resource_was_listed() -> None:
    """The gate opens with the last of them, be it listed or absent."""
    core = Core(synced=False)
    for index, resource in enumerate(RESOURCES):
        assert {} == core.binds()
        if resource in ("pods", "nodes"):
            listed = [{**pod("p"), "epoch": resource}] if resource == "pods" else [node("n", rv=9)]
            core.see(started(resource, 5, resource), *listed)
            core.see(finished(resource, 5, resource))
        else:
            core.see(absent(resource))
        if 0 < index < len(RESOURCES) - 1:
            assert "Syncing" == core.code("p")
    assert ({"p": "n"}, None) == (core.binds(), core.code("p"))


def test_a_finished_list_removes_what_it_did_not_name() -> None:
    """Objects newer than the list, named ones and observed ones stay."""
    core = Core()
    core.see(pod("named"), pod("missing"), pod("changed"))
    core.see(started("e", 10), still("e", "named"), {**pod("changed", rv=9), "epoch": "e"})
    core.see(pod("newer", rv=11))
    decision = core.see(finished("e", 10))
    assert ["changed", "named", "newer"] == names(core)
    assert () == decision.requests


def test_a_list_may_lie_in_one_record_or_in_many() -> None:
    """Both ways of cutting it remove the same."""
    said = [started("e", 10), still("e", "a"), still("e", "b"), finished("e", 10)]
    for cut in (1, 2, 4):
        core = Core()
        core.see(pod("a"), pod("b"), pod("c"))
        for start in range(0, 4, cut):
            core.see(*said[start : start + cut])
        assert ["a", "b"] == names(core)
        assert ({}, {}) == (core.state.lists, core.state.tables["named"])


def test_an_unfinished_list_removes_nothing() -> None:
    """The producer died in the middle; its successor's list settles it and forgets the other."""
    core = Core()
    core.see(pod("a"), pod("b"))
    core.see(started("dead", 10), still("dead", "a"))
    assert ["a", "b"] == names(core)
    core.see(started("next", 12))
    core.see(still("next", "b"), finished("next", 12))
    assert ["b"] == names(core)
    assert ({}, {}) == (core.state.lists, core.state.tables["named"])


def test_a_repeated_list_is_no_news() -> None:
    """Start, objects and end once more, also of a list that another one closed: the gate stays open."""
    core = Core()
    core.see(pod("a"))
    old = [started("old", 10, cold=True), still("old", "a")]
    new = [started("new", 12, cold=True), still("new", "a"), finished("new", 12)]
    core.see(*old)
    core.see(*new)
    assert core.state.synced()
    for said in (old, new, [new[2]], [old[0]]):
        core.see(*said)
        assert core.state.synced()
    assert ({}, {}) == (core.state.lists, core.state.tables["named"])
    assert ["a"] == names(core)


def test_the_lists_of_two_producers_may_interleave() -> None:
    """Each counts what itself named; what was deleted between them stays deleted."""
    core = Core()
    core.see(pod("a"), pod("deleted", rv=5))
    core.see(started("x", 10), still("x", "a"), still("x", "deleted", 5))
    core.see(started("y", 20), still("y", "a"))
    core.see(finished("y", 20))
    core.see({**pod("deleted", rv=5), "epoch": "x"}, finished("x", 10))
    assert ["a"] == names(core)
    assert 20 == core.state.syncs["pods"].list_rv


def test_a_cold_start_closes_the_gate_until_its_list_is_finished() -> None:
    """An informer without memory may have missed anything."""
    core = Core()
    core.see(started("e", 10, "nodes", cold=True), pod("p"))
    core.see({**node("n"), "epoch": "e"}, topic="nodes")
    assert ({}, "Syncing") == (core.binds(), core.code("p"))
    core.see(finished("e", 10, "nodes"), topic="nodes")
    assert {"p": "n"} == core.binds()


def test_a_list_of_an_informer_with_memory_leaves_the_gate_open() -> None:
    """A resync while running holds nobody up."""
    core = Core()
    core.see(started("e", 10), node("n"), pod("p"))
    assert {"p": "n"} == core.binds()


def test_an_absent_kind_ends_the_lists_of_its_resource() -> None:
    """Nothing of a list that can't finish any more is kept, and its objects are gone."""
    resource = "podgroups.scheduling.x-k8s.io"
    core = Core()
    core.see(started("e", 10, resource, cold=True), topic="podgroups")
    core.see(still("e", "g", resource=resource), topic="podgroups")
    assert not core.state.synced()
    core.see(absent(resource), topic="podgroups")
    assert core.state.synced()
    assert ({}, {}) == (core.state.lists, core.state.tables["named"])


def test_a_kind_that_comes_back_brings_its_objects_back() -> None:
    """A wrong word that a kind is absent is put right by the next list."""
    core = Core()
    core.see(pod("a", rv=5))
    core.see(absent("pods"))
    assert [] == names(core)
    core.see(started("e", 10), {**pod("a", rv=5), "epoch": "e"}, finished("e", 10))
    assert ["a"] == names(core)


def test_an_unchanged_object_that_is_unknown_asks_for_a_resync() -> None:
    """Once a record, however many are missed; a pod that is gone for certain is not missed."""
    core = Core()
    core.see(gone("pods", "dead", rv=50))
    decision = core.see(started("e", 10), still("e", "x"), still("e", "y"), still("e", "dead"))
    assert RESYNC == decision.requests


def test_a_list_younger_than_a_tombstone_knows_better() -> None:
    """A pod taken for gone (its bind found nothing) is named by a later list: it is missed."""
    core = Core()
    command = core.see(node("n"), pod("p", rv=5)).commands[0].id
    core.see(ended(command, "Stale", status=404), topic="results")
    assert [] == names(core)
    assert RESYNC == core.see(started("e", 10), still("e", "p", 5)).requests
    core.see({**pod("p", rv=5), "epoch": "e"}, finished("e", 10))
    assert ["p"] == names(core)


def test_a_list_of_the_deletions_own_version_that_names_the_pod_is_of_another_history() -> None:
    """After a restore without a bump, versions are given a second time. A list of version 10 lacks what went at 10."""
    core = Core()
    core.see(pod("p", rv=5), gone("pods", "p", rv=10))
    core.see(started("e", 10), {**pod("p", rv=5), "epoch": "e"}, finished("e", 10))
    assert ["p"] == names(core)


def test_a_list_of_the_version_of_a_pod_that_a_result_found_gone_is_older() -> None:
    """When it went nobody said, only that it was later than its own last version: a list of that one still has it."""
    core = Core()
    command = core.see(node("n"), pod("p", rv=5)).commands[0].id
    core.see(ended(command, "Stale", status=404), topic="results")
    core.see(started("e", 5), {**pod("p", rv=5), "epoch": "e"}, finished("e", 5))
    assert [] == names(core)


@pytest.mark.parametrize("topic", sorted(set(RESOURCES.values())))
@pytest.mark.parametrize("on", [False, True])
def test_a_rejected_message_asks_for_a_resync_of_its_topic(topic: str, on: bool) -> None:
    """Every resource that travels on the topic, and that policy has us read, is listed anew."""
    core = Core(gangs={"kubernetesWorkloads": on})
    rejected = {"kind": "MessageRejected", "topic": topic, "offset": 0, "reason": "NotJson"}
    decision = core.see({**rejected, "detail": ""}, topic=topic)
    wanted = [name for name, where in RESOURCES.items() if where == topic]
    if not on and topic == "podgroups":
        wanted = [name for name in wanted if name.partition(".")[2] != "scheduling.k8s.io"]
    assert wanted == [answer.resource for answer in decision.requests]


def test_a_rejected_result_asks_for_nothing() -> None:
    """Results are not listed."""
    core = Core()
    rejected = {"kind": "MessageRejected", "topic": "results", "offset": 0, "reason": "NotJson"}
    assert () == core.see({**rejected, "detail": ""}, topic="results").requests


def test_tombstones_are_forgotten_after_a_younger_list() -> None:
    """A list at the very version of the deletion is not younger yet."""
    core = Core()
    core.see(gone("pods", "p", rv=10), gone("nodes", "n", rv=10))
    core.see(started("e", 10), finished("e", 10))
    assert ["uid-n", "uid-p"] == sorted(core.state.tables["tombstones"])
    core.see(started("f", 11), finished("f", 11))
    assert ["uid-n"] == sorted(core.state.tables["tombstones"])


def test_an_end_or_a_word_of_another_resource_is_not_this_lists() -> None:
    """A list of nodes removes no pods, whatever epoch a message names."""
    core = Core()
    core.see(pod("a"), node("n"))
    core.see(started("e", 10, "nodes"), topic="nodes")
    core.see(finished("e", 10, "pods"), still("e", "x", resource="pods"))
    assert ["a"] == names(core)
    assert ["e"] == list(core.state.lists)


def test_an_epoch_is_not_mistaken_for_another_that_begins_like_it() -> None:
    """`e` and `e#1` are two lists."""
    core = Core()
    core.see(pod("a"), pod("b"))
    core.see(started("e", 10), started("e#1", 10), still("e", "a"), still("e#1", "b"))
    core.see(finished("e", 10))
    assert ["a"] == names(core)


def test_a_list_of_one_api_group_leaves_the_other_alone() -> None:
    """PodGroups of two groups are two resources in one table."""
    core = Core()
    other = podgroup("x", 1, group="scheduling.x-k8s.io")
    core.see(podgroup("s", 1), other, topic="podgroups")
    resource = "podgroups.scheduling.x-k8s.io"
    core.see(started("e", 10, resource), finished("e", 10, resource), topic="podgroups")
    assert ["s"] == [row.name for row in core.state.podgroups.values()]


def test_a_cold_list_that_does_not_finish_makes_others_list() -> None:
    """Its informer may be gone: the others are asked again and again, and their list opens the gate."""
    core = Core()
    core.see(node("n"), started("dead", 100, cold=True), pod("p", rv=101))
    due = core.decisions[-1].next_deadline_us
    assert core.state.timestamp_us + LIST_PATIENCE_US == due
    assert () == core.see(advance_us=LIST_PATIENCE_US - 1).requests
    decision = core.see(advance_us=1)
    assert (RESYNC, {}) == (decision.requests, core.binds())
    assert RESYNC == core.see(advance_us=LIST_PATIENCE_US).requests
    decision = core.see(*listed("alive", 110, pod("p", rv=101)))
    assert ({"p": "n"}, 0) == (core.binds(), decision.next_deadline_us)


def test_a_gang_that_changes_while_the_gate_is_shut_is_tried_once_it_opens() -> None:
    """A member was bound by somebody else meanwhile: the others may come alone, whoever told them to wait."""
    core = Core()
    core.see(node("n"), topic="nodes")
    core.see(podgroup("g", 3), member("a", "g"), member("b", "g"))
    assert ["WaitingForMembers"] * 2 == [core.code(name) for name in ("a", "b")]
    core.see(started("cold", 10, cold=True), topic="pods")
    core.see(member("a", "g", rv=2, node="n", phase="Running"), topic="pods")
    assert "" == core.pod("b").assumed
    said = still("cold", "a", rv=2), still("cold", "b"), finished("cold", 10)
    core.see(*said, topic="pods")
    assert "n" == core.pod("b").assumed

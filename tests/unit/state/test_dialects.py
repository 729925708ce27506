"""Dialects: one gang whatever spells it, in a stated order; what contradicts that is told, and decides nothing."""

import pytest

from state import invariants
from state.explain import explain_gang
from state.report import gang_row
from tests.builders import Core, ended, gone, member, node, pod, podgroup
from tests.unit.state.test_gangs import X_K8S, bind_ids, crew

GANG = "gang.scheduling.koordinator.sh/"


@pytest.mark.parametrize("text", ["two", "", "-1", "0"])
def test_a_gang_without_a_minimum_is_never_declared(text: str) -> None:
    """Its pods wait for somebody who says how many belong together: a PodGroup of that name is one."""
    core = Core()
    said = {f"{GANG}min-available": text, f"{GANG}name": "g"}
    core.see(node("n"), *[pod(name, annotations=said) for name in ("a", "b")])
    assert ("WaitingForGroup", {}) == (core.code("a"), core.binds())
    core.see(podgroup("g", 2), topic="podgroups")
    assert {"a", "b"} == set(core.binds())


def test_all_spellings_make_one_gang() -> None:
    """Four members, each with another dialect's word for it, and the PodGroup that declares it."""
    core = Core()
    core.see(
        node("n"),
        podgroup("g", 4),
        pod("a", labels={"pod-group.scheduling.sigs.k8s.io": "g"}),
        pod("b", labels={f"{X_K8S}/pod-group": "g"}),
        pod("c", labels={"pod-group.scheduling.sigs.k8s.io/name": "g"}),
    )
    assert {} == core.binds()
    core.see(pod("d", annotations={f"{GANG}name": "g"}))
    assert {"a", "b", "c", "d"} == set(core.binds())


def test_pods_of_an_annotation_gang_that_disagree_follow_the_first() -> None:
    """The first says two, the second three: two it is (G-5), and the gang's row tells of the other."""
    core = Core()
    for name, minimum in (("a", "2"), ("b", "3")):
        core.see(pod(name, annotations={f"{GANG}min-available": minimum, f"{GANG}name": "g"}))
    core.see(node("n"))
    assert {"a", "b"} == set(core.binds())
    told = "the first member says min-available 2, which counts; another member says 3"
    assert [told] == gang_row(core.state, "default/g")["conflicts"]


def test_a_total_that_never_comes_traps_nobody() -> None:
    """`total-number` is above what there will ever be; no round of tries waits for it (7-G6, second half)."""
    said = {
        f"{GANG}min-available": "2",
        f"{GANG}name": "g",
        f"{GANG}total-number": "5",
    }
    core = Core()
    core.see(node("n", 100), *[pod(f"p{index}", annotations=said) for index in range(3)])
    assert {} == core.binds()
    core.see(node("m", 200))
    assert 3 == len(core.binds())


def test_a_pod_whose_spellings_differ_is_told() -> None:
    """The first one counts; why the pod waits names both, and so does the gang's row."""
    core = Core()
    labels = {f"{X_K8S}/pod-group": "upstream", "pod-group.scheduling.sigs.k8s.io": "koord"}
    core.see(node("n"), podgroup("koord", 2), podgroup("upstream", 1, group=X_K8S))
    core.see(pod("a", labels=labels))
    told = (
        "label pod-group.scheduling.sigs.k8s.io says koord, which counts; "
        "label scheduling.x-k8s.io/pod-group says upstream"
    )
    diagnosis = core.pod("a").diagnosis
    assert "WaitingForMembers" == diagnosis.code
    assert [told] == diagnosis.details["conflicts"]
    assert told in diagnosis.message
    assert [told] == gang_row(core.state, "default/koord")["conflicts"]
    (facts,) = explain_gang(core.state, "default/koord")["gangs"]
    assert [told] == facts["conflicts"]
    invariants.check(core.state)


def test_podgroups_of_one_name_that_differ_are_told() -> None:
    """Both dialects have a PodGroup of the name; the one that counts comes first in the gang's row."""
    core = Core()
    other = podgroup("g", 5, group=X_K8S, uid="x")
    core.see(other, podgroup("g", 2), topic="podgroups")
    told = f"in scheduling.sigs.k8s.io minMember 2, which counts; in {X_K8S} 5"
    assert [told] == gang_row(core.state, "default/g")["conflicts"]


def test_a_successor_inherits_nothing() -> None:
    """The gang ran, so members came alone; a PodGroup of the same name and another uid starts from nothing."""
    for late in (False, True):
        core = Core()
        core.see(node("n", 300), podgroup("g", 2, uid="old"), *crew("g", 2))
        core.see(*[ended(command) for command in bind_ids(core).values()])
        assert core.state.gangs["default/g"].satisfied
        core.see(gone("pods", "g-0"), gone("pods", "g-1"))
        news = [gone("podgroups.scheduling.sigs.k8s.io", "g", rv=5, uid="old")]
        news.insert(0 if late else 1, podgroup("g", 2, rv=6, uid="new"))
        core.see(*news, topic="podgroups")
        core.see(member("g-9", "g"))
        assert ("WaitingForMembers", False) == (
            core.code("g-9"),
            core.state.gangs["default/g"].satisfied,
        )


def test_a_successor_of_an_annotation_gang_inherits_nothing() -> None:
    """With its last member an annotation gang is gone; the next of that name needs its minimum again."""
    said = {f"{GANG}min-available": "2", f"{GANG}name": "g"}
    core = Core()
    core.see(node("n"), pod("a", annotations=said), pod("b", annotations=said))
    core.see(*[ended(command) for command in bind_ids(core).values()])
    core.see(gone("pods", "a"), gone("pods", "b"))
    core.see(pod("c", annotations={**said, f"{GANG}min-available": "3"}))
    assert ("WaitingForMembers", 3) == (core.code("c"), core.state.gangs["default/g"].min_member)


@pytest.mark.parametrize(("own_s", "said", "waits_s"), [(5, "50s", 5), (None, "50s", 50)])
def test_a_podgroups_own_timeout_goes_before_its_annotation(
    own_s: int | None, said: str, waits_s: int
) -> None:
    """`scheduleTimeoutSeconds`, then `waiting-time`, then the policy."""
    core = Core()
    own = {} if own_s is None else {"schedule_timeout_us": own_s * 1_000_000}
    core.see(podgroup("g", 2, annotations={f"{GANG}waiting-time": said}, **own))
    assert waits_s * 1_000_000 == core.state.gangs["default/g"].wait_us

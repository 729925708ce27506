"""Gangs: all or nothing, whatever order their parts come in, and what becomes of them afterwards."""

import pytest

from state import invariants
from tests.builders import Core, Json, ended, gone, member, node, pod, podgroup

GROUPS = "gang.scheduling.koordinator.sh/groups"
X_K8S = "scheduling.x-k8s.io"


def crew(gang: str, count: int, cpu: int = 100) -> list[Json]:
    """Members `GANG-0`, `GANG-1`, ..."""
    return [member(f"{gang}-{index}", gang, cpu) for index in range(count)]


def grouped(gang: str, minimum: int, *partners: str, **fields: object) -> Json:
    """A PodGroup of a gang group."""
    names = ", ".join(f'"default/{name}"' for name in partners)
    return podgroup(gang, minimum, annotations={GROUPS: f"[{names}]"}, **fields)


def bind_ids(core: Core) -> dict[str, str]:
    """Pod name -> id of its last BindPod."""
    return {c.name: c.id for d in core.decisions for c in d.commands if c.kind == "BindPod"}


def test_a_gang_that_fits_is_placed_whole() -> None:
    """Room for three, three needed."""
    core = Core()
    core.see(node("n", 300), podgroup("g", 3), *crew("g", 3))
    assert {"g-0": "n", "g-1": "n", "g-2": "n"} == core.binds()


def test_a_member_that_waits_for_others_is_told_once() -> None:
    """Each member that comes is told that more are needed; those before it are told nothing new."""
    core = Core()
    core.see(node("n"), podgroup("g", 4), topic="nodes")
    for each in crew("g", 3):
        core.see(each)
    told = [
        command.name
        for decision in core.decisions
        for command in decision.commands
        if command.kind == "PatchStatus"
    ]
    assert ["g-0", "g-1", "g-2"] == [name for name in told if name != "g"]
    assert {"gang": "default/g", "min_member": 4, "needed": 4} == core.pod("g-0").diagnosis.details


def test_a_gang_that_does_not_fit_holds_nothing() -> None:
    """Room for three, four needed: none is bound, and each member is told that three could be."""
    core = Core()
    core.see(node("n", 300), podgroup("g", 4), *crew("g", 6))
    assert {} == core.binds()
    assert 0 == core.state.columns.used[0].sum()
    details = core.pod("g-5").diagnosis.details
    assert (3, 4) == (details["placeable"], details["needed"])


def test_the_count_of_placeable_members_does_not_depend_on_their_order() -> None:
    """A misfit that comes first does not hide that three others could be placed."""
    core = Core()
    misfit = member("g-a", "g", 9_000)
    core.see(node("n", 300), podgroup("g", 4), misfit, *crew("g", 3))
    assert {} == core.binds()
    assert 3 == core.pod("g-a").diagnosis.details["placeable"]


def test_surplus_members_come_one_by_one() -> None:
    """Six replicas, room for three, minimum three: three run, three wait for room."""
    core = Core()
    core.see(node("n", 300), podgroup("g", 3), *crew("g", 6))
    assert 3 == len(core.binds())
    assert "InsufficientResources" == core.code("g-5")


def test_a_member_that_fits_nowhere_is_passed_over() -> None:
    """Five members, one can never fit, minimum three: the other four run (semantics 7-G3)."""
    core = Core()
    misfit = member("g-a", "g", spec={"node_selector": {"zone": "mars"}})
    core.see(node("n"), podgroup("g", 3), misfit, *crew("g", 4))
    assert {"g-0", "g-1", "g-2", "g-3"} == set(core.binds())
    assert "NodeSelectorMismatch" == core.code("g-a")


def test_a_gated_member_does_not_count() -> None:
    """Two of three are ready: the gang waits, and goes when the gate is lifted."""
    core = Core()
    core.see(node("n"), podgroup("g", 3), *crew("g", 2), member("g-x", "g", gates=("wait",)))
    assert {} == core.binds()
    assert ("WaitingForMembers", "Gated") == (core.code("g-0"), core.code("g-x"))
    core.see(member("g-x", "g", rv=2))
    assert {"g-0", "g-1", "g-x"} == set(core.binds())


def test_the_last_member_makes_the_gang_schedulable_at_once() -> None:
    """Early members are not barred by having waited (semantics 7-G7)."""
    core = Core()
    core.see(node("n"), podgroup("g", 3))
    for one in crew("g", 2):
        core.see(one)
        assert {} == core.binds()
    core.see(member("g-last", "g"))
    assert 3 == len(core.binds())


def test_pods_before_their_podgroup_wait_for_it() -> None:
    """The PodGroup's arrival places them (semantics 7-U3)."""
    core = Core()
    core.see(node("n"), *crew("g", 2))
    assert "WaitingForGroup" == core.code("g-0")
    core.see(podgroup("g", 2), topic="podgroups")
    assert 2 == len(core.binds())


def test_a_large_gang_gets_going_when_capacity_comes() -> None:
    """255 members, then a node: all bind in a bounded number of records (semantics 7-G6)."""
    core = Core()
    core.see(podgroup("g", 255), topic="podgroups")
    members = crew("g", 255)
    for start in range(0, 255, 51):
        core.see(*members[start : start + 51])
    core.see(node("n", 64_000, allocatable={"cpu": 64_000, "memory": 1 << 50, "pods": 300}))
    while core.decisions[-1].work_left:
        core.see()
    assert 255 == len(core.binds())


def test_a_smaller_minimum_lets_a_gang_go() -> None:
    """min_member goes from four to two."""
    core = Core()
    core.see(node("n", 300), podgroup("g", 4), *crew("g", 3))
    assert {} == core.binds()
    core.see(podgroup("g", 2, rv=2), topic="podgroups")
    assert 3 == len(core.binds())


def test_a_larger_minimum_holds_a_gang_back() -> None:
    """min_member goes from two to four before there is room."""
    core = Core()
    core.see(podgroup("g", 2), *crew("g", 3))
    core.see(podgroup("g", 4, rv=2), topic="podgroups")
    core.see(node("n"))
    assert {} == core.binds()


def test_a_successor_podgroup_counts_and_its_forerunner_does_not() -> None:
    """A PodGroup of the same name and another uid declares a new gang, before or after the old one's end."""
    for order in ((0, 1), (1, 0)):
        core = Core()
        core.see(podgroup("g", 1, uid="z"), topic="podgroups")
        news = [gone("podgroups.scheduling.sigs.k8s.io", "g", rv=5, uid="z")]
        news.append(podgroup("g", 3, rv=6, uid="a"))
        for index in order:
            core.see(news[index], topic="podgroups")
        core.see(node("n"), *crew("g", 2))
        assert {} == core.binds()
        assert 3 == core.state.gangs["default/g"].min_member


def test_while_both_are_known_the_newer_namesake_declares_the_gang() -> None:
    """The deletion of the old PodGroup is late; the new one has the higher version."""
    core = Core()
    core.see(podgroup("g", 1, rv=1, uid="a"), podgroup("g", 3, rv=6, uid="b"), topic="podgroups")
    assert 3 == core.state.gangs["default/g"].min_member


def test_podgroups_of_both_api_groups_make_one_gang() -> None:
    """Of two that share a name the first API group by name counts, until it is gone."""
    core = Core()
    other = podgroup("g", 5, group=X_K8S, uid="x")
    core.see(other, podgroup("g", 2), topic="podgroups")
    assert 2 == core.state.gangs["default/g"].min_member
    core.see(gone("podgroups.scheduling.sigs.k8s.io", "group-g"), topic="podgroups")
    assert 5 == core.state.gangs["default/g"].min_member


@pytest.mark.parametrize("label", ["pod-group.scheduling.sigs.k8s.io", f"{X_K8S}/pod-group"])
def test_either_label_names_the_podgroup(label: str) -> None:
    """Both dialects' labels lead to the same gang."""
    core = Core()
    members = [pod(f"p{index}", labels={label: "g"}) for index in range(2)]
    core.see(node("n"), podgroup("g", 2, group=X_K8S), *members)
    assert 2 == len(core.binds())


def test_a_gang_of_annotations_needs_no_podgroup() -> None:
    """Name and minimum stand on the pods; two Jobs of one pod each make a gang of two (semantics 7-U6)."""
    prefix = "gang.scheduling.koordinator.sh/"
    said = {f"{prefix}min-available": "2", f"{prefix}name": "g"}
    core = Core()
    core.see(node("n"), pod("a", annotations=said))
    assert "WaitingForMembers" == core.code("a")
    core.see(pod("b", annotations=said))
    assert {"a", "b"} == set(core.binds())


def test_an_absurd_minimum_is_no_number() -> None:
    """A minimum of five thousand digits leaves the gang undeclared and stops nobody."""
    prefix = "gang.scheduling.koordinator.sh/"
    said = {f"{prefix}min-available": "9" * 5_000, f"{prefix}name": "g"}
    core = Core()
    core.see(node("n"), pod("a", annotations=said), pod("b"))
    assert ("WaitingForGroup", {"b": "n"}) == (core.code("a"), core.binds())


def test_partners_are_placed_together_or_not_at_all() -> None:
    """Room for both of A but not for B too: neither starts (semantics 7-G1)."""
    core = Core()
    groups = [grouped("a", 2, "a", "b"), grouped("b", 2, "a", "b")]
    core.see(node("n", 300), *groups, *crew("a", 2), *crew("b", 2))
    assert {} == core.binds()
    assert ("WaitingForGroup", "InsufficientResources") == (core.code("a-0"), core.code("b-0"))
    core.see(node("m", 100))
    assert 4 == len(core.binds())


def test_surplus_members_take_nothing_that_partners_need() -> None:
    """Six places, A of ten with minimum three, B of three: three of each run (semantics 7-G2)."""
    core = Core()
    groups = [grouped("a", 3, "a", "b"), grouped("b", 3, "a", "b")]
    core.see(node("n", 600), *groups, *crew("a", 10), *crew("b", 3))
    names = sorted(core.binds())
    assert ["a", "a", "a", "b", "b", "b"] == [name[0] for name in names]


def test_a_group_that_does_not_name_its_own_gang_includes_it() -> None:
    """The annotation lists only a partner that does not exist: the gang waits for it, nothing breaks."""
    core = Core()
    core.see(node("n"), grouped("a", 1, "ghost"), *crew("a", 1), pod("p"))
    assert ("WaitingForGroup", {"p": "n"}) == (core.code("a-0"), core.binds())
    core.see(podgroup("ghost", 1), *crew("ghost", 1), topic="podgroups")
    assert {"a-0", "ghost-0", "p"} == set(core.binds())


def test_a_partner_that_starts_by_itself_wakes_the_gang() -> None:
    """A names B as partner, B names nobody; once B runs, A has nothing to wait for."""
    core = Core()
    core.see(node("n"), grouped("a", 1, "a", "b"), *crew("a", 1))
    assert "WaitingForGroup" == core.code("a-0")
    core.see(podgroup("b", 1), member("b-0", "b", node="n"), topic="podgroups")
    assert {"a-0": "n"} == core.binds()


def test_a_partner_without_members_and_without_need_holds_nobody_back() -> None:
    """B's PodGroup asks for no members: its arrival lets A go."""
    core = Core()
    core.see(node("n"), grouped("a", 1, "a", "b"), *crew("a", 1))
    core.see(podgroup("b", 0), topic="podgroups")
    assert {"a-0": "n"} == core.binds()


def test_a_running_partner_does_not_wait_for_the_other() -> None:
    """B ran before; its new member comes alone though A can't start, and only one bind is commanded for it."""
    core = Core()
    core.see(node("n", 300), grouped("b", 1, "a", "b"), member("b-0", "b", node="n"))
    core.see(grouped("a", 9, "a", "b"), *crew("a", 2), member("b-1", "b"), topic="podgroups")
    assert {"b-1": "n"} == core.binds()
    invariants.check(core.state)


def test_a_member_of_a_running_gang_is_bound_once_when_its_partner_starts_in_the_same_cycle() -> (
    None
):
    """The group of A and the lone member of B are tried in one cycle; nobody is placed twice."""
    core = Core()
    core.see(grouped("b", 1, "a", "b"), member("b-0", "b", node="elsewhere"))
    core.see(grouped("a", 2, "a", "b"), *crew("a", 2), member("b-1", "b"), topic="podgroups")
    decision = core.see(node("n"))
    names = sorted(c.name for c in decision.commands if c.kind == "BindPod")
    assert ["a-0", "a-1", "b-1"] == names
    invariants.check(core.state)


def test_once_satisfied_later_members_come_alone() -> None:
    """After one bound member was seen, a replacement needs no quorum."""
    core = Core()
    core.see(node("n"), podgroup("g", 2), *crew("g", 2))
    core.see(*(ended(command) for command in bind_ids(core).values()), topic="results")
    core.see(gone("pods", "g-0"), gone("pods", "g-1"))
    core.see(member("g-new", "g"))
    assert "n" == core.binds()["g-new"]


def test_a_bound_member_seen_before_its_podgroup_satisfies_the_gang() -> None:
    """Order must not matter (semantics 8 n); without the PodGroup the others wait."""
    core = Core()
    core.see(node("n"), member("g-0", "g", node="n"), member("g-1", "g"))
    assert "WaitingForGroup" == core.code("g-1")
    core.see(podgroup("g", 5), topic="podgroups")
    assert {"g-1": "n"} == core.binds()


def test_of_a_gang_half_refused_the_refused_member_is_tried_again_alone() -> None:
    """One bound, one refused by the API server: policy Retry brings back the one."""
    core = Core()
    core.see(node("n"), podgroup("g", 2), *crew("g", 2))
    ids = bind_ids(core)
    refusal = ended(ids["g-1"], "Refused", status=403, message="no")
    core.see(ended(ids["g-0"]), refusal, topic="results")
    assert "BackingOff" == core.code("g-1")
    decision = core.see(advance_us=10_000_000)
    assert ["g-1"] == [c.name for c in decision.commands if c.kind == "BindPod"]


def test_a_gang_refused_whole_comes_back_whole() -> None:
    """Both members back off from different moments; they are bound again together."""
    core = Core()
    core.see(node("n"), podgroup("g", 2), *crew("g", 2))
    ids = bind_ids(core)
    core.see(ended(ids["g-0"], "Refused", status=403), topic="results")
    core.see(ended(ids["g-1"], "Refused", status=403), topic="results", advance_us=5_000_000)
    alone = core.see(advance_us=5_000_000)
    assert [] == [c.name for c in alone.commands if c.kind == "BindPod"]
    both = core.see(advance_us=5_000_000)
    assert ["g-0", "g-1"] == [c.name for c in both.commands if c.kind == "BindPod"]


def test_a_recreated_member_is_known_by_its_uid() -> None:
    """The successor's arrival before the old one's deletion loses nobody (semantics 7-G8)."""
    core = Core()
    core.see(podgroup("g", 2), *crew("g", 2))
    core.see(member("g-0", "g", uid="new", rv=7), gone("pods", "g-0", rv=6))
    core.see(node("n"))
    assert {"g-0", "g-1"} == set(core.binds())


def test_a_deleted_member_is_never_heard_of_again() -> None:
    """Gone between a failure and the next try: no command for its uid (semantics 7-G12)."""
    core = Core()
    core.see(podgroup("g", 1), *crew("g", 1))
    core.see(gone("pods", "g-0"))
    decision = core.see(node("n"))
    assert () == decision.commands
    assert 0 == decision.next_deadline_us
    assert not decision.work_left


def test_a_gang_that_changes_in_a_cycle_that_is_cut_off_is_tried_later() -> None:
    """One placement a cycle is spent on another pod while a member is bound by somebody else: the rest come alone."""
    core = Core(cycle={"placementsMax": 1})
    core.see(node("small", 50), podgroup("g", 2), *crew("g", 3))
    assert {} == core.binds()
    stolen = member("g-0", "g", rv=9, node="small")
    core.see(node("large", 1_000), pod("first", spec={"priority": 100}), stolen)
    for _ in range(4):
        core.see()
    assert {"first": "large", "g-1": "large", "g-2": "large"} == core.binds()

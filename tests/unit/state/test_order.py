"""The order in which units are tried, the bound of a cycle, and backfill past what does not fit."""

from tests.builders import START_US, Core, member, node, pod, podgroup


def contenders(*pods: dict[str, object]) -> list[str]:
    """Names in the order in which the pods get the only place, one place coming free at a time."""
    core = Core()
    core.see(*pods)
    decision = core.see(node("n", 100 * len(pods)))
    return [command.name for command in decision.commands if command.kind == "BindPod"]


def test_higher_priority_goes_first() -> None:
    """Priority beats age."""
    low = pod("a", spec={"priority": 0}, created_us=START_US)
    high = pod("b", spec={"priority": 9}, created_us=START_US + 5)
    assert ["b", "a"] == contenders(low, high)


def test_of_equal_priority_the_older_goes_first() -> None:
    """Age beats the name."""
    assert ["b", "a"] == contenders(
        pod("a", created_us=START_US + 1), pod("b", created_us=START_US)
    )


def test_of_equal_age_the_name_decides() -> None:
    """Names are compared with their namespace."""
    other = {**pod("a"), "namespace": "zoo"}
    assert ["b", "c", "a"] == contenders(pod("c"), other, pod("b"))


def test_of_namesakes_the_uid_decides() -> None:
    """A pod and its successor under one name still have an order."""
    core = Core()
    core.see({**pod("a"), "uid": "2"}, {**pod("a"), "uid": "1"})
    decision = core.see(node("n", 100))
    binds = [command.uid for command in decision.commands if command.kind == "BindPod"]
    assert ["1"] == binds


def test_a_gang_goes_by_its_most_important_member_and_its_own_age() -> None:
    """An old low-priority pod waits behind a gang with one important member."""
    core = Core()
    core.see(
        podgroup("g", 2, created_us=START_US + 9),
        member("g-1", "g", spec={"priority": 5}),
        member("g-2", "g"),
        pod("old", spec={"priority": 1}),
    )
    decision = core.see(node("n", 200))
    assert ["g-1", "g-2"] == [c.name for c in decision.commands if c.kind == "BindPod"]


def test_a_bounded_cycle_goes_on_until_everything_is_placed() -> None:
    """Each cycle places at most the bound and asks for the next; the last one asks for none."""
    core = Core(cycle={"placementsMax": 4})
    decision = core.see(node("n", 64_000), *[pod(f"p{index:02}") for index in range(10)])
    placed = []
    while True:
        placed.append(len([c for c in decision.commands if c.kind == "BindPod"]))
        if not decision.work_left:
            break
        decision = core.see()
    assert [4, 4, 2] == placed
    assert sorted(core.binds()) == [f"p{index:02}" for index in range(10)]


def test_the_bound_keeps_the_order() -> None:
    """What was left over is not overtaken by what comes later and matters less."""
    core = Core(cycle={"placementsMax": 1})
    first = core.see(node("n", 200), pod("a", created_us=START_US), pod("b", created_us=START_US))
    second = core.see(pod("c", created_us=START_US + 1))
    names = [c.name for d in (first, second) for c in d.commands if c.kind == "BindPod"]
    assert ["a", "b"] == names


def test_what_does_not_fit_blocks_nobody_behind_it() -> None:
    """A hopeless pod of high priority is explained, and the next one is placed."""
    core = Core()
    core.see(node("n", 1_000), pod("huge", 50_000, spec={"priority": 9}), pod("small"))
    assert {"small": "n"} == core.binds()
    assert "InsufficientResources" == core.code("huge")


def test_room_that_comes_free_is_offered_in_order() -> None:
    """Parked pods are tried again when a node joins, the more important first."""
    core = Core()
    core.see(
        node("tiny", 50),
        pod("late", 900, spec={"priority": 1}),
        pod("vip", 900, spec={"priority": 2}),
    )
    assert {} == core.binds()
    core.see(node("n", 1_000))
    assert {"vip": "n"} == core.binds()


def test_a_gang_that_does_not_fit_leaves_room_for_its_twins() -> None:
    """What did not fit beside the members of a gang may fit once the gang is dropped."""
    core = Core()
    core.see(
        node("n", 300),
        podgroup("g", 4),
        *[member(f"g-{index}", "g", created_us=START_US) for index in range(4)],
        pod("single", created_us=START_US + 7),
    )
    assert {"single": "n"} == core.binds()


def test_two_infeasible_gangs_and_a_third_that_fits() -> None:
    """Each gang is tried on all the room there is (semantics 7-U1)."""
    core = Core()
    observations = [node("n", 300)]
    for name, size in (("a", 4), ("b", 5), ("c", 3)):
        observations.append(podgroup(name, size))
        observations += [member(f"{name}-{index}", name) for index in range(size)]
    core.see(*observations)
    assert {"c-0": "n", "c-1": "n", "c-2": "n"} == core.binds()


def test_nothing_is_ours_before_the_policy_says_so() -> None:
    """A pod of another scheduler waits for that one."""
    core = Core()
    core.see(node("n"), pod("p", spec={"scheduler_name": "default-scheduler"}))
    assert {} == core.binds()
    change = {"kind": "PolicyChanged", "id": "1", "spec": {"schedulerNames": ["default-scheduler"]}}
    core.see(change, topic="admin")
    assert {"p": "n"} == core.binds()


def test_a_policy_change_is_applied_once_an_id() -> None:
    """A repeated change of policy does not undo a later one."""
    core = Core()
    names = ("a", "b", "a")
    for identity, name in zip(("1", "2", "1"), names, strict=True):
        change = {"kind": "PolicyChanged", "id": identity, "spec": {"schedulerNames": [name]}}
        core.see(change, topic="admin")
    assert ("b",) == core.state.policy.schedulerNames

"""NonStrict gangs: what they hold, how long, for whom they let go. Upstream's percentage, back-off, minResources."""

import pytest

from state import invariants
from state.model.rows import Pod
from state.placement import Fit, Placement
from tests.builders import START_US, Core, Json, cards, ended, gone, member, node, pod, podgroup
from tests.unit.state.test_gangs import GROUPS, bind_ids, crew

MODE = "gang.scheduling.koordinator.sh/mode"
X_K8S = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"
SECOND_US = 1_000_000
LOOSE = {MODE: "NonStrict"}


def loose(name: str, minimum: int, rv: int = 1, wait_s: int = 60, **fields: object) -> Json:
    """A NonStrict PodGroup."""
    wait_us = wait_s * SECOND_US
    return podgroup(name, minimum, rv, annotations=LOOSE, schedule_timeout_us=wait_us, **fields)


def upstream(name: str, minimum: int, **fields: object) -> Json:
    """A PodGroup of the upstream dialect."""
    return podgroup(name, minimum, group=X_K8S, **fields)


def later(core: Core, seconds: float) -> None:
    """Time passes in a tick."""
    core.see(advance_us=round(seconds * SECOND_US))
    invariants.check(core.state)


def held(core: Core) -> dict[str, str]:
    """Pod name -> node that it holds without a bind."""
    pods = [core.state.pods[uid] for uid in sorted(core.state.holding)]
    return {each.name: each.assumed for each in pods}


def test_a_nonstrict_gang_holds_what_it_gathered() -> None:
    """Room for two of three: two hold their slots, nobody else gets them, and nothing is bound (G-2)."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    assert ({}, {"g-0": "n", "g-1": "n"}) == (core.binds(), held(core))
    assert ["HoldingRoom", "HoldingRoom", "InsufficientResources"] == [
        core.code(f"g-{index}") for index in range(3)
    ]
    core.see(pod("other", 100))
    assert "other" not in core.binds()
    invariants.check(core.state)


def test_what_is_held_is_bound_when_the_rest_fits() -> None:
    """Room for the third comes: all three are bound in one decision, the two where they were held."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(node("m", 100))
    assert ({"g-0": "n", "g-1": "n", "g-2": "m"}, {}) == (core.binds(), held(core))
    invariants.check(core.state)


def test_a_wait_time_ends_a_hold() -> None:
    """After the wait time all is let go, others get it, and the gang rests before it holds anything again."""
    core = Core()
    core.see(node("n", 200), loose("g", 3, wait_s=5), *crew("g", 3), pod("other", 200))
    assert {"g-0", "g-1"} == set(held(core))
    assert core.journal.now_us + 5 * SECOND_US == core.decisions[-1].next_deadline_us
    later(core, 5)
    assert ({"other": "n"}, {}) == (core.binds(), held(core))
    assert "TimedOut" == core.code("g-0")


def test_a_gang_that_timed_out_may_still_start_whole() -> None:
    """While it rests it holds nothing, but goes as soon as all of it fits (7-G10)."""
    core = Core()
    core.see(node("n", 200), loose("g", 3, wait_s=5), *crew("g", 3))
    later(core, 5)
    assert {} == held(core)
    core.see(node("m", 100))
    assert {"g-0", "g-1", "g-2"} == set(core.binds())


def test_a_gang_that_timed_out_holds_again_after_its_rest() -> None:
    """The rest is the policy's back-off, doubled each time."""
    core = Core(backoff={"initial": "10s", "max": "40s"})
    core.see(node("n", 200), loose("g", 3, wait_s=5), *crew("g", 3))
    for rest_s in (10, 20, 40, 40):
        assert {"g-0", "g-1"} == set(held(core))
        later(core, 5)
        assert {} == held(core)
        later(core, rest_s - 1)
        assert {} == held(core)
        later(core, 1)


def _mutual(*, first: str = "old", mode: Json = LOOSE) -> Core:
    """`old` holds all of n and needs all of m; `young` holds half of m and needs all of n. Then m's other half is free.

    `first`: which of the two is the older; `mode`: annotations of `old`.
    """
    core = Core()
    ages = {"old": 0, "young": 1} if first == "old" else {"old": 1, "young": 0}
    old = podgroup("old", 3, annotations=mode, created_us=START_US + ages["old"])
    core.see(node("n", 200), old, *crew("old", 2), member("old-2", "old", 200))
    core.see(pod("foreign", 100, node="m"), node("m", 200))
    core.see(loose("young", 2, created_us=START_US + ages["young"]), member("young-0", "young"))
    core.see(member("young-1", "young", 200))
    assert "m" == (held(core) | core.binds())["young-0"]
    core.see(gone("pods", "foreign"))
    invariants.check(core.state)
    return core


def test_of_two_gangs_that_hold_each_others_room_the_younger_lets_go() -> None:
    """The older one starts at once, and the younger is told for whom it let go."""
    core = _mutual()
    assert {"old-0": "n", "old-1": "n", "old-2": "m"} == core.binds()
    assert {} == held(core)
    assert "GaveWay" == core.code("young-0")
    assert "default/old" == core.pod("young-0").diagnosis.details["for"]


def test_the_older_of_two_holders_never_lets_go() -> None:
    """The same with the ages changed: the other one starts, as soon as all of it would fit where the younger holds."""
    core = _mutual(first="young")
    assert {"young-0": "m", "young-1": "n"} == core.binds()
    assert {"old-0": "m"} == held(core)  # what is left after that
    assert "InsufficientResources" == core.code("old-1")


def test_a_strict_gang_waits_for_the_wait_time_of_equals() -> None:
    """It holds nothing, so there is no deadlock to end: what a NonStrict gang of its rank holds is kept till then."""
    core = Core()
    core.see(
        node("n", 200), loose("young", 3, wait_s=5, created_us=START_US + 1), *crew("young", 3)
    )
    core.see(podgroup("old", 2), *crew("old", 2))
    assert {"young-0": "n", "young-1": "n"} == held(core)
    later(core, 5)
    assert {"old-0", "old-1"} == set(core.binds())


@pytest.mark.parametrize("priority", [0, 10])
def test_a_more_important_pod_takes_room_that_is_held(priority: int) -> None:
    """Members that only wait are let go for a pod of higher priority, never for an equal one (7-G4)."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(pod("urgent", 200, spec={"priority": priority}))
    assert ("n" if priority else None) == core.binds().get("urgent")
    assert ({} if priority else {"g-0": "n", "g-1": "n"}) == held(core)
    invariants.check(core.state)


def test_room_is_not_taken_in_vain() -> None:
    """A more important pod that does not fit even then leaves holders alone."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(pod("huge", 300, spec={"priority": 10}))
    assert {"g-0": "n", "g-1": "n"} == held(core)


def test_a_holder_that_is_deleted_gives_its_room_back() -> None:
    """At once, whether its deletion has begun or it is gone."""
    for news in (member("g-0", "g", rv=2, deleted_us=1), gone("pods", "g-0")):
        core = Core()
        core.see(node("n", 200), loose("g", 3), *crew("g", 3))
        core.see(news)
        core.see(pod("other", 100))
        assert {"g-1": "n"} == held(core)  # two are left of the three that it needs
        assert "other" in core.binds()
        invariants.check(core.state)


def test_a_node_that_leaves_takes_its_holds_along() -> None:
    """The held member is let go, and finds another node with the rest."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(gone("nodes", "n"), node("m", 300))
    assert {"g-0": "m", "g-1": "m", "g-2": "m"} == core.binds()
    invariants.check(core.state)


def test_a_minimum_that_is_lowered_releases_what_is_held() -> None:
    """Two are held and three needed; with a minimum of two they go (G-6)."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(loose("g", 2, rv=2))
    assert {"g-0": "n", "g-1": "n"} == core.binds()


def test_a_held_member_that_somebody_binds_is_bound_where_it_is() -> None:
    """Reality wins: its hold ends, and as the gang runs now the others are bound, too."""
    core = Core()
    core.see(node("n", 200), node("m", 0), loose("g", 3), *crew("g", 3))
    core.see(member("g-0", "g", rv=2, node="m"))
    assert "m" == core.pod("g-0").node
    assert {"g-1": "n", "g-2": "n"} == core.binds()
    invariants.check(core.state)


def test_a_strict_gang_in_the_group_forbids_holding() -> None:
    """One gang NonStrict and one Strict that doesn't fit: nothing is held."""
    core = Core()
    names = '["default/a", "default/b"]'
    core.see(
        node("n", 200),
        podgroup("a", 2, annotations={**LOOSE, GROUPS: names}),
        podgroup("b", 2, annotations={GROUPS: names}),
        *crew("a", 2),
        *crew("b", 2, cpu=9_000),
    )
    assert ({}, {}) == (core.binds(), held(core))


def test_a_group_of_nonstrict_gangs_times_out_together() -> None:
    """The shorter of the two wait times ends both holds."""
    core = Core()
    names = '["default/a", "default/b"]'
    core.see(
        node("n", 300),
        podgroup("a", 2, annotations={**LOOSE, GROUPS: names}, schedule_timeout_us=5 * SECOND_US),
        podgroup("b", 2, annotations={**LOOSE, GROUPS: names}, schedule_timeout_us=50 * SECOND_US),
        *crew("a", 2),
        *crew("b", 2),
    )
    assert {"a-0", "a-1", "b-0"} == set(held(core))
    later(core, 5)
    assert {} == held(core)


@pytest.mark.parametrize(
    ("percentage", "fits", "minimum", "rejected"),
    [
        (10, 9, 10, False),
        (10, 8, 10, True),
        (0, 9, 10, True),
        (50, 6, 10, False),
        (50, 4, 10, True),
        (100, 1, 10, False),
    ],
)
def test_reject_percentage(percentage: int, fits: int, minimum: int, rejected: bool) -> None:
    """An upstream gang whose gap is at most the percentage goes on waiting with what it has (semantics 1.7)."""
    core = Core(gangs={"podGroupRejectPercentage": percentage})
    core.see(node("n", 100 * fits), upstream("g", minimum), *crew("g", minimum))
    assert (0 if rejected else fits) == len(held(core))
    assert {} == core.binds()
    later(core, 60)
    assert {} == held(core)


def test_upstream_back_off() -> None:
    """A rejected PodGroup is not tried for so long, though it would fit meanwhile."""
    core = Core(gangs={"podGroupBackoffSeconds": 20})
    core.see(node("n", 100), upstream("g", 2), *crew("g", 2))
    core.see(node("m", 100))
    assert ({}, "BackingOff") == (core.binds(), core.code("g-0"))
    later(core, 19)
    assert {} == core.binds()
    later(core, 1)
    assert {"g-0", "g-1"} == set(core.binds())


@pytest.mark.parametrize(
    ("nodes", "foreign", "own", "wanted", "starts"),
    [
        ((4, 4), (), (), 6, True),
        ((4, 4), (), (), 10, False),
        ((3, 3), (2,), (), 4, True),
        ((3, 3), (2, 1), (), 4, False),
    ],
)
def test_min_resources(
    nodes: tuple[int, ...], foreign: tuple[int, ...], own: object, wanted: int, starts: bool
) -> None:
    """What all nodes have free must cover upstream's `minResources` (semantics 1.7)."""
    core = Core()
    core.see(*[node(f"n{index}", 1_000 * cpu) for index, cpu in enumerate(nodes)])
    core.see(*[pod(f"p{i}", 1_000 * cpu, node=f"n{i}") for i, cpu in enumerate(foreign)])
    core.see(upstream("g", 1, min_resources={"cpu": 1_000 * wanted}), *crew("g", 1))
    assert starts == ("g-0" in core.binds())
    if not starts:
        assert "minResources" in core.pod("g-0").diagnosis.message


def test_lowered_min_resources_let_the_gang_go() -> None:
    """The edit alone has it tried again."""
    core = Core()
    core.see(node("n", 400), upstream("g", 1, min_resources={"cpu": 500}), *crew("g", 1))
    assert {} == core.binds()
    core.see(upstream("g", 1, rv=2, min_resources={"cpu": 300}))
    assert {"g-0"} == set(core.binds())


def test_koordinator_never_asks_for_min_resources() -> None:
    """Only the upstream dialect does."""
    core = Core()
    core.see(node("n"), podgroup("g", 1, min_resources={"cpu": 99_000}), *crew("g", 1))
    assert {"g-0"} == set(core.binds())


def _with_one_left(policy: str, replacement: Json) -> Core:
    """Minimum three; three ran, two of them completed and were deleted, one more arrives."""
    core = Core()
    annotations = {"gang.scheduling.koordinator.sh/match-policy": policy}
    core.see(node("n"), podgroup("g", 3, annotations=annotations), *crew("g", 3))
    core.see(*[ended(command) for command in bind_ids(core).values()])
    core.see(gone("pods", "g-0"), gone("pods", "g-1"))
    core.see(replacement)
    return core


@pytest.mark.parametrize(
    ("policy", "starts"),
    [("once-satisfied", True), ("waiting-and-running", False), ("only-waiting", False)],
)
def test_match_policies(policy: str, starts: bool) -> None:
    """One bound member is left and the fourth comes alone (semantics 1.3)."""
    core = _with_one_left(policy, member("g-3", "g"))
    assert starts == ("g-3" in core.binds())


@pytest.mark.parametrize(("policy", "more"), [("waiting-and-running", 1), ("only-waiting", 2)])
def test_match_policies_are_met_by_more_members(policy: str, more: int) -> None:
    """With so many more the wave is large enough."""
    core = _with_one_left(policy, member("g-3", "g"))
    core.see(*[member(f"g-{4 + index}", "g") for index in range(more)])
    assert "g-3" in core.binds()
    assert f"g-{3 + more}" in core.binds()


def test_the_policys_default_match_policy() -> None:
    """A gang that names none, or one that nobody knows, follows the policy."""
    for said in ({}, {"pod-group.scheduling.sigs.k8s.io/match-policy": "sometimes"}):
        core = Core(gangs={"defaultMatchPolicy": "only-waiting"})
        core.see(node("n"), podgroup("g", 2, annotations=said), *crew("g", 2))
        core.see(*[ended(command) for command in bind_ids(core).values()])
        core.see(member("g-2", "g"))
        assert "g-2" not in core.binds()
        core.see(member("g-3", "g"))
        assert {"g-2", "g-3"} <= set(core.binds())


def test_the_sub_priority_label_decides_among_equals() -> None:
    """Higher first, before age; what is no number counts as 0."""
    core = Core()
    label = "koordinator.sh/priority"
    core.see(
        pod("a", 100, labels={label: "x"}),
        pod("b", 100, labels={label: "7"}, created_us=START_US + 9),
        pod("c", 100, labels={label: "-1"}, created_us=START_US - 9),
    )
    core.see(node("n", 200))
    assert {"a", "b"} == set(core.binds())


def test_what_a_node_can_no_longer_give_is_not_held() -> None:
    """The node shrinks under two holds: the last one lets go, and what is left is not bound beyond its room."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(node("n", 100, rv=2))
    assert {"g-0": "n"} == held(core)
    core.see(loose("g", 1, rv=2))
    assert {"g-0": "n"} == core.binds()
    invariants.check(core.state)


def test_a_card_that_fails_is_not_held() -> None:
    """A member holds the card of a node whose report says then that it is ill: it is not bound with it."""
    core = Core()
    spec = {"requests": {"cpu": 100, "nvidia.com/gpu": 1}}
    core.see(node("n", gpus=2), cards("n", 2, unhealthy=(1,)), loose("g", 2))
    core.see(*[member(f"g-{index}", "g", spec=spec) for index in range(2)])
    assert {"g-0": "n"} == held(core)
    core.see(cards("n", 2, rv=2, unhealthy=(0,)))
    assert [1] == [each.minor for each in core.pod("g-0").allocations]
    core.see(loose("g", 1, rv=2))
    assert ({"g-0": "n"}, [1]) == (
        core.binds(),
        [each.minor for each in core.pod("g-0").allocations],
    )


def test_a_gang_does_not_hold_the_only_node_of_a_member_of_its_own() -> None:
    """The driver holds what only the worker fits on; once there is another node for it, both start at once."""
    core = Core()
    core.see(node("big", 300), node("small", 50), loose("g", 2, wait_s=600))
    core.see(member("g-driver", "g", 100), member("g-worker", "g", 300))
    assert {"g-driver": "big"} == held(core)
    core.see(node("middle", 150))
    assert {"g-driver": "middle", "g-worker": "big"} == core.binds()
    invariants.check(core.state)


def test_a_hopeless_gang_does_not_ask_each_holder_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty hold a node each; none is large enough for the important gang, whoever lets go."""
    core = Core()
    core.see(*[node(f"n{index:02}", 100) for index in range(40)])
    for index in range(40):
        stray = member(f"l{index}-1", f"l{index}", spec={"node_selector": {"zone": "none"}})
        core.see(loose(f"l{index}", 2), *crew(f"l{index}", 1), stray)
    assert 40 == len(held(core))
    tries: list[int] = []
    fit = Placement.fit

    def counted(self: Placement, pods: list[Pod], needed: int) -> Fit:
        tries.append(needed)
        return fit(self, pods, needed)

    monkeypatch.setattr(Placement, "fit", counted)
    large = [member(f"g-{index}", "g", 300, spec={"priority": 10}) for index in range(2)]
    core.see(podgroup("g", 2), *large)
    assert (40, True) == (len(held(core)), 0 < len(tries) <= 5)


@pytest.mark.parametrize("younger", [1, 2])
def test_a_gang_changes_places_with_what_the_younger_ones_hold(younger: int) -> None:
    """Its driver holds the worker's only node, a younger gang the driver's other one: neither may wait for the end."""
    core = Core()
    stray = member("g-stray", "g", spec={"node_selector": {"zone": "none"}})
    core.see(node("big", 300), loose("g", 2, wait_s=600), member("g-driver", "g", 100), stray)
    for index in range(younger):
        core.see(node(f"n{index}", 150), loose(f"l{index}", 2, created_us=START_US + 1 + index))
        stray = member(f"l{index}-1", f"l{index}", spec={"node_selector": {"zone": "none"}})
        core.see(member(f"l{index}-0", f"l{index}", 150), stray)
    assert 1 + younger == len(held(core))
    core.see(member("g-worker", "g", 300))
    assert {"g-driver", "g-worker"} == set(core.binds())


def test_who_may_hold_is_tried_though_one_that_asks_for_the_same_and_may_not_is_in_vain() -> None:
    """Both lack one worker; only the younger, whose gap is half of it, holds something, and only it can be moved."""
    core = Core(gangs={"podGroupRejectPercentage": 50})
    core.see(node("big", 300), upstream("young", 2, created_us=START_US + 1))
    core.see(member("young-driver", "young", 100), member("young-worker", "young", 300))
    core.see(upstream("old", 1), member("old-worker", "old", 300))
    assert {"young-driver": "big"} == held(core)
    core.see(node("middle", 150))
    assert {"young-driver": "middle", "young-worker": "big"} == core.binds()
    invariants.check(core.state)

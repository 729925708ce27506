"""Nodes worked out for many pods at once are those that one after another would get, and nothing is written for it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from state import snapshot
from state.candidates import pick_node, pick_nodes
from state.model.rows import Pod
from state.model.state import State
from state.model.trial import Trial
from state.placement import Placement
from tests.builders import Core, cards, node, pod

Json = dict[str, Any]
#: cpu, GPUs: some nodes hold one pod, some twenty; some have cards by device report, some plain, some none.
CPUS = st.sampled_from([300, 1_000, 1_000, 4_000, 20_000])
SHAPES = ({"cpu": 100}, {"cpu": 300}, {"nvidia.com/gpu": 1}, {"cpu": 100, "nvidia.com/gpu": 2})


@st.composite
def clusters(draw: st.DrawFn) -> Core:
    """A few nodes, of which some hold pods already."""
    core = Core(cycle={"placementsMax": 1_000})
    for number in range(draw(st.integers(0, 7))):
        name, gpus = f"n{number}", draw(st.sampled_from([0, 0, 2, 8]))
        core.see(node(name, draw(CPUS), **({"gpus": gpus} if gpus else {})), topic="nodes")
        if gpus and draw(st.booleans()):
            core.see(cards(name, gpus), topic="devices")
    core.see(
        *(
            shaped(f"old-{index}", draw(st.sampled_from(SHAPES)))
            for index in range(draw(st.integers(0, 6)))
        )
    )
    return core


def shaped(name: str, requests: dict[str, int]) -> Json:
    """A pod that asks for just that."""
    return pod(name, spec={"requests": requests})


def waiting(core: Core, runs: list[tuple[dict[str, int], int]]) -> list[Pod]:
    """Runs of pods of one shape each, seen before anything may be placed."""
    lone = Core()
    names = [
        (f"new-{at}-{index}", shape)
        for at, (shape, count) in enumerate(runs)
        for index in range(count)
    ]
    for name, shape in names:
        lone.see(shaped(name, shape))
    return [lone.pod(name) for name, _ in names]


def rows(state: State) -> bytes:
    """All rows, and what columns say of them."""
    columns = state.columns
    return snapshot.encode(state) + columns.used.tobytes() + columns.cards_free.tobytes()


@settings(max_examples=60, deadline=None)
@given(clusters(), st.sampled_from(SHAPES), st.sampled_from([1, 3, 7, 8, 9, 30, 100]))
def test_picks_at_once_are_the_picks_one_by_one(
    core: Core, shape: dict[str, int], count: int
) -> None:
    """The same nodes in the same order, as many as fit; asking changes nothing."""
    (asked,) = waiting(core, [(shape, 1)])
    state = core.state
    scores, before = state.scores_of(asked), rows(state)
    at_once = pick_nodes(state, scores, count)
    assert at_once == pick_nodes(state, scores, count)
    assert before == rows(state)
    one_by_one = []
    while len(one_by_one) < count and (node_ord := pick_node(state, scores)) >= 0:
        one_by_one.append(node_ord)
        state.columns.charge(scores.request, scores.podclass.cards, [node_ord], +1)
    assert one_by_one == at_once


RUNS = st.lists(st.tuples(st.sampled_from(SHAPES), st.integers(1, 12)), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(clusters(), RUNS, st.integers(1, 30))
def test_a_fit_is_what_placing_one_after_another_gives(
    core: Core, asked: list[tuple[dict[str, int], int]], needed: int
) -> None:
    """Pods and nodes, who is left over, and why the first of those found none; State is as it was."""
    pods = waiting(core, asked)
    before = rows(core.state)
    placement = Placement(Trial(core.state, core.state.sequence + 1, core.state.timestamp_us + 1))
    fit = placement.fit(pods, needed)
    assert before == rows(core.state)
    placement = Placement(placement.trial)
    chosen, rest, misfit = [], [], None
    for each in pods:
        if len(chosen) < needed and placement.place(each):
            chosen.append((each.uid, core.state.nodes[core.state.pods[each.uid].assumed].ord))
            continue
        rest.append(each.uid)
        if len(chosen) < needed:
            misfit = misfit or placement.misfit(each)
    placement.trial.drop()
    assert chosen == [(each.uid, node_ord) for each, node_ord in fit.chosen]
    assert rest == [each.uid for each in fit.rest]
    assert (misfit if len(chosen) < needed else None) == fit.misfit
    assert before == rows(core.state)

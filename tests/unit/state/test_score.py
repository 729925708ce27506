"""The score by array and one by one, and the pick that looks only at what changed."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.candidates import pick_node
from state.model.columns import UNCOUNTED_CARDS, Columns
from state.model.podclass import parse_class
from state.model.rows import Node
from state.model.scores import MAY, ClassScores
from state.model.state import State
from state.rules.score import score_node, score_nodes
from tests.builders import GIB, Core, gone, node, pod

AMOUNTS = st.one_of(st.integers(0, 10), st.integers(0, 1 << 20), st.sampled_from([0, 1 << 50]))


@st.composite
def columns_and_class(draw: st.DrawFn) -> tuple[Columns, ClassScores]:
    """Random amounts on a few nodes, over-used ones too, and a class that asks for some of them."""
    count = draw(st.integers(1, 12))
    requests = draw(
        st.dictionaries(
            st.sampled_from(["cpu", "memory", "example.com/x", "nvidia.com/gpu"]), AMOUNTS
        )
    )
    columns = Columns()
    spec = json.dumps({"scheduler_name": "lockstep", "requests": requests}).encode()
    scores = ClassScores(parse_class(spec), columns)
    columns.make_room(count)
    scores.resize(columns.capacity)
    for node_ord in range(count):
        scores.reason[node_ord] = draw(st.sampled_from([MAY, MAY, MAY, 1]))
        columns.cards_free[node_ord] = draw(st.sampled_from([0, 1, 8, UNCOUNTED_CARDS]))
        for axis in range(len(columns.axes)):
            columns.total[axis, node_ord] = draw(AMOUNTS)
            columns.used[axis, node_ord] = draw(AMOUNTS)
    return columns, scores


@settings(max_examples=100, deadline=None)
@given(columns_and_class())
def test_both_scores_give_the_same_integers(case: tuple[Columns, ClassScores]) -> None:
    """By array and one by one, for every ordinal, with or without a node."""
    columns, scores = case
    by_array = score_nodes(columns, scores, np.arange(columns.capacity)).tolist()
    one_by_one = [score_node(columns, scores, node_ord) for node_ord in range(columns.capacity)]
    assert one_by_one == by_array
    assert all(-1 <= score <= 100 for score in by_array)


def full_scan(state: State, scores: ClassScores) -> int:
    """The lowest ordinal of the highest score, by looking at every node row."""
    fresh = ClassScores(scores.podclass, state.columns)
    rows = sorted(state.nodes.values(), key=lambda row: row.ord)
    fresh.resize(state.columns.capacity)
    best, found = -1, -1
    for row in rows:
        fresh.reason[row.ord] = MAY
        score = score_node(state.columns, fresh, row.ord)
        if score > best:
            best, found = score, row.ord
    return found


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_pick_is_the_best_of_a_full_scan(data: st.DataObject) -> None:
    """Whatever was touched, joined or left since the last pick, also past 256 nodes and in freed ordinals."""
    state = State()
    specs = [
        json.dumps({"scheduler_name": "x", "requests": {"cpu": cpu, "memory": GIB}}).encode()
        for cpu in (100, 3_000)
    ]
    classes = [ClassScores(parse_class(spec), state.columns) for spec in specs]
    size, names = data.draw(st.sampled_from([3, 130, 250])), 0
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, size))):
            names += 1
            cpu = data.draw(st.sampled_from([2_000, 4_000, 8_000]))
            row = Node(
                name=f"n{names}",
                ord=state.free_ord(),
                rv=1,
                uid=f"u{names}",
                allocatable={"cpu": cpu, "memory": 64 * GIB, "pods": 110},
            )
            state.put("nodes", row.name, row)
        known = sorted(state.nodes)
        for name in data.draw(st.lists(st.sampled_from(known or [""]), max_size=9, unique=True)):
            if name:
                state.put("nodes", name, None)
        for name in data.draw(st.lists(st.sampled_from(known or [""]), max_size=9)):
            if name in state.nodes:
                node_ord = state.nodes[name].ord
                state.columns.used[0, node_ord] += 500
                state.columns.touch(node_ord)
        for scores in classes:
            if data.draw(st.booleans()):
                assert full_scan(state, scores) == pick_node(state, scores)


def test_the_emptier_node_is_better() -> None:
    """LeastAllocated: the share of cpu and memory that stays free, in percent, each rounded down."""
    core = Core()
    core.see(node("a", 4_000), node("b", 8_000), pod("p", 2_000))
    assert {"p": "b"} == core.binds()


def test_of_equal_nodes_the_lowest_ordinal_is_taken() -> None:
    """The one that joined first, or got the place of one that left."""
    core = Core()
    core.see(node("z"), node("a"), pod("p"))
    assert {"p": "z"} == core.binds()
    core.see(gone("nodes", "z"), node("y", rv=200), pod("q"))
    assert "y" == core.binds()["q"]


def test_equal_pods_spread_over_equal_nodes() -> None:
    """Each goes to the emptiest: 600 pods on 300 nodes are two on each."""
    core = Core(cycle={"placementsMax": 1_000})
    for start in range(0, 300, 50):
        core.see(*(node(f"n{index}") for index in range(start, start + 50)))
    for start in range(0, 600, 100):
        core.see(*(pod(f"p{index}") for index in range(start, start + 100)))
    placed = list(core.binds().values())
    assert (600, {2}) == (len(placed), {placed.count(name) for name in core.state.nodes})

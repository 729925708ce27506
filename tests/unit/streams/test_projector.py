"""The projector: rows that follow from decisions are those of State, whatever came in between."""

from state.model.state import State
from streams.projector import Projector
from tests.builders import Core, cards, ended, gone, member, node, pod, podgroup


def _tables(core: Core) -> tuple[dict[tuple[str, str], bytes], Projector]:
    """The tables that result from folding all decisions, and the projector that did it."""
    projector = Projector(State())
    tables: dict[tuple[str, str], bytes] = {}
    for decision in core.decisions:
        for table, key, row in projector.on_decision(decision.data):
            if row is None:
                tables.pop((table, key), None)
            else:
                tables[table, key] = row
    return tables, projector


def _play() -> Core:
    core = Core()
    core.see(node("n1"), node("n2", gpus=2), topic="nodes")
    core.see(cards("n2", 2), topic="devices")
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(
        member("a", "g"), member("b", "g"), pod("gpu", spec={"requests": {"nvidia.com/gpu": 1}})
    )
    return core


def test_folded_tables_equal_state() -> None:
    """Rows written decision by decision equal the rows of the State at the end."""
    tables, projector = _tables(_play())
    expected = {(table, key): row for table, key, row in projector.all_rows() if row is not None}
    assert expected == tables
    assert {table for table, _ in tables} == {"pods", "nodes", "gangs", "gpus"}


def test_rows_go_with_their_objects() -> None:
    """A node that leaves takes its row and its GPUs' rows with it, a pod its own, a gang its own."""
    core = _play()
    core.see(gone("nodes", "n2"), topic="nodes")
    core.see(*(gone("pods", name) for name in ("a", "b", "gpu")))
    core.see(gone("podgroups.scheduling.sigs.k8s.io", "g", uid="uid-group-g"), topic="podgroups")
    tables, projector = _tables(core)
    expected = {(table, key): row for table, key, row in projector.all_rows() if row is not None}
    assert expected == tables
    assert [("nodes", "n1")] == sorted(tables)


def test_a_card_shows_who_holds_it() -> None:
    """The GPU's row names the pod while the bind is under way and afterwards."""
    core = _play()
    tables, _ = _tables(core)
    assert b'"pods":["default/gpu"]' in tables["gpus", "n2/0"]
    core.see(ended(core.pod("gpu").command), topic="results")
    tables, _ = _tables(core)
    assert b'"pods":["default/gpu"]' in tables["gpus", "n2/0"]
    assert b'"pods":[]' in tables["gpus", "n2/1"]


def test_a_policy_that_reads_other_objects_shows_in_the_rows_of_gangs() -> None:
    """Two PodGroups of one name differ; off, that of Kubernetes is not read, and there is no conflict to tell."""
    core = Core(gangs={"kubernetesWorkloads": True})
    other = {"group": "scheduling.k8s.io", "uid": "uid-native-g"}
    core.see(podgroup("g", 2), podgroup("g", 3, **other), member("a", "g"), topic="podgroups")
    tables, _ = _tables(core)
    assert b'"conflicts":["in ' in tables["gangs", "default/g"]
    off = {"kind": "PolicyChanged", "id": "off", "spec": {"gangs": {"kubernetesWorkloads": False}}}
    core.see(off, topic="admin")
    tables, _ = _tables(core)
    assert b'"conflicts":null' in tables["gangs", "default/g"]

"""The filters of this version against the recorded answers of kube-scheduler 1.37 (tests/reference/kube_filters)."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from producers.observe import OBSERVE
from schemas.topics import RESOURCES
from state.candidates import refresh
from tests.builders import Core

ANSWERS = Path(__file__).parents[2] / "reference" / "kube_filters.jsonl.gz"
#: The plugins whose rules this version has.
OURS = frozenset({"NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodeResourcesFit"})
_RESOURCE = {"Pod": "pods", "Node": "nodes", "Namespace": "namespaces"}


def _cases() -> list[dict[str, Any]]:
    with gzip.open(ANSWERS, "rt") as lines:
        return [json.loads(line) for line in lines]


CASES = _cases()


def _stored(raw: dict[str, Any], number: int) -> None:
    """What the API server would have added to a recorded object."""
    stamp = {
        "uid": f"uid-{number}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    raw["metadata"] = {**stamp, **raw["metadata"]}


def _refused_by_us(case: dict[str, Any]) -> dict[str, bool]:
    """Node -> whether the class of the incoming pod may not go there now."""
    core = Core(schedulerNames=["incoming"])
    for number, raw in enumerate(case["objects"]):
        resource = _RESOURCE.get(raw["kind"])
        if resource is None:
            continue
        _stored(raw, number)
        seen = OBSERVE[resource](raw).model_dump(mode="json")
        core.see(seen, topic=RESOURCES[resource])
    raw = case["pod"]
    _stored(raw, 999_999)
    raw["spec"] = {key: value for key, value in raw["spec"].items() if key != "nodeName"}
    incoming = OBSERVE["pods"](raw).model_dump(mode="json")
    core.see(incoming)
    scores = core.state.scores_of(core.state.pods[incoming["uid"]])
    refresh(core.state, scores)
    return {name: scores.score.item(row.ord) < 0 for name, row in core.state.nodes.items()}


def _refused_by_reference(case: dict[str, Any]) -> dict[str, bool]:
    """Node -> whether one of our plugins refused it; nodes on which the answer doesn't say are left out."""
    expect = case["expect"]
    refused = dict.fromkeys(expect.get("feasible") or (), False)
    for name, answer in (expect.get("infeasible") or {}).items():
        if "all" in answer:
            refused[name] = any(entry["plugin"] in OURS for entry in answer["all"])
        elif answer["plugin"] == "NodeAffinity":
            refused[name] = True
    return refused


@pytest.mark.parametrize("chunk", range(10))
def test_the_same_nodes_are_refused(chunk: int) -> None:
    """For every recorded case, the set of nodes that our filters refuse is the reference's."""
    compared = 0
    for case in CASES[chunk::10]:
        expected = _refused_by_reference(case)
        actual = _refused_by_us(case)
        assert {name: actual[name] for name in expected} == expected, f"case {case['case']}"
        compared += len(expected)
    assert compared > 400

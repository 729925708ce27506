"""Preemption of single pods against the recorded answers of kube-scheduler 1.37 (tests/reference/kube_preemption).

Left out are cases that lean on constraints which this version does not decide, and those with pods that are being
deleted: the reference may choose such a pod as a victim, we count on its room. A PodDisruptionBudget with an empty
selector is not told: kube-scheduler passes over it here, though an eviction would be refused for it; we respect it.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from producers.observe import OBSERVE
from schemas.topics import RESOURCES
from state.model.seen import LabelNeed
from state.model.selectors import selects
from tests.builders import Core, Json

ANSWERS = Path(__file__).parents[2] / "reference" / "kube_preemption.jsonl.gz"
_RESOURCE = {
    "Pod": "pods",
    "Node": "nodes",
    "Namespace": "namespaces",
    "PodDisruptionBudget": "poddisruptionbudgets.policy",
}


def _observed(raw: Json, number: int) -> Json:
    """What a producer says of a recorded object, with what the API server would have added to it."""
    stamp = {
        "uid": f"uid-{number}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    stored = {**raw, "metadata": {**stamp, **raw["metadata"]}}
    return dict(OBSERVE[_RESOURCE[raw["kind"]]](stored).model_dump(mode="json"))


def _is_ours(case: dict[str, Any]) -> bool:
    """Whether resources, taints and node affinity alone decide the case."""
    incoming = case["pod"]
    pods = [raw for raw in case["objects"] if raw["kind"] == "Pod"]
    return (
        all(raw["kind"] in _RESOURCE for raw in case["objects"])
        and not _observed(incoming, 0)["spec"]["unsupported"]
        and not any(raw["metadata"].get("deletionTimestamp") for raw in pods)
        and not any(_repels(raw, incoming["metadata"]) for raw in pods)
    )


def _repels(raw: Json, incoming: Json) -> bool:
    """Whether required anti-affinity of a pod may speak against one with that metadata."""
    affinity = raw["spec"].get("affinity", {}).get("podAntiAffinity", {})
    return any(
        selects(_needs(term.get("labelSelector") or {}), incoming["labels"])
        and (
            "namespaceSelector" in term
            or incoming["namespace"] in (term.get("namespaces") or (raw["metadata"]["namespace"],))
        )
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ())
    )


def _needs(selector: Json) -> tuple[LabelNeed, ...]:
    found = [
        LabelNeed(key=key, operator="In", values=(value,))
        for key, value in selector.get("matchLabels", {}).items()
    ]
    found += [
        LabelNeed(
            key=item["key"], operator=item["operator"], values=tuple(item.get("values") or ())
        )
        for item in selector.get("matchExpressions", ())
    ]
    return tuple(found)


def _cases() -> list[dict[str, Any]]:
    with gzip.open(ANSWERS, "rt") as lines:
        return [json.loads(line) for line in lines]


ALL = _cases()
CASES = [case for case in ALL if _is_ours(case)]


def _preempted(case: dict[str, Any], nodes: list[str]) -> tuple[str, list[str]]:
    """Nominated node and victims, where only these nodes are there."""
    scheduler = case["pod"]["spec"]["schedulerName"]
    core = Core(schedulerNames=[scheduler], preemption={"respectBudgets": False})
    for number, raw in enumerate(case["objects"]):
        if _is_passed_over(raw) or (raw["kind"] == "Node" and raw["metadata"]["name"] not in nodes):
            continue
        core.see(_observed(raw, number), topic=RESOURCES[_RESOURCE[raw["kind"]]])
    incoming = _observed(case["pod"], 999_999)
    decision = core.see(incoming)
    victims = [
        f"{command.namespace}/{command.name}"
        for command in decision.commands
        if command.kind == "EvictPod"
    ]
    return core.state.pods[incoming["uid"]].nominated, sorted(victims)


def _is_passed_over(raw: Json) -> bool:
    return raw["kind"] == "PodDisruptionBudget" and not raw["spec"].get("selector")


def _victims(answer: dict[str, Any]) -> list[str]:
    return sorted(answer["victims"])


def test_enough_of_the_cases_are_ours() -> None:
    """36 ask for nothing but what this version decides; 264 lean on affinity, spreading, ports or volumes."""
    assert (300, 36) == (len(ALL), len(CASES))


@pytest.mark.parametrize("chunk", range(5))
def test_the_same_victims_on_each_node(chunk: int) -> None:
    """Where only one node is there, the reference's victims on it are evicted, and nobody where it has none."""
    for case in CASES[chunk::5]:
        expect = case["expect"]
        for name, answer in expect.get("candidates", {}).items():
            assert _preempted(case, [name]) == (name, _victims(answer)), f"case {case['case']}"
        for name in expect.get("no_candidate", ()):
            assert _preempted(case, [name]) == ("", []), f"case {case['case']}"


@pytest.mark.parametrize("chunk", range(5))
def test_the_same_node_is_chosen(chunk: int) -> None:
    """Of all nodes the reference's is chosen."""
    for case in CASES[chunk::5]:
        expect = case["expect"]
        names = [raw["metadata"]["name"] for raw in case["objects"] if raw["kind"] == "Node"]
        chosen = expect["chosen"]
        expected = (chosen, _victims(expect["candidates"][chosen])) if chosen else ("", [])
        assert _preempted(case, names) == expected, f"case {case['case']}"

"""PodGroups and Workloads of Kubernetes itself, and the pods that name one."""

from typing import Any

import pytest

from producers.observe import observe_pod, observe_workload
from producers.observe.kubernetes_groups import observe_kubernetes_group
from schemas.errors import InvalidMessage
from schemas.observations import PodGroupStatus
from tests.unit.producers.raw_objects import RAW, metadata, pod


@pytest.mark.parametrize(
    ("policy", "minimum"), [({"gang": {"minCount": 4}}, 4), ({"basic": {}}, 0), (None, 0)]
)
def test_a_podgroup_of_kubernetes(policy: Any, minimum: int) -> None:
    """Its gang policy has the minimum; with policy basic nobody waits. An item of a list names no API group."""
    raw = {
        "metadata": metadata(),
        "spec": {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": "k"}]}},
        "status": {
            "conditions": [{"type": "DisruptionTarget", "status": "True"}],
            "phase": "Running",
        },
    }
    found = observe_kubernetes_group(raw)
    assert ("scheduling.k8s.io", minimum, None) == (found.group, found.min_member, found.status)
    assert ("schedulingConstraints",) == found.unsupported


def test_the_scheduling_group_of_a_pod() -> None:
    """Only where the pod names one."""
    named = observe_pod(pod({"schedulingGroup": {"podGroupName": "g"}}))
    assert ("g", ()) == (named.scheduling_group, named.spec.unsupported)
    assert observe_pod(pod({"schedulingGroup": {}})).scheduling_group is None


@pytest.mark.parametrize("kind", ["PodGroupScheduled", "PodGroupInitiallyScheduled"])
def test_the_condition_of_a_podgroup(kind: str) -> None:
    """Whether it was placed, by the name of 1.36 or of 1.37; conditions of other types are passed over."""
    said = {
        "type": kind,
        "status": "False",
        "reason": "Unschedulable",
        "message": "no room",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    other = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    raw = {**RAW["podgroups.scheduling.k8s.io"], "status": {"conditions": [other, said]}}
    assert (
        PodGroupStatus(
            condition="False",
            condition_us=1_767_225_600_000_000,
            message="no room",
            reason="Unschedulable",
        )
        == observe_kubernetes_group(raw).status
    )


def test_a_status_too_large_does_not_hide_the_podgroup() -> None:
    """Its policy stays."""
    said = {"type": "PodGroupScheduled", "status": "False", "message": "x" * 100_000}
    raw = {**RAW["podgroups.scheduling.k8s.io"], "status": {"conditions": [said]}}
    found = observe_kubernetes_group(raw)
    assert (None, 3) == (found.status, found.min_member)


def test_a_workload() -> None:
    """A minimum for each pod group; one of policy basic has none. Koordinator's annotations stay."""
    key = "gang.scheduling.koordinator.sh/mode"
    raw = {
        "metadata": metadata(annotations={key: "NonStrict", "other": "x"}),
        "spec": {
            "podGroups": [
                {"name": "workers", "policy": {"gang": {"minCount": 4}}},
                {"name": "driver", "policy": {"basic": {}}},
            ]
        },
    }
    found = observe_workload(raw, "e")
    assert ({"driver": 0, "workers": 4}, "e") == (found.pod_groups, found.epoch)
    assert {key: "NonStrict"} == found.annotations


def test_a_workload_of_later_versions_declares_nothing() -> None:
    """Its templates are for PodGroups, which declare themselves."""
    raw = {
        "metadata": metadata(),
        "spec": {"podGroupTemplates": [{"name": "g", "schedulingPolicy": {"basic": {}}}]},
    }
    assert {} == observe_workload(raw).pod_groups


@pytest.mark.parametrize(
    ("groups", "field"),
    [
        ([{"policy": {}}], "spec.podGroups[0].name"),
        (
            [{"name": "a"}, {"name": "b", "policy": {"gang": {"minCount": "2"}}}],
            "[1].policy.gang.minCount",
        ),
        ("g", "spec.podGroups"),
    ],
)
def test_a_workload_that_cannot_be_read_names_the_field(groups: Any, field: str) -> None:
    """And the object."""
    with pytest.raises(InvalidMessage) as refusal:
        observe_workload({"metadata": metadata(), "spec": {"podGroups": groups}})
    assert field in str(refusal.value)
    assert "Workload " in str(refusal.value)


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ({"name": "w", "podGroup": "g"}, "w/g"),
        ({"name": "w", "podGroup": "g", "podGroupReplicaKey": "7"}, "w/g/7"),
        ({}, None),
    ],
)
def test_the_workload_of_a_pod(reference: Any, named: str | None) -> None:
    """Workload, pod group, and the replica if there are several."""
    found = observe_pod(pod({"workloadRef": reference}))
    assert (named, ()) == (found.scheduling_group, found.spec.unsupported)


def test_a_reference_without_a_pod_group_is_wrong() -> None:
    """The API server would not have taken it."""
    with pytest.raises(InvalidMessage, match=r"spec\.workloadRef\.podGroup"):
        observe_pod(pod({"workloadRef": {"name": "w"}}))

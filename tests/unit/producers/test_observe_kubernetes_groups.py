"""PodGroups of Kubernetes itself, and the pods that name one."""

from typing import Any

import pytest

from producers.observe import observe_pod
from producers.observe.kubernetes_groups import observe_kubernetes_group
from tests.unit.producers.raw_objects import metadata, pod


@pytest.mark.parametrize(
    ("policy", "minimum"), [({"gang": {"minCount": 4}}, 4), ({"basic": {}}, 0), (None, 0)]
)
def test_a_podgroup_of_kubernetes(policy: Any, minimum: int) -> None:
    """Its gang policy has the minimum; with policy basic nobody waits. Its status is none of ours, and an item
    of a list names no API group.
    """
    raw = {
        "metadata": metadata(),
        "spec": {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": "k"}]}},
        "status": {"conditions": [{"type": "PodGroupScheduled"}], "phase": "Running"},
    }
    found = observe_kubernetes_group(raw)
    assert ("scheduling.k8s.io", minimum, None) == (found.group, found.min_member, found.status)
    assert ("schedulingConstraints",) == found.unsupported


def test_the_scheduling_group_of_a_pod() -> None:
    """Only where the pod names one."""
    named = observe_pod(pod({"schedulingGroup": {"podGroupName": "g"}}))
    assert ("g", ()) == (named.scheduling_group, named.spec.unsupported)
    assert observe_pod(pod({"schedulingGroup": {}})).scheduling_group is None

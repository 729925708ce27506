"""Raw objects as the API server shows them, one a resource."""

from typing import Any


def metadata(**more: Any) -> dict[str, Any]:
    """Metadata as the API server fills it in."""
    return {
        "uid": "u1",
        "resourceVersion": "7",
        "namespace": "ns",
        "name": "a",
        "creationTimestamp": "2026-01-01T00:00:01Z",
        **more,
    }


def pod(spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """A pending pod that asks for one cpu."""
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    return {"metadata": metadata(**meta), "spec": {"containers": containers, **(spec or {})}}


RAW: dict[str, dict[str, Any]] = {
    "pods": pod(),
    "nodes": {"metadata": metadata(), "status": {"allocatable": {"cpu": "4"}}},
    "namespaces": {"metadata": metadata()},
    "priorityclasses.scheduling.k8s.io": {"metadata": metadata(), "value": 1000},
    "podgroups.scheduling.x-k8s.io": {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": metadata(),
        "spec": {"minMember": 3},
    },
    "podgroups.scheduling.sigs.k8s.io": {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "metadata": metadata(),
    },
    "podgroups.scheduling.k8s.io": {
        "metadata": metadata(),
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    },
    "workloads.scheduling.k8s.io": {
        "metadata": metadata(),
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 3}}}]},
    },
    "elasticquotas.scheduling.x-k8s.io": {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "metadata": metadata(),
        "spec": {"max": {"cpu": "4"}},
    },
    "elasticquotas.scheduling.sigs.k8s.io": {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "metadata": metadata(),
    },
    "poddisruptionbudgets.policy": {
        "metadata": metadata(generation=1),
        "spec": {
            "minAvailable": 2,
            "selector": {
                "matchLabels": {"app": "a"},
                "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b"]}],
            },
        },
        "status": {"disruptionsAllowed": 1, "observedGeneration": 1},
    },
    "devices.scheduling.koordinator.sh": {
        "metadata": metadata(),
        "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True}]},
    },
}

"""Kubernetes objects as plain dicts, with just what a test wants to vary. Called by tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.api import Object

Amounts = Mapping[str, str]


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def node(
    name: str,
    allocatable: Amounts,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
) -> Object:
    """A Ready node; `pods` is 110 unless given."""
    amounts = {"pods": "110", **allocatable}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    spec: Object = {"taints": [dict(taint) for taint in taints]}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def pod_spec(requests: Amounts, *, scheduler: str = "lockstep", **more: Any) -> Object:
    """One container with these requests as limits too, for extended resources need both."""
    resources = {"requests": dict(requests), "limits": dict(requests)}
    container = {"name": "main", "image": "none", "resources": resources}
    return {"schedulerName": scheduler, "containers": [container], **more}


def pod(
    name: str,
    requests: Amounts,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod; further keywords go into its spec (`nodeName`, `priorityClassName`, `scheduler`)."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels or {}),
        "annotations": dict(annotations or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": pod_spec(requests, **spec),
    }


def deployment(
    name: str,
    replicas: int,
    requests: Amounts,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Deployment; labels and annotations go to its pods."""
    selector = {"app": name}
    template = {
        "metadata": {
            "labels": {**selector, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": pod_spec(requests, **spec),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": selector}, "template": template},
    }


def pod_group(
    name: str,
    min_member: int,
    *,
    api_group: str = "scheduling.x-k8s.io",
    namespace: str = "default",
) -> Object:
    return {
        "apiVersion": f"{api_group}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": min_member},
    }

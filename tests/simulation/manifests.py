"""Manifests of what users make in the simulated cluster."""

from typing import Any

from schemas.labels import GANG_MODE

Json = dict[str, Any]
NAMESPACE = "default"


def pod(name: str, labels: dict[str, str], spec: Json) -> Json:
    """A Pod."""
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_group(name: str, minimum: int, annotations: dict[str, str], wait_s: int) -> Json:
    """A PodGroup. `wait_s`: its wait time, and it is NonStrict then."""
    spec = {"minMember": minimum}
    if wait_s:
        annotations = {**annotations, GANG_MODE: "NonStrict"}
        spec["scheduleTimeoutSeconds"] = wait_s
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec,
    }


def device(name: str, count: int) -> Json:
    """A Device with so many healthy GPUs."""
    resources = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "80Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"{name}-{minor}",
            "health": True,
            "resources": resources,
        }
        for minor in range(count)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }

"""Pod -> `PodObserved`: identity, where it is, and what decides where it may go.

Must not judge whether the pod fits anywhere: a request that can never be met is only named
(`spec.invalid`), and fields that no rule decides yet are listed (`spec.unsupported`).
"""

from typing import Any, Final

from producers.observe.fields import (
    created_us,
    mapping,
    micros,
    observing,
    sequence,
    strings,
    text,
    texts,
    version,
    whole,
)
from producers.observe.requests import effective_requests, is_sidecar
from schemas.allocations import read_allocations, read_command_id
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED, kept_annotations
from schemas.observations import (
    NodeSelectorTerm,
    PodObserved,
    PodSpec,
    SelectorRequirement,
    Toleration,
)

#: What the API server fills in when a pod names no scheduler.
DEFAULT_SCHEDULER: Final = "default-scheduler"
#: What is left of texts of a pod that is too large; a name of Kubernetes is no longer.
NAME_CHARS_MAX: Final = 253
INVALID_CHARS_MAX: Final = 500
#: Parts of node selector, node affinity and tolerations, and values in them: each node is compared with all of them.
COMPARED_MAX: Final = 256
VALUES_MAX: Final = 4_096
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _minimal(seen: PodObserved, why: str) -> PodObserved:
    """Capacity only: the pod still counts where it is, and is never placed."""
    judged = seen.spec.invalid and seen.spec.invalid[:INVALID_CHARS_MAX]
    spec = PodSpec(
        scheduler_name=seen.spec.scheduler_name[:NAME_CHARS_MAX],
        priority=seen.spec.priority,
        preemption_policy=seen.spec.preemption_policy,
        requests=seen.spec.requests,
        invalid=judged if seen.node else f"the pod is too large: {why}",
    )
    return seen.model_copy(
        update={"labels": {}, "annotations": {}, "gates": (), "spec": spec, "owner": None}
    )


@observing("pod", _minimal)
def observe_pod(raw: dict[str, Any], epoch: str | None = None) -> PodObserved:
    """The observation of a pod as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    status = mapping(raw.get("status"), "status")
    annotations = strings(metadata.get("annotations"), "metadata.annotations")
    return PodObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        created_us=created_us(metadata),
        labels=strings(metadata.get("labels"), "metadata.labels"),
        annotations=kept_annotations(annotations),
        spec=_spec(spec, status),
        node=text(spec.get("nodeName"), "spec.nodeName", default="") or None,
        phase=text(status.get("phase"), "status.phase", default="Pending"),  # type: ignore[arg-type]
        gates=tuple(
            text(gate.get("name"), "spec.schedulingGates.name")
            for gate in sequence(spec.get("schedulingGates"), "spec.schedulingGates")
        ),
        started_us=micros(status.get("startTime"), "status.startTime"),
        deleted_us=micros(metadata.get("deletionTimestamp"), "metadata.deletionTimestamp"),
        allocations=read_allocations(annotations.get(DEVICE_ALLOCATED)),
        command_id=read_command_id(annotations.get(COMMAND_ID)),
        owner=_owner(metadata),
        scheduling_group=_scheduling_group(spec),
        epoch=epoch,
    )


def _spec(spec: dict[str, Any], status: dict[str, Any]) -> PodSpec:
    requests, invalid = effective_requests(spec, status)
    affinity = mapping(spec.get("affinity"), "spec.affinity")
    seen = PodSpec(
        scheduler_name=text(spec.get("schedulerName"), "spec.schedulerName", DEFAULT_SCHEDULER),
        priority=whole(spec.get("priority"), "spec.priority", default=0),
        preemption_policy=text(  # type: ignore[arg-type]
            spec.get("preemptionPolicy"), "spec.preemptionPolicy", "PreemptLowerPriority"
        ),
        requests=requests,
        invalid=invalid,
        unsupported=_unsupported(spec, affinity),
        node_selector=strings(spec.get("nodeSelector"), "spec.nodeSelector"),
        affinity=_node_affinity(affinity),
        tolerations=_tolerations(spec),
    )
    return _bounded(seen)


def _bounded(spec: PodSpec) -> PodSpec:
    """The spec, or one that is invalid and compared with no node, where comparing would cost too much."""
    terms = spec.affinity or ()
    needs = [need for term in terms for need in (*term.expressions, *term.fields)]
    parts = len(spec.node_selector) + len(terms) + len(needs) + len(spec.tolerations)
    values = sum(len(need.values) for need in needs)
    if parts <= COMPARED_MAX and values <= VALUES_MAX:
        return spec
    why = (
        f"node selector, node affinity and tolerations have {parts} parts and {values} values,"
        f" at most {COMPARED_MAX} and {VALUES_MAX}"
    )
    invalid = why if spec.invalid is None else f"{spec.invalid}; {why}"
    cut: dict[str, Any] = {
        "node_selector": {},
        "affinity": None,
        "tolerations": (),
        "invalid": invalid,
    }
    return spec.model_copy(update=cut)


def _node_affinity(affinity: dict[str, Any]) -> tuple[NodeSelectorTerm, ...] | None:
    node_affinity = mapping(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity")
    if node_affinity.get(_REQUIRED) is None:
        return None
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}"
    required = mapping(node_affinity[_REQUIRED], path)
    return tuple(
        NodeSelectorTerm(
            expressions=_requirements(term, "matchExpressions", path),
            fields=_requirements(term, "matchFields", path),
        )
        for term in sequence(required.get("nodeSelectorTerms"), f"{path}.nodeSelectorTerms")
    )


def _requirements(term: dict[str, Any], field: str, path: str) -> tuple[SelectorRequirement, ...]:
    return tuple(
        SelectorRequirement(
            key=text(item.get("key"), f"{path}.{field}.key"),
            operator=text(item.get("operator"), f"{path}.{field}.operator"),  # type: ignore[arg-type]
            values=texts(item.get("values"), f"{path}.{field}.values"),
        )
        for item in sequence(term.get(field), f"{path}.{field}")
    )


def _tolerations(spec: dict[str, Any]) -> tuple[Toleration, ...]:
    path = "spec.tolerations"
    found = [
        Toleration(
            key=text(item.get("key"), f"{path}.key", default=""),
            operator=text(item.get("operator"), f"{path}.operator", default="Equal"),  # type: ignore[arg-type]
            value=text(item.get("value"), f"{path}.value", default=""),
            effect=text(item.get("effect"), f"{path}.effect", default=""),  # type: ignore[arg-type]
        )
        for item in sequence(spec.get("tolerations"), path)
    ]
    return tuple(sorted(found, key=lambda item: (item.key, item.operator, item.value, item.effect)))


def _unsupported(spec: dict[str, Any], affinity: dict[str, Any]) -> tuple[str, ...]:
    found = []
    for field in ("podAffinity", "podAntiAffinity"):
        if mapping(affinity.get(field), f"spec.affinity.{field}").get(_REQUIRED):
            found.append(f"affinity.{field}")
    spread = sequence(spec.get("topologySpreadConstraints"), "spec.topologySpreadConstraints")
    if any(item.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule" for item in spread):
        found.append("topologySpreadConstraints")
    if _has_host_port(spec):
        found.append("containers.ports.hostPort")
    volumes = sequence(spec.get("volumes"), "spec.volumes")
    for field in ("persistentVolumeClaim", "ephemeral"):
        if any(volume.get(field) is not None for volume in volumes):
            found.append(f"volumes.{field}")
    if spec.get("resourceClaims"):
        found.append("resourceClaims")
    return tuple(sorted(found))


def _has_host_port(spec: dict[str, Any]) -> bool:
    init = sequence(spec.get("initContainers"), "spec.initContainers")
    running = sequence(spec.get("containers"), "spec.containers")
    return any(
        port.get("hostPort")
        for container in (*running, *(item for item in init if is_sidecar(item)))
        for port in sequence(container.get("ports"), "spec.containers.ports")
    )


def _scheduling_group(spec: dict[str, Any]) -> str | None:
    group = mapping(spec.get("schedulingGroup"), "spec.schedulingGroup")
    named = text(group.get("podGroupName"), "spec.schedulingGroup.podGroupName", default="")
    if named or not spec.get("workloadRef"):
        return named or None
    path = "spec.workloadRef"
    reference = mapping(spec["workloadRef"], path)
    parts = [text(reference.get(field), f"{path}.{field}") for field in ("name", "podGroup")]
    replica = text(reference.get("podGroupReplicaKey"), f"{path}.podGroupReplicaKey", default="")
    return "/".join([*parts, *([replica] if replica else ())])


def _owner(metadata: dict[str, Any]) -> str | None:
    path = "metadata.ownerReferences"
    for reference in sequence(metadata.get("ownerReferences"), path):
        if reference.get("controller") is True:
            kind = text(reference.get("kind"), f"{path}.kind")
            return f"{kind}/{text(reference.get('name'), f'{path}.name')}"
    return None

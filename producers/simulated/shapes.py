"""Shapes of the fields that the simulated API server and its controllers read themselves.

Not validation: objects are taken as already stored (design section 8). But a list where a map must
stand is refused with the field's name, instead of ending in the middle of a controller. What the
observations read is checked by `producers.observe`. Called by `producers.simulated.cluster`.
"""

import re
from typing import Any, Final

from producers.observe.fields import flag, mapping, natural, sequence, strings, text, texts, whole
from producers.simulated.kinds import Kind
from producers.simulated.store import Raw
from schemas.errors import InvalidMessage

#: Pods that one owner may ask for; more is a slip of the pen, not a cluster.
REPLICAS_MAX: Final = 100_000
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_AMOUNT: Final = re.compile(r"\d{1,9}%?", re.ASCII)


def check_shape(kind: Kind, document: Raw) -> None:
    """Raises `InvalidMessage` that names the first field of the wrong shape."""
    _check_metadata(mapping(document.get("metadata"), "metadata"), "metadata")
    spec = mapping(document.get("spec"), "spec")
    mapping(document.get("status"), "status")
    match kind.name:
        case "Pod":
            _check_pod_spec(spec, "spec")
        case "ReplicaSet" | "Deployment" | "StatefulSet":
            _check_count(spec, "replicas")
            _check_template(spec)
        case "Job":
            for field in ("parallelism", "completions", "backoffLimit"):
                _check_count(spec, field)
            _check_template(spec)
        case "PodDisruptionBudget":
            _check_budget(spec)
        case "Device":
            for item in sequence(spec.get("devices"), "spec.devices"):
                natural(item.get("minor"), "spec.devices.minor", default=0)
        case "PriorityClass":
            whole(document.get("value"), "value", default=0)
            flag(document.get("globalDefault"), "globalDefault")
        case _:
            pass


def _check_metadata(metadata: Raw, path: str) -> None:
    text(metadata.get("namespace"), f"{path}.namespace", default="")
    for field in ("labels", "annotations"):
        strings(metadata.get(field), f"{path}.{field}")
    for item in sequence(metadata.get("ownerReferences"), f"{path}.ownerReferences"):
        text(item.get("uid"), f"{path}.ownerReferences.uid")


def _check_pod_spec(spec: Raw, path: str) -> None:
    for field in ("nodeName", "priorityClassName"):
        text(spec.get(field), f"{path}.{field}", default="")
    for field in ("initContainers", "containers"):
        for container in sequence(spec.get(field), f"{path}.{field}"):
            where = f"{path}.{field}.resources"
            resources = mapping(container.get("resources"), where)
            for part in ("limits", "requests"):
                mapping(resources.get(part), f"{where}.{part}")


def _check_template(spec: Raw) -> None:
    template = mapping(spec.get("template"), "spec.template")
    metadata = mapping(template.get("metadata"), "spec.template.metadata")
    _check_metadata(metadata, "spec.template.metadata")
    pod_spec = mapping(template.get("spec"), "spec.template.spec")
    _check_pod_spec(pod_spec, "spec.template.spec")


def _check_count(spec: Raw, field: str) -> None:
    if natural(spec.get(field), f"spec.{field}", default=0) > REPLICAS_MAX:
        raise _wrong(f"spec.{field}", f"at most {REPLICAS_MAX}", spec[field])


def _check_budget(spec: Raw) -> None:
    for field in ("minAvailable", "maxUnavailable"):
        value = spec.get(field)
        if value is not None and not (
            type(value) in (int, str) and _AMOUNT.fullmatch(str(value)) is not None
        ):
            raise _wrong(f"spec.{field}", "a number from 0 on or a percentage", value)
    selector = mapping(spec.get("selector"), "spec.selector")
    strings(selector.get("matchLabels"), "spec.selector.matchLabels")
    path = "spec.selector.matchExpressions"
    for item in sequence(selector.get("matchExpressions"), path):
        text(item.get("key"), f"{path}.key")
        texts(item.get("values"), f"{path}.values")
        if item.get("operator") not in _OPERATORS:
            raise _wrong(
                f"{path}.operator", "one of " + ", ".join(_OPERATORS), item.get("operator")
            )


def _wrong(path: str, wanted: str, value: Any) -> InvalidMessage:
    return InvalidMessage("InvalidField", f"field {path}: {wanted} is wanted, not {value!r}")

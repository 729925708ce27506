"""PodDisruptionBudget -> `BudgetObserved`: whom it covers, and how many may go now.

The amounts in its spec are no input of ours: the disruption controller works out from them, and from
pods of every kind, what the status allows.
"""

from typing import Any, Final

from producers.observe.fields import (
    mapping,
    observing,
    sequence,
    strings,
    text,
    texts,
    version,
    whole,
)
from schemas.observations import BudgetObserved, LabelRequirement

#: Operator -> whether values must be given.
_WITH_VALUES: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}


def _minimal(seen: BudgetObserved, _why: str) -> BudgetObserved:
    """Without its selector it must not let anything through: no pod of the namespace may go."""
    return seen.model_copy(update={"selector": (), "disruptions_allowed": 0})


@observing("PodDisruptionBudget", _minimal)
def observe_budget(raw: dict[str, Any], epoch: str | None = None) -> BudgetObserved:
    """The observation of a PodDisruptionBudget as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    return BudgetObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        selector=_selector(spec.get("selector")),
        disruptions_allowed=_allowed(metadata, mapping(raw.get("status"), "status")),
        epoch=epoch,
    )


def _allowed(metadata: dict[str, Any], status: dict[str, Any]) -> int:
    """What the status allows; nothing while it is about an older spec."""
    wanted = whole(metadata.get("generation"), "metadata.generation", default=0)
    if whole(status.get("observedGeneration"), "status.observedGeneration", default=0) < wanted:
        return 0
    return max(whole(status.get("disruptionsAllowed"), "status.disruptionsAllowed", default=0), 0)


def _selector(value: Any) -> tuple[LabelRequirement, ...] | None:
    """The selector in canonical form. One that Kubernetes could not read selects nothing, there and here."""
    if value is None:
        return None
    path = "spec.selector"
    found = mapping(value, path)
    labels = strings(found.get("matchLabels"), f"{path}.matchLabels")
    needs = [
        LabelRequirement(key=key, operator="In", values=(text,)) for key, text in labels.items()
    ]
    for item in sequence(found.get("matchExpressions"), f"{path}.matchExpressions"):
        need = _requirement(item, f"{path}.matchExpressions")
        if need is None:
            return None
        needs.append(need)
    return tuple(sorted(needs, key=lambda need: (need.key, need.operator, need.values)))


def _requirement(item: dict[str, Any], path: str) -> LabelRequirement | None:
    operator = text(item.get("operator"), f"{path}.operator")
    values = texts(item.get("values"), f"{path}.values")
    if _WITH_VALUES.get(operator) is not bool(values):
        return None
    return LabelRequirement(
        key=text(item.get("key"), f"{path}.key"),
        operator=operator,  # type: ignore[arg-type]  # one of the four, as just looked up
        values=tuple(sorted(set(values))),
    )

"""Label selectors: which pods a PodDisruptionBudget covers, by the rules of Kubernetes."""

from state.model.seen import LabelNeed


def selects(selector: tuple[LabelNeed, ...] | None, labels: dict[str, str]) -> bool:
    """Every requirement is met. An empty selector selects all, None selects nothing."""
    return selector is not None and all(_is_met(need, labels) for need in selector)


def _is_met(need: LabelNeed, labels: dict[str, str]) -> bool:
    if need.operator == "In":
        return need.key in labels and labels[need.key] in need.values
    if need.operator == "NotIn":
        return need.key not in labels or labels[need.key] not in need.values
    return (need.key in labels) == (need.operator == "Exists")

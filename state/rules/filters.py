"""Which nodes a pod class may ever use: node selector, required node affinity, cordons, taints (Kubernetes 1.37)."""

from state.model.limits import DIGITS_MAX
from state.model.podclass import PodClass, Requirement, SpecSeen, Term, TolerationSeen
from state.model.rows import Node
from state.model.scores import MAY, MISMATCH, TAINTED
from state.model.seen import TaintSeen

_CORDON = TaintSeen(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def node_reason(podclass: PodClass, node: Node) -> int:
    """MAY, MISMATCH or TAINTED: the first that speaks against the node, apart from room."""
    if podclass.selective and not matches_node(podclass.spec, node):
        return MISMATCH
    if (node.taints or node.unschedulable) and not tolerates_node(podclass.spec.tolerations, node):
        return TAINTED
    return MAY


def matches_node(spec: SpecSeen, node: Node) -> bool:
    """nodeSelector and required node affinity both match."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    return spec.affinity is None or any(_term_matches(term, node) for term in spec.affinity)


def tolerates_node(tolerations: tuple[TolerationSeen, ...], node: Node) -> bool:
    """Every NoSchedule and NoExecute taint, and the cordon, is tolerated."""
    if node.unschedulable and not any(
        _tolerates(toleration, _CORDON) for toleration in tolerations
    ):
        return False
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.taints
        if taint.effect != "PreferNoSchedule"
    )


def untolerated(podclass: PodClass, node: Node) -> list[str]:
    """What `tolerates_node` refuses the node for, as `KEY=VALUE:EFFECT`, the cordon first."""
    taints = (_CORDON, *node.taints) if node.unschedulable else node.taints
    return [
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
        for taint in taints
        if taint.effect != "PreferNoSchedule"
        and not any(_tolerates(each, taint) for each in podclass.spec.tolerations)
    ]


def unmatched(podclass: PodClass, node: Node) -> list[str]:
    """What `matches_node` refuses the node for: labels of the node selector that it lacks, then the affinity."""
    spec, found = podclass.spec, []
    for key in sorted(spec.node_selector):
        if node.labels.get(key) != spec.node_selector[key]:
            found.append(f"{key}={spec.node_selector[key]}")
    if spec.affinity is not None and not any(_term_matches(term, node) for term in spec.affinity):
        found.append("required node affinity")
    return found


def _tolerates(toleration: TolerationSeen, taint: TaintSeen) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if not toleration.key:
        return False
    if toleration.operator == "Equal":
        return toleration.value == taint.value
    left, right = _integer(taint.value), _integer(toleration.value)
    if left is None or right is None:
        return False
    return left < right if toleration.operator == "Lt" else left > right


def _term_matches(term: Term, node: Node) -> bool:
    if not term.expressions and not term.fields:
        return False
    return all(_requirement_matches(need, node.labels) for need in term.expressions) and all(
        need.key == "metadata.name" and _requirement_matches(need, {need.key: node.name})
        for need in term.fields
    )


def _requirement_matches(need: Requirement, labels: dict[str, str]) -> bool:
    value = labels.get(need.key)
    if need.operator == "In":
        return value is not None and value in need.values
    if need.operator == "NotIn":
        return value is None or value not in need.values
    if need.operator == "Exists":
        return value is not None
    if need.operator == "DoesNotExist":
        return value is None
    left, right = _integer(value), _integer(need.values[0]) if len(need.values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if need.operator == "Gt" else left < right


def _integer(text: str | None) -> int | None:
    """A signed decimal of 64 bits as Kubernetes parses it, or None."""
    if text is None:
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > DIGITS_MAX:
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None

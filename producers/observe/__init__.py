"""Raw Kubernetes objects -> observations: pure functions, one module a kind.

Must do no I/O and read no clock: the same object gives the same observation. Whatever is wrong
with an object leaves as `InvalidMessage` that names the object and the field. The informers and the
simulated cluster call `OBSERVE[resource](raw, epoch)`.
"""

from collections.abc import Callable
from typing import Any, Final

from producers.observe.budgets import observe_budget
from producers.observe.devices import observe_device
from producers.observe.fields import Identity, object_identity
from producers.observe.kubernetes_groups import observe_kubernetes_group
from producers.observe.namespaces import observe_namespace
from producers.observe.nodes import observe_node
from producers.observe.podgroups import observe_podgroup
from producers.observe.pods import observe_pod
from producers.observe.priorityclasses import observe_priorityclass
from producers.observe.quotas import observe_quota
from producers.observe.workloads import observe_workload
from schemas.observations import (
    BudgetObserved,
    DeviceObserved,
    NamespaceObserved,
    NodeObserved,
    PodGroupObserved,
    PodObserved,
    PriorityClassObserved,
    QuotaObserved,
    WorkloadObserved,
)

ObjectObserved = (
    PodObserved
    | NodeObserved
    | PodGroupObserved
    | WorkloadObserved
    | QuotaObserved
    | BudgetObserved
    | DeviceObserved
    | NamespaceObserved
    | PriorityClassObserved
)

#: Resource (`plural.group`) -> what observes one object of it: `(raw, epoch) -> observation`.
OBSERVE: Final[dict[str, Callable[[Any, str | None], ObjectObserved]]] = {
    "pods": observe_pod,
    "nodes": observe_node,
    "namespaces": observe_namespace,
    "priorityclasses.scheduling.k8s.io": observe_priorityclass,
    "podgroups.scheduling.x-k8s.io": observe_podgroup,
    "podgroups.scheduling.sigs.k8s.io": observe_podgroup,
    "podgroups.scheduling.k8s.io": observe_kubernetes_group,
    "workloads.scheduling.k8s.io": observe_workload,
    "elasticquotas.scheduling.x-k8s.io": observe_quota,
    "elasticquotas.scheduling.sigs.k8s.io": observe_quota,
    "poddisruptionbudgets.policy": observe_budget,
    "devices.scheduling.koordinator.sh": observe_device,
}

__all__ = [
    "OBSERVE",
    "Identity",
    "ObjectObserved",
    "object_identity",
    "observe_budget",
    "observe_device",
    "observe_namespace",
    "observe_node",
    "observe_pod",
    "observe_podgroup",
    "observe_priorityclass",
    "observe_quota",
    "observe_workload",
]

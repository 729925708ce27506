"""Nodes, devices, PodGroups, quotas, budgets, namespaces, priority classes were observed, or any object is gone."""

from msgspec.structs import replace

from state.model.facts import remove_object, remove_pod
from state.model.gangs import refresh_gang, refresh_replicas
from state.model.limits import AMOUNT_MAX, RESOURCES
from state.model.lists import admits, bury, is_namesake, is_newer
from state.model.rows import (
    Budget,
    Devices,
    Namespace,
    Node,
    PodGroup,
    PriorityClass,
    Quota,
    Workload,
)
from state.model.seen import (
    BudgetSeen,
    DeviceSeen,
    GoneSeen,
    NamespaceSeen,
    NodeSeen,
    PodGroupSeen,
    PriorityClassSeen,
    QuotaSeen,
    WorkloadSeen,
)
from state.model.trial import Trial


def on_node_seen(trial: Trial, seen: NodeSeen) -> None:
    """A node joined or changed. One that returns under its old name keeps its place in the columns."""
    state = trial.state
    old = state.nodes.get(seen.name)
    if not admits(trial, seen, "nodes", old):
        return
    if old is not None and not is_newer(trial, seen.rv, old.rv, seen.epoch):
        return
    new = Node(
        name=seen.name,
        ord=old.ord if old is not None else state.free_ord(),
        rv=seen.rv,
        uid=seen.uid,
        allocatable={name: min(amount, AMOUNT_MAX) for name, amount in seen.allocatable.items()},
        labels=seen.labels,
        taints=seen.taints,
        unschedulable=seen.unschedulable,
    )
    trial.put("nodes", seen.name, new)
    trial.wake = True


def on_device_seen(trial: Trial, seen: DeviceSeen) -> None:
    """A node's devices, from the Device object or from the node's agent (version: boot id, then counter)."""
    key = f"{seen.name}/{seen.source}"
    old = trial.state.tables["devices"].get(key)
    listed = seen.source == "object"  # an agent's versions are its own
    if listed and not admits(trial, seen, "devices.scheduling.koordinator.sh", old):
        return
    if (
        old is not None
        and old.boot_id == seen.boot_id
        and not is_newer(trial, seen.rv, old.rv, seen.epoch)
    ):
        return
    new = Devices(
        name=seen.name,
        rv=seen.rv,
        source=seen.source,
        uid=seen.uid,
        boot_id=seen.boot_id,
        devices=seen.devices,
    )
    trial.put("devices", key, new)
    trial.wake = True


def on_podgroup_seen(trial: Trial, seen: PodGroupSeen) -> None:
    """A PodGroup of any API group."""
    old = trial.state.podgroups.get(seen.uid)
    if not is_namesake(old, seen) or not admits(trial, seen, f"podgroups.{seen.group}", old):
        return
    if old is not None and not is_newer(trial, seen.rv, old.rv, seen.epoch):
        return
    new = PodGroup(
        created_us=seen.created_us,
        group=seen.group,
        min_member=seen.min_member,
        name=seen.name,
        namespace=seen.namespace,
        rv=seen.rv,
        uid=seen.uid,
        annotations=seen.annotations,
        disruption=seen.disruption,
        min_resources=seen.min_resources,
        schedule_timeout_us=seen.schedule_timeout_us or 0,
        status=seen.status,
        unsupported=seen.unsupported,
    )
    if old is not None:
        # Seen news by news: whoever overwrites a status at once may do so within one record.
        arrived = old.arrived or (old.written is not None and seen.status == old.written)
        new = replace(new, arrived=arrived, mended=old.mended, told=old.told, written=old.written)
        if old.disruption != new.disruption:
            trial.wake = True  # its pods may be victims now
    trial.put("podgroups", seen.uid, new)
    key = f"{seen.namespace}/{seen.name}"
    refresh_gang(trial, key)
    if old is not None and _asks(old) != _asks(new):
        trial.gangs_changed[key] = None


def _asks(group: PodGroup) -> tuple[object, ...]:
    """What a PodGroup asks for that its gang's row doesn't show."""
    return group.min_resources, group.unsupported


def on_workload_seen(trial: Trial, seen: WorkloadSeen) -> None:
    """A Workload of Kubernetes: what it says of a pod group holds for each of its replicas."""
    old = trial.state.workloads.get(seen.uid)
    if not is_namesake(old, seen) or not admits(trial, seen, "workloads.scheduling.k8s.io", old):
        return
    if old is not None and not is_newer(trial, seen.rv, old.rv, seen.epoch):
        return
    new = Workload(
        created_us=seen.created_us,
        name=seen.name,
        namespace=seen.namespace,
        rv=seen.rv,
        uid=seen.uid,
        annotations=seen.annotations,
        pod_groups=seen.pod_groups,
    )
    trial.put("workloads", seen.uid, new)
    refresh_replicas(trial, f"{seen.namespace}/{seen.name}")


def on_quota_seen(trial: Trial, seen: QuotaSeen) -> None:
    """An ElasticQuota of either API group: stored and shown."""
    old = trial.state.quotas.get(seen.uid)
    if not is_namesake(old, seen) or not admits(trial, seen, f"elasticquotas.{seen.group}", old):
        return
    if old is not None and not is_newer(trial, seen.rv, old.rv, seen.epoch):
        return
    new = Quota(
        group=seen.group,
        name=seen.name,
        namespace=seen.namespace,
        rv=seen.rv,
        uid=seen.uid,
        annotations=seen.annotations,
        labels=seen.labels,
        max=seen.max,
        min=seen.min,
    )
    trial.put("quotas", seen.uid, new)


def on_budget_seen(trial: Trial, seen: BudgetSeen) -> None:
    """A PodDisruptionBudget. One that allows more may let somebody have victims now."""
    old = trial.state.budgets.get(seen.uid)
    if not is_namesake(old, seen) or not admits(trial, seen, "poddisruptionbudgets.policy", old):
        return
    if old is not None and not is_newer(trial, seen.rv, old.rv, seen.epoch):
        return
    new = Budget(
        name=seen.name,
        namespace=seen.namespace,
        rv=seen.rv,
        uid=seen.uid,
        disruptions_allowed=seen.disruptions_allowed,
        selector=seen.selector,
    )
    trial.put("budgets", seen.uid, new)
    if old is None or new.disruptions_allowed > old.disruptions_allowed:
        trial.wake = True


def on_namespace_seen(trial: Trial, seen: NamespaceSeen) -> None:
    """A namespace."""
    old = trial.state.namespaces.get(seen.name)
    if not admits(trial, seen, "namespaces", old):
        return
    if old is None or is_newer(trial, seen.rv, old.rv, seen.epoch):
        row = Namespace(name=seen.name, rv=seen.rv, uid=seen.uid, labels=seen.labels)
        trial.put("namespaces", seen.name, row)


def on_priority_class_seen(trial: Trial, seen: PriorityClassSeen) -> None:
    """A PriorityClass. Pods carry their resolved priority already; this is for people and later rules."""
    old = trial.state.tables["priorityclasses"].get(seen.name)
    if not admits(trial, seen, "priorityclasses.scheduling.k8s.io", old):
        return
    if old is None or is_newer(trial, seen.rv, old.rv, seen.epoch):
        row = PriorityClass(
            name=seen.name,
            rv=seen.rv,
            uid=seen.uid,
            value=seen.value,
            global_default=seen.global_default,
            preemption_policy=seen.preemption_policy,
        )
        trial.put("priorityclasses", seen.name, row)


def on_gone_seen(trial: Trial, seen: GoneSeen) -> None:
    """An object was deleted. News of its uid that comes later, or came too late, is dropped."""
    table = RESOURCES[seen.resource][0] if seen.resource in RESOURCES else ""
    if not table:
        return
    if table == "pods":
        pod = trial.state.pods.get(seen.uid)
        if pod is not None:
            remove_pod(trial, pod, seen.rv)
            return
    else:
        remove_object(trial, table, seen.uid)
    bury(trial, seen.resource, seen.uid, seen.rv)

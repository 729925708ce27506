"""Rows for people and tables: pods, gangs, quotas, nodes and GPUs as plain JSON objects (design section 8).

Worked out from State, never stored in it. Called by the projector, `lockstep state` and `lockstep simulate`.
"""

from typing import Any

import msgspec

from state.model.gangs import podgroup_of, podgroups_named
from state.model.limits import KUBERNETES
from state.model.podclass import CARD_RESOURCES, match_conflicts
from state.model.rows import OpenCommand, Pod, Quota
from state.model.seen import GroupStatus
from state.model.state import FINISHED, State, place_of
from state.rules.phase import KOORDINATOR, Group, settled
from state.statuses import counted

Json = dict[str, Any]
_DEFAULT_QUOTA = "koordinator-default-quota"
_NAMESPACES = "quota.scheduling.koordinator.sh/namespaces"


def report(state: State) -> Json:
    """All tables as lists sorted by (namespace, name)."""
    pods = sorted(state.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    quotas = sorted(state.quotas.values(), key=lambda quota: (quota.name, quota.namespace))
    return {
        "sequence": state.sequence,
        "digest": state.digest,
        "pods": [pod_row(state, pod) for pod in pods],
        "gangs": [gang_row(state, key) for key in sorted(state.gangs)],
        "quotas": [quota_row(state, quota) for quota in quotas],
        "nodes": [node_row(state, name) for name in sorted(state.nodes)],
        "reservations": [],
        "migrations": [],
    }


def pod_row(state: State, pod: Pod) -> Json:
    """A pod: where it is or will be, what it holds, why it waits."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "phase": pod.phase,
        "node": pod.node or None,
        "assumed_node": pod.assumed or None,
        "nominated_node": pod.nominated or None,
        "quota": quota_of(state, pod),
        "gang": state.gang_key(pod) or None,
        "devices": [
            {"type": held.type, "minor": held.minor, "resources": held.resources}
            for held in pod.allocations
        ],
        "diagnosis": diagnosis_row(pod),
    }


def diagnosis_row(pod: Pod) -> Json | None:
    """Code, message and details, or None."""
    if pod.diagnosis is None:
        return None
    return {
        "code": pod.diagnosis.code,
        "message": pod.diagnosis.message,
        "details": pod.diagnosis.details,
    }


def gang_row(state: State, key: str) -> Json:
    """A gang: what it needs, what it has."""
    gang = state.gangs[key]
    pods = [state.pods[uid] for uid in sorted(state.members.get(key, ()))]
    first = next((pod for pod in pods if pod.diagnosis is not None), None)
    return {
        "namespace": gang.namespace,
        "name": gang.name,
        "phase": gang_phase(state, key),
        "mode": gang.mode,
        "min_member": gang.min_member,
        "members": len(pods),
        "assumed": sum(1 for pod in pods if pod.assumed),
        "bound": sum(1 for pod in pods if pod.node),
        "group": list(gang.groups) or None,
        "conflicts": gang_conflicts(state, key) or None,
        "diagnosis": diagnosis_row(first) if first is not None else None,
    }


def gang_conflicts(state: State, key: str) -> list[str]:
    """Where what declares the gang contradicts itself: spellings, members, PodGroups of both API groups."""
    members = [state.membership(state.pods[uid]) for uid in sorted(state.members.get(key, ()))]
    found = {text: None for said in members for text in said.conflicts}
    gang, group = state.gangs[key], podgroup_of(state, key)
    if group is not None:
        found.update(dict.fromkeys(match_conflicts(group.annotations)))
        for other in podgroups_named(state, key):
            if other.group != group.group and other.min_member != group.min_member:
                text = f"minMember {group.min_member}, which counts; in {other.group} {other.min_member}"
                found[f"in {group.group} {text}"] = None
    elif gang.source:
        for said in members:
            if said.min_member != gang.min_member:
                text = f"{gang.min_member}, which counts; another member says {said.min_member}"
                found[f"the first member says min-available {text}"] = None
    return sorted(found)


def gang_phase(state: State, key: str) -> str:
    """The phase of the gang's PodGroup; where we write none, and for a gang without one, what it would be."""
    gang = state.gangs[key]
    group = podgroup_of(state, key)
    if not gang.source:
        return "Pending"
    if group is not None and group.written is not None and group.written.phase:
        return group.written.phase
    before = group.status if group is not None else None
    api_group = group.group if group is not None else KOORDINATOR
    # Policy basic of Kubernetes has no minimum, but is no mistake: its first pod starts it.
    least = max(gang.min_member, 1) if api_group == KUBERNETES else gang.min_member
    rule = Group(api_group=api_group, created_us=gang.created_us, min_member=least)
    members = counted(state, key)
    return settled(rule, before or GroupStatus(), members, state.timestamp_us).phase


def quota_of(state: State, pod: Pod) -> str | None:
    """The quota the pod is charged to, by label, by namespace of the same name, or by annotated namespaces."""
    claim = state.claim_of(pod)
    if not claim.startswith("/"):
        known = any(quota.name == claim for quota in state.quotas.values())
        return claim if known else _DEFAULT_QUOTA
    for quota in sorted(
        state.quotas.values(), key=lambda row: (row.name != claim[1:], row.name, row.uid)
    ):
        if claim in claims_of(quota):
            return quota.name
    return None


def claims_of(quota: Quota) -> list[str]:
    """The claims that a quota answers: its name, and the namespaces that are its own."""
    claims = [quota.name]
    if quota.name == quota.namespace:
        claims.append(f"/{quota.namespace}")
    try:
        listed = msgspec.json.decode(quota.annotations.get(_NAMESPACES, "[]"), type=list[str])
    except (msgspec.DecodeError, msgspec.ValidationError):
        listed = []
    return claims + [f"/{namespace}" for namespace in listed]


def quota_row(state: State, quota: Quota) -> Json:
    """A quota: stored bounds, and what its pods ask for and use, in the keys of max. Not enforced by this version."""
    request: dict[str, int] = {}
    used: dict[str, int] = {}
    for claim in claims_of(quota):
        for uid in state.claims.get(claim, ()):
            pod = state.pods[uid]
            if pod.phase in FINISHED or quota_of(state, pod) != quota.name:
                continue
            for name, amount in charged(state, pod).items():
                if name in quota.max:
                    request[name] = request.get(name, 0) + amount
                    if place_of(pod) and not pod.nominated:
                        used[name] = used.get(name, 0) + amount
    return {
        "name": quota.name,
        "namespace": quota.namespace,
        "tree": quota.labels.get("quota.scheduling.koordinator.sh/tree-id", ""),
        "parent": quota.labels.get("quota.scheduling.koordinator.sh/parent", ""),
        "min": quota.min,
        "max": quota.max,
        "request": {name: request[name] for name in sorted(request)},
        "used": {name: used[name] for name in sorted(used)},
        "runtime": {},
    }


def charged(state: State, pod: Pod) -> dict[str, int]:
    """What the pod asks for, by full resource name, without the pod itself."""
    return dict(state.class_of(pod).spec.requests)


def node_row(state: State, name: str) -> Json:
    """A node: allocatable with the sums of its healthy devices, and what bound and assumed pods use."""
    node = state.nodes[name]
    allocatable = dict(node.allocatable)
    devices = device_rows(state, name)
    if devices:
        for resource in sorted({key for device in devices for key in device["total"]}):
            allocatable[resource] = sum(
                device["total"].get(resource, 0) for device in devices if device["healthy"]
            )
    used: dict[str, int] = {}
    for uid in sorted(state.pods_on.get(name, ())):
        pod = state.pods[uid]
        if pod.nominated:
            continue
        amounts = {
            key: amount for key, amount in charged(state, pod).items() if key not in CARD_RESOURCES
        }
        amounts["pods"] = 1
        for held in pod.allocations:
            for key, amount in held.resources.items():
                amounts[key] = amounts.get(key, 0) + amount
        for key, amount in amounts.items():
            used[key] = used.get(key, 0) + amount
    return {
        "name": name,
        "allocatable": allocatable,
        "used": {key: used[key] for key in sorted(used)},
        "reserved": {},
        "devices": devices,
    }


def device_rows(state: State, name: str) -> list[Json]:
    """The node's devices with what is used of each, by type and minor."""
    found = state.devices_of(name)
    users = state.card_users.get(name, {})
    rows: list[Json] = []
    for device in found.devices if found is not None else ():
        used: dict[str, int] = {}
        for uid in sorted(users.get((device.type, device.minor), ())):
            for held in state.pods[uid].allocations:
                if (held.type, held.minor) == (device.type, device.minor):
                    for key, amount in held.resources.items():
                        used[key] = used.get(key, 0) + amount
        rows.append(
            {
                "type": device.type,
                "minor": device.minor,
                "healthy": device.healthy,
                "total": device.resources,
                "used": used,
            }
        )
    return sorted(rows, key=lambda row: (row["type"], row["minor"]))


def gpu_rows(state: State, name: str) -> list[Json]:
    """The node's GPUs, one row each, with the pods that hold them."""
    users = state.card_users.get(name, {})
    return [
        {
            "node": name,
            "minor": row["minor"],
            "healthy": row["healthy"],
            "total": row["total"],
            "used": row["used"],
            "pods": sorted(
                f"{state.pods[uid].namespace}/{state.pods[uid].name}"
                for uid in users.get(("gpu", row["minor"]), ())
            ),
        }
        for row in device_rows(state, name)
        if row["type"] == "gpu"
    ]


def open_command_row(command_id: str, command: OpenCommand) -> Json:
    """An open command in the form of `schemas.envelope`."""
    row: Json = {
        "id": command_id,
        "kind": command.kind,
        "name": command.name,
        "namespace": command.namespace,
        "uid": command.uid,
    }
    if command.kind == "BindPod":
        return {**row, "annotations": command.annotations, "node": command.node}
    return {**row, "deadline_us": command.deadline_us, "reason": command.reason}

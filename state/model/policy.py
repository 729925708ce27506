"""The policy in force, as the core reads it. It enters only as journal records; times are microseconds."""

from typing import Any

import msgspec
from msgspec import Struct

from state.model.limits import KUBERNETES_GROUPS, RESOURCES


class EvictionBounds(Struct, frozen=True):
    """Evictions."""

    budgetDeadline: int  # noqa: N815  (the reference's argument names)
    perNodePerMinute: int = 0  # noqa: N815
    perNamespacePerMinute: int = 0  # noqa: N815
    perMinute: int = 0  # noqa: N815
    futileMax: int = 3  # noqa: N815


class PreemptionBounds(Struct, frozen=True):
    """Preemption. A journal from before it goes on without."""

    pods: bool = False
    respectBudgets: bool = True  # noqa: N815
    nominatedFor: int = 300_000_000  # noqa: N815


class BackoffBounds(Struct, frozen=True):
    """Back-off after a refused bind."""

    initial: int
    max: int


class CycleBounds(Struct, frozen=True):
    """Bounds of a cycle."""

    placementsMax: int  # noqa: N815


class GangBounds(Struct, frozen=True):
    """Gangs. Defaults: what holds where a journal's policy doesn't know the field yet."""

    defaultMatchPolicy: str = "once-satisfied"  # noqa: N815
    defaultTimeout: int = 600_000_000  # noqa: N815
    enablePreemption: bool = False  # noqa: N815
    kubernetesWorkloads: bool = False  # noqa: N815
    permitWaitingTimeSeconds: int = 60  # noqa: N815
    podGroupBackoffSeconds: int = 0  # noqa: N815
    podGroupRejectPercentage: int = 0  # noqa: N815
    writeStatus: bool = False  # noqa: N815


class QueueBounds(Struct, frozen=True):
    """The queue. A journal from before keeps no nodes for its head."""

    holdAfter: int = 0  # noqa: N815
    holdFor: int = 1_800_000_000  # noqa: N815
    holdNodesPercent: int = 10  # noqa: N815


class PolicyInForce(Struct, frozen=True):
    """The fields that this version's rules read; the whole policy is kept as it was journaled."""

    schedulerNames: tuple[str, ...]  # noqa: N815
    evictions: EvictionBounds
    backoff: BackoffBounds
    cycle: CycleBounds
    gangs: GangBounds = GangBounds()
    preemption: PreemptionBounds = PreemptionBounds()
    queue: QueueBounds = QueueBounds()


def reads_kubernetes(policy: PolicyInForce | None) -> bool:
    """PodGroups and Workloads of Kubernetes itself declare gangs."""
    return policy is not None and policy.gangs.kubernetesWorkloads


def needed_resources(policy: PolicyInForce | None) -> list[str]:
    """What must have been listed before anything is placed."""
    left_out = () if reads_kubernetes(policy) else KUBERNETES_GROUPS
    return [name for name in RESOURCES if name not in left_out]


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """`base` with the named fields of `change` replaced, keys sorted (the row's bytes are canonical)."""
    merged = dict(base)
    for name, value in change.items():
        old = merged.get(name)
        merged[name] = (
            merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return {name: merged[name] for name in sorted(merged)}


def to_policy(spec: dict[str, Any]) -> PolicyInForce:
    """The typed policy of a full journaled one."""
    return msgspec.convert(spec, PolicyInForce)

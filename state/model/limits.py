"""Every maximum of the core, by name, and the resources that must be in sync before anything is placed."""

from typing import Final

#: What a node has of one resource is counted up to this: a hundred times as much fits int64.
AMOUNT_MAX: Final = 1 << 56
#: A pod that asks for more of one resource is invalid, and charged only so much: sums over a node's pods fit int64.
REQUEST_MAX: Final = 1 << 50
#: Decimal digits that are read as a number; longer ones are none (int64 has at most 19).
DIGITS_MAX: Final = 19
#: A count or a time that a pod's annotations give is taken up to this (as microseconds: 285 years).
ANNOTATED_MAX: Final = 1 << 53
#: So many nodes there may be at once; far above what Kubernetes takes. A snapshot that numbers more is damaged.
NODES_MAX: Final = 1 << 18
#: Nodes in one block of a class's score vector: a pick reads one maximum a block, then one block.
SCORE_BLOCK: Final = 128
#: Above this many touched nodes a class's scores are brought up to date by array, below one by one.
SCALAR_TOUCHES_MAX: Final = 6
#: From so many pods on, nodes for identical ones are worked out together.
RUN_MIN: Final = 8
#: Entries of the touch log kept; a class that fell further behind is scored anew.
TOUCH_LOG_MAX: Final = 65_536
#: Pod classes cached at once; the oldest is forgotten first (only a cache).
CLASSES_MAX: Final = 4_096
#: Label sets cached at once: so many, and so many for each pod that is there. Over it all are forgotten (only a cache),
#: for most of them are of pods that are gone.
LABEL_SETS_MIN: Final = 4_096
LABEL_SETS_A_POD: Final = 4
#: Waiting pods that are told something new in one cycle; more would make a decision larger than the log takes.
TOLD_MAX: Final = 2_000
#: Nodes and victims that a waiting pod is told by name: each member of a gang is told them all.
NAMED_MAX: Final = 20
MINUTE_US: Final = 60_000_000
#: So long an eviction that made room counts when rounds are looked at that lead nowhere.
FUTILE_WINDOW_US: Final = 3_600_000_000
#: Nodes looked at for victims: so many per cent of those that may be, but at least so many (as kube-scheduler does).
VICTIM_NODES_PERCENT: Final = 10
VICTIM_NODES_MIN: Final = 100
#: Units at the front of the queue of which the first that nodes could be kept for is the head.
HEADS_MAX: Final = 16
#: Refused binds in a row after which the back-off no longer doubles.
BACKOFF_DOUBLINGS_MAX: Final = 16

#: Requests of administrators remembered by id: one that is delivered again changes nothing. The oldest goes first.
APPLIED_KEPT: Final = 10_000
#: Finished lists remembered a resource, so that a repeated `SyncStarted` doesn't open one again.
EPOCHS_KEPT: Final = 16
#: Tombstones kept before a list is asked for that forgets them, unless more objects than that are there (then so many),
#: and after how many more it is asked for again.
TOMBSTONES_MIN: Final = 4_000
TOMBSTONES_STEP: Final = 1_000
#: So long a list that everything waits for may take, before the others are asked to list: its informer may be gone.
LIST_PATIENCE_US: Final = 120_000_000

#: Kubernetes resource (`plural.group`) -> (table, API group or source of its rows, intake topic). Nothing is placed
#: before each that policy asks for has been listed. A test holds that the topics are those of `schemas.topics`.
RESOURCES: Final[dict[str, tuple[str, str, str]]] = {
    "pods": ("pods", "", "pods"),
    "nodes": ("nodes", "", "nodes"),
    "namespaces": ("namespaces", "", "namespaces"),
    "priorityclasses.scheduling.k8s.io": ("priorityclasses", "", "priorityclasses"),
    "podgroups.scheduling.x-k8s.io": ("podgroups", "scheduling.x-k8s.io", "podgroups"),
    "podgroups.scheduling.sigs.k8s.io": ("podgroups", "scheduling.sigs.k8s.io", "podgroups"),
    "podgroups.scheduling.k8s.io": ("podgroups", "scheduling.k8s.io", "podgroups"),
    "workloads.scheduling.k8s.io": ("workloads", "", "podgroups"),
    "elasticquotas.scheduling.x-k8s.io": ("quotas", "scheduling.x-k8s.io", "quotas"),
    "elasticquotas.scheduling.sigs.k8s.io": ("quotas", "scheduling.sigs.k8s.io", "quotas"),
    "poddisruptionbudgets.policy": ("budgets", "", "budgets"),
    "devices.scheduling.koordinator.sh": ("devices", "object", "devices"),
}
#: PodGroups and Workloads of Kubernetes itself count only with `gangs.kubernetesWorkloads`.
KUBERNETES: Final = "scheduling.k8s.io"
KUBERNETES_GROUPS: Final = (f"podgroups.{KUBERNETES}", f"workloads.{KUBERNETES}")

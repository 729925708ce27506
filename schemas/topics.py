"""Names of the topics, and which observation kind travels on which intake topic."""

from typing import Final

JOURNAL: Final = "journal"
DECISIONS: Final = "decisions"
CHECKPOINTS: Final = "checkpoints"
DEADLETTER: Final = "deadletter"

#: Kubernetes resource (`plural.group`, the core group without a suffix) -> intake topic.
RESOURCES: Final[dict[str, str]] = {
    "pods": "pods",
    "nodes": "nodes",
    "namespaces": "namespaces",
    "priorityclasses.scheduling.k8s.io": "priorityclasses",
    "podgroups.scheduling.x-k8s.io": "podgroups",
    "podgroups.scheduling.sigs.k8s.io": "podgroups",
    "podgroups.scheduling.k8s.io": "podgroups",
    "workloads.scheduling.k8s.io": "podgroups",
    "elasticquotas.scheduling.x-k8s.io": "quotas",
    "elasticquotas.scheduling.sigs.k8s.io": "quotas",
    "poddisruptionbudgets.policy": "budgets",
    "devices.scheduling.koordinator.sh": "devices",
}

#: Topics that are not fed by a list and watch.
RESULTS: Final = "results"
ADMIN: Final = "admin"

#: Every intake topic, in the order in which the sequencer drains them when several have messages.
INTAKE: Final[tuple[str, ...]] = (
    ADMIN,
    RESULTS,
    "namespaces",
    "priorityclasses",
    "nodes",
    "devices",
    "quotas",
    "podgroups",
    "budgets",
    "pods",
)

ALL: Final[tuple[str, ...]] = (*INTAKE, JOURNAL, DECISIONS, CHECKPOINTS, DEADLETTER)

DEFAULT_PREFIX: Final = "lockstep."

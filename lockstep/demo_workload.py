"""The play of `lockstep demo`: a small GPU cluster, jobs that come and finish, a node that fails
and returns.

Only the world outside Lockstep: what is applied to the simulated cluster at which second, and how
long a pod runs. Deterministic; must not know the engine. Called by `lockstep.demo` once a simulated
second.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from producers.simulated.cluster import Cluster
from producers.simulated.kinds import POD
from producers.simulated.store import uid_of

NODES: Final = 12
CARDS: Final = 8
SECONDS: Final = 120
_FAILING: Final = "gpu-05"
_FAILS_AT: Final = 52
_RETURNS_AT: Final = 84


@dataclass(frozen=True, slots=True)
class Work:
    """A job: `pods` members with `cards` GPUs each, all of them at once if `gang`; runs so long."""

    at: int
    name: str
    pods: int
    cards: int
    seconds: int
    gang: bool = True
    priority: int = 0


_JOBS: Final = (
    Work(0, "pretrain-a", 4, 8, 45),
    Work(2, "finetune-a", 4, 4, 30),
    Work(4, "notebook", 5, 1, 90, gang=False),
    Work(7, "eval-a", 3, 2, 20),
    Work(10, "finetune-b", 6, 4, 50),
    Work(14, "pretrain-b", 6, 8, 22),
    Work(18, "batch", 10, 1, 25, gang=False),
    Work(24, "eval-b", 4, 2, 25),
    Work(34, "urgent", 2, 8, 20, priority=1000),
    Work(46, "finetune-c", 4, 4, 30),
    Work(60, "pretrain-c", 6, 8, 25),
    Work(66, "notebook-b", 4, 1, 40, gang=False),
    Work(90, "eval-c", 6, 2, 15),
)


@dataclass(slots=True)
class DemoLoad:
    """Plays the jobs on one cluster. `news` is what happened since it was last taken."""

    cluster: Cluster
    news: list[str] = field(default_factory=list)
    _running_since: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """The nodes and their cards."""
        for index in range(1, NODES + 1):
            self.cluster.apply(_node(f"gpu-{index:02d}"))
            self.cluster.apply(_device(f"gpu-{index:02d}"))
        self.news.append(f"{NODES} nodes with {CARDS} GPUs each")

    def second(self, second: int) -> None:
        """What happens in this second."""
        for job in _JOBS:
            if job.at == second:
                self._submit(job)
        if second == _FAILS_AT:
            self._fail()
        elif second == _RETURNS_AT:
            self.cluster.apply(_node(_FAILING))
            self.cluster.apply(_device(_FAILING))
            self.news.append(f"{_FAILING} is back")
        self._finish_pods(second)

    def _submit(self, job: Work) -> None:
        if job.gang:
            self.cluster.apply(_pod_group(job))
        self.cluster.apply(_job(job))
        size = f"{counted(job.pods, 'pod')} with {counted(job.cards, 'GPU')} each"
        what = ", a gang" if job.gang else ""
        self.news.append(f"{job.name} arrives: {size}{what}")

    def _fail(self) -> None:
        self.cluster.apply(_node(_FAILING, failed=True))
        self.cluster.apply(_device(_FAILING, healthy=False))
        lost = [pod for pod in self.cluster.store.list(POD) if _runs_on(pod, _FAILING)]
        for pod in lost:
            self.cluster.set_phase("default", pod["metadata"]["name"], "Failed")
        self.news.append(
            f"{_FAILING} fails with {counted(len(lost), 'pod')}; their jobs make new ones"
        )

    def _finish_pods(self, second: int) -> None:
        lengths = {job.name: job.seconds for job in _JOBS}
        done: dict[str, int] = {}
        for pod in self.cluster.store.list(POD):
            if (pod.get("status") or {}).get("phase") != "Running":
                continue
            since = self._running_since.setdefault(uid_of(pod), second)
            job = pod["metadata"]["labels"]["app"]
            if second - since >= lengths[job]:
                self.cluster.set_phase("default", pod["metadata"]["name"], "Succeeded")
                done[job] = done.get(job, 0) + 1
        self.news.extend(
            f"{counted(count, 'pod')} of {name} finished" for name, count in done.items()
        )


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 pod, 2 pods."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _runs_on(pod: dict[str, Any], node: str) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and (pod.get("spec") or {}).get("nodeName") == node


def _node(name: str, *, failed: bool = False) -> dict[str, Any]:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(CARDS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [taint] if failed else []},
        "status": {"allocatable": allocatable},
    }


def _device(node: str, *, healthy: bool = True) -> dict[str, Any]:
    resources = {
        "koordinator.sh/gpu-core": "100",
        "koordinator.sh/gpu-memory": "80Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    cards = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{node}-{minor}",
            "health": healthy,
            "resources": resources,
        }
        for minor in range(CARDS)
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": node},
        "spec": {"devices": cards},
    }


def _pod_group(job: Work) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": job.name},
        "spec": {"minMember": job.pods},
    }


def _job(job: Work) -> dict[str, Any]:
    labels = {"app": job.name}
    if job.gang:
        labels["scheduling.x-k8s.io/pod-group"] = job.name
    limits = {"nvidia.com/gpu": str(job.cards), "cpu": "4", "memory": "16Gi"}
    container = {"name": "main", "image": "train", "resources": {"limits": limits}}
    spec = {"schedulerName": "lockstep", "priority": job.priority, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.name},
        "spec": {
            "parallelism": job.pods,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }

"""`make throughput`: gangs of three through Kafka and a real API server, and what CPU each process spends on a pod.

Every role of Lockstep is a process of its own, so the figures say where the time goes. PodGroups first, then all pods
as fast as they can be created; it ends when every pod has a node. The measuring process creates the pods and plays the
kubelets, so its CPU is the load's. Prints one line of JSON.

    THROUGHPUT_NODES=1000 THROUGHPUT_GANGS=1000 make throughput
"""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.log import open_reader
from tests.acceptance.pair import HOME, SPACE, running_services
from tests.integration import manifests
from tests.integration.api import Api, wait_for
from tests.integration.cluster import ControlPlane
from tests.integration.kafka_broker import LocalBroker
from tests.integration.lockstep_process import LockstepRun

NODES = int(os.environ.get("THROUGHPUT_NODES", "1000"))
GANGS = int(os.environ.get("THROUGHPUT_GANGS", "1000"))
SIZE = 3
WAIT_S = 900.0
IDLE_S = 10.0
ROLES = ("sequencer", "decider", "projector", "informers", "sink")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat after the name in brackets: user and system time.
USER_TICKS, SYSTEM_TICKS = 11, 12


@contextmanager
def running_roles(
    broker: LocalBroker, plane: ControlPlane, url: str, directory: Path
) -> Iterator[dict[str, int]]:
    """Name -> process id of everything that works for the pods; the roles have started."""
    kubeconfig = plane.service_account_kubeconfig(HOME, "lockstep")
    cluster = ("--kubeconfig", str(kubeconfig), "--lease-namespace", HOME)
    pids = {
        "broker": broker.service.pid,
        "kube-apiserver": plane.api_server.pid,
        "etcd": plane.etcd.pid,
        "kube-controller-manager": plane.controllers.pid,
        "load and kubelets": os.getpid(),
    }
    runs: list[LockstepRun] = []
    try:
        for role in ROLES:
            home = directory / role
            home.mkdir()
            options = cluster if role in ("informers", "sink") else ()
            runs.append(LockstepRun(home, url, f"--{role}", "--identity", role, *options))
            runs[-1].start()
            pids[role] = runs[-1].pid
        yield pids
    finally:
        for run in runs:
            run.stop_if_running()


def cpu_s(pid: int) -> float:
    """CPU seconds that the process has spent so far, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])) / TICKS_PER_S


def spent(pids: dict[str, int], before: dict[str, float]) -> dict[str, float]:
    """CPU seconds since `before`."""
    return {name: cpu_s(pid) - before.get(name, 0.0) for name, pid in pids.items()}


def unbound(admin: Api) -> int:
    """Pods without a node; a page of them, so 1 means at least one."""
    found = admin.get(f"/api/v1/namespaces/{SPACE}/pods?fieldSelector=spec.nodeName%3D&limit=1")
    return len(found["items"])


def place_one(admin: Api) -> None:
    """A first pod is bound: every list has been read by then."""
    admin.create(manifests.pod("first", {"cpu": "100m"}, namespace=SPACE))
    wait_for("the first pod to be bound", lambda: not unbound(admin), WAIT_S)


def member(number: int) -> dict[str, object]:
    """Member `number` of all gangs' pods."""
    labels = {"scheduling.x-k8s.io/pod-group": f"gang-{number // SIZE}"}
    amounts = {"cpu": "100m", "memory": "100Mi"}
    return manifests.pod(f"pod-{number}", amounts, namespace=SPACE, labels=labels)


def measure(broker: LocalBroker, plane: ControlPlane, directory: Path) -> dict[str, object]:
    """The figures of one run."""
    admin, pods = plane.api(), GANGS * SIZE
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    admin.create(*[manifests.node(f"n{number}", amounts) for number in range(NODES)])
    url = f"{broker.address.url}?prefix=throughput."
    with running_roles(broker, plane, url, directory) as pids:
        place_one(admin)
        at_rest = spent(pids, {})
        time.sleep(IDLE_S)
        idle = spent(pids, at_rest)
        groups = [manifests.pod_group(f"gang-{g}", SIZE, namespace=SPACE) for g in range(GANGS)]
        before, began = spent(pids, {}), time.monotonic()
        admin.create(*groups)
        groups_s = time.monotonic() - began
        admin.create(*[member(number) for number in range(pods)])
        created_s = time.monotonic() - began
        wait_for("every pod to be bound", lambda: not unbound(admin), WAIT_S, every=0.5)
        bound_s = time.monotonic() - began
        used = spent(pids, before)
        ends = {}
        reader = open_reader(url)
        for topic in ("journal", "decisions"):
            ends[topic] = reader.end_offset(topic)
        reader.close()
    return {
        "nodes": NODES,
        "pods": pods,
        "groups_created_after_s": round(groups_s, 1),
        "pods_created_after_s": round(created_s, 1),
        "all_bound_after_s": round(bound_s, 1),
        "pods_per_s": round(pods / (bound_s - groups_s), 1),
        "cpu_ms_per_pod": {name: round(1e3 * used[name] / pods, 2) for name in used},
        "cpu_s_per_s_idle": {name: round(idle[name] / IDLE_S, 3) for name in idle},
        "records": ends,
    }


def main() -> None:
    """Runs it once."""
    with running_services() as (broker, plane), tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(broker, plane, Path(folder))))


if __name__ == "__main__":
    main()

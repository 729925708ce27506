"""A pair of `lockstep run` on a real broker and a real control plane: one leads, the other stands by.

Called by the tests of failover and by the soak. It arranges nodes, pods and faults, and looks at the log and at the
API server; it must not look inside the processes.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from schemas.topics import DECISIONS
from streams.log import LogReader, open_reader
from tests.integration import manifests
from tests.integration.api import Api, wait_for
from tests.integration.cluster import ControlPlane, running_control_plane
from tests.integration.deployed import crd_files, documents, established
from tests.integration.kafka_broker import LocalBroker, running_broker
from tests.integration.kubelet import Kubelet
from tests.integration.lockstep_process import LockstepRun
from tests.integration.process import free_ports

HOME = "lockstep-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/lockstep-0"
SPACE = "acceptance"
WAIT_S = 120.0


@contextmanager
def running_services(
    api_server_flags: Sequence[str] = (),
) -> Iterator[tuple[LocalBroker, ControlPlane]]:
    """A broker and a control plane to break, with CRDs, the roles of `deploy/`, a namespace and kubelets."""
    with running_broker() as broker, running_control_plane(api_server_flags) as plane:
        admin = plane.api()
        admin.apply(*documents(*crd_files(), "rbac.yaml"))
        for crd in documents(*crd_files()):
            wait_for(crd["metadata"]["name"], lambda crd=crd: established(admin, crd))
        admin.create(manifests.namespace(SPACE))
        with Kubelet(admin):
            yield broker, plane


class Pair:
    """Two processes on one log. `fill` first, then `start`."""

    def __init__(self, broker: LocalBroker, plane: ControlPlane, directory: Path) -> None:
        self.broker, self.plane = broker, plane
        self.url = f"{broker.address.url}?prefix=pair."
        self.admin: Api = plane.api()
        self._reader: LogReader | None = None
        self._probes = 0
        kubeconfig = plane.service_account_kubeconfig(HOME, "lockstep")
        options = ("--kubeconfig", str(kubeconfig), "--lease-namespace", HOME)
        self.runs: dict[str, LockstepRun] = {}
        self.ports = dict(zip(("a", "b"), free_ports(2), strict=True))
        for name, port in self.ports.items():
            home = directory / name
            home.mkdir()
            own = ["--identity", name, "--metrics", f"127.0.0.1:{port}"]
            if name == "b":
                own.append("--standby")
            self.runs[name] = LockstepRun(home, self.url, *options, *own)

    def fill(self, nodes: int, pods: int) -> None:
        """Nodes of 64 CPUs, and pods that run."""
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "500"}
        self.admin.create(*[manifests.node(f"n{index}", amounts) for index in range(nodes)])
        self.admin.create(
            *[
                manifests.pod(
                    f"p{index}", {"cpu": "10m"}, namespace=SPACE, nodeName=f"n{index % nodes}"
                )
                for index in range(pods)
            ]
        )

    def start(self) -> None:
        """`a` leads, `b` stands by; returns when a pod has been bound."""
        self.runs["a"].start()
        self.runs["b"].start()
        self._reader = open_reader(self.url)
        self.bound(self.probe())

    def stop(self) -> None:
        """Ends both, however the test went."""
        for run in self.runs.values():
            run.stop_if_running()
        if self._reader is not None:
            self._reader.close()

    @property
    def leader(self) -> str:
        """Who holds the Lease, by the API server's account; empty when it is free."""
        return str(self.admin.get(LEASE)["spec"]["holderIdentity"])

    @property
    def other(self) -> str:
        """Who does not hold it."""
        return "b" if self.leader == "a" else "a"

    # --- what is measured -------------------------------------------------------------------------------------------

    def probe(self) -> str:
        """Creates a pod; its name."""
        self._probes += 1
        name = f"probe-{self._probes}"
        pod = manifests.pod(name, {"cpu": "10m"}, namespace=SPACE)
        self.admin.create(pod)
        return name

    def bound(self, name: str) -> None:
        """Waits until the pod has a node, by the API server's account."""
        path = f"/api/v1/namespaces/{SPACE}/pods/{name}"
        wait_for(
            f"{name} to be bound",
            lambda: "nodeName" in self.admin.get(path)["spec"],
            seconds_max=WAIT_S,
            every=0.02,
        )

    def forget(self, name: str) -> None:
        """Deletes a probe."""
        self.admin.delete(f"/api/v1/namespaces/{SPACE}/pods/{name}", grace_seconds=0)

    def decisions(self) -> int:
        """The end of the topic of decisions."""
        assert self._reader is not None
        return self._reader.end_offset(DECISIONS)

    def decided(self, after: int) -> None:
        """Waits for a decision behind the offset `after`."""
        wait_for("a decision", lambda: self.decisions() > after, seconds_max=WAIT_S, every=0.02)


def applied_commands(url: str) -> dict[str, dict[str, int]]:
    """Kind -> pod's uid -> how many commands of that kind the log knows for it, refused ones left out."""
    reader = open_reader(url)
    commands: dict[str, tuple[str, str]] = {}
    applied: dict[str, None] = {}
    for topic, take in (("decisions", _note_commands(commands)), ("journal", _note_ends(applied))):
        offset = reader.start_offset(topic)
        while found := reader.read(topic, offset, 500, 5.0):
            offset = found[-1].offset + 1
            for record in found:
                take(record.value or b"")
            if offset >= reader.end_offset(topic):
                break
    reader.close()
    counts: dict[str, dict[str, int]] = {"BindPod": {}, "EvictPod": {}}
    for command_id, (kind, uid) in commands.items():
        if command_id in applied:
            counts[kind][uid] = counts[kind].get(uid, 0) + 1
    return counts


def _note_commands(commands: dict[str, tuple[str, str]]) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        for command in json.loads(data)["commands"]:
            if command["kind"] in ("BindPod", "EvictPod"):
                commands[command["id"]] = (command["kind"], command["uid"])

    return take


def _note_ends(applied: dict[str, None]) -> Callable[[bytes], None]:
    def take(data: bytes) -> None:
        for seen in json.loads(data)["observations"]:
            if seen["kind"] == "CommandEnded" and seen["outcome"] == "Applied":
                applied[seen["command_id"]] = None

    return take


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began

"""A real Kubernetes control plane for tests: found, or started on free ports of the loopback.

`find_cluster` follows one order: the cluster of `LOCKSTEP_TEST_KUBECONFIG`; the programs in
`KUBEBUILDER_ASSETS`; the local build of `builds.py`. Containers are left out: the images that
would fit bring a scheduler and kubelets of their own, which would fight with what is tested.
There are no nodes and no kubelet: tests create Node objects, `kubelet.py` plays their agent.
Called by the fixtures `cluster` and `breakable_cluster`.
"""

import json
import os
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import urllib3

from tests.integration import builds
from tests.integration.api import Api, ApiError, Object
from tests.integration.process import Service, free_ports

START_SECONDS_MAX = 120  # both cores may be busy
TOKEN_SECONDS = 24 * 3600
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
# Users that the API server knows from its token file: name -> groups. Only the administrator may
# do anything; a test of rights binds roles to the others.
USERS: Mapping[str, tuple[str, ...]] = {
    "admin": ("system:masters",),
    "informers": (),
    "sink": (),
    "device-agent": (),
    "nobody": (),
}
# Workloads that make pods, what ends them, and PodDisruptionBudgets; nothing that watches kubelets.
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "job-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
)


class Cluster:
    """A cluster that somebody else owns, reached through one kubeconfig file."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file for that user. Raises builds.Missing where the users are not ours."""
        if user != "admin":
            raise builds.Missing(f"user {user} exists only on a control plane that the tests start")
        return self._kubeconfig

    def api(self, user: str = "admin") -> Api:
        """A client that acts as that user."""
        return _api(self.kubeconfig(user))

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig file with a token of an existing ServiceAccount, as its pods would have."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        token = self.api().post(path, request)["status"]["token"]
        config = _read(self._kubeconfig)
        config["users"] = [{"name": "user", "user": {"token": token}}]
        config["contexts"][0]["context"]["user"] = "user"
        return _write(self._kubeconfig.with_name(f"{namespace}.{name}.kubeconfig"), config)

    def service_account_api(self, namespace: str, name: str) -> Api:
        """A client that acts as that ServiceAccount."""
        return _api(self.service_account_kubeconfig(namespace, name))


class ControlPlane(Cluster):
    """etcd, API server and controller manager as our own processes, in one directory."""

    def __init__(
        self,
        programs: Mapping[str, list[str]],
        directory: Path,
        api_server_flags: Sequence[str] = (),
    ) -> None:
        super().__init__(directory / "admin.kubeconfig")
        self.directory = directory
        etcd_port, peer_port, api_port, controllers_port = free_ports(4)
        self.server = f"https://127.0.0.1:{api_port}"
        self._certificate = directory / "pki" / "apiserver.crt"  # signs itself
        self._make_keys()
        self._make_tokens()
        for user in USERS:
            _write(self.kubeconfig(user), self._config(user))
        self.etcd = Service(
            [*programs["etcd"], *_etcd_flags(directory, etcd_port, peer_port)],
            log=directory / "etcd.log",
            ready=lambda: _healthy(f"http://127.0.0.1:{etcd_port}/health"),
        )
        self.api_server = Service(
            [
                *programs["kube-apiserver"],
                *_api_server_flags(directory, etcd_port, api_port),
                *api_server_flags,
            ],
            log=directory / "kube-apiserver.log",
            ready=self._ready,
        )
        flags = _controller_flags(self.kubeconfig(), controllers_port)
        self.controllers = Service(
            [*programs["kube-controller-manager"], *flags],
            log=directory / "kube-controller-manager.log",
            ready=lambda: _listens(controllers_port),
        )

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file for a user of USERS; it stays valid over a restart of the API server."""
        assert user in USERS, f"no user {user}: {', '.join(USERS)}"
        return self.directory / f"{user}.kubeconfig"

    def start(self) -> None:
        """Start all three; returns when the API server is ready and the controllers run."""
        for service in (self.etcd, self.api_server, self.controllers):
            service.start(START_SECONDS_MAX)

    def stop(self) -> None:
        for service in (self.controllers, self.api_server, self.etcd):
            service.stop()

    def kill_api_server(self) -> None:
        """SIGKILL the API server; every watch and request breaks off."""
        self.api_server.kill()

    def start_api_server(self) -> None:
        """Start it again at the same address, over the same etcd; returns when it is ready."""
        self.api_server.start(START_SECONDS_MAX)

    def _ready(self) -> bool:
        """`/readyz` says ok and the first namespace, which is made after that, is there."""
        if not self._certificate.exists():
            return False  # the API server makes it as it starts
        try:
            api = self.api()
            api.get("/readyz")
            api.get("/api/v1/namespaces/default")
        except (OSError, ApiError, urllib3.exceptions.HTTPError):
            return False
        return True

    def _make_keys(self) -> None:
        private, public = self.directory / "sa.key", self.directory / "sa.pub"
        for argv in (
            ["openssl", "genrsa", "-out", str(private), "2048"],
            ["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(public)],
        ):
            subprocess.run(argv, check=True, capture_output=True)

    def _make_tokens(self) -> None:
        rows = [f'{_token(user)},{user},{user},"{",".join(USERS[user])}"\n' for user in USERS]
        (self.directory / "tokens.csv").write_text("".join(rows))

    def _config(self, user: str) -> Object:
        cluster = {"server": self.server, "certificate-authority": str(self._certificate)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": _token(user)}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            "current-context": "tests",
        }


def _etcd_flags(directory: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        "--name=tests",
        f"--initial-cluster=tests={peer}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
        "--unsafe-no-fsync",  # the tests kill the API server, never the machine
    ]


def _api_server_flags(directory: Path, etcd_port: int, port: int) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--external-hostname=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={directory / 'pki'}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={directory / 'sa.pub'}",
        f"--service-account-signing-key-file={directory / 'sa.key'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        # No token volumes, and nodes made by hand are not tainted as not ready.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    ]


def _controller_flags(kubeconfig: Path, port: int) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        f"--controllers={','.join(CONTROLLERS)}",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
    ]


def _token(user: str) -> str:
    return f"{user}-token"


def _read(path: Path) -> Object:
    import yaml  # a kubeconfig that a user brings may be YAML

    config: Object = yaml.safe_load(path.read_text())
    return config


def _write(path: Path, config: Object) -> Path:
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    return path


def _api(kubeconfig: Path) -> Api:
    """Reads the file as Kubernetes' own client does, so a user's cluster may ask for anything."""
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config

    settings = Configuration()
    load_kube_config(str(kubeconfig), client_configuration=settings)
    tls = None
    if settings.host.startswith("https"):
        tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
    credentials = settings.auth_settings().values()
    return Api(settings.host, tls, {each["key"]: each["value"] for each in credentials})


def _healthy(url: str) -> bool:
    try:
        return urllib3.PoolManager(retries=False, timeout=1).request("GET", url).status == 200
    except urllib3.exceptions.HTTPError:
        return False


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def find_programs() -> dict[str, list[str]]:
    """How to run each program. Raises builds.Missing when there is no way to one."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and all((Path(assets) / program).exists() for program in PROGRAMS):
        return {program: [str(Path(assets) / program)] for program in PROGRAMS}
    binary = builds.controlplane()
    if not binary.exists():
        raise builds.Missing("the control plane is not built; `make services` builds it in minutes")
    return {program: [str(binary), program] for program in PROGRAMS}


@contextmanager
def running_control_plane(api_server_flags: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """A control plane of one's own; flags add to the API server's. Raises builds.Missing without a way to one."""
    programs = find_programs()
    with tempfile.TemporaryDirectory(prefix="lockstep-cluster-") as directory:
        plane = ControlPlane(programs, Path(directory), api_server_flags)
        try:
            plane.start()
            yield plane
        finally:
            plane.stop()


@contextmanager
def find_cluster() -> Iterator[Cluster]:
    """A cluster to share. Raises builds.Missing when there is no way to one."""
    if given := os.environ.get("LOCKSTEP_TEST_KUBECONFIG"):
        yield Cluster(Path(given))
    else:
        with running_control_plane() as plane:
            yield plane

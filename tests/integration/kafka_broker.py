"""A real Kafka broker for tests: found, or started on free ports of the loopback.

`find_kafka` follows one order: the address in `LOCKSTEP_TEST_KAFKA`; a container, if a Docker
engine answers; a local KRaft broker from the jars of `builds.py`. `LocalBroker` can also be killed
and started again over the same data. Must not create topics: each test names its own.
Called by the fixtures `kafka` and `breakable_kafka`.
"""

import base64
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.integration import builds
from tests.integration.process import Service, free_ports

START_SECONDS_MAX = 90
REPLY_SECONDS_MAX = 2
DOCKER_SOCKET = "unix:///var/run/docker.sock"  # unless DOCKER_HOST names another
# The first compiler tier only: a broker that lives for minutes never earns back the second.
JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
MAX_MESSAGE_BYTES = 8 * 1024 * 1024  # journal and decisions; what a checkpoint chunk may need


@dataclass(frozen=True)
class KafkaAddress:
    """Where a broker listens; `bootstrap` is what clients call `bootstrap.servers`."""

    bootstrap: str

    @property
    def url(self) -> str:
        """As `lockstep --log` takes it."""
        return f"kafka://{self.bootstrap}"


def answers(bootstrap: str, credentials: Mapping[str, str] | None = None) -> bool:
    """Whether a broker there gives its metadata."""
    # The client library logs refused connections to standard error; expected while we wait.
    reach = {"bootstrap.servers": bootstrap, "log_level": 0, **(credentials or {})}
    admin = AdminClient(reach, logger=None)
    try:
        return bool(admin.list_topics(timeout=REPLY_SECONDS_MAX).brokers)
    except KafkaException:
        return False


@dataclass(frozen=True)
class Access:
    """Who may reach a broker: the protocol of its listener, and what broker and tests need for it."""

    protocol: str = "PLAINTEXT"
    #: Properties of the broker.
    properties: Mapping[str, str] = field(default_factory=dict)
    #: Options of the storage tool as it formats: users and their passwords.
    format_options: Sequence[str] = ()
    #: Settings with which a client gets in.
    credentials: Mapping[str, str] = field(default_factory=dict)


class LocalBroker:
    """One broker and controller in one process (KRaft), with its data in `directory`."""

    def __init__(
        self,
        jars: Path,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        access: Access | None = None,
    ) -> None:
        access = access or Access()
        self.directory = directory
        # Native libraries are unpacked beside the data, so that a killed broker leaves nothing behind.
        self._java = [*JAVA, f"-Djava.io.tmpdir={directory}", "-cp", f"{jars}/*"]
        self._config = directory / "server.properties"
        port, controller_port = free_ports(2)
        self.address = KafkaAddress(f"127.0.0.1:{port}")
        properties = _properties(port, controller_port, directory, access) | dict(settings or {})
        self._config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        self._format(access.format_options)
        self.service = Service(
            [*self._java, "kafka.Kafka", str(self._config)],
            log=directory / "broker.log",
            ready=lambda: answers(self.address.bootstrap, access.credentials),
        )

    def start(self) -> None:
        """Start, or start again over the same data; returns when the broker answers."""
        self.service.start(START_SECONDS_MAX)

    def stop(self) -> None:
        self.service.stop()

    def kill(self) -> None:
        """SIGKILL: what was not yet on disk is in the page cache, so nothing acknowledged is lost."""
        self.service.kill()

    def _format(self, options: Sequence[str]) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        cluster = "L" + cluster[1:]  # an id that begins with a dash would be read as an option
        tool = [*self._java, "kafka.tools.StorageTool"]
        subprocess.run(
            [*tool, "format", "-t", cluster, "-c", str(self._config), *options],
            check=True,
            capture_output=True,
            timeout=START_SECONDS_MAX,
        )


def _properties(port: int, controller_port: int, directory: Path, access: Access) -> dict[str, str]:
    broker, controller = f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"CLIENT://{broker},CONTROLLER://{controller}",
        "advertised.listeners": f"CLIENT://{broker}",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"CLIENT:{access.protocol},CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "auto.create.topics.enable": "false",
        "unclean.leader.election.enable": "false",
        "message.max.bytes": str(MAX_MESSAGE_BYTES),
        # One broker: replication factors above one would keep internal topics from being made.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # After a kill the controller takes the broker back only when its old session has run out.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        **access.properties,
    }


@contextmanager
def running_broker(
    settings: Mapping[str, str] | None = None, access: Access | None = None
) -> Iterator[LocalBroker]:
    """A local broker of one's own. Raises builds.Missing where it cannot be built."""
    jars = builds.build_kafka_jars()
    with tempfile.TemporaryDirectory(prefix="lockstep-kafka-") as directory:
        broker = LocalBroker(jars, Path(directory), settings, access)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


@contextmanager
def find_kafka() -> Iterator[KafkaAddress]:
    """A broker to share. Raises builds.Missing when there is no way to one."""
    if given := os.environ.get("LOCKSTEP_TEST_KAFKA"):
        address = KafkaAddress(given.removeprefix("kafka://"))
        assert answers(address.bootstrap), f"LOCKSTEP_TEST_KAFKA={given}: no broker answers there"
        yield address
    elif docker_answers():
        from testcontainers.community.kafka import KafkaContainer  # loads a Docker client

        container = KafkaContainer().with_kraft()
        container.with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
        container.with_env("KAFKA_MESSAGE_MAX_BYTES", str(MAX_MESSAGE_BYTES))
        with container:
            yield KafkaAddress(container.get_bootstrap_server())
    else:
        with running_broker() as broker:
            yield broker.address


def docker_answers() -> bool:
    """Whether a Docker engine can be used; quick when there is none."""
    import docker  # comes with testcontainers

    engine = os.environ.get("DOCKER_HOST", DOCKER_SOCKET)
    path = engine.removeprefix("unix://")
    if path != engine and not Path(path).exists():
        return False  # the client would leave a socket open as it fails
    try:
        with closing(docker.from_env(timeout=REPLY_SECONDS_MAX)) as client:
            client.ping()
    except docker.errors.DockerException:
        return False
    return True

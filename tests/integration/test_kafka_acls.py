"""One Kafka user a role, with the rules of `deploy/kafka-acls.sh` and no others: what each may do, and may not.

A real broker with SCRAM and the StandardAuthorizer; the script is run with Kafka's own tool.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from schemas.errors import Unavailable
from streams.log import create_topics, open_reader, open_writer
from streams.sequencer import Sequencer
from tests.integration import builds, manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.builds import Missing
from tests.integration.cluster import Cluster
from tests.integration.kafka_broker import JAVA, Access, LocalBroker, running_broker
from tests.integration.kubelet import Kubelet
from tests.integration.lockstep_process import COMMAND, LockstepRun, lockstep
from tests.unit.streams.pipeline import message, node

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

SCRIPT = Path(__file__).parents[2] / "deploy" / "kafka-acls.sh"
PREFIX = "lockstep."
#: Who keeps the broker: not bound by rules.
KEEPER = "keeper"
ROLES = ("sequencer", "decider", "projector", "informers", "sink")
USERS = ("lockstep", *(f"lockstep-{role}" for role in (*ROLES, "operator", "reader")))
USERS += ("lockstep-device-agent",)
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

#: Becomes a user: sets the environment, here and of child processes.
Become = Callable[[str], None]


def password(user: str) -> str:
    """Each has another."""
    return f"secret-of-{user}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker where nobody may do what no rule allows, with the topics and the rules of the script."""
    login = f'{_SCRAM} required username="{KEEPER}" password="{password(KEEPER)}";'
    properties = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.client.scram-sha-512.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Nobody is anonymous but the controller, on its own listener.
        "super.users": f"User:{KEEPER};User:ANONYMOUS",
    }
    credentials = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": KEEPER,
        "sasl.password": password(KEEPER),
    }
    options: list[str] = []
    for user in (KEEPER, *USERS):
        options += ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password(user)}]"]
    access = Access("SASL_PLAINTEXT", properties, options, credentials)
    try:
        with running_broker(access=access) as broker:
            _add_rules(broker, tmp_path_factory.mktemp("rules"))
            yield broker
    except Missing as missing:
        pytest.skip(str(missing))


def _add_rules(broker: LocalBroker, directory: Path) -> None:
    """Runs the script as the keeper."""
    properties = directory / "keeper.properties"
    login = f'{_SCRAM} required username="{KEEPER}" password="{password(KEEPER)}";'
    properties.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={login}\n"
    )
    tool = directory / "kafka-acls"
    java = [*JAVA, "-cp", f"{builds.build_kafka_jars()}/*", "org.apache.kafka.tools.AclCommand"]
    tool.write_text(f'#!/bin/sh\nexec {shlex.join(java)} "$@"\n')
    tool.chmod(0o755)
    reach = ["--bootstrap-server", broker.address.bootstrap, "--command-config", str(properties)]
    done = subprocess.run(
        [SCRIPT, *reach],
        env={"PATH": "/usr/bin:/bin", "KAFKA_ACLS": str(tool)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.fixture
def become(broker: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> Become:
    """The way to be another user; to begin with the operator, who has made the topics."""

    def be(user: str) -> None:
        for name, value in {
            "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "SASL_MECHANISM": "SCRAM-SHA-512",
            "SASL_USERNAME": user,
            "SASL_PASSWORD": password(user),
            "TIMEOUT_S": "5",
        }.items():
            monkeypatch.setenv(f"LOCKSTEP_KAFKA_{name}", value)

    be("lockstep-operator")
    create_topics(broker.address.url)
    return be


def test_the_operator_makes_and_checks_topics(broker: LocalBroker, become: Become) -> None:
    """`topics create` had made them all; `topics check` reads their settings."""
    assert (0, {"differences": []}) == lockstep("topics", "check", "--log", broker.address.url)


@pytest.mark.controlplane
def test_each_role_works_with_its_own_rights(
    broker: LocalBroker,
    become: Become,
    cluster: Cluster,
    api: Api,
    namespace: str,
    add_nodes: Callable[..., None],
    kubelet: Kubelet,
    tmp_path: Path,
) -> None:
    """A process a role, a user each: a pod is bound, nobody was refused anything, and a reader verifies it."""
    url = broker.address.url
    options = ("--kubeconfig", str(cluster.kubeconfig()), "--lease-namespace", namespace)
    add_nodes(manifests.node("acl-n1", {"cpu": "4", "memory": "4Gi"}))
    runs: dict[str, LockstepRun] = {}
    try:
        for role in ROLES:
            (tmp_path / role).mkdir()
            become(f"lockstep-{role}")
            reaches = options if role in ("informers", "sink") else ()
            runs[role] = LockstepRun(
                tmp_path / role, url, f"--{role}", "--identity", role, *reaches
            )
            runs[role].start()
        api.create(manifests.pod("p", {"cpu": "1"}, namespace=namespace))
        wait_for("p to run", lambda: _phase(api, namespace) == "Running", seconds_max=90)
        wait_for("the tables", lambda: runs["projector"].said("tables_ready"), seconds_max=60)
    finally:
        for run in runs.values():
            run.stop_if_running()
    assert [] == [line for run in runs.values() for line in _complaints(run)]
    become("lockstep-reader")
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])


def _phase(api: Api, namespace: str) -> str:
    pods: list[Object] = api.pods(namespace)
    return str(pods[0]["status"]["phase"])


def _complaints(run: LockstepRun) -> list[str]:
    """What it said above the level of news."""
    lines = run.output.read_text().splitlines()
    return [line for line in lines if '"level": "info"' not in line.lower()]


#: User -> a topic of another role. None of them could do it and leave no trace.
FORBIDDEN = {
    "lockstep-sink": "journal",
    "lockstep-informers": "decisions",
    "lockstep-sequencer": "decisions",
    "lockstep-decider": "journal",
    "lockstep-projector": "checkpoints",
    "lockstep-device-agent": "pods",
    "lockstep-reader": "admin",
}


@pytest.mark.parametrize(("user", "topic"), FORBIDDEN.items())
def test_who_may_not_write_is_told_the_topic(
    broker: LocalBroker,
    become: Become,
    user: str,
    topic: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One message with the topic and the page; nothing is written, and the writer can go on."""
    become("lockstep-operator")
    before = _end(broker, topic)
    become(user)
    writer = open_writer(broker.address.url)
    for _ in range(2):
        with pytest.raises(Unavailable) as refusal:
            writer.append_many([(topic, None, message(node(f"n{n}"))) for n in range(3)])
        said = str(refusal.value)
        print(said)
        assert 1 == len(said.splitlines())
        assert f"{PREFIX}{topic}" in said
        assert "authorization failed" in said
        assert "No ACL allows it to this user" in said
        assert "docs/security.md" in said
    writer.close()
    assert "" == capfd.readouterr().err
    become(KEEPER)
    assert before == _end(broker, topic)


def test_a_command_and_a_service_say_so_in_one_line(
    broker: LocalBroker, become: Become, tmp_path: Path
) -> None:
    """A reader asks for an eviction: exit 2, one line. A decider with the reader's rights: one event a try."""
    url = broker.address.url
    become("lockstep-reader")
    asked = (
        "evict",
        "pod",
        "p",
        "--reason",
        "r",
        "--log",
        url,
        "--datadir",
        str(tmp_path / "none"),
    )
    done = subprocess.run([*COMMAND, *asked], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (2, "") == (done.returncode, done.stdout)
    assert f"{PREFIX}admin" in line
    assert "No ACL allows it to this user" in line

    become(KEEPER)
    forged = f"{url}?prefix=undecided."
    create_topics(forged)
    writer = open_writer(forged)
    writer.append("journal", None, Sequencer().build(1))
    writer.close()
    _let_read(broker, "lockstep-reader", "undecided.")
    become("lockstep-reader")
    run = LockstepRun(tmp_path, forged, "--decider")
    run.start()
    try:
        wait_for("the refusal", lambda: run.said("publish_failed") >= 2)
    finally:
        assert 0 == run.stop()
    events = [
        found
        for found in (json.loads(line) for line in run.output.read_text().splitlines())
        if found["event"] == "publish_failed"
    ]
    for found in events:
        # An append, or the question before it that makes the producer: either names the topic.
        assert "undecided.decisions" in found["error"]
        assert "No ACL allows it to this user" in found["error"]


def _let_read(broker: LocalBroker, user: str, prefix: str) -> None:
    """What a reader may, on another prefix; members of groups, too."""
    admin = AdminClient(
        {
            "bootstrap.servers": broker.address.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": KEEPER,
            "sasl.password": password(KEEPER),
        }
    )
    rules = [
        AclBinding(
            kind,
            prefix,
            ResourcePatternType.PREFIXED,
            f"User:{user}",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    for done in admin.create_acls(rules).values():
        done.result(30)


def _end(broker: LocalBroker, topic: str) -> int:
    reader = open_reader(broker.address.url)
    try:
        return reader.end_offset(topic)
    finally:
        reader.close()

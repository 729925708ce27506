"""TLS and SASL/SCRAM to a real broker: every client of ours gets in as its settings say, and nobody else.

The settings are those of the environment, as in production: `lockstep` is called as its users call it.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.errors import Unavailable
from schemas.topics import ALL
from streams.log import open_writer
from tests.integration.api import wait_for
from tests.integration.builds import Missing
from tests.integration.certificates import Authority
from tests.integration.kafka_broker import Access, LocalBroker, running_broker
from tests.integration.lockstep_process import COMMAND, lockstep
from tests.integration.metered_run import ROLES, MeteredRun
from tests.secret_pods import files_below, places_of, topics_of
from tests.unit.streams.pipeline import message, node, pod

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

USER = "lockstep"
PASSWORD = "marker-of-the-kafka-password"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

#: Says what is in the environment of a client: names without `LOCKSTEP_KAFKA_`.
Enter = Callable[..., None]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority, the broker's and a client's keys, and those of a stranger's authority."""
    folder = tmp_path_factory.mktemp("keys")
    stranger = folder / "stranger"
    stranger.mkdir()
    try:
        authority = Authority(folder)
        Authority(stranger)
    except Missing as missing:
        pytest.skip(str(missing))
    authority.issue("client")
    broker = authority.issue("broker")
    (folder / "keystore.pem").write_text(broker.key.read_text() + broker.certificate.read_text())
    (folder / "password").write_text(f"{PASSWORD}\n")
    return folder


def tls_properties(keys: Path) -> dict[str, str]:
    """The broker's side of TLS."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys / "keystore.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys / "authority.pem"),
    }


@pytest.fixture(scope="module")
def scram_broker(keys: Path) -> Iterator[LocalBroker]:
    """A broker behind TLS that asks for a password (SCRAM-SHA-512)."""
    login = f'{_SCRAM} required username="{USER}" password="{PASSWORD}";'
    properties = tls_properties(keys) | {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.client.scram-sha-512.sasl.jaas.config": login,
    }
    credentials = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(keys / "authority.pem"),
    }
    user = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    with running_broker(
        access=Access("SASL_SSL", properties, ("--add-scram", user), credentials)
    ) as broker:
        yield broker


@pytest.fixture(scope="module")
def certificate_broker(keys: Path) -> Iterator[LocalBroker]:
    """A broker behind TLS that asks for a client's certificate."""
    credentials = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(keys / "authority.pem"),
        "ssl.certificate.location": str(keys / "client.pem"),
        "ssl.key.location": str(keys / "client.key"),
    }
    properties = tls_properties(keys) | {"ssl.client.auth": "required"}
    with running_broker(access=Access("SSL", properties, (), credentials)) as broker:
        yield broker


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Sets the environment that `lockstep` reads, here and in child processes."""

    def put(**fields: object) -> None:
        for name, value in fields.items():
            monkeypatch.setenv(f"LOCKSTEP_KAFKA_{name}", str(value))

    return put


def scram(keys: Path) -> dict[str, object]:
    """The environment of a client that gets in by password."""
    return {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": "SCRAM-SHA-512",
        "SASL_USERNAME": USER,
        "SASL_PASSWORD_FILE": keys / "password",
        "SSL_CA": keys / "authority.pem",
    }


def certificate(keys: Path) -> dict[str, object]:
    """The environment of a client that gets in by certificate."""
    return {
        "SECURITY_PROTOCOL": "SSL",
        "SSL_CA": keys / "authority.pem",
        "SSL_CERTIFICATE": keys / "client.pem",
        "SSL_KEY": keys / "client.key",
    }


def publish(url: str) -> None:
    """A node and a pod that fits."""
    writer = open_writer(url)
    writer.append_many([("nodes", None, message(node("n1"))), ("pods", None, message(pod("p1")))])
    writer.close()


def delivers(run: MeteredRun, url: str, role: str) -> bool:
    """Whether Faust has brought the role anything; more is published, for a poll may come before it."""
    publish(url)
    return (run.value("lockstep_feed_records_total", role=role, source="hint") or 0) > 0


def run_everything(directory: Path, url: str) -> str:
    """Topics, service with tables, replay; what the service wrote, and its metrics."""
    assert lockstep("topics", "create", "--log", url)[0] == 0
    assert (0, {"differences": []}) == lockstep("topics", "check", "--log", url)
    run = MeteredRun(directory, url, options=(*ROLES, "--projector"))
    run.service.start()
    try:
        for role in ("sequencer", "decider", "projector"):
            wait_for(
                f"what Faust delivers to the {role}", lambda role=role: delivers(run, url, role)
            )
        wait_for("decisions", lambda: (run.value("lockstep_decisions_sequence") or 0) >= 2)
        scraped = run.scrape()
    finally:
        run.service.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0) == (code, found["differences"])
    assert found["compared"] >= 2
    print(f"{found['compared']} decisions through {len(ALL)} topics, 0 differences")
    return run.output.read_text() + scraped


def test_password_and_tls(
    scram_broker: LocalBroker, keys: Path, enter: Enter, tmp_path: Path, prefix: str
) -> None:
    """SASL_SSL with SCRAM-SHA-512: topics, writer, reader, Faust with its tables, and replay."""
    enter(**scram(keys))
    url = f"{scram_broker.address.url}?prefix={prefix}"
    places: dict[str, bytes | str] = {"log and metrics": run_everything(tmp_path, url)}
    places |= {f"{topic} {number}": held for number, (topic, held) in enumerate(topics_of(url))}
    places |= dict(files_below(tmp_path / "data"))
    assert len(places) > len(ALL)
    assert [] == places_of(PASSWORD, places)


@pytest.mark.acceptance
def test_client_certificate(
    certificate_broker: LocalBroker, keys: Path, enter: Enter, tmp_path: Path, prefix: str
) -> None:
    """TLS on both sides, without a password."""
    enter(**certificate(keys))
    run_everything(tmp_path, f"{certificate_broker.address.url}?prefix={prefix}")


#: What is wrong -> in which settings, and a word of the cause that must be told.
WRONG = {
    "password": ({"SASL_PASSWORD": "marker-of-a-wrong-password"}, "Authentication failed"),
    "user": ({"SASL_USERNAME": "somebody"}, "Authentication failed"),
    "mechanism": ({"SASL_MECHANISM": "PLAIN"}, "Unsupported SASL mechanism"),
    "authority": ({"SSL_CA": "stranger/authority.pem"}, "certificate verify failed"),
    "plaintext": ({"SECURITY_PROTOCOL": "PLAINTEXT"}, "LOCKSTEP_KAFKA_SECURITY_PROTOCOL"),
    "no tls": ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, "LOCKSTEP_KAFKA_SECURITY_PROTOCOL"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_who_does_not_get_in_is_told_why(
    scram_broker: LocalBroker, keys: Path, enter: Enter, wrong: str
) -> None:
    """Commands say the cause in one line, with exit code 2; a writer raises it. No password is in it."""
    refuses(scram_broker.address.url, keys, enter, *WRONG[wrong])


def test_a_broker_of_another_name_is_refused(
    scram_broker: LocalBroker, keys: Path, enter: Enter
) -> None:
    """The same address, written so that the certificate does not name it."""
    url = scram_broker.address.url.replace("127.0.0.1", "127.1")
    refuses(url, keys, enter, {}, "certificate verify failed")


def refuses(url: str, keys: Path, enter: Enter, changes: dict[str, str], cause: str) -> None:
    """Two commands and a writer with these changes to good settings; each must name the cause."""
    given = scram(keys) | changes | {"TIMEOUT_S": 2}
    if "SSL_CA" in changes:
        given["SSL_CA"] = keys / changes["SSL_CA"]
    enter(**given)
    commands = [
        subprocess.Popen(
            [*COMMAND, *command, "--log", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in (("topics", "check"), ("replay",))
    ]
    with pytest.raises(Unavailable) as refusal:
        open_writer(url).append("nodes", None, message(node("n1")))
    said = [str(refusal.value)]
    for command in commands:
        printed, line = command.communicate(timeout=60)
        assert (2, "") == (command.returncode, printed)
        said.append(line)
    print("\n".join(said))
    assert [True] * 3 == [cause in line and "marker" not in line for line in said]
    assert [1] * 3 == [len(line.splitlines()) for line in said]

"""`lockstep run` and a broker that goes away, comes back, or has lost a topic. Real Kafka."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streams.log import open_writer
from tests.alerts import fires, produces
from tests.integration.api import wait_for
from tests.integration.kafka_broker import KafkaAddress, LocalBroker
from tests.integration.lockstep_process import lockstep
from tests.integration.metered_run import MeteredRun
from tests.unit.streams.pipeline import message, node

pytestmark = pytest.mark.kafka

Start = Callable[[str], MeteredRun]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `lockstep run` on a log, without waiting; ended after the test."""
    runs: list[MeteredRun] = []

    def begin(url: str) -> MeteredRun:
        directory = tmp_path / f"run{len(runs)}"
        directory.mkdir()
        runs.append(MeteredRun(directory, url))
        runs[-1].service.spawn()
        return runs[-1]

    yield begin
    for run in runs:
        run.service.stop()


def publish(url: str, name: str) -> None:
    writer = open_writer(url)
    writer.append("nodes", None, message(node(name)))
    writer.close()


def decided(run: MeteredRun, sequence: int) -> None:
    """Waits until the log holds decisions up to `sequence`."""
    wait_for(
        f"decision {sequence}",
        lambda: (run.value("lockstep_decisions_sequence") or 0) >= sequence,
        seconds_max=90,
    )


@produces("LockstepLogUnavailable")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("away_s", [1, pytest.param(60, marks=pytest.mark.acceptance)])
def test_a_broker_that_was_away_is_found_again(
    breakable_kafka: LocalBroker, prefix: str, start: Start, away_s: int
) -> None:
    """The same process says that the log is away, goes on by itself when it is back, and has lost nothing."""
    url = f"{breakable_kafka.address.url}?prefix={prefix}"
    run = start(url)
    run.service.wait_ready()
    publish(url, "n1")
    decided(run, 2)
    pid = run.service.pid
    breakable_kafka.kill()
    wait_for("the alert", lambda: fires("LockstepLogUnavailable", run.scrape()), seconds_max=60)
    time.sleep(away_s)
    breakable_kafka.start()
    began = time.monotonic()
    publish(url, "n2")
    decided(run, 3)
    print(f"decided {time.monotonic() - began:.1f} s after the broker answered")
    wait_for("the alert to end", lambda: not fires("LockstepLogUnavailable", run.scrape()))
    assert (True, pid) == (run.service.running, run.service.pid)
    run.service.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])


@produces("LockstepTopicDeleted")
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "topic",
    [
        "journal",
        pytest.param("nodes", marks=pytest.mark.acceptance),
        pytest.param("decisions", marks=pytest.mark.acceptance),
    ],
)
def test_a_topic_that_was_deleted_stops_it_and_is_not_made_anew(
    kafka: KafkaAddress, prefix: str, start: Start, topic: str
) -> None:
    """While it runs and at every start after that: it names the topic and what to do, and makes none in its place."""
    url = f"{kafka.url}?prefix={prefix}"
    run = start(url)
    run.service.wait_ready()
    publish(url, "n1")
    decided(run, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([prefix + topic])[prefix + topic].result(30)
    for each in (run, None):
        said = (each or start(url)).stops_with("LockstepTopicDeleted", seconds_max=120)
        assert f"topic {prefix}{topic} is" in said.splitlines()[-1]
        assert "restore it, or begin a new log" in said.splitlines()[-1]
        assert prefix + topic not in admin.list_topics(timeout=30).topics
    print(f"topic {topic} deleted: stopped twice, and not made anew")


@pytest.mark.acceptance
@pytest.mark.timeout(400)
def test_decisions_that_were_deleted_are_derived_again(
    kafka: KafkaAddress, prefix: str, start: Start
) -> None:
    """The runbook's way: make the topic, run sequencer and decider, and the log is whole."""
    url = f"{kafka.url}?prefix={prefix}"
    run = start(url)
    run.service.wait_ready()
    publish(url, "n1")
    decided(run, 2)
    run.service.stop()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([f"{prefix}decisions"])[f"{prefix}decisions"].result(30)
    assert f"{prefix}decisions: missing" in str(lockstep("topics", "check", "--log", url))
    wait_for("the topic", lambda: lockstep("topics", "create", "--log", url)[1]["created"])
    again = start(url)
    again.service.wait_ready()
    decided(again, 2)
    again.service.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])
    print(f"{found['compared']} decisions derived again, 0 differences")


@produces("LockstepTopicDeleted")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("topic", ["nodes", pytest.param("journal", marks=pytest.mark.acceptance)])
def test_a_topic_that_somebody_made_anew_stops_it(
    kafka: KafkaAddress, prefix: str, start: Start, topic: str
) -> None:
    """Deleted and created empty between two reads: what it would say now is not what was said before."""
    url = f"{kafka.url}?prefix={prefix}"
    run = start(url)
    run.service.wait_ready()
    publish(url, "n1")
    decided(run, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([prefix + topic])[prefix + topic].result(30)
    fresh = NewTopic(prefix + topic, num_partitions=1, replication_factor=1)
    wait_for("a new topic", lambda: _made(admin, fresh))
    said = run.stops_with("LockstepTopicDeleted", seconds_max=120)
    assert f"topic {prefix}{topic} ends at offset" in said.splitlines()[-1]
    print(f"topic {topic} deleted and made anew: stopped")


def _made(admin: AdminClient, topic: NewTopic) -> bool:
    """Deleting takes a moment, in which the name is still taken."""
    try:
        admin.create_topics([topic])[topic.topic].result(30)
    except Exception:  # noqa: BLE001  (the client's one kind of error)
        return False
    return True

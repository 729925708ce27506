"""`lockstep run --standby`: what it keeps from doing, and that it takes over. Real Kafka, real API server."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from schemas.topics import CHECKPOINTS, DECISIONS, INTAKE, JOURNAL
from streams.log import create_topics, open_reader
from tests.integration import manifests
from tests.integration.api import Api, wait_for
from tests.integration.cluster import Cluster
from tests.integration.kafka_broker import KafkaAddress
from tests.integration.lockstep_process import COMMAND, LockstepRun, lockstep


@pytest.mark.kafka
@pytest.mark.controlplane
def test_a_standby_begins_nothing_writes_nothing_and_takes_over(
    kafka: KafkaAddress,
    prefix: str,
    cluster: Cluster,
    api: Api,
    namespace: str,
    add_nodes: Callable[..., None],
    tmp_path: Path,
) -> None:
    """On an empty log it waits; beside a leader it is no member of a group; when the leader stops, it binds, then
    joins the groups and keeps the tables.
    """
    url = f"{kafka.url}?prefix={prefix}"
    create_topics(url)
    options = ("--kubeconfig", str(cluster.kubeconfig()), "--lease-namespace", namespace)
    runs = {name: LockstepRun(tmp_path / name, url, *options) for name in ("leader",)}
    runs["standby"] = LockstepRun(tmp_path / "standby", url, *options, "--standby")
    for name in runs:
        (tmp_path / name).mkdir()
    reader = open_reader(url)
    try:
        runs["standby"].spawn()
        time.sleep(4)
        written = [reader.end_offset(topic) for topic in (*INTAKE, JOURNAL, DECISIONS, CHECKPOINTS)]
        assert [0] * len(written) == written
        runs["leader"].start()
        wait_for("the standby to run", lambda: runs["standby"].said("running") == 1)
        add_nodes(manifests.node("standby-n", {"cpu": "4"}))
        _bind(api, namespace, "a")
        alone = {f"{prefix}{role}": 1 for role in ("decider", "projector", "sequencer", "sink")}
        wait_for("the leader to be the only member", lambda: alone == _members(kafka, prefix))
        time.sleep(2)
        assert alone == _members(kafka, prefix)
        assert 0 == runs["leader"].stop()
        _bind(api, namespace, "b")
        assert (1, 0) == tuple(runs["standby"].said(name) for name in ("leading", "tables_ready"))
        wait_for("its tables", lambda: runs["standby"].said("tables_ready") == 1)
        wait_for("it to be the member", lambda: _members(kafka, prefix) == alone)
        _bind(api, namespace, "c")
        assert 0 == runs["standby"].stop()
    finally:
        for run in runs.values():
            run.stop_if_running()
        reader.close()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])


def _bind(api: Api, namespace: str, name: str) -> None:
    """Creates a pod and waits for its node."""
    api.create(manifests.pod(name, {"cpu": "1"}, namespace=namespace))
    wait_for(
        f"{name} to be bound",
        lambda: {p["metadata"]["name"]: p for p in api.pods(namespace)}[name]["spec"].get(
            "nodeName"
        ),
    )


def _members(kafka: KafkaAddress, prefix: str) -> dict[str, int]:
    """Consumer group of the log -> how many members it has."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    groups = [
        each.group_id
        for each in admin.list_consumer_groups().result(30).valid
        if each.group_id.startswith(prefix)
    ]
    if not groups:
        return {}
    described = admin.describe_consumer_groups(groups)
    return {name: len(each.result(30).members) for name, each in described.items()}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--log", "embedded:///nowhere/log"), "it takes a log on Kafka"),
        (("--log", "kafka://127.0.0.1:1", "--sequencer"), "the Lease, which comes with --sink"),
    ],
)
def test_where_nobody_can_stand_by_it_says_so(
    arguments: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    """An embedded log has one process; without a sink there is no Lease to wait for. Exit code 2, one line."""
    argv = [*COMMAND, "run", "--standby", "--datadir", str(tmp_path), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert 2 == done.returncode
    assert [True] == [told in line for line in done.stderr.splitlines()]

"""Local directories that vanish under a running service. Real Kafka, real API server."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams.checkpoints import CheckpointStore
from streams.history import Bound, LogHistory
from streams.log import open_reader
from streams.verify import verify
from tests.integration import manifests
from tests.integration.api import Api, wait_for
from tests.integration.cluster import Cluster
from tests.integration.history import rows_that_differ
from tests.integration.kafka_broker import KafkaAddress
from tests.integration.kubelet import Kubelet
from tests.integration.lockstep_process import LockstepRun, open_commands

pytestmark = [pytest.mark.kafka, pytest.mark.controlplane]

PODS_A_ROUND = 100


def bind_more(api: Api, namespace: str, number: int) -> None:
    """Creates the pods of a round and waits until all pods there have a node."""
    api.create(
        *[
            manifests.pod(f"r{number}-{index}", {"cpu": "10m"}, namespace=namespace)
            for index in range(PODS_A_ROUND)
        ]
    )
    wait_for(
        f"the pods of round {number} to be bound",
        lambda: (
            sum("nodeName" in pod["spec"] for pod in api.pods(namespace)) == number * PODS_A_ROUND
        ),
        seconds_max=90,
        every=0.5,
    )


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_every_local_directory_wiped_while_it_runs(
    kafka: KafkaAddress,
    prefix: str,
    cluster: Cluster,
    api: Api,
    namespace: str,
    add_nodes: Callable[..., None],
    kubelet: Kubelet,
    tmp_path: Path,
    end: str,
) -> None:
    """It goes on binding; after a clean stop or a kill, and a restart on nothing, its digest is that of a fold of the
    whole log, and so are its tables.
    """
    url = f"{kafka.url}?prefix={prefix}"
    add_nodes(*[manifests.node(f"n{index}", {"cpu": "8"}) for index in range(5)])
    options = ("--kubeconfig", str(cluster.kubeconfig()), "--lease-namespace", namespace)
    run = LockstepRun(tmp_path, url, *options, "--identity", "the-only-one")
    run.start()
    try:
        bind_more(api, namespace, 1)
        wait_for("the tables", lambda: run.said("tables_ready"), seconds_max=60)
        shutil.rmtree(run.datadir)
        bind_more(api, namespace, 2)
        if end == "kill":
            run.kill()
        else:
            assert 0 == run.stop()
        shutil.rmtree(run.datadir, ignore_errors=True)
        # The first process may have begun its tables anew when they were wiped, and said so.
        before = run.said("tables_ready")
        run.start()
        bind_more(api, namespace, 3)
        wait_for("the tables again", lambda: run.said("tables_ready") > before, seconds_max=60)
        wait_for("the results", lambda: not open_commands(url), seconds_max=60, every=1)
        time.sleep(2)  # the tables follow
    finally:
        run.stop_if_running()
    reader = open_reader(url)
    checkpoint = CheckpointStore(reader).manifests[0]
    found = verify(LogHistory(reader, reader), bound=Bound(checkpoint.sequence))
    reader.close()
    assert (None, checkpoint.sequence) == (found.difference, found.last)
    assert checkpoint.digest == found.digest
    assert 0 == rows_that_differ(url, run.datadir)

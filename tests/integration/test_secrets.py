"""Secrets of pods and of ours, against a real API server and the real service: stored nowhere, told nowhere."""

import json
from pathlib import Path

import pytest
import yaml

from tests.integration import manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.cluster import Cluster
from tests.integration.lockstep_process import lockstep
from tests.integration.metered_run import MeteredRun
from tests.secret_pods import KEPT, MARKER, files_below, places_of, secret_pod, topics_of

pytestmark = pytest.mark.controlplane


def token_of(kubeconfig: Path) -> str:
    """The bearer token of a kubeconfig's one user."""
    (user,) = yaml.safe_load(kubeconfig.read_text())["users"]
    token: str = user["user"]["token"]
    return token


def verdict(pod: Object) -> str:
    conditions = pod["status"].get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == "PodScheduled"), "")


def test_no_secret_leaves_the_api_server(
    cluster: Cluster, api: Api, namespace: str, tmp_path: Path
) -> None:
    """A pod bound, one refused, one evicted: log, metrics, topics, tables, files, events, statuses, and commands."""
    api.create(manifests.node("secrets", {"cpu": "4", "memory": "8Gi"}))
    url = f"embedded://{tmp_path}/log"
    kubeconfig = cluster.kubeconfig()
    options = ("--kubeconfig", str(kubeconfig), "--lease-namespace", namespace)
    run = MeteredRun(tmp_path, url, options=options)
    run.service.start()
    try:
        pods = [("placed", "1"), ("evicted", "1"), ("waiting", "100")]
        api.create(*(secret_pod(name, cpu, namespace=namespace) for name, cpu in pods))
        wait_for("a verdict on each", lambda: all(map(verdict, api.pods(namespace))))
        found = {pod["metadata"]["name"]: pod for pod in api.pods(namespace)}
        assert ["True", "False"] == [verdict(found[name]) for name in ("placed", "waiting")]
        datadir = ["--datadir", str(run.datadir), "--log", url]
        evict = ["evict", "pod", "evicted", "-n", namespace, "--reason", "a test", *datadir]
        assert 0 == lockstep(*evict)[0]
        events = f"/api/v1/namespaces/{namespace}/events"
        wanted = {"Evicted", "FailedScheduling"}
        wait_for("events", lambda: wanted == {each["reason"] for each in api.items(events)})
        places: dict[str, bytes | str] = {
            "metrics": run.scrape(),
            "events": json.dumps(api.items(events)),
            "statuses": json.dumps([pod["status"] for pod in api.pods(namespace)]),
            "lease": json.dumps(
                api.items(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
            ),
        }
    finally:
        print(run.service.log_tail())
        run.service.stop()
        api.delete("/api/v1/nodes/secrets")
    places["log"] = run.output.read_text()
    places |= {f"{topic} {number}": held for number, (topic, held) in enumerate(topics_of(url))}
    places |= dict(files_below(run.datadir)) | dict(files_below(tmp_path / "log"))
    for command in (
        ("replay", "--verify"),
        ("state", "pods"),
        ("story", "pod", f"{namespace}/placed"),
    ):
        places[" ".join(command)] = json.dumps(lockstep(*command, "--log", url))
    assert "lockstep_running 1.0" in str(places["metrics"])
    assert [] == places_of(MARKER, places)
    assert [] == places_of(token_of(kubeconfig), places)
    assert {"topic pods", "topic journal"} <= {
        name.rpartition(" ")[0] for name in places_of(KEPT, places)
    }

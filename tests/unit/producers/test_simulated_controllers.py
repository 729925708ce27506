"""The simulated controllers: names of pods, replacement, scaling, and what goes with its owner."""

from typing import Any

import pytest

from producers.simulated.cluster import Cluster
from producers.simulated.kinds import POD, kinds_named


def owner(kind: str, **spec: Any) -> dict[str, Any]:
    """A controller called `web` with one container a pod."""
    group = "batch/v1" if kind == "Job" else "apps/v1"
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {"template": template, **spec},
    }


def names(cluster: Cluster) -> list[str]:
    """Names of all pods, oldest first."""
    return [pod["metadata"]["name"] for pod in cluster.store.list(POD)]


def uid(cluster: Cluster, name: str) -> str:
    """The uid of a pod."""
    found = cluster.read_pod("default", name)
    assert found is not None
    return str(found["metadata"]["uid"])


def cluster_of(document: dict[str, Any]) -> Cluster:
    """A cluster with that controller."""
    cluster = Cluster(0)
    cluster.apply(document)
    return cluster


def budget_status(cluster: Cluster) -> Any:
    """The status of the budget `b`."""
    found = cluster.store.get(kinds_named("PodDisruptionBudget")[0], "default", "b")
    assert found is not None
    return found["status"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (owner("ReplicaSet", replicas=2), ["web-00001", "web-00002"]),
        (owner("ReplicaSet"), ["web-00001"]),
        (owner("StatefulSet", replicas=2), ["web-0", "web-1"]),
        (owner("Job", parallelism=2), ["web-00001", "web-00002"]),
        (owner("Job", parallelism=3, completions=1), ["web-00001"]),
        (owner("ReplicaSet", replicas=0), []),
    ],
)
def test_each_kind_makes_its_pods(document: dict[str, Any], expected: list[str]) -> None:
    """The wanted count, under the names of the kind."""
    assert expected == names(cluster_of(document))


def test_a_deployment_makes_pods_through_a_replica_set() -> None:
    """Its pods belong to a ReplicaSet; a new template replaces them all."""
    cluster = cluster_of(owner("Deployment", replicas=2))
    first = names(cluster)
    assert all(name.startswith("web-") for name in first)
    changed = owner("Deployment", replicas=3)
    changed["spec"]["template"]["spec"]["containers"] = [{"name": "other"}]
    cluster.apply(changed)
    assert 3 == len(names(cluster))
    assert not set(first) & set(names(cluster))
    (reference,) = cluster.store.list(POD)[0]["metadata"]["ownerReferences"]
    assert "ReplicaSet" == reference["kind"]


def test_an_evicted_or_deleted_pod_is_replaced_at_once_under_a_new_name() -> None:
    """Names of a ReplicaSet's pods are never used twice."""
    cluster = cluster_of(owner("ReplicaSet", replicas=1))
    cluster.evict("default", "web-00001", uid(cluster, "web-00001"))
    assert ["web-00002"] == names(cluster)
    cluster.delete("Pod", "default", "web-00002")
    assert ["web-00003"] == names(cluster)


def test_a_stateful_pod_comes_back_under_its_name_with_another_uid() -> None:
    """The successor of web-0 is web-0 again."""
    cluster = cluster_of(owner("StatefulSet", replicas=1))
    before = uid(cluster, "web-0")
    cluster.evict("default", "web-0", before)
    assert ["web-0"] == names(cluster)
    assert before != uid(cluster, "web-0")


def test_a_terminating_pod_is_replaced_before_it_is_gone() -> None:
    """A ReplicaSet does not count a pod that is being evicted slowly."""
    cluster = cluster_of(owner("ReplicaSet", replicas=1))
    cluster.faults.slow_us["default", "web-00001"] = 1_000_000
    cluster.evict("default", "web-00001", uid(cluster, "web-00001"))
    assert ["web-00001", "web-00002"] == names(cluster)
    cluster.advance_to(1_000_000)
    assert ["web-00002"] == names(cluster)


def test_scaling_down_takes_pods_without_a_node_first_then_the_newest() -> None:
    """Of three pods of which the newest is bound, the middle one goes first."""
    cluster = cluster_of(owner("ReplicaSet", replicas=3))
    for name in ("web-00001", "web-00003"):
        cluster.bind("default", name, uid(cluster, name), "n1", {})
    cluster.apply(owner("ReplicaSet", replicas=2))
    assert ["web-00001", "web-00003"] == names(cluster)
    cluster.apply(owner("ReplicaSet", replicas=1))
    assert ["web-00001"] == names(cluster)


def test_a_job_replaces_failures_and_stops_when_done() -> None:
    """A failed pod is tried again, a succeeded one counts; nothing follows the last completion."""
    cluster = cluster_of(owner("Job", parallelism=1, completions=2))
    cluster.set_phase("default", "web-00001", "Failed")
    cluster.set_phase("default", "web-00002", "Succeeded")
    assert ["web-00001", "web-00002", "web-00003"] == names(cluster)
    cluster.set_phase("default", "web-00003", "Succeeded")
    assert 3 == len(names(cluster))


def test_what_is_owned_goes_with_its_owner() -> None:
    """Deleting a Deployment deletes its ReplicaSet and their pods."""
    cluster = cluster_of(owner("Deployment", replicas=2))
    cluster.delete("Deployment", "default", "web")
    assert [] == names(cluster)


def test_a_budget_in_percent_counts_from_the_controllers_scale() -> None:
    """Half of four must stay: two running pods may go, whether or not their successors run yet."""
    cluster = cluster_of(owner("ReplicaSet", replicas=4))
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    cluster.apply({**budget, "spec": {"minAvailable": "50%", "selector": selector}})
    running = names(cluster)
    for name in running:
        cluster.bind("default", name, uid(cluster, name), "n1", {})
    uids = [uid(cluster, name) for name in running]
    evictions = zip(running, uids, strict=True)
    statuses = [cluster.evict("default", name, each).status for name, each in evictions]
    assert [201, 201, 429, 429] == statuses


def test_the_status_of_a_budget_follows_its_pods() -> None:
    """Bound, evicted, ended or new pods count at once; a status given by hand does not stand."""
    cluster = cluster_of(owner("ReplicaSet", replicas=2))
    document = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    meta = {"name": "b", "generation": 3}
    cluster.apply({**document, "metadata": meta, "spec": spec, "status": {"disruptionsAllowed": 9}})
    expected = {"desiredHealthy": 1, "expectedPods": 2, "observedGeneration": 3}
    assert {**expected, "currentHealthy": 0, "disruptionsAllowed": 0} == budget_status(cluster)
    for name in names(cluster):
        cluster.bind("default", name, uid(cluster, name), "n1", {})
    assert {**expected, "currentHealthy": 2, "disruptionsAllowed": 1} == budget_status(cluster)
    cluster.evict("default", "web-00001", uid(cluster, "web-00001"))
    assert {**expected, "currentHealthy": 1, "disruptionsAllowed": 0} == budget_status(cluster)
    cluster.set_phase("default", "web-00002", "Failed")
    assert {**expected, "currentHealthy": 0, "disruptionsAllowed": 0} == budget_status(cluster)


def test_a_budget_whose_status_stands_is_not_written_again() -> None:
    """One version a change: else every reconcile would wake all watchers."""
    cluster = cluster_of(owner("ReplicaSet", replicas=1))
    document = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    cluster.apply({**document, "spec": {"minAvailable": 1, "selector": {}}})
    cluster.take_events()
    cluster.apply({**owner("ReplicaSet", replicas=1), "metadata": {"name": "other"}})
    assert ["PodDisruptionBudget"] == [
        event.kind.name for event in cluster.take_events() if event.type == "MODIFIED"
    ]
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    assert ["Namespace"] == [event.kind.name for event in cluster.take_events()]

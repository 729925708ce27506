"""The simulated informers: they publish like the real ones, lose their watch, and list anew."""

import json
from typing import Any

import pytest

from producers.simulated.cluster import Cluster
from producers.simulated.informers import OBSERVED_KINDS, SimulatedInformers
from producers.simulated.kinds import POD
from schemas.codec import decode_intake
from schemas.errors import InvalidMessage


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    """A pod manifest."""
    spec = {"containers": [{"name": "main", "image": "busybox"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def started() -> tuple[Cluster, SimulatedInformers]:
    """An empty cluster whose first lists have been published."""
    cluster = Cluster(0)
    informers = SimulatedInformers(cluster)
    for kind in OBSERVED_KINDS:
        informers.relist(kind, cold=True)
    informers.take()
    return cluster, informers


def published(informers: SimulatedInformers) -> list[str]:
    """Kind and, where there is one, name of each observation that is published now."""
    found = []
    for _, value in informers.take():
        decode_intake(value)
        for item in json.loads(value)["observations"]:
            found.append(" ".join(filter(None, (item["kind"], item.get("name")))))
    return found


def test_only_what_matters_is_published() -> None:
    """A change of nothing that the core looks at is silent."""
    cluster, informers = started()
    cluster.apply(pod("a"))
    assert ["PodObserved a"] == published(informers)
    cluster.apply(pod("a"))
    assert [] == published(informers)
    cluster.apply(pod("a", labels={"x": "y"}))
    assert ["PodObserved a"] == published(informers)
    cluster.delete("Pod", "default", "a")
    assert ["ObjectGone a"] == published(informers)


def test_a_budget_is_published_when_what_it_allows_changes() -> None:
    """Each change of its pods writes its status; only the number of disruptions matters."""
    cluster, informers = started()
    document = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    cluster.apply({**document, "spec": {"minAvailable": 1, "selector": {}}})
    assert ["BudgetObserved b"] == published(informers)
    for name, expected in (("p", []), ("q", ["BudgetObserved b"])):
        cluster.apply(pod(name))
        uid = cluster.read_pod("default", name)["metadata"]["uid"]
        cluster.bind("default", name, uid, "n1", {})
        assert expected == [said for said in published(informers) if said.startswith("Budget")]


def test_the_start_of_a_pod_is_published_with_its_phase() -> None:
    """A pod that is bound runs from that moment on; what follows doesn't change when it started."""
    cluster, informers = started()
    cluster.apply(pod("p"))
    cluster.advance_to(7_000_000)
    cluster.bind("default", "p", cluster.read_pod("default", "p")["metadata"]["uid"], "n1", {})
    cluster.advance_to(9_000_000)
    cluster.set_phase("default", "p", "Succeeded")
    values = [json.loads(value) for _, value in informers.take()]
    pods = [item for value in values for item in value["observations"]]
    expected = [("Pending", None), ("Running", 7_000_000), ("Succeeded", 7_000_000)]
    assert expected == [(item.get("phase", "Pending"), item.get("started_us")) for item in pods]


def test_kinds_that_nobody_observes_are_silent() -> None:
    """A ReplicaSet itself is not published, its pods are."""
    cluster, informers = started()
    template = {"metadata": {}, "spec": pod("x")["spec"]}
    document = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"}}
    cluster.apply({**document, "spec": {"template": template}})
    assert ["PodObserved r-00001"] == published(informers)


def test_a_gap_hides_changes_until_the_list_is_read_again() -> None:
    """The list names the unchanged briefly, the changed in full, and what is gone not at all."""
    cluster, informers = started()
    for name in ("gone", "same", "changed"):
        cluster.apply(pod(name))
    published(informers)
    informers.gap(POD)
    cluster.delete("Pod", "default", "gone")
    cluster.apply(pod("changed", labels={"x": "y"}))
    assert [] == published(informers)
    informers.relist(POD)
    expected = ["SyncStarted", "StillThere", "PodObserved changed", "SyncFinished"]
    assert expected == published(informers)
    cluster.apply(pod("new"))
    assert ["PodObserved new"] == published(informers)


def test_a_cold_list_names_everything_in_full() -> None:
    """An informer without memory publishes every object."""
    cluster, informers = started()
    cluster.apply(pod("a"))
    published(informers)
    informers.relist(POD, cold=True)
    assert ["SyncStarted", "PodObserved a", "SyncFinished"] == published(informers)


def test_duplicates_repeat_what_waits() -> None:
    """Everything that waits is published over and over in its order."""
    cluster, informers = started()
    cluster.apply(pod("a"))
    cluster.apply(pod("b"))
    informers.duplicate(2)
    expected = ["PodObserved a", "PodObserved b"] * 2
    assert expected == published(informers)


def test_old_news_are_published_as_they_are() -> None:
    """A late picture of an object reaches the intake with its own version."""
    cluster, informers = started()
    cluster.apply(pod("a", resourceVersion="9"))
    informers.take()
    cluster.apply(pod("a", resourceVersion="5", labels={"x": "old"}))
    ((_, value),) = informers.take()
    assert [5] == [item["rv"] for item in json.loads(value)["observations"]]


def test_bursts_are_cut_into_messages() -> None:
    """No message holds more observations than a message may."""
    cluster, informers = started()
    for index in range(250):
        cluster.apply(pod(f"p{index:03d}"))
    sizes = [len(json.loads(value)["observations"]) for _, value in informers.take()]
    assert [100, 100, 50] == sizes


def test_an_object_that_cannot_be_observed_is_named() -> None:
    """The error says which object and which field."""
    cluster, informers = started()
    unreadable = pod("a")
    unreadable["spec"]["nodeSelector"] = {"zone": 1}
    cluster.apply(unreadable)
    with pytest.raises(InvalidMessage, match=r"default/a.*spec\.nodeSelector\.zone"):
        informers.take()

"""The simulated API server: identity, versions, binds, evictions, and what watchers see of them."""

from typing import Any

import pytest

from producers.simulated.cluster import Cluster
from producers.simulated.faults import Reply
from schemas.errors import InvalidMessage

NOW_US = 1_767_225_600_000_000
UID = "00000000-0000-4000-8000-000000000001"
OTHER_UID = "00000000-0000-4000-8000-000000000002"


def pod(name: str = "a", **metadata: Any) -> dict[str, Any]:
    """A pod manifest."""
    container = {"name": "main", "resources": {"limits": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container]},
    }


def node(name: str, **parts: Any) -> dict[str, Any]:
    """A node manifest."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **parts}


def cluster_of(*documents: dict[str, Any]) -> Cluster:
    """A cluster that holds the documents, their watch events taken."""
    cluster = Cluster(NOW_US)
    for document in documents:
        cluster.apply(document)
    cluster.take_events()
    return cluster


def seen(cluster: Cluster) -> list[tuple[str, str, int]]:
    """The new watch events: what happened to which object, at which version."""
    return [
        (event.type, event.raw["metadata"]["name"], int(event.raw["metadata"]["resourceVersion"]))
        for event in cluster.take_events()
    ]


def read(cluster: Cluster, name: str = "a") -> dict[str, Any]:
    """The stored pod of that name."""
    found = cluster.read_pod("default", name)
    assert found is not None
    return found


def test_made_identity_follows_the_order_of_documents() -> None:
    """Two clusters that are given the same documents make the same identities, in order."""
    first, second = (cluster_of(pod("b"), pod("a")) for _ in range(2))
    keys = ("uid", "resourceVersion", "creationTimestamp")
    made = [
        [read(cluster, name)["metadata"][key] for key in keys]
        for cluster in (first, second)
        for name in "ba"
    ]
    assert made[:2] == made[2:]
    assert made[0][0] < made[1][0]
    assert ["1", "2"] == [item[1] for item in made[:2]]
    assert made[0][2] < made[1][2]


def test_a_replaced_pod_keeps_identity_node_and_what_its_binding_brought() -> None:
    """A document for a bound pod takes neither its uid, nor its node, nor its devices away."""
    cluster = cluster_of(pod(uid=UID))
    assert cluster.bind("default", "a", UID, "n1", {"devices": "0"}).ok
    before = read(cluster)
    cluster.apply(pod(labels={"x": "y"}))
    after = read(cluster)
    assert UID == after["metadata"]["uid"]
    assert before["metadata"]["creationTimestamp"] == after["metadata"]["creationTimestamp"]
    assert ("n1", "Running") == (after["spec"]["nodeName"], after["status"]["phase"])
    assert {"devices": "0"} == after["metadata"]["annotations"]
    assert {"x": "y"} == after["metadata"]["labels"]


def test_another_uid_makes_a_successor() -> None:
    """A document with another uid deletes the old object first and is not bound."""
    cluster = cluster_of(pod(uid=UID))
    cluster.bind("default", "a", UID, "n1", {})
    cluster.take_events()
    cluster.apply(pod(uid=OTHER_UID))
    assert ["DELETED", "ADDED"] == [kind for kind, _, _ in seen(cluster)]
    assert "nodeName" not in read(cluster)["spec"]


def test_a_lower_version_is_old_news() -> None:
    """The watch shows the late picture as it is; the store keeps the newer one."""
    cluster = cluster_of(pod(resourceVersion="9", labels={"age": "new"}))
    cluster.apply(pod(resourceVersion="5", labels={"age": "old"}))
    assert [("MODIFIED", "a", 5)] == seen(cluster)
    assert ("9", {"age": "new"}) == (
        read(cluster)["metadata"]["resourceVersion"],
        read(cluster)["metadata"]["labels"],
    )


def test_late_news_of_a_gone_object_does_not_bring_it_back() -> None:
    """The watch shows a late picture of the predecessor; the successor stays what it is."""
    cluster = cluster_of(pod(uid=UID, resourceVersion="5"))
    cluster.delete("Pod", "default", "a")
    cluster.apply(pod(uid=OTHER_UID))
    cluster.take_events()
    cluster.apply(pod(uid=UID, resourceVersion="4"))
    assert [("MODIFIED", "a", 4)] == seen(cluster)
    assert OTHER_UID == read(cluster)["metadata"]["uid"]


def test_a_change_without_a_version_is_one_above_the_object() -> None:
    """Whoever gives a version of his own keeps control: changes count on from it."""
    cluster = cluster_of(pod("other"), pod(resourceVersion="5"))
    cluster.apply(pod())
    assert [("MODIFIED", "a", 6)] == seen(cluster)


def test_bind_runs_the_pod_at_once() -> None:
    """A binding sets node, annotations and, through the kubelet, the phase, in one version."""
    cluster = cluster_of(pod(uid=UID))
    assert Reply(201) == cluster.bind("default", "a", UID, "n1", {"k": "v"})
    assert [("MODIFIED", "a", 2)] == seen(cluster)
    assert "Running" == read(cluster)["status"]["phase"]


@pytest.mark.parametrize(
    ("name", "uid", "status"),
    [("nobody", UID, 404), ("a", OTHER_UID, 409), ("a", UID, 201), ("bound", UID, 409)],
)
def test_bind_holds_its_preconditions(name: str, uid: str, status: int) -> None:
    """No pod is 404; another uid, or a pod that has a node, is 409."""
    cluster = cluster_of(pod(uid=UID), pod("bound", uid=UID))
    cluster.bind("default", "bound", UID, "n2", {})
    assert status == cluster.bind("default", name, uid, "n1", {}).status


def test_planned_refusals_are_used_up() -> None:
    """A refused bind changes nothing; after the planned times the next one is carried out."""
    cluster = cluster_of(pod(uid=UID))
    cluster.faults.refused["default", "a"] = [403]
    answers = [cluster.bind("default", "a", UID, "n1", {}).status for _ in range(2)]
    assert [403, 201] == answers


def test_eviction_removes_the_pod_at_once() -> None:
    """Without more ado an evicted pod is gone; evicting it again finds nothing."""
    cluster = cluster_of(pod(uid=UID))
    assert [201, 404] == [cluster.evict("default", "a", UID).status for _ in range(2)]
    assert [("DELETED", "a", 2)] == seen(cluster)


def test_a_slow_eviction_ends_in_its_time() -> None:
    """The pod is terminating for as long as planned, then it vanishes."""
    cluster = cluster_of(pod(uid=UID))
    cluster.faults.slow_us["default", "a"] = 60_000_000
    cluster.evict("default", "a", UID)
    assert read(cluster)["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00.000000Z"
    assert NOW_US + 60_000_000 == cluster.next_event_us
    cluster.advance_to(NOW_US + 59_999_999)
    assert cluster.read_pod("default", "a") is not None
    cluster.advance_to(NOW_US + 60_000_000)
    assert cluster.read_pod("default", "a") is None
    assert cluster.next_event_us is None


@pytest.mark.parametrize(
    ("budget", "statuses"),
    [
        ({"minAvailable": 2}, [201, 429]),
        ({"minAvailable": "100%"}, [429, 429]),
        ({"maxUnavailable": 1}, [201, 201]),
        ({"maxUnavailable": 0}, [429, 429]),
    ],
)
def test_a_budget_holds_evictions_back(budget: dict[str, Any], statuses: list[int]) -> None:
    """Of three running bare pods a budget gives away what it says, and no more.

    An evicted bare pod is no longer expected, so maxUnavailable 1 allows one at a time for ever.
    """
    pods = [pod(name, uid=f"{UID[:-1]}{name}", labels={"app": "x"}) for name in "abc"]
    spec = {**budget, "selector": {"matchLabels": {"app": "x"}}}
    budget_document = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "p"},
        "spec": spec,
    }
    cluster = cluster_of(budget_document, *pods)
    for name in "abc":
        cluster.bind("default", name, f"{UID[:-1]}{name}", "n1", {})
    evictions = [cluster.evict("default", name, f"{UID[:-1]}{name}").status for name in "ab"]
    assert statuses == evictions


def test_a_budget_does_not_protect_a_pod_that_does_not_run() -> None:
    """A pending pod is evicted whatever the budget says."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "p"},
        "spec": {"minAvailable": 1, "selector": {}},
    }
    cluster = cluster_of(budget, pod(uid=UID))
    assert 201 == cluster.evict("default", "a", UID).status


def test_priority_classes_resolve_at_creation() -> None:
    """A named class gives its value, the global default the rest, and what is written stands."""
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            **rest,
        }
        for name, rest in (("high", {"value": 9}), ("usual", {"value": 3, "globalDefault": True}))
    ]
    named, written = pod("named"), pod("written")
    named["spec"]["priorityClassName"] = "high"
    written["spec"]["priority"] = 7
    cluster = cluster_of(*classes, named, written, pod("plain"))
    found = [read(cluster, name)["spec"]["priority"] for name in ("named", "written", "plain")]
    assert [9, 7, 3] == found


def test_limits_stand_in_for_requests_and_nodes_get_their_hostname() -> None:
    """Defaults of the real API server and kubelet are filled in."""
    cluster = cluster_of(node("n1", status={"capacity": {"cpu": "4"}}), pod())
    container = read(cluster)["spec"]["containers"][0]
    assert {"cpu": "1"} == container["resources"]["requests"]
    stored = next(kind for kind in cluster.store._objects if kind.name == "Node")
    (found,) = cluster.store.list(stored)
    assert "n1" == found["metadata"]["labels"]["kubernetes.io/hostname"]
    assert {"cpu": "4"} == found["status"]["allocatable"]


def test_pods_outlive_their_node_but_not_their_namespace() -> None:
    """Deleting a node leaves its pods where they are; deleting a namespace takes all in it."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    cluster = cluster_of(namespace, node("n1"), pod(uid=UID))
    cluster.bind("default", "a", UID, "n1", {})
    cluster.delete("Node", "", "n1")
    assert "n1" == read(cluster)["spec"]["nodeName"]
    cluster.delete("Namespace", "", "default")
    assert cluster.read_pod("default", "a") is None


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}, "Widget"),
        ({"apiVersion": "v2/x", "kind": "Pod", "metadata": {"name": "w"}}, "Pod of v2/x"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {}}, "metadata.name"),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "w"}, "spec": 3}, "spec"),
        ({"kind": "Pod"}, "apiVersion"),
    ],
)
def test_a_document_that_is_not_understood_is_refused_by_name(
    document: dict[str, Any], said: str
) -> None:
    """The message names the kind or the field."""
    with pytest.raises(InvalidMessage, match=said):
        Cluster(NOW_US).apply(document)


def test_steps_that_name_nothing_are_refused() -> None:
    """Deleting, phases and health of what does not exist are errors."""
    cluster = cluster_of(node("n1"))
    with pytest.raises(InvalidMessage, match="Pod default/a does not exist"):
        cluster.delete("Pod", "default", "a")
    with pytest.raises(InvalidMessage, match="Pod default/a does not exist"):
        cluster.set_phase("default", "a", "Running")
    with pytest.raises(InvalidMessage, match="Device n1 has no gpu with minor 0"):
        cluster.set_health("n1", "gpu", 0, False)


def test_health_of_one_card_changes_in_the_device_object() -> None:
    """Only the named card changes, and watchers hear of it."""
    cards = [{"type": "gpu", "minor": minor, "health": True} for minor in (0, 1)]
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n1"},
        "spec": {"devices": cards},
    }
    cluster = cluster_of(device)
    cluster.set_health("n1", "gpu", 1, False)
    (event,) = cluster.take_events()
    assert [True, False] == [card["health"] for card in event.raw["spec"]["devices"]]


def test_a_status_patch_is_kept_without_an_event() -> None:
    """Statuses are stored for whoever reads them; another uid is left alone."""
    cluster = cluster_of(pod(uid=UID))
    cluster.patch_status("pods", "default", "a", OTHER_UID, {"reason": "no"})
    cluster.patch_status("pods", "default", "a", UID, {"reason": "yes"})
    assert {"reason": "yes"} == read(cluster)["status"]
    assert [] == seen(cluster)


@pytest.mark.parametrize(
    ("kind", "parts", "field"),
    [
        ("v1/Node", {"metadata": {"labels": 5}}, "metadata.labels"),
        ("v1/Pod", {"metadata": {"namespace": [1]}}, "metadata.namespace"),
        (
            "v1/Pod",
            {"metadata": {"ownerReferences": [{"uid": []}]}},
            "metadata.ownerReferences.uid",
        ),
        ("v1/Pod", {"spec": {"priorityClassName": []}}, "spec.priorityClassName"),
        (
            "v1/Pod",
            {"spec": {"containers": [{"resources": {"requests": 5}}]}},
            "spec.containers.resources.requests",
        ),
        ("apps/v1/Deployment", {"spec": {"replicas": "x"}}, "spec.replicas"),
        ("apps/v1/ReplicaSet", {"spec": {"replicas": 10**12}}, "spec.replicas"),
        ("apps/v1/StatefulSet", {"spec": {"template": []}}, "spec.template"),
        ("batch/v1/Job", {"spec": {"completions": -1}}, "spec.completions"),
        ("policy/v1/PodDisruptionBudget", {"spec": {"minAvailable": "x"}}, "spec.minAvailable"),
        ("policy/v1/PodDisruptionBudget", {"spec": {"selector": 5}}, "spec.selector"),
        (
            "policy/v1/PodDisruptionBudget",
            {"spec": {"selector": {"matchExpressions": [{"key": "a"}]}}},
            "spec.selector.matchExpressions.operator",
        ),
        ("scheduling.koordinator.sh/v1alpha1/Device", {"spec": {"devices": 5}}, "spec.devices"),
        ("scheduling.k8s.io/v1/PriorityClass", {"value": "x"}, "value"),
    ],
)
def test_a_field_of_the_wrong_shape_is_refused_by_name(
    kind: str, parts: dict[str, Any], field: str
) -> None:
    """What controllers, budgets and admission read is checked before it is stored."""
    api_version, _, name = kind.rpartition("/")
    metadata = {"name": "a", **parts.pop("metadata", {})}
    with pytest.raises(InvalidMessage) as refusal:
        cluster_of({"apiVersion": api_version, "kind": name, "metadata": metadata, **parts})
    assert refusal.value.detail.startswith(f"field {field}: ")


def test_a_job_without_counts_runs_one_pod_to_its_end() -> None:
    """Counts that are null are as good as absent."""
    spec = {"parallelism": None, "completions": None, "backoffLimit": None}
    cluster = cluster_of(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    )
    assert cluster.read_pod("default", "j-00001") is not None
    cluster.set_phase("default", "j-00001", "Succeeded")
    assert cluster.read_pod("default", "j-00002") is None


def test_the_health_of_a_device_that_is_not_listed_is_an_error() -> None:
    """A Device object without a list has no device to be sick."""
    device = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    cluster = cluster_of({**device, "metadata": {"name": "n1"}, "spec": {"devices": None}})
    with pytest.raises(InvalidMessage, match="Device n1 has no gpu with minor 0"):
        cluster.set_health("n1", "gpu", 0, False)

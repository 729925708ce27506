"""Raw objects to observations: what is carried, what is refused, what is cut."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.observe import (
    OBSERVE,
    observe_device,
    observe_namespace,
    observe_node,
    observe_pod,
    observe_podgroup,
    observe_priorityclass,
    observe_quota,
)
from schemas.codec import encode
from schemas.errors import InvalidMessage
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED, GANG_NAME
from schemas.observations import (
    Allocation,
    DeviceEntry,
    NodeObserved,
    NodeSelectorTerm,
    PodGroupStatus,
    PodObserved,
    PodSpec,
    SelectorRequirement,
    Taint,
    Toleration,
)
from schemas.topics import RESOURCES
from tests.builders import START_US
from tests.secret_pods import MARKER
from tests.unit.producers.raw_objects import RAW, metadata, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ALLOCATED = json.dumps(
    {
        "rdma": [{"minor": 3, "resources": {"kubernetes.io/rdma": "1"}}],
        "gpu": [
            {"minor": 1, "resources": {"koordinator.sh/gpu-core": "100"}, "id": "GPU-1"},
            {"minor": 0, "resources": {"kubernetes.io/gpu-memory": "80Gi"}},
        ],
    }
)


def test_a_pod_as_the_api_server_shows_it() -> None:
    """Every field that decides something is carried, in integers and under canonical names."""
    raw = pod(
        {
            "schedulerName": "lockstep",
            "priority": 100,
            "preemptionPolicy": "Never",
            "nodeName": "n1",
            "nodeSelector": {"zone": "z"},
            "schedulingGates": [{"name": "example.com/gate"}],
        },
        labels={"app": "x"},
        annotations={GANG_NAME: "g", COMMAND_ID: "12.0", DEVICE_ALLOCATED: ALLOCATED, "other": "-"},
        deletionTimestamp="2026-01-01T00:00:02.5Z",
        ownerReferences=[
            {"kind": "Node", "name": "n"},
            {"kind": "ReplicaSet", "name": "rs", "controller": True},
        ],
    )
    raw["status"] = {"phase": "Running"}
    expected = PodObserved(
        uid="u1",
        rv=7,
        namespace="ns",
        name="a",
        created_us=1_767_225_601_000_000,
        labels={"app": "x"},
        annotations={GANG_NAME: "g"},
        spec=PodSpec(
            scheduler_name="lockstep",
            priority=100,
            preemption_policy="Never",
            requests={"cpu": 1000},
            node_selector={"zone": "z"},
        ),
        node="n1",
        phase="Running",
        gates=("example.com/gate",),
        deleted_us=1_767_225_602_500_000,
        allocations=(
            Allocation(type="gpu", minor=0, resources={"koordinator.sh/gpu-memory": 85899345920}),
            Allocation(type="gpu", minor=1, resources={"koordinator.sh/gpu-core": 100}),
            Allocation(type="rdma", minor=3, resources={"koordinator.sh/rdma": 1}),
        ),
        command_id="12.0",
        owner="ReplicaSet/rs",
        epoch="e1",
    )
    assert expected == observe_pod(raw, "e1")


def test_a_bare_pod_gets_the_api_servers_defaults() -> None:
    """Without scheduler, priority and status a pod is pending and of the default scheduler."""
    observed = observe_pod(pod())
    assert PodSpec(scheduler_name="default-scheduler", requests={"cpu": 1000}) == observed.spec
    assert ("Pending", None, None) == (observed.phase, observed.node, observed.epoch)


def test_the_start_of_a_pod_is_carried_and_what_its_kubelet_repeats_is_not() -> None:
    """The status changes with each probe; of it only phase and start time are seen."""
    started = {"phase": "Running", "startTime": "2026-01-01T00:00:03Z"}
    ready = {"type": "Ready", "status": "True", "lastProbeTime": "2026-01-01T00:00:09Z"}
    seen = observe_pod({**pod(), "status": started})
    assert 1_767_225_603_000_000 == seen.started_us
    assert seen == observe_pod({**pod(), "status": {**started, "conditions": [ready]}})
    assert observe_pod(pod()).started_us is None


def test_what_preemption_reads_is_carried() -> None:
    """Policy and labels as they are: who may preempt, who may be a victim, and their sub-priority."""
    said = {
        "koordinator.sh/priority": "7",
        "quota.scheduling.koordinator.sh/preemptible": "false",
        "scheduling.koordinator.sh/disable-preemptible": "true",
    }
    seen = observe_pod(pod({"preemptionPolicy": "Never"}, labels=said))
    assert (said, "Never") == (seen.labels, seen.spec.preemption_policy)


def test_required_node_affinity_and_tolerations() -> None:
    """Terms keep their order and meaning; tolerations are sorted, their seconds left out."""
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},
        {},
    ]
    tolerations = [
        {"key": "z", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"operator": "Exists"},
        {"key": "a", "value": "1", "effect": "NoSchedule"},
    ]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    observed = observe_pod(pod({"affinity": affinity, "tolerations": tolerations})).spec
    zone = SelectorRequirement(key="zone", operator="In", values=("a", "b"))
    name = SelectorRequirement(key="metadata.name", operator="NotIn", values=("n1",))
    assert observed.affinity == (
        NodeSelectorTerm(expressions=(zone,)),
        NodeSelectorTerm(fields=(name,)),
        NodeSelectorTerm(),
    )
    assert observed.tolerations == (
        Toleration(operator="Exists"),
        Toleration(key="a", value="1", effect="NoSchedule"),
        Toleration(key="z", operator="Exists", effect="NoExecute"),
    )


def test_preferred_affinity_alone_requires_nothing() -> None:
    """Only required node affinity narrows the nodes."""
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}
    affinity = {"nodeAffinity": preferred, "podAffinity": preferred, "podAntiAffinity": preferred}
    observed = observe_pod(pod({"affinity": affinity})).spec
    assert (None, ()) == (observed.affinity, observed.unsupported)


@pytest.mark.parametrize(
    ("spec", "unsupported"),
    [
        ({"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "z"}]}}}, "affinity.podAffinity"),
        (
            {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "z"}]}}},
            "affinity.podAntiAffinity",
        ),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "topologySpreadConstraints",
        ),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, "containers.ports.hostPort"),
        (
            {"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
            "containers.ports.hostPort",
        ),
        ({"volumes": [{"persistentVolumeClaim": {}}]}, "volumes.persistentVolumeClaim"),
        ({"volumes": [{"ephemeral": {}}]}, "volumes.ephemeral"),
        ({"resourceClaims": [{"name": "r"}]}, "resourceClaims"),
    ],
)
def test_what_no_rule_decides_yet_is_named(spec: dict[str, Any], unsupported: str) -> None:
    """A pod that asks for more than is decided says which field it is."""
    assert (unsupported,) == observe_pod(pod(spec)).spec.unsupported


def test_what_decides_nothing_is_not_unsupported() -> None:
    """Soft spreading, container ports, plain volumes and init host ports hold nothing up."""
    spec = {
        "topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}],
        "containers": [{"ports": [{"containerPort": 80}, {"hostPort": 0}]}],
        "initContainers": [{"ports": [{"hostPort": 80}]}],
        "volumes": [{"emptyDir": {}}, {"configMap": {"name": "c"}}],
    }
    assert () == observe_pod(pod(spec)).spec.unsupported


def test_several_unsupported_fields_are_sorted() -> None:
    """All of them are named, in one order."""
    spec = {"resourceClaims": [{}], "affinity": {"podAffinity": {REQUIRED: [{}]}}}
    assert ("affinity.podAffinity", "resourceClaims") == observe_pod(pod(spec)).spec.unsupported


@pytest.mark.parametrize(
    "annotation",
    [
        *("", "{", "[]", "7", '{"gpu": {}}', '{"gpu": [{}]}', '{"gpu": [{"minor": -1}]}'),
        "[" * 99999,
        '{"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "x"}}]}',
    ],
)
def test_a_malformed_allocation_allocates_nothing(annotation: str) -> None:
    """What cannot be read as an allocation is none; the pod is observed all the same."""
    assert () == observe_pod(pod(annotations={DEVICE_ALLOCATED: annotation})).allocations


def test_a_negative_request_makes_the_pod_invalid() -> None:
    """The pod is observed with what is left, and says what is wrong."""
    resources = {"requests": {"cpu": "-1", "memory": "1Ki"}}
    observed = observe_pod(pod({"containers": [{"name": "c", "resources": resources}]})).spec
    assert {"memory": 1024} == observed.requests
    assert observed.invalid == "container c requests cpu -1000, which is negative"


def test_a_node_as_the_api_server_shows_it() -> None:
    """Labels, sorted taints, allocatable under canonical names; never below zero."""
    raw = {
        "metadata": metadata(labels={"zone": "a"}),
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": "a", "value": "1", "effect": "NoSchedule"},
            ],
        },
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "-1", "kubernetes.io/gpu-core": "200"},
            "conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
        },
    }
    expected = NodeObserved(
        uid="u1",
        rv=7,
        name="a",
        labels={"zone": "a"},
        taints=(
            Taint(key="a", value="1", effect="NoSchedule"),
            Taint(key="b", effect="NoExecute"),
        ),
        unschedulable=True,
        allocatable={"cpu": 3920, "koordinator.sh/gpu-core": 200, "memory": 0},
    )
    assert expected == observe_node(raw)


@pytest.mark.parametrize(
    ("spec", "min_member", "timeout_us", "min_resources"),
    [
        ({"minMember": 3}, 3, None, None),
        ({}, 1, None, None),
        ({"minMember": 2, "scheduleTimeoutSeconds": 90}, 2, 90_000_000, None),
        ({"minMember": 2, "scheduleTimeoutSeconds": 0}, 2, None, None),
        ({"minMember": 2, "minResources": {"cpu": "1.5"}}, 2, None, {"cpu": 1500}),
    ],
)
def test_pod_groups_of_both_api_groups(
    spec: dict[str, Any], min_member: int, timeout_us: int | None, min_resources: Any
) -> None:
    """Either group gives the same observation but for its name."""
    for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        raw = {"apiVersion": f"{group}/v1alpha1", "metadata": metadata(), "spec": spec}
        found = observe_podgroup(raw)
        assert found.status is None
        assert (group, min_member, timeout_us, min_resources) == (
            found.group,
            found.min_member,
            found.schedule_timeout_us,
            found.min_resources,
        )


def test_the_status_of_a_pod_group() -> None:
    """Whoever wrote it: what is there is seen, a count below 0 is none, an empty status is no status."""
    raw = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "metadata": metadata(), "spec": {}}
    status = {
        "phase": "Scheduled",
        "occupiedBy": "ns/job",
        "scheduled": 2,
        "running": -1,
        "scheduleStartTime": "2026-01-01T00:00:01Z",
    }
    expected = PodGroupStatus(
        phase="Scheduled", occupied_by="ns/job", scheduled=2, schedule_start_us=START_US + 1_000_000
    )
    assert expected == observe_podgroup(raw | {"status": status}).status
    for empty in ({}, None, {"running": 0, "scheduleStartTime": None}):
        assert observe_podgroup(raw | {"status": empty}).status is None


def test_a_quota_keeps_negative_amounts_and_drops_what_status_loops_write() -> None:
    """Its spec is kept as stored; annotations that are output of a controller are no input."""
    prefix = "quota.scheduling.koordinator.sh/"
    raw = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "metadata": metadata(
            labels={f"{prefix}parent": "p"},
            annotations={f"{prefix}shared-weight": "{}", f"{prefix}runtime": "{}", "x": "y"},
        ),
        "spec": {"min": {"cpu": "-1"}, "max": {"memory": "1Gi", "cpu": "4"}},
    }
    found = observe_quota(raw)
    assert {"cpu": -1000} == found.min
    assert {"cpu": 4000, "memory": 2**30} == found.max
    assert {f"{prefix}shared-weight": "{}"} == found.annotations
    assert {f"{prefix}parent": "p"} == found.labels


def test_a_device_object() -> None:
    """Devices come by type and minor, with resources in base units and their place."""
    raw = {
        "metadata": metadata(),
        "spec": {
            "devices": [
                {"type": "rdma", "minor": 0, "health": True},
                {
                    "type": "gpu",
                    "minor": 1,
                    "id": "GPU-1",
                    "health": False,
                    "resources": {"kubernetes.io/gpu-memory": "1Ki"},
                    "labels": {"m": "h"},
                    "topology": {
                        "socketID": 0,
                        "nodeID": 1,
                        "pcieID": "2",
                        "busID": "0000:1f:00.0",
                    },
                },
            ]
        },
    }
    assert observe_device(raw).devices == (
        DeviceEntry(
            type="gpu",
            minor=1,
            id="GPU-1",
            healthy=False,
            resources={"koordinator.sh/gpu-memory": 1024},
            labels={"m": "h"},
            topology={"socketID": 0, "nodeID": 1, "pcieID": "2", "busID": "0000:1f:00.0"},
        ),
        DeviceEntry(type="rdma", minor=0),
    )


def test_an_absurd_timeout_of_a_podgroup_is_cut() -> None:
    """Longer than an int32 can say: the longest, not a message that nobody takes."""
    raw = RAW["podgroups.scheduling.x-k8s.io"]
    found = observe_podgroup({**raw, "spec": {"scheduleTimeoutSeconds": 1 << 53}})
    assert ((1 << 31) - 1) * 1_000_000 == found.schedule_timeout_us


def test_namespace_and_priority_class() -> None:
    """The two small kinds carry labels, and value with policy."""
    assert {"a": "b"} == observe_namespace({"metadata": metadata(labels={"a": "b"})}).labels
    raw = {
        "metadata": metadata(),
        "value": -5,
        "globalDefault": True,
        "preemptionPolicy": "Never",
    }
    found = observe_priorityclass(raw)
    assert (-5, True, "Never") == (found.value, found.global_default, found.preemption_policy)


def test_the_table_knows_every_resource_with_a_topic() -> None:
    """Whatever is listed and watched can be observed."""
    assert set(RESOURCES) == set(OBSERVE) == set(RAW)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("metadata", "uid"), None, "metadata.uid"),
        (("metadata", "uid"), 7, "metadata.uid"),
        (("metadata", "resourceVersion"), "x", "metadata.resourceVersion"),
        (("metadata", "resourceVersion"), "-1", "metadata.resourceVersion"),
        (("metadata", "resourceVersion"), "1" * 30, "metadata.resourceVersion"),
        (("metadata", "creationTimestamp"), "yesterday", "metadata.creationTimestamp"),
        (("metadata", "creationTimestamp"), "2026-01-01", "metadata.creationTimestamp"),
        (("metadata", "labels"), {"a": 1}, "metadata.labels.a"),
        (("spec",), [], "spec"),
        (("spec", "containers"), [7], "spec.containers"),
        (("spec", "containers"), [{"resources": {"requests": {"cpu": "x"}}}], "requests.cpu"),
        (("spec", "priority"), "high", "spec.priority"),
        (("spec", "tolerations"), [{"operator": "Maybe"}], "operator"),
        (("status",), {"phase": "Lost"}, "phase"),
    ],
)
def test_a_wrong_field_is_named_with_its_object(
    path: tuple[str, ...], value: Any, named: str
) -> None:
    """Garbage raises InvalidMessage that says which field of which pod it is."""
    raw = copy.deepcopy(RAW["pods"])
    target = raw
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(InvalidMessage) as caught:
        observe_pod(raw)
    assert "InvalidField" == caught.value.reason
    assert caught.value.detail.startswith("pod ns/a: field ")
    assert named in caught.value.detail


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["key", "name", "cpu", "requests"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.parametrize(
    "raw",
    [
        pod({"containers": [MARKER]}),
        pod({"containers": MARKER}),
        pod({"containers": {"env": MARKER}}),
        pod({"volumes": [[MARKER]]}),
        pod({"containers": [{"name": {"value": MARKER}}]}),
        pod(annotations={"example.com/token": {"value": MARKER}}),
        pod(annotations={"example.com/token": [MARKER]}),
        pod(annotations=MARKER),
    ],
)
def test_a_refusal_does_not_quote_what_may_be_secret(raw: dict[str, Any]) -> None:
    """The message goes to the log: it names the field and what shape stands there."""
    with pytest.raises(InvalidMessage, match=r"wanted, not (an object|a list|a text)") as refusal:
        observe_pod(raw)
    assert MARKER not in str(refusal.value)


@settings(max_examples=300)
@given(data=st.data())
def test_garbage_is_refused_or_observed_but_never_anything_else(data: st.DataObject) -> None:
    """Whatever stands in any field, the answer is an observation or InvalidMessage, each time the same."""
    resource = data.draw(st.sampled_from(sorted(RAW)))
    raw = copy.deepcopy(RAW[resource])
    fields = ["labels", "annotations", "uid", "taints", "allocatable", "containers", "overhead"]
    fields += ["affinity", "tolerations", "devices", "min", "max", "minMember", "value", "phase"]
    fields += ["volumes", "resources", "initContainers", "schedulingGates", "ownerReferences"]
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(["metadata", "spec", "status"]))
        held = raw.setdefault(part, {})
        if data.draw(st.booleans()) and isinstance(held, dict):
            held[data.draw(st.sampled_from(fields))] = data.draw(json_values)
        else:
            raw[part] = data.draw(json_values)
    outcomes = []
    for _ in range(2):
        try:
            outcomes.append(encode(OBSERVE[resource](copy.deepcopy(raw), None)).decode())
        except InvalidMessage as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("raw", [None, [], "x", 7, {}, {"metadata": None}, {1: 2}])
@pytest.mark.parametrize("resource", sorted(OBSERVE))
def test_what_is_no_object_is_refused(resource: str, raw: Any) -> None:
    """Anything but an object with an identity raises InvalidMessage."""
    with pytest.raises(InvalidMessage):
        OBSERVE[resource](raw, None)

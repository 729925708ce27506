"""`deploy/` on a real API server: the CRDs take every field, and each role can do its work and nothing else."""

import asyncio
import itertools
import json
import sys
import tomllib
from pathlib import Path

import pytest

from producers.kube import resource_path
from schemas import topics
from schemas.envelope import BindPod, EvictPod, PatchStatus
from streams.sink.kube import KubeApi, load_configuration
from tests.integration import manifests
from tests.integration.api import Api, ApiError, Object, wait_for
from tests.integration.cluster import Cluster
from tests.integration.deployed import HOME, ROOT, conditions_of, crd_files, documents
from tests.integration.process import Service
from tests.integration.test_scheduling_groups import check_scheduling_group

pytestmark = pytest.mark.controlplane

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
READ = ("get", "list", "watch")
WORKLOADS = "workloads.scheduling.k8s.io"

Right = tuple[str, str, str]  # verb, resource (`plural[/subresource][.group]`), namespace or ""

RESOURCES = (
    *topics.RESOURCES,
    "pods/binding",
    "pods/eviction",
    "pods/status",
    "pods/exec",
    "nodes/status",
    "podgroups/status.scheduling.k8s.io",
    "podgroups/status.scheduling.x-k8s.io",
    "podgroups/status.scheduling.sigs.k8s.io",
    "events",
    "secrets",
    "configmaps",
    "serviceaccounts",
    "leases.coordination.k8s.io",
    "deployments.apps",
    "poddisruptionbudgets.policy",
    "clusterroles.rbac.authorization.k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
)
INFORMERS = {(verb, resource, "") for verb in READ for resource in topics.RESOURCES}
SINK = {
    ("get", "pods", ""),
    ("create", "pods/binding", ""),
    ("create", "pods/eviction", ""),
    ("patch", "pods/status", ""),
    ("patch", "podgroups/status.scheduling.k8s.io", ""),
    ("patch", "podgroups/status.scheduling.x-k8s.io", ""),
    ("patch", "podgroups/status.scheduling.sigs.k8s.io", ""),
    ("create", "events", ""),
}
LEASE = {(verb, "leases.coordination.k8s.io", HOME) for verb in ("get", "create", "update")}
#: Service account -> what it may do everywhere, and what in Lockstep's own namespace.
RIGHTS = {
    "lockstep-informers": INFORMERS,
    "lockstep-sink": SINK | LEASE,
    "lockstep": INFORMERS | SINK | LEASE,
}


# -- CRDs ------------------------------------------------------------------------------------

AMOUNTS = {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": 8, "example.com/odd": "-1e3"}
PODGROUP = {"minMember": 3, "minResources": AMOUNTS, "scheduleTimeoutSeconds": 60}
PODGROUP_STATUS = {
    "phase": "Running",
    "occupiedBy": "ns/owner",
    "running": 3,
    "succeeded": 0,
    "failed": 0,
    "scheduleStartTime": "2026-01-01T00:00:00Z",
}
QUOTA = {"min": AMOUNTS, "max": AMOUNTS}
DEVICE = {
    "devices": [
        {
            "type": "gpu",
            "id": "GPU-1",
            "minor": 0,
            "moduleID": 2,
            "health": True,
            "labels": {"a": "b"},
            "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"},
            "topology": {"socketID": 0, "nodeID": 1, "pcieID": "p0", "busID": "0000:1f:00.0"},
            "vfGroups": [{"labels": {"c": "d"}, "vfs": [{"minor": 1, "busID": "0000:1f:00.2"}]}],
            "conditions": [
                {
                    "type": "Healthy",
                    "status": "True",
                    "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reason": "Fine",
                    "message": "",
                }
            ],
        }
    ]
}
ALLOCATIONS = {
    "allocations": [
        {
            "type": "gpu",
            "entries": [{"name": "p", "namespace": "ns", "uuid": "u", "minors": [0, 1]}],
        }
    ]
}
KINDS: list[tuple[str, str, Object, Object]] = [
    ("scheduling.x-k8s.io", "PodGroup", PODGROUP, PODGROUP_STATUS),
    ("scheduling.sigs.k8s.io", "PodGroup", PODGROUP, {**PODGROUP_STATUS, "scheduled": 3}),
    ("scheduling.x-k8s.io", "ElasticQuota", QUOTA, {"used": AMOUNTS}),
    ("scheduling.sigs.k8s.io", "ElasticQuota", QUOTA, {"used": AMOUNTS}),
    ("scheduling.koordinator.sh", "Device", DEVICE, ALLOCATIONS),
]


def made(group: str, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize(("group", "kind", "spec", "status"), KINDS)
def test_crd_keeps_every_field(
    installed: Cluster, group: str, kind: str, spec: Object, status: Object
) -> None:
    """Nothing of spec or status is pruned, and the status is a subresource of its own."""
    admin = installed.api()
    body = {**made(group, kind, "full", spec), "status": {"phase": "ignored"}}
    (created,) = admin.create(body)
    assert spec == created["spec"]
    assert "status" not in created
    path = f"{admin.path(body)}/status"
    changed = admin.patch(path, {"status": status, "spec": {"minMember": 99}})
    assert (spec, status) == (changed["spec"], changed["status"])


@pytest.mark.parametrize(
    ("group", "kind", "spec", "field"),
    [
        ("scheduling.x-k8s.io", "PodGroup", {"minMember": 0}, "spec.minMember"),
        ("scheduling.sigs.k8s.io", "PodGroup", {"minMember": "3"}, "spec.minMember"),
        ("scheduling.sigs.k8s.io", "ElasticQuota", {"min": {"cpu": "much"}}, "spec.min.cpu"),
        ("scheduling.koordinator.sh", "Device", {"devices": [{}]}, "spec.devices[0].type"),
    ],
)
def test_crd_refuses_nonsense(
    installed: Cluster, group: str, kind: str, spec: Object, field: str
) -> None:
    """An invalid field is refused at the door, by name."""
    with pytest.raises(ApiError) as refusal:
        installed.api().create(made(group, kind, "bad", spec))
    assert refusal.value.status == 422
    assert field in str(refusal.value)


def test_crds_are_clean(installed: Cluster) -> None:
    """All are structural, all names are accepted, and short names are what people type."""
    admin = installed.api()
    short = {}
    for crd in documents(*crd_files()):
        found = conditions_of(admin, crd)
        assert found["NamesAccepted"] == "True", crd["metadata"]["name"]
        assert found.get("NonStructuralSchema", "False") == "False", crd["metadata"]["name"]
        short[crd["metadata"]["name"]] = crd["spec"]["names"].get("shortNames", [])
    assert {
        "devices.scheduling.koordinator.sh": [],
        "elasticquotas.scheduling.sigs.k8s.io": ["eq", "eqs"],
        "elasticquotas.scheduling.x-k8s.io": ["eq", "eqs"],
        "podgroups.scheduling.sigs.k8s.io": ["pg", "pgs"],
        "podgroups.scheduling.x-k8s.io": ["pg", "pgs"],
    } == short


# -- roles -----------------------------------------------------------------------------------


def may(client: Api, right: Right) -> bool:
    """What the API server says of a right of the client's own user."""
    verb, resource, namespace = right
    name, _, group = resource.partition(".")
    plural, _, subresource = name.partition("/")
    attributes = {
        "verb": verb,
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "namespace": namespace,
    }
    review = client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    allowed: bool = review["status"]["allowed"]
    return allowed


@pytest.mark.parametrize("account", RIGHTS)
def test_role_has_these_rights_and_no_others(installed: Cluster, account: str) -> None:
    """Every verb on every resource, everywhere and at home: what is not listed is denied."""
    client = installed.service_account_api(HOME, account)
    everywhere = {right for right in RIGHTS[account] if not right[2]}
    expected = RIGHTS[account] | {(verb, resource, HOME) for verb, resource, _ in everywhere}
    asked = itertools.product(VERBS, RESOURCES, ("", HOME))
    assert expected == {right for right in asked if may(client, right)}


def rules_of(client: Api, namespace: str) -> set[Right]:
    """All that the API server says the client's user may do in a namespace, as rights without a place."""
    review = client.post(
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        },
    )
    assert not review["status"]["incomplete"]
    return flattened(review["status"]["resourceRules"])


def flattened(rules: list[Object]) -> set[Right]:
    found: set[Right] = set()
    for rule in rules:
        assert not rule.get("resourceNames")
        for group, resource, verb in itertools.product(
            rule["apiGroups"], rule["resources"], rule["verbs"]
        ):
            found.add((verb, f"{resource}.{group}" if group else resource, ""))
    return found


def role_rules(kind: str, name: str) -> set[Right]:
    """What `deploy/rbac.yaml` grants in that role."""
    (role,) = [
        each
        for each in documents("rbac.yaml")
        if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return flattened(role["rules"])


@pytest.mark.parametrize("account", RIGHTS)
def test_role_has_no_rule_beyond_its_file(installed: Cluster, account: str) -> None:
    """The API server's own list: the role's rules, the Lease at home, and what a stranger has, too."""
    client = installed.service_account_api(HOME, account)
    nobody = {"name": "stranger", "namespace": HOME}
    installed.api().apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": nobody})
    stranger = installed.service_account_api(HOME, "stranger")
    for namespace in ("default", HOME):
        at_home = namespace == HOME and account != "lockstep-informers"
        lease = role_rules("Role", "lockstep-lease") if at_home else set()
        own = rules_of(client, namespace) - rules_of(stranger, namespace)
        assert role_rules("ClusterRole", account) | lease == own


#: What a role is kept from although its work is near: account, method, path.
PODS = "/api/v1/namespaces/default/pods"
REFUSED = [
    ("lockstep-informers", "POST", f"{PODS}/kept/binding"),
    ("lockstep-informers", "POST", f"{PODS}/kept/eviction"),
    ("lockstep-informers", "PATCH", f"{PODS}/kept/status"),
    ("lockstep-informers", "GET", "/api/v1/namespaces/default/secrets"),
    ("lockstep-sink", "GET", "/api/v1/namespaces/default/secrets"),
    ("lockstep-sink", "GET", "/api/v1/namespaces/default/secrets/kept"),
    ("lockstep-sink", "GET", PODS),
    ("lockstep-sink", "DELETE", f"{PODS}/kept"),
    ("lockstep-sink", "PATCH", f"{PODS}/kept"),
    ("lockstep", "GET", f"/api/v1/namespaces/{HOME}/secrets"),
    ("lockstep", "GET", "/api/v1/namespaces/default/configmaps"),
    ("lockstep", "DELETE", f"{PODS}/kept"),
    ("lockstep", "PATCH", "/api/v1/nodes/n1"),
    ("lockstep", "POST", f"/api/v1/namespaces/{HOME}/serviceaccounts/lockstep/token"),
]


@pytest.mark.parametrize(("account", "method", "path"), REFUSED)
def test_role_is_refused(installed: Cluster, account: str, method: str, path: str) -> None:
    """Tried for real: the answer is 403 before anything else is looked at."""
    client = installed.service_account_api(HOME, account)
    with pytest.raises(ApiError) as refusal:
        client.request(method, path, {} if method in ("POST", "PATCH") else None)
    assert 403 == refusal.value.status


def test_informers_list_every_kind(installed: Cluster) -> None:
    """The informers' account really lists each kind that has a topic, and cannot create a pod."""
    client = installed.service_account_api(HOME, "lockstep-informers")
    for resource in topics.RESOURCES:
        if resource != WORKLOADS:
            client.items(resource_path(resource))
    with pytest.raises(ApiError) as refusal:  # allowed, but no API server of 1.37 has that version
        client.items(resource_path(WORKLOADS))
    assert refusal.value.status == 404
    with pytest.raises(ApiError) as refusal:
        client.post("/api/v1/namespaces/default/pods", manifests.pod("no", {"cpu": "1"}))
    assert refusal.value.status == 403


@pytest.mark.parametrize("account", ["lockstep", "lockstep-sink"])
def test_sink_does_its_work(installed: Cluster, account: str) -> None:
    """With its account alone the sink writes a status, binds, reads, evicts, tells, and holds a Lease."""
    admin = installed.api()
    (pod,) = admin.create(manifests.pod(account, {"cpu": "1"}))
    place = {"namespace": "default", "name": account, "uid": pod["metadata"]["uid"]}
    evict = EvictPod(id=f"2.{len(account)}", reason="a test", **place)
    fields = {"reason": "Unschedulable", "message": "waits"}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": account, "namespace": HOME},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15},
    }
    config = load_configuration(str(installed.service_account_kubeconfig(HOME, account)))

    async def scene() -> list[int]:
        async with KubeApi(config) as writer:
            answers = [
                await writer.patch_status(
                    PatchStatus(id="1.0", resource="pods", fields=fields, **place)
                ),
                await writer.bind(BindPod(id="1.1", node="n1", **place)),
                await writer.read_pod("default", account),
                await writer.evict(evict),
                await writer.create_event(evict, "why"),
                await writer.create_lease(HOME, lease),
                read := await writer.read_lease(HOME, account),
                await writer.update_lease(HOME, read.body),
                await writer.create_lease("default", lease | {"metadata": {"name": account}}),
            ]
            return [answer.status for answer in answers]

    assert [200, 201, 200, 201, 201, 201, 200, 200, 403] == asyncio.run(scene())


def test_lockstep_run_needs_no_more_than_its_account(installed: Cluster, tmp_path: Path) -> None:
    """With the rights of deploy/ and no others, the service syncs, binds, refuses with a reason, and stops."""
    admin = installed.api()
    admin.create(manifests.namespace("work"), manifests.node("w1", {"cpu": "2", "memory": "4Gi"}))
    account = installed.service_account_kubeconfig(HOME, "lockstep")
    policy = tmp_path / "policy.yaml"
    policy.write_text("gangs: {kubernetesWorkloads: true}\n")
    service = Service(
        [
            str(Path(sys.executable).with_name("lockstep")),
            "run",
            f"--log=embedded://{tmp_path / 'log'}",
            f"--kubeconfig={account}",
            f"--lease-namespace={HOME}",
            f"--policy={policy}",
        ],
        log=tmp_path / "lockstep.log",
        ready=lambda: "sink_activated" in (tmp_path / "lockstep.log").read_text(),
    )
    service.start()
    try:
        pods = [manifests.pod(f"p{index}", {"cpu": "1"}, namespace="work") for index in range(3)]
        admin.create(*pods)
        wait_for("a verdict on every pod", lambda: all(map(scheduled, admin.pods("work"))))
        verdicts = sorted(scheduled(pod) for pod in admin.pods("work"))
        assert ["False", "True", "True"] == verdicts
        check_scheduling_group(admin)
    finally:
        print(service.log_tail())
        service.stop()
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert [] == [line for line in lines if "forbidden" in str(line) or line["level"] == "error"]
    assert "stopped" == lines[-1]["event"]
    lease = admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/lockstep-0")
    assert not lease["spec"].get("holderIdentity")


def scheduled(pod: Object) -> str:
    """The status of the condition PodScheduled; empty as long as there is none."""
    conditions = pod["status"].get("conditions", [])
    found = [each["status"] for each in conditions if each["type"] == "PodScheduled"]
    return found[0] if found else ""


# -- the Deployment --------------------------------------------------------------------------


def test_deployment_makes_its_pod(installed: Cluster) -> None:
    """The controllers make the pod: the namespace's restricted profile has nothing against it."""
    admin = installed.api()
    wait_for("the pod of the Deployment", lambda: admin.pods(HOME))
    (pod,) = admin.pods(HOME)
    (container,) = pod["spec"]["containers"]
    assert "lockstep" == pod["spec"]["serviceAccountName"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert "embedded:///var/lib/lockstep/log" == variables["LOCKSTEP_LOG"]


def test_image_has_the_version_of_the_project() -> None:
    """The Deployment names the image of this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (deployment,) = [each for each in documents("deployment.yaml") if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert f"lockstep:{project['version']}" == container["image"]

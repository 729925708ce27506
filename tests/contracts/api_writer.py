"""What the sink relies on in an API server: one list of checks, for the fake and for the real one.

A check takes a `Ground` (a namespace of its own, and a way to arrange pods in it) and raises
AssertionError. Called by `tests/unit/streams/test_sink_contract.py` and
`tests/integration/test_sink.py`.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus
from schemas.labels import COMMAND_ID
from streams.sink.api import LOG_ID, UNKNOWN, ApiWriter
from streams.sink.found import found_pod
from streams.sink.outcomes import held_by_budget


class Ground(Protocol):
    """Where a check plays. Every pod is made unbound; `node` can be bound to."""

    api: ApiWriter
    namespace: str
    node: str

    async def add_pod(self, name: str, *, gated: bool = False) -> str:
        """Create it; its uid."""
        ...

    async def add_group(self, name: str, api_group: str) -> str:
        """Create a PodGroup of that API group; its uid."""
        ...

    async def guard(self, name: str) -> None:
        """Run that bound pod under a budget that never lets it be evicted."""
        ...


Check = Callable[[Ground], Awaitable[None]]


def _bind(ground: Ground, uid: str, number: str = "7.0") -> BindPod:
    return BindPod(
        id=number,
        namespace=ground.namespace,
        name="a",
        uid=uid,
        node=ground.node,
        annotations={"scheduling.koordinator.sh/device-allocated": '{"gpu":[]}'},
    )


def _evict(ground: Ground, uid: str) -> EvictPod:
    return EvictPod(id="8.0", namespace=ground.namespace, name="a", uid=uid, reason="a test")


def _status(ground: Ground, uid: str, message: str) -> PatchStatus:
    fields = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "since_us": 1_767_225_600_999_999,
    }
    return PatchStatus(
        id="9.0", resource="pods", namespace=ground.namespace, name="a", uid=uid, fields=fields
    )


async def check_bind_takes_annotations_along(ground: Ground) -> None:
    """A binding sets the node, and its annotations with the command's id stand on the pod."""
    uid = await ground.add_pod("a")
    answer = await ground.api.bind(_bind(ground, uid))
    assert answer.status == 201
    read = await ground.api.read_pod(ground.namespace, "a")
    found = found_pod(read.body)
    assert (uid, ground.node, "7.0") == (found.uid, found.node, found.command_id)
    assert {
        COMMAND_ID: "7.0",
        "scheduling.koordinator.sh/device-allocated": '{"gpu":[]}',
    } == read.body["metadata"]["annotations"]


async def check_second_bind_conflicts(ground: Ground) -> None:
    """A pod with a node is not bound again, and keeps the first command's id."""
    uid = await ground.add_pod("a")
    await ground.api.bind(_bind(ground, uid))
    answer = await ground.api.bind(_bind(ground, uid, "7.1"))
    assert answer.status == 409
    assert answer.message
    read = await ground.api.read_pod(ground.namespace, "a")
    assert "7.0" == found_pod(read.body).command_id


async def check_bind_of_another_uid_conflicts(ground: Ground) -> None:
    """The uid is a precondition: a namesake is left alone."""
    await ground.add_pod("a")
    answer = await ground.api.bind(_bind(ground, "11111111-1111-1111-1111-111111111111"))
    assert answer.status == 409
    read = await ground.api.read_pod(ground.namespace, "a")
    assert found_pod(read.body).node is None


async def check_bind_of_a_gated_pod_conflicts(ground: Ground) -> None:
    """A pod with scheduling gates cannot be bound."""
    uid = await ground.add_pod("a", gated=True)
    answer = await ground.api.bind(_bind(ground, uid))
    assert answer.status == 409
    assert "gates" in answer.message.lower()


async def check_bind_of_a_terminating_pod_conflicts(ground: Ground) -> None:
    """A pod that terminates cannot be bound, and shows its deletion."""
    uid = await ground.add_pod("a")
    await ground.api.bind(_bind(ground, uid))
    await ground.api.evict(_evict(ground, uid))
    answer = await ground.api.bind(_bind(ground, uid, "7.1"))
    assert answer.status == 409
    read = await ground.api.read_pod(ground.namespace, "a")
    assert found_pod(read.body).deleted_us is not None


async def check_missing_pod_is_not_found(ground: Ground) -> None:
    """Every call about a pod that is not there answers 404."""
    uid = "11111111-1111-1111-1111-111111111111"
    assert 404 == (await ground.api.bind(_bind(ground, uid))).status
    assert 404 == (await ground.api.evict(_evict(ground, uid))).status
    assert 404 == (await ground.api.read_pod(ground.namespace, "a")).status
    assert 404 == (await ground.api.patch_status(_status(ground, uid, "m"))).status


async def check_eviction_makes_a_bound_pod_terminate(ground: Ground) -> None:
    """An eviction answers 201; the bound pod then terminates, and a repeat changes nothing."""
    uid = await ground.add_pod("a")
    await ground.api.bind(_bind(ground, uid))
    assert 201 == (await ground.api.evict(_evict(ground, uid))).status
    read = await ground.api.read_pod(ground.namespace, "a")
    assert found_pod(read.body).deleted_us is not None
    assert (await ground.api.evict(_evict(ground, uid))).ok


async def check_eviction_of_another_uid_does_nothing(ground: Ground) -> None:
    """The uid is a precondition of the eviction, too. The real one tries for 10 s before its 409."""
    uid = await ground.add_pod("a")
    await ground.api.bind(_bind(ground, uid))
    answer = await ground.api.evict(_evict(ground, "11111111-1111-1111-1111-111111111111"))
    assert answer.status in (UNKNOWN, 409)
    read = await ground.api.read_pod(ground.namespace, "a")
    assert found_pod(read.body).deleted_us is None


async def check_budget_holds_an_eviction_back(ground: Ground) -> None:
    """A PodDisruptionBudget answers 429 with its own cause, which tells it from throttling."""
    uid = await ground.add_pod("a")
    await ground.api.bind(_bind(ground, uid))
    await ground.guard("a")
    answer = await ground.api.evict(_evict(ground, uid))
    assert answer.status == 429
    assert held_by_budget(answer)


async def check_status_sets_the_condition(ground: Ground) -> None:
    """The condition PodScheduled=False is written, replaced by the next one, and alone."""
    uid = await ground.add_pod("a")
    for message in ("1 of 3 members fit", "2 of 3 members fit"):
        assert (await ground.api.patch_status(_status(ground, uid, message))).ok
    read = await ground.api.read_pod(ground.namespace, "a")
    conditions = [
        {name: value for name, value in each.items() if name != "lastProbeTime"}
        for each in read.body["status"]["conditions"]
    ]
    expected = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "2 of 3 members fit",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    assert [expected] == conditions


async def check_status_of_another_uid_is_invalid(ground: Ground) -> None:
    """A status for a pod's predecessor does not land on its namesake: a uid cannot be changed."""
    await ground.add_pod("a")
    uid = "11111111-1111-1111-1111-111111111111"
    answer = await ground.api.patch_status(_status(ground, uid, "m"))
    assert 422 == answer.status
    assert "metadata.uid" in answer.message
    read = await ground.api.read_pod(ground.namespace, "a")
    assert not read.body["status"].get("conditions")


def _group_status(ground: Ground, api_group: str, uid: str, **fields: Any) -> PatchStatus:
    return PatchStatus(
        id="9.0",
        resource=f"podgroups.{api_group}",
        namespace=ground.namespace,
        name="g",
        uid=uid,
        fields=fields,
    )


async def check_group_status_is_written_whole(ground: Ground) -> None:
    """A PodGroup's status of either API group: what is not in it is gone."""
    for api_group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io"):
        uid = await ground.add_group("g", api_group)
        begun = {"phase": "Scheduling", "running": 0, "start_us": 1_767_225_600_000_000}
        first = _group_status(ground, api_group, uid, **begun, occupiedBy="ns/job")
        answer = await ground.api.patch_status(first)
        assert answer.ok, answer
        second = _group_status(ground, api_group, uid, phase="Running", running=2)
        answer = await ground.api.patch_status(second)
        assert {"phase": "Running", "running": 2} == answer.body["status"]
        third = _group_status(ground, api_group, uid, **begun)
        answer = await ground.api.patch_status(third)
        assert "2026-01-01T00:00:00Z" == answer.body["status"]["scheduleStartTime"]


async def check_group_status_of_another_uid_is_invalid(ground: Ground) -> None:
    """A status for a PodGroup's predecessor does not land on its namesake, nor on one that is gone."""
    api_group, uid = "scheduling.x-k8s.io", "11111111-1111-1111-1111-111111111111"
    command = _group_status(ground, api_group, uid, phase="Running")
    assert 404 == (await ground.api.patch_status(command)).status
    await ground.add_group("g", api_group)
    answer = await ground.api.patch_status(command)
    assert 422 == answer.status
    assert not (answer.body.get("details") or {}).get("causes")


async def check_event_is_made_once(ground: Ground) -> None:
    """An Event's name is the command's id, so a repeat is a conflict; of an eviction, and of a pod that waits."""
    uid = await ground.add_pod("a")
    waits = EmitEvent(
        id="9.1",
        resource="pods",
        namespace=ground.namespace,
        name="a",
        uid=uid,
        reason="FailedScheduling",
        message="InsufficientResources: cpu",
    )
    for command in (_evict(ground, uid), waits):
        answers = [(await ground.api.create_event(command, "why")).status for _ in range(2)]
        assert [201, 409] == answers


async def check_lease_is_written_by_version(ground: Ground) -> None:
    """A Lease is made once, and updated only by who has seen its last version."""
    name = "lockstep-0"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "namespace": ground.namespace,
            "name": name,
            "annotations": {LOG_ID: "log-1"},
        },
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000001Z",
            "leaseTransitions": 0,
        },
    }
    assert 404 == (await ground.api.read_lease(ground.namespace, name)).status
    created = await ground.api.create_lease(ground.namespace, lease)
    assert 201 == created.status
    assert 409 == (await ground.api.create_lease(ground.namespace, lease)).status
    given_up = {**created.body, "spec": {**created.body["spec"], "holderIdentity": ""}}
    assert 200 == (await ground.api.update_lease(ground.namespace, given_up)).status
    assert 409 == (await ground.api.update_lease(ground.namespace, given_up)).status
    read = await ground.api.read_lease(ground.namespace, name)
    assert {LOG_ID: "log-1"} == read.body["metadata"]["annotations"]
    assert not read.body["spec"].get("holderIdentity")


CHECKS: tuple[Check, ...] = tuple(
    item for name, item in list(globals().items()) if name.startswith("check_")
)

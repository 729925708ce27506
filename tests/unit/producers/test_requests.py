"""The effective request of a pod: containers, sidecars, init phase, pod level, overhead, resize."""

from typing import Any

import pytest

from producers.observe.requests import effective_requests
from schemas.quantities import AMOUNT_MAX

MI = 1024 * 1024


def container(name: str = "c", cpu: str = "", **more: Any) -> dict[str, Any]:
    """A container that asks for `cpu`."""
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    return {"name": name, "resources": resources, **more}


def sidecar(name: str = "s", cpu: str = "") -> dict[str, Any]:
    """An init container that goes on running."""
    return container(name, cpu, restartPolicy="Always")


def cpu_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> int:
    """The effective cpu in milli; the request must be valid."""
    requests, invalid = effective_requests(spec, status or {})
    assert invalid is None
    return requests.get("cpu", 0)


@pytest.mark.parametrize(
    ("init", "running", "milli"),
    [
        ([], [container(cpu="1"), container(cpu="500m")], 1500),
        # An init container runs alone: the larger of init and running.
        ([container(cpu="3")], [container(cpu="1")], 3000),
        ([container(cpu="3"), container(cpu="2")], [container(cpu="4")], 4000),
        # A sidecar adds to the running sum, and to every init container after it.
        ([sidecar(cpu="1")], [container(cpu="2")], 3000),
        ([sidecar(cpu="1"), container(cpu="4")], [container(cpu="2")], 5000),
        ([container(cpu="4"), sidecar(cpu="1")], [container(cpu="2")], 4000),
        ([sidecar("a", "1"), container(cpu="2"), sidecar("b", "2")], [container(cpu="1")], 4000),
        ([sidecar("a", "2"), container(cpu="3"), sidecar("b", "1")], [container(cpu="1")], 5000),
        ([], [container()], 0),
    ],
)
def test_containers_sidecars_and_init_containers(
    init: list[Any], running: list[Any], milli: int
) -> None:
    """The request is the largest need at any moment of the pod's life."""
    assert milli == cpu_of({"initContainers": init, "containers": running})


def test_overhead_is_added_to_the_peak() -> None:
    """Overhead counts on top of whatever is larger, init or running."""
    spec = {
        "initContainers": [container(cpu="3")],
        "containers": [container(cpu="1")],
        "overhead": {"cpu": "250m", "memory": "120Mi"},
    }
    assert ({"cpu": 3250, "memory": 120 * MI}, None) == effective_requests(spec, {})


def test_a_limit_without_a_request_is_the_request() -> None:
    """A container's limit stands in, resource by resource."""
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    assert {"cpu": 1000, "nvidia.com/gpu": 1} == effective_requests(spec, {})[0]


@pytest.mark.parametrize(
    ("pod_level", "expected"),
    [
        ({"requests": {"cpu": "5"}}, {"cpu": 5100, "memory": MI, "x.io/y": 3}),
        ({"requests": {"cpu": "1"}}, {"cpu": 1100, "memory": MI, "x.io/y": 3}),
        ({"limits": {"cpu": "9"}}, {"cpu": 2100, "memory": MI, "x.io/y": 3}),
        ({"limits": {"hugepages-2Mi": "4Mi"}}, {"cpu": 2100, "hugepages-2Mi": 4 * MI}),
        ({"requests": {"x.io/y": "7"}}, {"cpu": 2100, "x.io/y": 3}),
    ],
)
def test_pod_level_requests_replace_those_of_the_containers(
    pod_level: dict[str, Any], expected: dict[str, int]
) -> None:
    """KEP-2837: cpu, memory and hugepages of the pod win, below the sum too; overhead comes on top."""
    spec = {
        "containers": [
            {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Mi", "x.io/y": "3"}}}
        ],
        "overhead": {"cpu": "100m"},
        "resources": pod_level,
    }
    requests = effective_requests(spec, {})[0]
    assert expected == {name: requests[name] for name in expected}


def test_a_container_in_resize_counts_with_the_largest_of_its_amounts() -> None:
    """Until a resize is done, both what was held and what is asked for is taken."""
    spec = {"containers": [container("a", "1"), container("b", "4")]}
    status = {
        "containerStatuses": [
            {"name": "a", "allocatedResources": {"cpu": "2"}},
            {"name": "b", "resources": {"requests": {"cpu": "3"}}},
        ]
    }
    assert 6000 == cpu_of(spec, status)


def test_older_gpu_names_add_up_under_the_canonical_name() -> None:
    """kubernetes.io device names are aliases of the koordinator.sh ones."""
    requests = {"kubernetes.io/gpu-core": "50", "koordinator.sh/gpu-memory": "1Mi"}
    spec = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    assert {"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory": MI} == effective_requests(
        spec, {}
    )[0]


def test_a_negative_part_counts_as_zero_and_is_named() -> None:
    """A negative request gives no credit; the text names container and resource."""
    spec = {"containers": [container("c0", "3"), container("c1", "-2")]}
    requests, invalid = effective_requests(spec, {})
    assert {"cpu": 3000} == requests
    assert invalid == "container c1 requests cpu -2000, which is negative"


def test_an_absurd_amount_is_cut_and_named() -> None:
    """An amount that no node can have is bounded, so that sums stay in 64 bits."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"memory": "8Ei"}}}]}
    requests, invalid = effective_requests(spec, {})
    assert {"memory": AMOUNT_MAX} == requests
    assert invalid is not None
    assert invalid.startswith("container c requests memory 9223372036854775807, more than")


def test_a_sum_of_large_amounts_stays_bounded() -> None:
    """The total too is at most the bound."""
    resources = {"requests": {"memory": str(AMOUNT_MAX)}}
    spec = {"containers": [{"name": name, "resources": resources} for name in "ab"]}
    assert ({"memory": AMOUNT_MAX}, None) == effective_requests(spec, {})

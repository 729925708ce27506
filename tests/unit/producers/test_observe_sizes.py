"""Raw objects that are too large: what is cut, what is refused."""

import copy

import pytest

from producers.observe import observe_node, observe_pod
from producers.observe.fields import OBSERVATION_BYTES_MAX
from producers.observe.pods import COMPARED_MAX, VALUES_MAX
from schemas.errors import InvalidMessage
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED
from tests.unit.producers.raw_objects import RAW, pod


def test_a_pending_pod_that_is_too_large_keeps_its_capacity_and_is_invalid() -> None:
    """Its request still counts, labels and annotations are gone, the diagnosis tells the size."""
    labels = {"big": "x" * OBSERVATION_BYTES_MAX}
    observed = observe_pod(pod({"schedulerName": "lockstep"}, labels=labels))
    assert ({}, {"cpu": 1000}) == (observed.labels, observed.spec.requests)
    assert "lockstep" == observed.spec.scheduler_name
    assert observed.spec.invalid is not None
    assert f"at most {OBSERVATION_BYTES_MAX}" in observed.spec.invalid


def test_a_bound_pod_that_is_too_large_is_valid_where_it_is() -> None:
    """A pod that runs is no longer judged."""
    labels = {"big": "x" * OBSERVATION_BYTES_MAX}
    observed = observe_pod(pod({"nodeName": "n1"}, labels=labels))
    assert ("n1", None, {"cpu": 1000}) == (
        observed.node,
        observed.spec.invalid,
        observed.spec.requests,
    )


def test_no_text_makes_a_bound_pod_too_large_to_count() -> None:
    """Names without a bound of their own, and what others wrote on it: the pod counts where it is."""
    texts = {DEVICE_ALLOCATED: "x" * OBSERVATION_BYTES_MAX, COMMAND_ID: "1" * OBSERVATION_BYTES_MAX}
    spec = {"nodeName": "n1", "schedulerName": "x" * OBSERVATION_BYTES_MAX}
    observed = observe_pod(pod(spec, annotations=texts))
    assert ("n1", {"cpu": 1000}, "x" * 253) == (
        observed.node,
        observed.spec.requests,
        observed.spec.scheduler_name,
    )
    assert ((), None) == (observed.allocations, observed.command_id)


def needs(count: int, values: int) -> dict[str, object]:
    """A spec with so many requirements in one term, each with so many values."""
    one = {"key": "k", "operator": "NotIn", "values": [f"v{index}" for index in range(values)]}
    term = {"matchExpressions": [one] * count}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("count", "values", "found"),
    [(256, 1, "257 parts and 256 values"), (2, 2_049, "3 parts and 4098 values")],
)
def test_a_pod_that_costs_too_much_to_compare_is_invalid(
    count: int, values: int, found: str
) -> None:
    """Its request counts, the diagnosis tells both counts, and no node is compared with anything."""
    observed = observe_pod(pod(needs(count, values)))
    assert {"cpu": 1000} == observed.spec.requests
    assert observed.spec.invalid is not None
    assert f"{found}, at most {COMPARED_MAX} and {VALUES_MAX}" in observed.spec.invalid
    assert (None, {}, ()) == (
        observed.spec.affinity,
        observed.spec.node_selector,
        observed.spec.tolerations,
    )


@pytest.mark.parametrize(("count", "values"), [(255, 1), (2, 2_048)])
def test_a_pod_at_the_bound_keeps_what_it_asks(count: int, values: int) -> None:
    """256 parts and 4,096 values are read and kept."""
    observed = observe_pod(pod(needs(count, values)))
    assert observed.spec.invalid is None
    assert observed.spec.affinity is not None
    (term,) = observed.spec.affinity
    assert [values] * count == [len(need.values) for need in term.expressions]


def test_tolerations_and_selectors_count_too() -> None:
    """300 tolerations, or labels of a node selector, are as much work."""
    tolerations = [{"key": f"k{index}", "operator": "Exists"} for index in range(300)]
    selector = {f"k{index}": "v" for index in range(300)}
    for spec in ({"tolerations": tolerations}, {"nodeSelector": selector}):
        invalid = observe_pod(pod(spec)).spec.invalid
        assert invalid is not None
        assert "300 parts" in invalid


def test_a_node_that_is_too_large_takes_no_pods() -> None:
    """Its taints are gone with its labels, so it must count as unschedulable."""
    raw = copy.deepcopy(RAW["nodes"])
    raw["metadata"]["labels"] = {"big": "x" * OBSERVATION_BYTES_MAX}
    observed = observe_node(raw)
    assert ({}, True, {"cpu": 4000}) == (
        observed.labels,
        observed.unschedulable,
        observed.allocatable,
    )


def test_the_largest_observation_that_fits_is_left_alone() -> None:
    """At the limit nothing is cut; one byte more and it is."""
    empty_bytes = len(observe_pod(pod(labels={"big": ""})).model_dump_json())
    room_bytes = OBSERVATION_BYTES_MAX - empty_bytes
    assert {"big": "x" * room_bytes} == observe_pod(pod(labels={"big": "x" * room_bytes})).labels
    assert {} == observe_pod(pod(labels={"big": "x" * (room_bytes + 1)})).labels


def test_what_is_too_large_even_when_cut_is_refused() -> None:
    """Capacity alone may be too large: then there is no observation."""
    requests = {f"example.com/r{number:06}": "1" for number in range(4000)}
    containers = [{"name": "c", "resources": {"requests": requests}}]
    with pytest.raises(InvalidMessage, match=r"TooLarge: pod ns/a: \d+ bytes even without labels"):
        observe_pod(pod({"containers": containers}))

"""Which annotations an observation carries, and resource names of older dialects."""

import pytest

from schemas import labels
from schemas.labels import canonical_resource, kept_annotations


@pytest.mark.parametrize(
    "name",
    [
        labels.GANG_NAME,
        labels.GANG_MATCH_POLICY_ALIAS,
        labels.QUOTA_SHARED_WEIGHT,
        labels.DEVICE_ALLOCATE_HINT,
        labels.QOS_CLASS,
        "scheduling.x-k8s.io/anything",
        "lockstep.dev/note",
    ],
)
def test_annotations_of_the_dialects_are_kept(name: str) -> None:
    """Every dialect's prefix, and its subdomains, count."""
    assert {name: "v"} == kept_annotations({name: "v"})


@pytest.mark.parametrize(
    "name",
    [
        labels.DEVICE_ALLOCATED,
        labels.COMMAND_ID,
        "kubectl.kubernetes.io/last-applied-configuration",
        "notkoordinator.sh/name",
        "koordinator.sh.example.com/name",
        "koordinator.sh",
        "prometheus.io/scrape",
    ],
)
def test_other_annotations_are_left_out(name: str) -> None:
    """Foreign names, look-alikes, and those with a field of their own are not kept."""
    assert {} == kept_annotations({name: "v"})


def test_kept_annotations_are_sorted() -> None:
    """Equal annotations give equal bytes, whatever order they came in."""
    given = {labels.QOS_CLASS: "LS", labels.GANG_MODE: "Strict"}
    assert [labels.GANG_MODE, labels.QOS_CLASS] == list(kept_annotations(given))


def test_older_resource_names_become_the_canonical_ones() -> None:
    """The kubernetes.io device names are aliases; every other name stays as it is."""
    assert labels.GPU_CORE == canonical_resource("kubernetes.io/gpu-core")
    assert labels.RDMA == canonical_resource("kubernetes.io/rdma")
    assert "kubernetes.io/batch-cpu" == canonical_resource("kubernetes.io/batch-cpu")
    assert "cpu" == canonical_resource("cpu")

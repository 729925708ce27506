"""Names of labels, annotations and resources that the core knows are those of the wire."""

import pytest

from schemas import labels
from state import report
from state.model import podclass
from state.rules import allocate


@pytest.mark.parametrize(
    ("wire", "core"),
    [
        (labels.NVIDIA_GPU, podclass.GPU),
        (labels.GPU, podclass.GPU_WHOLE_PERCENT),
        (labels.GPU_CORE, podclass.GPU_CORE),
        (labels.GPU_MEMORY, podclass.GPU_MEMORY),
        (labels.GPU_MEMORY_RATIO, podclass.GPU_RATIO),
        (labels.GPU_SHARED, podclass.GPU_SHARED),
        ((labels.RDMA, labels.FPGA), podclass._PERCENT_DEVICES),
        ((labels.NPU_CORE, labels.NPU_CPU, labels.NPU_DVPP), podclass._NPU_RESOURCES),
        (labels.POD_GROUP_LABELS, podclass._GROUP_LABELS),
        (labels.POD_GROUP_NAME_LABEL, podclass._LIGHT_NAME),
        (labels.POD_GROUP_MIN_AVAILABLE_LABEL, podclass._LIGHT_MIN),
        (labels.GANG_NAME, f"{podclass._GANG}name"),
        (labels.QUOTA_NAME, podclass._QUOTA_LABEL),
        (labels.QUOTA_NAMESPACES, report._NAMESPACES),
        (labels.QUOTA_DEFAULT, report._DEFAULT_QUOTA),
        (labels.DEVICE_ALLOCATED, allocate.DEVICE_ALLOCATED),
    ],
)
def test_the_core_knows_the_names_of_the_edges(wire: object, core: object) -> None:
    """The core may import nothing of ours, so it has copies; none of them may drift."""
    assert wire == core

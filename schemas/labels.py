"""Names of every dialect that Lockstep speaks: labels, annotations, API groups, resources.

Must hold no logic beyond "is this name ours". The edges take names from here; the core, which may
import nothing of ours, has copies of those that it reads, and a test holds that they are equal.
"""

from typing import Final

# -- gangs (upstream scheduler-plugins and Koordinator) ----------------------------------------
GROUP_X_K8S: Final = "scheduling.x-k8s.io"
GROUP_SIGS: Final = "scheduling.sigs.k8s.io"
#: Kubernetes itself: read where policy has `gangs.kubernetesWorkloads`.
GROUP_KUBERNETES: Final = "scheduling.k8s.io"

#: Labels that name a pod's PodGroup, in the order in which they are asked.
POD_GROUP_LABELS: Final = (
    "pod-group.scheduling.sigs.k8s.io",
    "scheduling.x-k8s.io/pod-group",
)
#: Labels of the older lightweight gang.
POD_GROUP_NAME_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/name"
POD_GROUP_MIN_AVAILABLE_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

GANG_NAME: Final = "gang.scheduling.koordinator.sh/name"
GANG_MIN_AVAILABLE: Final = "gang.scheduling.koordinator.sh/min-available"
GANG_WAITING_TIME: Final = "gang.scheduling.koordinator.sh/waiting-time"
GANG_TOTAL_NUMBER: Final = "gang.scheduling.koordinator.sh/total-number"
GANG_MODE: Final = "gang.scheduling.koordinator.sh/mode"
GANG_GROUPS: Final = "gang.scheduling.koordinator.sh/groups"
GANG_MATCH_POLICY: Final = "gang.scheduling.koordinator.sh/match-policy"
GANG_MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
GANG_NETWORK_TOPOLOGY_SPEC: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
GANG_NETWORK_TOPOLOGY_INDEX: Final = "gang.scheduling.koordinator.sh/network-topology-index"
NETWORK_TOPOLOGY_SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"

# -- quotas ------------------------------------------------------------------------------------
QUOTA_NAME: Final = "quota.scheduling.koordinator.sh/name"
QUOTA_PREEMPTIBLE: Final = "quota.scheduling.koordinator.sh/preemptible"
QUOTA_IS_PARENT: Final = "quota.scheduling.koordinator.sh/is-parent"
QUOTA_PARENT: Final = "quota.scheduling.koordinator.sh/parent"
QUOTA_ALLOW_LENT: Final = "quota.scheduling.koordinator.sh/allow-lent-resource"
QUOTA_TREE_ID: Final = "quota.scheduling.koordinator.sh/tree-id"
QUOTA_IS_ROOT: Final = "quota.scheduling.koordinator.sh/is-root"
QUOTA_IGNORE_DEFAULT_TREE: Final = "quota.scheduling.koordinator.sh/ignore-default-tree"
QUOTA_PROFILE: Final = "quota.scheduling.koordinator.sh/profile"
QUOTA_ALLOW_FORCE_UPDATE: Final = "quota.scheduling.koordinator.sh/allow-force-update"
QUOTA_SHARED_WEIGHT: Final = "quota.scheduling.koordinator.sh/shared-weight"
QUOTA_TOTAL_RESOURCE: Final = "quota.scheduling.koordinator.sh/total-resource"
QUOTA_NAMESPACES: Final = "quota.scheduling.koordinator.sh/namespaces"
QUOTA_RESOURCE_KEYS: Final = "quota.scheduling.koordinator.sh/resource-keys"
QUOTA_ADMISSION: Final = "quota.scheduling.koordinator.sh/admission"
QUOTA_STRICT_KEYS: Final = "quota.scheduling.koordinator.sh/max-strict-check-resource-keys"
#: What a status loop writes onto a quota: no input of any decision, so no part of an observation.
QUOTA_STATUS_ANNOTATIONS: Final = frozenset(
    f"quota.scheduling.koordinator.sh/{name}"
    for name in (
        "runtime",
        "request",
        "child-request",
        "guaranteed",
        "allocated",
        "non-preemptible-request",
        "non-preemptible-used",
        "unschedulable-resource",
    )
)
QUOTA_ROOT: Final = "koordinator-root-quota"
QUOTA_SYSTEM: Final = "koordinator-system-quota"
QUOTA_DEFAULT: Final = "koordinator-default-quota"

# -- devices -----------------------------------------------------------------------------------
DEVICE_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
DEVICE_ALLOCATE_HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
DEVICE_JOINT_ALLOCATE: Final = "scheduling.koordinator.sh/device-joint-allocate"
GPU_PARTITION_SPEC: Final = "scheduling.koordinator.sh/gpu-partition-spec"
GPU_PARTITIONS: Final = "scheduling.koordinator.sh/gpu-partitions"
GPU_PARTITION_POLICY: Final = "node.koordinator.sh/gpu-partition-policy"
GPU_ISOLATION_PROVIDER: Final = "koordinator.sh/gpu-isolation-provider"

NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
DCU_GPU: Final = "dcu.com/gpu"
GPU: Final = "koordinator.sh/gpu"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"
GPU_CORE: Final = "koordinator.sh/gpu-core"
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
RDMA: Final = "koordinator.sh/rdma"
FPGA: Final = "koordinator.sh/fpga"
NPU_CORE: Final = "huawei.com/npu-core"
NPU_CPU: Final = "huawei.com/npu-cpu"
NPU_DVPP: Final = "huawei.com/npu-dvpp"

#: Older names of device resources -> the names that Lockstep uses and writes.
RESOURCE_ALIASES: Final[dict[str, str]] = {
    "kubernetes.io/gpu": GPU,
    "kubernetes.io/gpu-core": GPU_CORE,
    "kubernetes.io/gpu-memory": GPU_MEMORY,
    "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
    "kubernetes.io/rdma": RDMA,
    "kubernetes.io/fpga": FPGA,
}

# -- priority and quality of service -----------------------------------------------------------
QOS_CLASS: Final = "koordinator.sh/qosClass"
PRIORITY_CLASS: Final = "koordinator.sh/priority-class"
SUB_PRIORITY: Final = "koordinator.sh/priority"

# -- ours --------------------------------------------------------------------------------------
COMMAND_ID: Final = "lockstep.dev/command-id"

#: Annotation prefixes (the part before the slash) of the dialects, with every subdomain of theirs.
_DOMAINS: Final = (
    "koordinator.sh",
    "scheduling.sigs.k8s.io",
    "scheduling.x-k8s.io",
    "lockstep.dev",
)
_WITH_OWN_FIELD: Final = frozenset({DEVICE_ALLOCATED, COMMAND_ID})


def kept_annotations(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations that an observation carries: those of the dialects, sorted by name.

    The device allocation and the command id are left out: a pod's observation has fields for them.
    """
    return {
        name: annotations[name]
        for name in sorted(annotations)
        if _is_dialect(name) and name not in _WITH_OWN_FIELD
    }


def canonical_resource(name: str) -> str:
    """The name under which Lockstep knows the resource `name`."""
    return RESOURCE_ALIASES.get(name, name)


def _is_dialect(name: str) -> bool:
    prefix, slash, _ = name.partition("/")
    return slash == "/" and any(
        prefix == domain or prefix.endswith(f".{domain}") for domain in _DOMAINS
    )

"""Why a pod waits: codes with a stable meaning, and the value that carries one. Refusals are data, not exceptions."""

from enum import StrEnum
from typing import Any, Final

from msgspec import Struct


class Code(StrEnum):
    """One reason. A pod with several carries the one that must change first."""

    SYNCING = "Syncing"
    GATED = "Gated"
    INVALID_REQUEST = "InvalidRequest"
    UNSUPPORTED = "UnsupportedConstraint"
    BACKING_OFF = "BackingOff"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    WAITING_FOR_GROUP = "WaitingForGroup"
    HOLDING = "HoldingRoom"
    TIMED_OUT = "TimedOut"
    GAVE_WAY = "GaveWay"
    KEPT_FOR_HEAD = "KeptForHead"
    PREEMPTING = "Preempting"
    EVICTION_FUTILE = "EvictionFutile"
    EVICTIONS_LIMITED = "EvictionsLimited"
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    TAINTED = "Tainted"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NO_DEVICE = "NoDevice"


#: What is said of who may go somewhere, and has no room there.
FOR_ROOM: Final = (
    Code.INSUFFICIENT_RESOURCES,
    Code.NO_DEVICE,
    Code.TIMED_OUT,
    Code.GAVE_WAY,
    Code.EVICTION_FUTILE,
    Code.EVICTIONS_LIMITED,
)
#: What each code means, for `lockstep schema diagnosis`.
MEANINGS: Final[dict[Code, str]] = {
    Code.SYNCING: "Not every kind of object has been listed yet; nothing is placed before that.",
    Code.GATED: "The pod has scheduling gates; whoever set them must remove them.",
    Code.INVALID_REQUEST: "The pod's request can never be met as it is written; change the pod.",
    Code.UNSUPPORTED: "The pod asks for a constraint that this version does not decide; it is held, not ignored.",
    Code.BACKING_OFF: "A bind was refused by the API server; it is tried again after the back-off.",
    Code.WAITING_FOR_MEMBERS: "The gang has fewer ready members than it needs.",
    Code.WAITING_FOR_GROUP: "The PodGroup, or a partner gang of the group, is missing or incomplete.",
    Code.HOLDING: "The pod has a node and waits there for the rest of its NonStrict gang, until its wait time is over.",
    Code.TIMED_OUT: "The gang's wait time ran out before the rest of it had a node; what it held is free.",
    Code.GAVE_WAY: "The pod held room, or room was kept for it, and a unit ahead of it needed that room.",
    Code.PREEMPTING: "Less important pods were asked to leave a node; its room is kept for the pod until they have.",
    Code.EVICTION_FUTILE: "Evicting more would not help: evictions were refused, or owners put their pods back.",
    Code.EVICTIONS_LIMITED: "Less important pods would make room, but policy allows no more evictions now.",
    Code.KEPT_FOR_HEAD: "Nodes with room are kept for what has waited too long at the head of the queue.",
    Code.NODE_SELECTOR_MISMATCH: "No node matches the pod's node selector and required node affinity.",
    Code.TAINTED: "Every matching node is cordoned or has a taint that the pod does not tolerate.",
    Code.INSUFFICIENT_RESOURCES: "No matching node has room for the request.",
    Code.NO_DEVICE: "No matching node has enough free, healthy devices.",
}


class Diagnosis(Struct, frozen=True, gc=False, omit_defaults=True):
    """A code to count by, a sentence and details to read. Field order is alphabetical: it is the encoding."""

    code: str
    details: dict[str, Any] = {}
    message: str = ""

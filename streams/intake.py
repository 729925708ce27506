"""The door of the journal: one intake message in, the canonical bytes of its observations out, or a
rejection.

Called by the sequencer for every intake message. Must not: keep state, or let anything through that
the core could not fold: a journal record can never be taken back.
"""

import base64
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from schemas import topics
from schemas.codec import decode_intake, encode
from schemas.errors import InvalidMessage
from schemas.observations import IntakeMessage
from schemas.policy import policy_change
from streams.translate import to_record

#: So much of a rejected message is kept on the dead-letter topic, and so much of a detail in the
#: journal.
DEAD_LETTER_BYTES_MAX: Final = 64 * 1024
DETAIL_CHARS_MAX: Final = 500

_INT64_MAX: Final = 2**63 - 1
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")

#: A record around observations, to try whether the core can read them: in the journal it would be too late.
_PROBE: Final = (
    b'{"observations":[%b],"positions":{},"prev":"","sequence":1,"timestamp_us":0,"version":1}'
)

#: Observation kind -> the one topic it travels on; kinds that name a resource go on the topic of
#: that resource.
_TOPIC_OF_KIND: Final[dict[str, str]] = {
    "PodObserved": "pods",
    "NodeObserved": "nodes",
    "PodGroupObserved": "podgroups",
    "WorkloadObserved": "podgroups",
    "QuotaObserved": "quotas",
    "BudgetObserved": "budgets",
    "DeviceObserved": "devices",
    "NamespaceObserved": "namespaces",
    "PriorityClassObserved": "priorityclasses",
    "CommandEnded": topics.RESULTS,
    "PolicyChanged": topics.ADMIN,
    "EvictRequested": topics.ADMIN,
    "ProbeRequested": topics.ADMIN,
}


@dataclass(frozen=True, slots=True)
class IntakeTaken:
    """A message that passed: its `count` observations as canonical JSON, joined by commas."""

    offset: int
    body: bytes
    count: int


@dataclass(frozen=True, slots=True)
class IntakeRejected:
    """A message that did not pass: `taken` stands in its place in the journal, `dead_letter` keeps
    its bytes.
    """

    taken: IntakeTaken
    reason: str
    dead_letter: bytes


def admit_message(topic: str, offset: int, value: bytes | None) -> IntakeTaken | IntakeRejected:
    """What becomes of the message at (`topic`, `offset`). Never raises for bad input."""
    try:
        message = decode_intake(value)
        assert value is not None
        for observation in message.observations:
            _check_topic(topic, observation)
            _check_names(observation)
        return IntakeTaken(offset, _canonical(message, value), len(message.observations))
    except InvalidMessage as error:
        return reject_message(topic, offset, value, error.reason, error.detail)


def reject_message(
    topic: str, offset: int, value: bytes | None, reason: str, detail: str
) -> IntakeRejected:
    """The rejection of the message at (`topic`, `offset`) with `reason` (CamelCase) and `detail`
    (one line).
    """
    data = value or b""
    detail = detail.encode("utf-8", "replace").decode()[:DETAIL_CHARS_MAX]
    rejection = {
        "kind": "MessageRejected",
        "topic": topic,
        "offset": offset,
        "reason": reason,
        "detail": detail,
    }
    dead_letter = {
        "topic": topic,
        "offset": offset,
        "reason": reason,
        "detail": detail,
        "bytes": len(data),
        "data_base64": base64.b64encode(data[:DEAD_LETTER_BYTES_MAX]).decode(),
    }
    return IntakeRejected(IntakeTaken(offset, encode(rejection), 1), reason, encode(dead_letter))


def _check_topic(topic: str, observation: Any) -> None:
    kind = observation.kind
    resource = getattr(observation, "resource", None)
    if resource is not None:
        wanted = topics.RESOURCES.get(resource)
        if wanted is None:
            raise InvalidMessage("UnknownKind", f"{kind} of resource {resource!r}")
    else:
        wanted = _TOPIC_OF_KIND.get(kind)
    if wanted != topic:
        where = f"belongs on {wanted}" if wanted else "is written by the sequencer alone"
        raise InvalidMessage("WrongTopic", f"{kind} on {topic}: it {where}")


def _check_names(observation: Any) -> None:
    """An object without a name would be taken for that of pods that have no node yet."""
    if observation.kind.endswith("Observed"):
        for field in ("uid", "namespace", "name"):
            if getattr(observation, field, None) == "":
                raise InvalidMessage("InvalidField", f"{observation.kind}.{field}: it is empty")


def _canonical(message: IntakeMessage, value: bytes) -> bytes:
    """The observations as published, in canonical form; the fields that the producer left out stay
    out.
    """
    try:
        plain: list[dict[str, Any]] = msgspec.json.decode(value)["observations"]
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidMessage("NotJson", str(error)) from error
    if _LONG_NUMBER.search(value):
        for item in plain:
            _check_numbers(item, item["kind"])
    for item, observation in zip(plain, message.observations, strict=True):
        if observation.kind == "PolicyChanged":
            item["spec"] = policy_change(observation.spec)
    body = b",".join([msgspec.json.encode(item, order="sorted") for item in plain])
    try:
        to_record(_PROBE % body)
    except InvalidMessage as error:
        raise InvalidMessage("InvalidField", f"the core cannot read it: {error.detail}") from error
    return body


def _check_numbers(value: Any, field: str) -> None:
    """The core counts in 64-bit integers; a larger one is refused here, with the name of its
    field.
    """
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, f"{field}.{key}")
    elif isinstance(value, list):
        for item in value:
            _check_numbers(item, field)
    elif isinstance(value, int) and abs(value) > _INT64_MAX:
        raise InvalidMessage("InvalidField", f"{field}: {value} does not fit 64 bits")

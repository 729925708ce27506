"""The door: what is taken, what is rejected and why."""

import base64
import json
from typing import Any

import pytest

from schemas.codec import encode
from schemas.errors import InvalidMessage
from schemas.observations import (
    EvictRequested,
    IntakeMessage,
    NodeObserved,
    PolicyChanged,
    ProbeRequested,
    SyncStarted,
)
from streams.intake import IntakeRejected, IntakeTaken, admit_message

NODE: dict[str, Any] = {
    "kind": "NodeObserved",
    "uid": "u",
    "rv": 1,
    "name": "n",
    "allocatable": {"cpu": 1},
}


REJECTED = {"kind": "MessageRejected", "topic": "pods", "offset": 1, "reason": "r", "detail": "d"}
POLICY = {"kind": "PolicyChanged", "id": "1"}


def message(*observations: dict[str, Any], **fields: Any) -> bytes:
    return encode({"producer": "p", "observations": list(observations), **fields})


def test_a_valid_message_becomes_canonical_observations() -> None:
    """Spaces and order of keys go, fields that the producer left out stay out, the count is that of
    observations.
    """
    loose = json.dumps(
        {"observations": [NODE, NODE], "producer": "p", "version": 1}, indent=2
    ).encode()
    body = encode(NODE)
    assert IntakeTaken(3, body + b"," + body, 2) == admit_message("nodes", 3, loose)


def test_models_of_the_wire_pass_on_their_topic() -> None:
    """What a producer builds with the models is taken as it is."""
    for topic, observation in (
        ("nodes", NodeObserved(uid="u", rv=1, name="n", allocatable={})),
        (
            "podgroups",
            SyncStarted(
                resource="podgroups.scheduling.x-k8s.io",
                producer="p",
                epoch="e",
                list_rv=1,
                cold=True,
            ),
        ),
        ("admin", EvictRequested(id="1", namespace="d", name="n", reason="r")),
        ("admin", ProbeRequested(id="1")),
    ):
        value = encode(IntakeMessage(producer="p", observations=(observation,)))
        assert IntakeTaken(0, encode(observation), 1) == admit_message(topic, 0, value)


@pytest.mark.parametrize(
    ("topic", "value", "reason", "detail"),
    [
        ("nodes", None, "Empty", "no value"),
        ("nodes", b"\xff\x00", "NotJson", ""),
        ("nodes", b"[1]", "NotJson", "list"),
        ("nodes", message(NODE, version=2), "FutureVersion", "version 2"),
        ("nodes", b" " * 5_000_000, "TooLarge", "5000000 bytes"),
        ("nodes", message({**NODE, "kind": "Moon"}), "UnknownKind", "Moon"),
        ("nodes", message({**NODE, "kind": []}), "UnknownKind", "[]"),
        ("nodes", message({**NODE, "name": ""}), "InvalidField", "NodeObserved.name"),
        ("nodes", message({**NODE, "uid": ""}), "InvalidField", "NodeObserved.uid"),
        ("nodes", message({**NODE, "kind": {"a": 1}}), "UnknownKind", "kind"),
        ("nodes", message({**NODE, "allocatable": {"cpu": -1}}), "InvalidField", "allocatable.cpu"),
        (
            "nodes",
            message({**NODE, "allocatable": {"cpu": 2**63}}),
            "InvalidField",
            "NodeObserved.allocatable.cpu",
        ),
        ("pods", message(NODE), "WrongTopic", "belongs on nodes"),
        (
            "pods",
            message({"kind": "SyncFinished", "resource": "nodes", "epoch": "e", "list_rv": 1}),
            "WrongTopic",
            "belongs on nodes",
        ),
        (
            "pods",
            message({"kind": "KindAbsent", "resource": "moons.sky", "producer": "p"}),
            "UnknownKind",
            "moons.sky",
        ),
        (
            "nodes",
            message(REJECTED),
            "WrongTopic",
            "sequencer alone",
        ),
        (
            "admin",
            message({**POLICY, "spec": {"gangs": {"defaultTimeout": "x"}}}),
            "InvalidField",
            "gangs.defaultTimeout",
        ),
        (
            "admin",
            message({**POLICY, "spec": {"backoff": {"max": "9" * 400 + "s"}}}),
            "InvalidField",
            "backoff.max",
        ),
        (
            "admin",
            message({**POLICY, "spec": {"evictions": {"budgetDeadline": 2**62}}}),
            "InvalidField",
            "evictions.budgetDeadline",
        ),
    ],
)
def test_what_cannot_be_taken_is_rejected_with_a_reason_to_count_by(
    topic: str, value: bytes | None, reason: str, detail: str
) -> None:
    """A rejection stands in the journal as one observation, and the bytes go to the dead
    letters.
    """
    outcome = admit_message(topic, 9, value)
    assert isinstance(outcome, IntakeRejected)
    observation = json.loads(outcome.taken.body)
    assert (reason, topic, 9, 1) == (
        observation["reason"],
        observation["topic"],
        observation["offset"],
        outcome.taken.count,
    )
    assert detail in observation["detail"]
    letter = json.loads(outcome.dead_letter)
    assert (reason, len(value or b"")) == (letter["reason"], letter["bytes"])
    assert (value or b"")[: 64 * 1024] == base64.b64decode(letter["data_base64"])


def test_policy_durations_enter_the_journal_as_microseconds() -> None:
    """A policy written for people is stored in the journal's form."""
    change = PolicyChanged(id="1", spec={"gangs": {"defaultTimeout": "90s"}})
    outcome = admit_message("admin", 0, message(change.model_dump()))
    assert isinstance(outcome, IntakeTaken)
    assert json.loads(outcome.body)["spec"] == {"gangs": {"defaultTimeout": 90_000_000}}


def test_what_the_core_cannot_read_is_refused_at_the_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models and the core's decoder are tried both: a journal record can never be taken back."""

    def refuse(data: bytes) -> None:
        raise InvalidMessage("NotARecord", data.decode())

    monkeypatch.setattr("streams.intake.to_record", refuse)
    outcome = admit_message("nodes", 0, message(NODE))
    assert isinstance(outcome, IntakeRejected)
    rejection = json.loads(outcome.taken.body)
    assert ("InvalidField", True) == (rejection["reason"], "NodeObserved" in rejection["detail"])


def test_largest_amount_of_64_bits_passes() -> None:
    """The limit itself is allowed: quotas use it as `unlimited`."""
    value = message({**NODE, "allocatable": {"cpu": 2**63 - 1}})
    assert isinstance(admit_message("nodes", 0, value), IntakeTaken)

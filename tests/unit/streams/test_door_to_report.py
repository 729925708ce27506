"""Whatever comes in at the door: what passes can be folded, stored, replayed and shown; the rest is rejected."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.policy import full_policy
from schemas.topics import INTAKE, RESOURCES
from state import invariants, snapshot
from state.machine import apply, step
from state.model.state import State
from state.report import report
from streams.intake import IntakeRejected, IntakeTaken, admit_message
from streams.translate import to_decision, to_record
from tests.builders import Json, absent, node, pod
from tests.messages import OBSERVED, damaged

GENESIS = {"kind": "PolicyChanged", "id": "genesis", "spec": full_policy()}
#: A world that placements can happen in, so that what comes in meets something.
OPENING = [GENESIS, *map(absent, RESOURCES), node("n1", gpus=2), pod("p1"), pod("p2", cpu=9_000)]

MESSAGES = st.lists(OBSERVED.map(lambda case: case[1]) | damaged(), min_size=1, max_size=3)


def fold_and_show(states: tuple[State, State], sequence: int, bodies: list[bytes]) -> None:
    """Folds one record by `step` into one State and by its decision into another; shows and reloads the first."""
    stepped, applied = states
    data = b'{"observations":[%b],"positions":{},"prev":"x","sequence":%d,"timestamp_us":%d,"version":1}'
    record = to_record(data % (b",".join(bodies), sequence, sequence * 1_000_000))
    decision = step(stepped, record)
    apply(applied, to_decision(decision.data))
    invariants.check(stepped)
    stored = snapshot.encode(stepped)
    assert stored == snapshot.encode(applied) == snapshot.encode(snapshot.decode(stored))
    assert json.loads(decision.data)["digest"] == decision.digest
    json.dumps(report(stepped), allow_nan=False)


@settings(max_examples=150, deadline=None)
@given(bursts=st.lists(MESSAGES, min_size=1, max_size=6), topic=st.sampled_from(INTAKE))
def test_what_passes_the_door_can_be_folded_and_shown(bursts: list[list[Json]], topic: str) -> None:
    """Valid and damaged observations, each on its own topic or on any: no exception, in any state that came of them."""
    states = State(), State()
    fold_and_show(states, 1, [encode(said) for said in OPENING])
    for number, burst in enumerate(bursts, start=2):
        value = encode({"producer": "x", "observations": burst})
        found = admit_message(topic_of(burst[0], topic), number, value)
        taken = found.taken if isinstance(found, IntakeRejected) else found
        assert isinstance(taken, IntakeTaken)
        fold_and_show(states, number, [taken.body])


@settings(max_examples=300, deadline=None)
@given(value=st.binary(max_size=80) | st.text(max_size=80).map(str.encode) | st.none())
def test_bytes_of_any_kind_are_rejected_with_a_reason(value: bytes | None) -> None:
    """Not JSON, not an object, or not a message: a rejection that the core folds, never an exception."""
    found = admit_message("pods", 0, value)
    assert isinstance(found, IntakeRejected)
    assert found.reason in ("Empty", "NotJson", "FutureVersion", "UnknownKind", "InvalidField")


def topic_of(said: Json, other: str) -> str:
    """The topic that an observation of this kind belongs on; `other` for one whose kind is damaged."""
    by_kind = {
        "PodObserved": "pods",
        "NodeObserved": "nodes",
        "PodGroupObserved": "podgroups",
        "QuotaObserved": "quotas",
        "BudgetObserved": "budgets",
        "DeviceObserved": "devices",
        "NamespaceObserved": "namespaces",
        "PriorityClassObserved": "priorityclasses",
        "CommandEnded": "results",
        "PolicyChanged": "admin",
        "EvictRequested": "admin",
        "ProbeRequested": "admin",
    }
    kind = said.get("kind")
    return by_kind.get(kind, other) if isinstance(kind, str) else other

"""What is fuzzed: for each door, where its inputs come from, what reads them, and what a refusal is.

A target's `run` returns True when the input was taken, False when it was refused in the way that its caller expects.
Any exception out of it is a fault. Called by `test_fuzz.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

import msgspec

from producers.observe import OBSERVE, observe_pod
from producers.publisher import pack
from schemas import quantities
from schemas.codec import encode
from schemas.errors import InvalidMessage
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED
from schemas.observations import CommandEnded
from schemas.topics import INTAKE, RESOURCES, RESULTS
from state.model.limits import ANNOTATED_MAX
from state.model.podclass import (
    Requirement,
    SpecSeen,
    Term,
    TolerationSeen,
    parse_class,
    parse_membership,
)
from state.model.rows import Node
from state.model.scores import MAY, MISMATCH, TAINTED
from state.model.seen import TaintSeen
from state.rules.filters import node_reason
from state.snapshot import encode as encode_state
from streams.chain import Chain, DecisionChain, read_header
from streams.checkpoints import parse_manifest
from streams.intake import IntakeRejected, admit_message
from streams.sink.found import found_pod
from streams.translate import to_decision, to_record, to_state
from tests.fuzz.mutations import ODD, damaged_bytes, damaged_tree
from tests.replay.journals import GOLDEN, Journal, fold, load
from tests.secret_pods import secret_pod
from tests.unit.producers.raw_objects import RAW, pod
from tests.unit.streams.test_door_to_report import topic_of


@dataclass(frozen=True)
class Target:
    """`inputs`: how many of the million are for it."""

    inputs: int
    make: Callable[[Random], Any]
    run: Callable[[Any], bool]


@cache
def golden() -> Journal:
    return load(GOLDEN)


@cache
def observations() -> list[Any]:
    """Every observation of the golden journal."""
    return [seen for data in golden().records for seen in json.loads(data)["observations"]]


def _bytes_of(random: Random, corpus: list[bytes]) -> bytes:
    """One of the corpus, damaged as JSON or as bytes."""
    data, other = random.choice(corpus), random.choice(corpus)
    if random.random() < 0.5:
        return damaged_bytes(random, data, other)
    return json.dumps(damaged_tree(random, json.loads(data), json.loads(other))).encode()


# --- the door -------------------------------------------------------------------------------------


def make_message(random: Random) -> tuple[str, bytes]:
    """A topic and an intake message."""
    seen = [random.choice(observations()) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    whole = {"producer": "fuzz", "version": 1, "observations": seen}
    topic = topic_of(seen[0], "pods") if random.random() < 0.9 else random.choice(INTAKE)
    return topic, _bytes_of(random, [encode(whole), encode({"observations": seen[:1]})])


def admit(case: tuple[str, bytes]) -> bool:
    topic, value = case
    found = admit_message(topic, 7, value)
    taken = found.taken if isinstance(found, IntakeRejected) else found
    to_record(
        b'{"observations":[%b],"positions":{},"prev":"","sequence":1,"timestamp_us":0,"version":1}'
        % taken.body
    )
    if isinstance(found, IntakeRejected):
        assert found.reason.isalpha()
        assert len(found.dead_letter) < 100_000
        return False
    return True


# --- objects of the API server ----------------------------------------------------------------------


def make_object(random: Random) -> tuple[str, Any]:
    """A resource and a raw object of it."""
    resource = random.choice(list(OBSERVE))
    raw = RAW[resource]
    if resource == "pods" and random.random() < 0.7:
        raw = secret_pod("p", "1")
        raw["metadata"] |= RAW["pods"]["metadata"]
        raw["spec"] |= _WHERE
    return resource, damaged_tree(random, raw, random.choice(list(RAW.values())))


_WHERE: Final = {
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"a": "b"},
    "overhead": {"cpu": "10m"},
    "schedulingGates": [{"name": "g"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                ]
            }
        }
    },
}


def observe(case: tuple[str, Any]) -> bool:
    """What an observer makes of an object, the door must take."""
    resource, raw = case
    try:
        seen = OBSERVE[resource](raw, None)
    except InvalidMessage:
        return False
    (message,) = pack("fuzz", [seen])
    found = admit_message(RESOURCES[resource], 0, message)
    assert not isinstance(found, IntakeRejected), found
    return True


_GANG: Final = "gang.scheduling.koordinator.sh/"
_ANNOTATIONS: Final = {
    DEVICE_ALLOCATED: b'{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}',
    f"{_GANG}name": b"g",
    f"{_GANG}min-available": b"2",
    f"{_GANG}waiting-time": b"1h30m5s",
    f"{_GANG}groups": b'["default/a","default/b"]',
    f"{_GANG}mode": b"NonStrict",
    COMMAND_ID: b"3.0",
}


def make_annotations(random: Random) -> dict[str, str]:
    """What anybody may write on a pod of theirs, in the words that are read."""
    found = dict(_ANNOTATIONS)
    for name in random.sample(sorted(found), 2):
        found[name] = (
            _bytes_of(random, [found[name]])
            if found[name][:1] in b"{["
            else (damaged_bytes(random, found[name], b"9h8m7us"))
        )
    return {name: text.decode(errors="replace") for name, text in found.items()}


def read_annotations(annotations: dict[str, str]) -> bool:
    """The pod is observed, found after a conflict, and counted to a gang; nothing that is read is refused later."""
    raw = pod(annotations=annotations)
    seen = observe_pod(raw, None)
    found = CommandEnded(command_id="1.0", outcome="Refused", status=409, found=found_pod(raw))
    for topic, observation in (("pods", seen), (RESULTS, found)):
        (message,) = pack("fuzz", [observation])
        admitted = admit_message(topic, 0, message)
        assert not isinstance(admitted, IntakeRejected), admitted
    gang = parse_membership(encode(seen.labels), encode(seen.annotations))
    assert 0 <= gang.wait_us <= ANNOTATED_MAX
    return bool(seen.allocations)


# --- quantities, selectors, tolerations ---------------------------------------------------------------


def make_quantity(random: Random) -> Any:
    """Mostly text of the letters that quantities have."""
    if random.random() < 0.1:
        return random.choice(ODD)
    length = random.choice((1, 2, 3, 5, 8, 20, 70))
    text = "".join(random.choice("0123456789+-.eEnumkKMGTPEi ") for _ in range(length))
    suffix = random.choice(("", "m", "k", "Ki", "Gi", "Ei", "e3", "E-9", "n", "e999999999999"))
    return text if random.random() < 0.5 else f"{random.randrange(10**length)}{suffix}"


def read_quantity(value: Any) -> bool:
    """Both forms of amounts are whole numbers of 64 bits."""
    try:
        found = [quantities.resource_amount(name, value) for name in ("cpu", "memory")]
    except InvalidMessage:
        return False
    assert all(type(each) is int and abs(each) <= quantities.QUANTITY_MAX for each in found)
    return True


_WORDS: Final = (
    *(
        "",
        "a",
        "b",
        "c",
        "0",
        "-0",
        "+5",
        "12",
        "9" * 18,
        "9" * 19,
        "9" * 6000,
        "-" * 9,
        "²",
        "1_0",
    ),
    "node.kubernetes.io/unschedulable",
)


def make_match(random: Random) -> tuple[SpecSeen, Node]:
    """A pod's wishes and a node."""

    def some(count: int) -> list[str]:
        return [random.choice(_WORDS) for _ in range(random.randrange(count))]

    def need() -> Requirement:
        operator: Any = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        return Requirement(random.choice((*_WORDS, "metadata.name")), operator, tuple(some(4)))

    def toleration() -> TolerationSeen:
        operator: Any = random.choice(("Exists", "Equal", "Lt", "Gt"))
        effect: Any = random.choice(("", "NoSchedule", "PreferNoSchedule", "NoExecute"))
        return TolerationSeen(random.choice(_WORDS), operator, random.choice(_WORDS), effect)

    def term() -> Term:
        return Term(
            tuple(need() for _ in range(random.randrange(3))),
            tuple(need() for _ in range(random.choice((0, 0, 1)))),
        )

    def taint() -> TaintSeen:
        effect: Any = random.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        return TaintSeen(key=random.choice(_WORDS), value=random.choice(_WORDS), effect=effect)

    spec = SpecSeen(
        scheduler_name="lockstep",
        requests={"cpu": 1},
        node_selector=dict.fromkeys(some(3), random.choice(_WORDS)),
        affinity=random.choice((None, (), tuple(term() for _ in range(2)))),
        tolerations=tuple(toleration() for _ in range(random.randrange(3))),
    )
    node = Node(
        labels=dict(zip(some(6), some(6), strict=False)),
        name=random.choice(_WORDS),
        ord=0,
        rv=1,
        taints=tuple(taint() for _ in range(random.randrange(3))),
        uid="u",
        unschedulable=random.random() < 0.2,
    )
    return spec, node


def match(case: tuple[SpecSeen, Node]) -> bool:
    spec, node = case
    reason = node_reason(parse_class(msgspec.json.encode(spec)), node)
    assert reason in (MAY, MISMATCH, TAINTED)
    return reason == MAY


# --- what the log holds -----------------------------------------------------------------------------


def read_record(data: bytes) -> bool:
    """Readers of the journal skip what is none; whoever folds it refuses it."""
    read_header(data)
    Chain().accept(data)
    try:
        return to_record(data).data == data
    except InvalidMessage:
        return False


def read_decision(data: bytes) -> bool:
    DecisionChain().accept(data)
    parse_manifest(data)
    try:
        return to_decision(data).data == data
    except InvalidMessage:
        return False


@cache
def states() -> list[bytes]:
    """Snapshots of the golden journal's States; small ones, for each is read whole."""
    return [encode_state(fold(golden().records[:until])[0]) for until in (1, 6, 20)]


def read_state(data: bytes) -> bool:
    try:
        to_state(data)
    except InvalidMessage:
        return False
    return True


def from_bytes(corpus: Callable[[], list[bytes]]) -> Callable[[Random], bytes]:
    """Makes damaged entries of a corpus, which is built when it is first needed."""
    return lambda random: _bytes_of(random, corpus())


#: By name; the files that people write are in `tests.fuzz.files`.
TARGETS: Final = {
    "intake": Target(200_000, make_message, admit),
    "objects": Target(100_000, make_object, observe),
    "annotations": Target(50_000, make_annotations, read_annotations),
    "quantities": Target(200_000, make_quantity, read_quantity),
    "selectors": Target(150_000, make_match, match),
    "records": Target(150_000, from_bytes(lambda: golden().records), read_record),
    "decisions": Target(100_000, from_bytes(lambda: golden().decisions), read_decision),
    "snapshots": Target(10_000, from_bytes(states), read_state),
}

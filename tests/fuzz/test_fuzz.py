"""Damaged input at every door: it is taken or refused, it never crashes, and it never hangs.

Every input follows from a seed, which the failure names. A few thousand inputs always, a million in `make acceptance`
(there with the counts printed).

Inputs are damaged by `mutations.py`, and property tests elsewhere use hypothesis. atheris is not used: it is guided by
the branches of Python code, and bytes are decoded here in C and Rust (msgspec, pydantic, json, libyaml). Tried on
quantities, which are read in Python, it found nothing in 1.4 million inputs; of a million pods as bytes, begun without
a corpus, none was a JSON object.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.fuzz.files import FILES
from tests.fuzz.targets import TARGETS, Target

ALL = TARGETS | FILES
SEED = 20_261
BATCH = 1_000
#: CPU time that one input may take.
SECONDS_MAX = 5.0
#: The part of the million that runs always.
SHORT = 400
#: With fewer inputs it is luck whether one is taken: a new scenario changes what is drawn.
INPUTS_MIN = 100


class Hangs(BaseException):
    """An input took too much CPU time. No handler of errors may swallow it."""


@contextmanager
def bounded() -> Iterator[None]:
    """Calls to `signal.setitimer` end in `Hangs` when the CPU time is over, whatever else the machine does."""

    def stop(*_: object) -> None:
        raise Hangs(f"more than {SECONDS_MAX} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def fuzz(target: Target, inputs: int) -> tuple[int, float]:
    """Feeds that many inputs; how many were taken, and the seconds of the slowest."""
    taken, slowest = 0, 0.0
    with bounded():
        for number in range(inputs):
            if number % BATCH == 0:
                random = Random(f"{SEED}/{number}")
            case = target.make(random)
            began = time.process_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX)
            try:
                taken += target.run(case)
            except BaseException as error:
                error.add_note(f"input {number} of seed {SEED}: {str(case)[:1_000]}")
                raise
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            slowest = max(slowest, time.process_time() - began)
    return taken, slowest


@pytest.mark.parametrize("part", [SHORT, pytest.param(1, marks=pytest.mark.acceptance)])
@pytest.mark.parametrize("name", ALL)
@pytest.mark.timeout(1_200)
def test_damaged_input_is_taken_or_refused(name: str, part: int) -> None:
    """No exception but the refusal that is meant, and no input that takes seconds; some pass, some do not."""
    inputs = max(ALL[name].inputs // part, INPUTS_MIN)
    began = time.monotonic()
    taken, slowest = fuzz(ALL[name], inputs)
    print(
        f"fuzz {name}: {inputs} inputs, {taken} taken, {inputs - taken} refused,"
        f" slowest {slowest * 1_000:.0f} ms, {time.monotonic() - began:.0f} s"
    )
    assert 0 < taken < inputs


def test_acceptance_feeds_a_million() -> None:
    """All targets together."""
    assert sum(target.inputs for target in ALL.values()) >= 1_000_000

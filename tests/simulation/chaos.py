"""What may go wrong, how often: one plan a seed, and the dice that everything else draws from.

`Chaos.calm` ends all faults: from then on the world is a healthy one. Must not act itself.
"""

import random
from dataclasses import dataclass, fields


@dataclass
class Chances:
    """Chances of one fault at one occasion, 0 to 1. A seed scales each of them by its own mood."""

    #: The log: an append that fails before, after, or in the middle, or lands late by itself.
    append_refused: float = 0.04
    append_unknown: float = 0.04
    append_partly: float = 0.02
    append_late: float = 0.02
    #: The log itself, in each round: a checkpoint is spoilt, retention eats the head, an unclean
    #: election loses the tail of the journal or of the decisions (once a seed).
    checkpoint_spoilt: float = 0.006
    head_eaten: float = 0.004
    tail_lost: float = 0.0025
    #: A projector that dies: its tables are wiped, one of them is lost, or rows of it are.
    disk_wiped: float = 0.25
    table_lost: float = 0.25
    rows_lost: float = 0.25
    #: Intake: a message published twice, or held back (others of its kind wait behind it).
    message_twice: float = 0.05
    message_held: float = 0.10
    #: The API server: binds and evictions.
    call_refused: float = 0.06
    call_broken: float = 0.05
    call_throttled: float = 0.03
    call_slow: float = 0.10
    answer_lost: float = 0.06
    read_broken: float = 0.05
    #: The API server: lists and watches.
    list_broken: float = 0.04
    list_expired: float = 0.05
    watch_ended: float = 0.02
    watch_broken: float = 0.01
    watch_expired: float = 0.01
    #: etcd is restored from a backup, at an occasion where a user acts.
    etcd_restored: float = 0.006
    #: Processes, in each round: one dies and is started anew, sleeps, or gets a twin.
    process_dies: float = 0.012
    process_sleeps: float = 0.012
    process_twin: float = 0.008
    #: A starting sequencer's wall clock is wrong, either way.
    clock_wrong: float = 0.30


class Chaos:
    """The dice of one seed. Faults named in `off` never happen.

    Each fault has dice of its own, and so has the workload: what is left out of a run does not change
    when the rest of it happens. Every other draw of the world goes through `dice`.
    """

    def __init__(self, seed: int, off: tuple[str, ...] = ()) -> None:
        self.dice = random.Random(seed)
        self.acts_dice = random.Random(f"{seed} acts")
        self._fault_dice = {
            field.name: random.Random(f"{seed} {field.name}") for field in fields(Chances)
        }
        self.chances = Chances()
        self.raging = True
        for field in fields(Chances):
            mood = self.dice.choice((0.0, 0.5, 1.0, 1.0, 2.0))
            chance = 0.0 if field.name in off else getattr(self.chances, field.name) * mood
            setattr(self.chances, field.name, chance)

    def happens(self, fault: str) -> bool:
        """Whether the fault happens now."""
        return self.raging and self._fault_dice[fault].random() < getattr(self.chances, fault)

    def between_us(self, low_s: float, high_s: float) -> int:
        """A duration between the two, in microseconds."""
        return round(self.dice.uniform(low_s, high_s) * 1_000_000)

    def calm(self) -> None:
        """No more faults."""
        self.raging = False

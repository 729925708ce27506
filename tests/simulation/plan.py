"""What a run is: a seed, how long it goes on, and what is left out of it.

The seed alone is the usual run. A failing one is shrunk by leaving out (`shrink`), and a shrunk one is
kept as a file of these fields.
"""

from dataclasses import dataclass

ROUNDS = 500


@dataclass(frozen=True)
class Plan:
    """`faults_off`: names of `chaos.Chances` that never happen. `acts_off`: names of the actions of
    `Workload` that nobody does.
    """

    seed: int
    rounds: int = ROUNDS
    faults_off: tuple[str, ...] = ()
    acts_off: tuple[str, ...] = ()

"""Kept seeds: shrunk failing runs as short files under tests/scenarios/seeds/, played again by tests.

A file holds the plan, the rule that was broken and the story as it was told. A failure of the pipeline
(a role, the log, the sink) has no transcript of `lockstep simulate` that would show it: the play knows
no lost answers. So the plan itself is the scenario. A fix keeps the file; from then on it must hold.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulation.plan import Plan
from tests.simulation.simulation import Outcome

KEPT = Path(__file__).parents[1] / "scenarios" / "seeds"
STORY_LINES_MAX = 40


@dataclass(frozen=True)
class Kept:
    """One file: what to run, and what it broke when it was found."""

    plan: Plan
    rule: str
    sequence: int


def keep(outcome: Outcome, directory: Path = KEPT) -> Path:
    """Writes a failing run; returns the file's path."""
    failure = outcome.failure
    assert failure is not None
    said = {
        "rule": failure.rule,
        "sequence": failure.sequence,
        "detail": str(failure),
        "plan": asdict(outcome.plan),
        "story": outcome.story[-STORY_LINES_MAX:],
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{failure.rule}-{outcome.plan.seed}.json"
    path.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    return path


def read(path: Path) -> Kept:
    """What `keep` wrote."""
    said = json.loads(path.read_text(encoding="utf-8"))
    plan = said["plan"]
    return Kept(
        Plan(plan["seed"], plan["rounds"], tuple(plan["faults_off"]), tuple(plan["acts_off"])),
        said["rule"],
        said["sequence"],
    )


def kept(directory: Path = KEPT) -> Iterator[Path]:
    """All files that are kept, by name."""
    yield from sorted(directory.glob("*.json"))

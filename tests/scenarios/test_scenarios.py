"""Plays every scenario: FOLDER/NAME.yaml is the play, NAME.txt beside it what the reports must say.

`pytest tests/scenarios --rewrite` writes the texts anew; review the diff. After every settle the
state is also checked against its invariants, its snapshot, and two replays
(`tests.scenarios.shadows`).
"""

from pathlib import Path
from uuid import uuid4

import pytest

from lockstep.manifests import read_documents
from lockstep.simulate_play import Play
from schemas.errors import LockstepError
from streams.log_memory import drop_memory_log
from tests.scenarios.essence import essence
from tests.scenarios.shadows import Shadows

_HERE = Path(__file__).parent
_SCENARIOS = sorted(_HERE.glob("*/*.yaml"))


def play(file: Path) -> str:
    """The reports of one scenario, or its error, as text."""
    log = f"scenario-{uuid4()}"
    try:
        play = Play(f"memory://{log}", on_settled=Shadows().compare)
        for document in read_documents([str(file)]):
            play.play(document)
        play.finish()
        return essence(play.reports)
    except LockstepError as error:
        return f"error: {str(error).replace(str(file), file.name)}\n"
    finally:
        drop_memory_log(log)


@pytest.mark.parametrize(
    "file", _SCENARIOS, ids=[str(file.relative_to(_HERE).with_suffix("")) for file in _SCENARIOS]
)
def test_scenario(file: Path, request: pytest.FixtureRequest) -> None:
    """The scenario's reports say what the text beside it says, and all that always holds held."""
    text, expected = play(file), file.with_suffix(".txt")
    if request.config.getoption("--rewrite"):
        expected.write_text(text, encoding="utf-8")
    assert expected.read_text(encoding="utf-8") == text


def test_every_text_has_its_scenario() -> None:
    """No expectation is left over from a scenario that is gone."""
    orphans = [text for text in _HERE.glob("*/*.txt") if not text.with_suffix(".yaml").exists()]
    assert [] == orphans

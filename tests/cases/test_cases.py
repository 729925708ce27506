"""Plays the acceptance cases: NAME.yaml is the play, NAME.expect.yaml what its reports must show.

Every case is played twice, the second time with a wiped restart at its end. `later.yaml` lists the
cases whose features have not landed; each of them must fail, so that none is forgotten there.

What a play cannot say, such as two deciders at once, is in `test_hNN_*.py`, named for its case.
"""

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from lockstep.manifests import Document, read_documents
from lockstep.simulate_play import Play
from schemas.errors import LockstepError
from streams.log_memory import drop_memory_log
from tests.cases.expectations import unmet
from tests.scenarios.shadows import Shadows

_HERE = Path(__file__).parent
_LATER: dict[str, str] = yaml.safe_load((_HERE / "later.yaml").read_text(encoding="utf-8"))
_CASES = sorted(file for file in _HERE.glob("*.yaml") if file.with_suffix(".expect.yaml").exists())
_RESTART: tuple[dict[str, Any], ...] = ({"settle": True}, {"restart": {"wipe": True}})


def _parameter(file: Path) -> Any:
    later = _LATER.get(file.stem)
    marks = [pytest.mark.xfail(reason=later, raises=AssertionError, strict=True)] if later else []
    return pytest.param(file, id=file.stem, marks=marks)


def _play(file: Path, restart: bool) -> list[dict[str, Any]]:
    """The reports of the case."""
    log = f"case-{uuid4()}"
    documents = read_documents([str(file)])
    for step in _RESTART if restart else ():
        raw = {"apiVersion": "lockstep.dev/v1", "kind": "Step", **step}
        documents.append(Document("restart", len(documents), raw))
    play = Play(f"memory://{log}", on_settled=Shadows().compare)
    try:
        for document in documents:
            play.play(document)
        play.finish()
        return play.reports
    finally:
        drop_memory_log(log)


@pytest.mark.parametrize("restart", [False, True], ids=["plain", "restart"])
@pytest.mark.parametrize("file", [_parameter(file) for file in _CASES])
def test_case(file: Path, restart: bool) -> None:
    """The reports show what the case expects, or the case ends with the error that it expects."""
    wanted = yaml.safe_load(file.with_suffix(".expect.yaml").read_text(encoding="utf-8"))
    errors = [item["error"] for item in wanted if "error" in item]
    if errors:
        with pytest.raises(LockstepError) as raised:
            _play(file, restart)
        assert [] == [error for error in errors if not re.search(error, str(raised.value))]
        return
    reports = _play(file, restart)
    differences = [
        f"[{number}] {text}" for number, item in enumerate(wanted) for text in unmet(reports, item)
    ]
    assert [] == differences


def test_the_list_of_later_cases_names_cases() -> None:
    """Nothing stands in the list that is no case."""
    assert [] == [name for name in _LATER if not (_HERE / f"{name}.yaml").exists()]

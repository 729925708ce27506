"""How many tombstones are kept before a list is asked for that forgets them."""

import pytest

from state.model import lists
from tests.builders import Core, gone, pod
from tests.unit.state.test_sync import RESYNC, finished, started


def test_many_tombstones_have_their_kind_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a list forgets them, and a quiet API server gives no reason for one: memory would grow with every pod."""
    monkeypatch.setattr(lists, "TOMBSTONES_MIN", 4)
    monkeypatch.setattr(lists, "TOMBSTONES_STEP", 2)
    core = Core()
    asked = [
        RESYNC == core.see(gone("pods", f"p{number}", rv=10 + number)).requests
        for number in range(7)
    ]
    assert [False, False, False, True, False, True, False] == asked
    core.see(started("again", 30, whole=True))
    core.see(finished("again", 30))
    assert {} == core.state.tables["tombstones"]


def test_no_more_tombstones_than_objects_are_nothing_to_list_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list costs as much as there are objects: so many deletions pay for one."""
    monkeypatch.setattr(lists, "TOMBSTONES_MIN", 2)
    monkeypatch.setattr(lists, "TOMBSTONES_STEP", 1)
    core = Core()
    core.see(*[pod(f"there{number}") for number in range(4)])
    asked = [
        RESYNC == core.see(gone("pods", f"p{number}", rv=10 + number)).requests
        for number in range(5)
    ]
    assert [False, False, False, True, True] == asked

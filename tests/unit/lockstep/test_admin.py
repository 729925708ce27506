"""The local socket of a running service."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from lockstep.admin import ask, listening, socket_path
from schemas.errors import LockstepError


def serve(datadir: Path, messages: list[bytes], refusal: str = "") -> list[int | None]:
    """Asks a listening service for each message; what it answered."""

    def append(message: bytes) -> int:
        if refusal:
            raise LockstepError(refusal)
        taken.append(message)
        return len(taken) - 1

    async def story() -> list[int | None]:
        async with listening(datadir, append):
            return [await asyncio.to_thread(ask, datadir, message) for message in messages]

    taken: list[bytes] = []
    answers = asyncio.run(story())
    assert messages == taken
    return answers


def test_messages_are_appended_by_the_service(tmp_path: Path) -> None:
    """Each is handed on as it is, and answered with its offset."""
    assert [0, 1] == serve(tmp_path, [b'{"a":1}', b'{"b":"\\n"}'])


def test_a_refusal_is_told(tmp_path: Path) -> None:
    """What the log says no to reaches whoever asked."""
    with pytest.raises(LockstepError, match="the log is full"):
        serve(tmp_path, [b"{}"], "the log is full")


def test_nobody_listens(tmp_path: Path) -> None:
    """No service, or one that died and left its socket: None, so the caller may write by itself."""
    assert None is ask(tmp_path, b"{}")
    socket_path(tmp_path).touch()
    assert None is ask(tmp_path, b"{}")


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    """A service that was killed does not keep the next one from listening."""
    socket_path(tmp_path).touch()
    assert [0] == serve(tmp_path, [b"{}"])
    assert not socket_path(tmp_path).exists()


def test_only_the_owner_may_ask(tmp_path: Path) -> None:
    """The socket is closed to other users from the first moment, and the process's umask is as before."""
    before = os.umask(0o22)
    os.umask(before)

    async def story() -> int:
        async with listening(tmp_path, len):
            return stat.S_IMODE(socket_path(tmp_path).stat().st_mode)

    assert 0o600 == asyncio.run(story())
    assert before == os.umask(before)


def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    """Local sockets have short paths; another directory has another one."""
    deep = tmp_path / ("d" * 120)
    assert len(os.fsencode(socket_path(deep))) <= 100
    assert socket_path(deep) != socket_path(tmp_path / ("e" * 120))
    assert [0] == serve(deep, [b"{}"])

"""Requests of an administrator to a running service: one intake message for the topic `admin`, over a local socket.

An embedded log has one writing process, so `lockstep evict` can't append to it while `lockstep run` holds it; the
service listens on `DATADIR/admin.sock` and appends for it. One JSON line each way: the message, then `{"offset": N}` or
`{"error": TEXT}`. Must not interpret the message: the sequencer validates it like any other.
"""

import asyncio
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from schemas.envelope import INTAKE_BYTES_MAX
from schemas.errors import LockstepError, Unavailable

#: Longest path that every system takes for a local socket.
_PATH_BYTES_MAX: Final = 100
_TIMEOUT_S: Final = 30.0


def socket_path(datadir: Path) -> Path:
    """Where the service of `datadir` listens; in the temporary folder when the own path is too long."""
    path = datadir.absolute() / "admin.sock"
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        return path
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"lockstep-{name}.sock"


@asynccontextmanager
async def listening(datadir: Path, append: Callable[[bytes], int]) -> AsyncIterator[None]:
    """Serves requests while the context is open. `append` blocks and returns the offset; it is called in a thread."""
    path = socket_path(datadir)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer: dict[str, int | str]
        try:
            line = await reader.readline()
            answer = {"offset": await asyncio.to_thread(append, line.rstrip(b"\n"))}
        except (LockstepError, ValueError) as error:
            answer = {"error": str(error)}
        with suppress(ConnectionError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_unix_server(serve, sock=_bound(path), limit=2 * INTAKE_BYTES_MAX)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def _bound(path: Path) -> socket.socket:
    """A socket at `path` that only its owner may connect to."""
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener


def ask(datadir: Path, message: bytes) -> int | None:
    """Has the service of `datadir` append `message`; returns the offset, or None when no service listens there.

    Raises `LockstepError` with the service's refusal, `Unavailable` when it does not answer.
    """
    assert b"\n" not in message
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(str(socket_path(datadir)))
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        try:
            connection.sendall(message + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
        except (OSError, ValueError) as error:
            raise Unavailable(f"the service at {datadir} did not answer: {error}") from error
    if "error" in answer:
        raise LockstepError(f"the service at {datadir} refused: {answer['error']}")
    return int(answer["offset"])

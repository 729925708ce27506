"""Files that people hand to a command: manifests of `simulate`, exports of a log. See `tests.fuzz.targets`."""

import atexit
import hashlib
import json
import shutil
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any, Final

from lockstep.manifests import Document, read_documents
from lockstep.simulate_play import Play
from schemas.codec import encode
from schemas.errors import Fatal, LockstepError
from streams.export import ExportHistory, export_history
from streams.history import Bound, accepted_decisions, accepted_records
from streams.log_memory import drop_memory_log
from tests.fuzz.mutations import damaged_bytes, damaged_tree
from tests.fuzz.targets import Target
from tests.unit.streams.test_history import lived

_TESTS: Final = Path(__file__).parents[1]
_NUMBERS: Final = count()


@cache
def folder() -> Path:
    """Where the files of this process are, a few kilobytes; gone when it ends."""
    made = Path(mkdtemp(prefix="lockstep-fuzz-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def refused(error: LockstepError, start: str) -> bool:
    """False; the message is one line, which begins with `start`."""
    message = str(error)
    assert message.startswith(start)
    assert len(message.splitlines()) == 1
    return False


# --- manifests ------------------------------------------------------------------------------------


@cache
def manifests() -> list[bytes]:
    """Plays of the scenarios and the cases."""
    found = [*_TESTS.glob("scenarios/*/*.yaml"), *_TESTS.glob("cases/*[0-9a-z].yaml")]
    plays = [path for path in sorted(found) if not path.name.endswith(".expect.yaml")]
    return [text for path in plays if len(text := path.read_bytes()) < 3_000]


def make_manifest(random: Random) -> bytes:
    return damaged_bytes(random, random.choice(manifests()), random.choice(manifests()))


def read_manifest(data: bytes) -> bool:
    """Documents, or one line that says what is wrong."""
    path = folder() / "play.yaml"
    path.write_bytes(data)
    try:
        found = read_documents([str(path)])
    except LockstepError as error:
        return refused(error, "")
    assert all(document.where for document in found)
    return True


@cache
def documents() -> list[list[dict[str, Any]]]:
    """The documents of each play that is sound."""
    found = []
    for text in manifests():
        path = folder() / "sound.yaml"
        path.write_bytes(text)
        try:
            found.append([each.raw for each in read_documents([str(path)])])
        except LockstepError:
            continue
    return found


def make_play(random: Random) -> list[Any]:
    """A play in which one or two documents are damaged."""
    play = list(random.choice(documents()))
    for _ in range(random.randint(1, 2)):
        index = random.randrange(len(play))
        play[index] = damaged_tree(random, play[index], random.choice(random.choice(documents())))
    return play


def play(case: list[Any]) -> bool:
    """Whatever stands in the documents, it is played or refused; it never comes out as a bug of ours."""
    name = f"fuzz-{next(_NUMBERS)}"
    try:
        played = Play(f"memory://{name}")
        for number, raw in enumerate(case):
            if isinstance(raw, dict):
                played.play(Document("play.yaml", number, raw))
        played.finish()
        json.dumps(played.reports, allow_nan=False)
    except Fatal:
        raise
    except LockstepError as error:
        return refused(error, "play.yaml: document ")
    finally:
        drop_memory_log(name)
    return True


# --- exports --------------------------------------------------------------------------------------


@cache
def exports() -> list[bytes]:
    """Plain and packed: one that begins with the log, and one that begins after a checkpoint."""
    log, _, _ = lived(f"fuzz-{next(_NUMBERS)}")
    found = []
    for name, first in (("whole", 1), ("piece", 4), ("whole.gz", 1), ("piece.gz", 4)):
        path = folder() / name
        export_history(log.history(), path, log_id="fuzz", first=first)
        found.append(path.read_bytes())
    return found


def make_export(random: Random) -> tuple[str, bytes]:
    """A file name and bytes: damaged, or damaged and sealed again by somebody who knows how."""
    *plain, packed, packed_piece = exports()
    match random.randrange(3):
        case 0:
            return "damaged.gz", damaged_bytes(random, *random.sample((packed, packed_piece), 2))
        case 1:
            return "damaged", damaged_bytes(random, *random.sample(plain, 2))
        case _:
            return "damaged", _resealed(random, random.choice(plain))


def _resealed(random: Random, data: bytes) -> bytes:
    """One line's payload is damaged; its check and the end line are made to fit."""
    lines = [line.split(b" ", 3) for line in data.splitlines()]
    line = random.choice((*lines[:2], random.choice(lines)))
    if random.random() < 0.7 and line[0] != b"chunk":
        line[3] = encode_odd(damaged_tree(random, json.loads(line[3]), {}))
    else:
        line[random.choice((0, 1, 3))] = damaged_bytes(random, line[3], line[1]).replace(b"\n", b"")
    for each in lines:
        each[2] = (
            hashlib.sha256(b"%b %b %b" % (each[0], each[1], each[3])).hexdigest()[:16].encode()
        )
    body = b"".join(b" ".join(each) + b"\n" for each in lines[:-1])
    end = lines[-1]
    if line is not end:
        end[3] = encode({**json.loads(end[3]), "sha256": hashlib.sha256(body).hexdigest()})
        sealed = hashlib.sha256(b"%b %b %b" % (end[0], end[1], end[3])).hexdigest()[:16]
        end[2] = sealed.encode()
    return body + b" ".join(end) + b"\n"


def encode_odd(value: Any) -> bytes:
    """JSON of anything that `damaged_tree` makes."""
    return json.dumps(value, separators=(",", ":")).encode()


def read_export(case: tuple[str, bytes]) -> bool:
    """What is read to the end without a complaint is a history that holds together."""
    name, data = case
    path = folder() / name
    path.write_bytes(data)
    try:
        history = ExportHistory(path)
        history.check()
        start = history.start(Bound())
        entries = [*accepted_records(history, start), *accepted_decisions(history, start)]
    except LockstepError as error:
        return refused(error, str(path))
    assert len(entries) == len(list(history.entries()))
    return True


FILES: Final = {
    "manifest files": Target(20_000, make_manifest, read_manifest),
    "simulations": Target(5_000, make_play, play),
    "exports": Target(15_000, make_export, read_export),
}

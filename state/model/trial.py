"""Trial: the scratch view of one `decide`. Rows are written through to State and undone from a list of old rows.

Everything is undone by the same primitive that did it (`State.put`), so a gang that doesn't fit is dropped by going
back to a mark, and a decision that isn't applied leaves State as it was. `changes` is the difference at the end.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import Raw

from state.model.decision import Answer, Command, DiagnosisChange, RowChange, encode_row
from state.model.rows import TABLES, CycleRow, Named, OpenCommand, Pod, Row
from state.model.state import State

_TABLE_ORDER = {name: position for position, name in enumerate(TABLES)}
_NULL = Raw(b"null")


class Trial:
    """One cycle's work on `state` at `timestamp_us`; `wake` says that room came free."""

    def __init__(self, state: State, sequence: int, timestamp_us: int) -> None:
        self.state = state
        self.sequence = sequence
        self.now_us = timestamp_us
        self.commands: list[Command] = []
        self.ended: list[str] = []
        self.withdrawn: list[str] = []
        self.requests: list[Answer] = []
        self.wake = state.wake()
        self.statuses, self.listed = state.cycle_row().statuses, state.cycle_row().listed
        self.retry_us = state.cycle_row().retry_us
        self.work_left = False
        self.named: dict[str, dict[str, None]] = {}  # epoch -> uids named in this record
        self.gangs_changed: dict[
            str, None
        ] = {}  # gangs that a cycle must look at though no member is new
        self._undo: list[tuple[str, str, Row | None]] = []
        self._before: dict[tuple[str, str], Row | None] = {}

    def put(self, table: str, key: str, row: Row | None) -> None:
        """Sets or removes one row."""
        old = self.state.put(table, key, row)
        self._undo.append((table, key, old))
        self._before.setdefault((table, key), old)

    def command(self, kind: str, **fields: Any) -> str:
        """Adds a command and returns its id, `sequence.index`."""
        command_id = f"{self.sequence}.{len(self.commands)}"
        self.commands.append(Command(id=command_id, kind=kind, **fields))
        return command_id

    def open(self, opened: OpenCommand) -> str:
        """Adds a command that must end, notes it as open, and returns its id."""
        command_id = self.command(
            opened.kind,
            annotations=opened.annotations,
            deadline_us=opened.deadline_us,
            name=opened.name,
            namespace=opened.namespace,
            node=opened.node,
            reason=opened.reason,
            uid=opened.uid,
        )
        self.put("commands", command_id, opened)
        return command_id

    def try_again_at(self, moment_us: int) -> None:
        """Parked pods are tried then, whatever comes; 0: not by itself."""
        if moment_us:
            self.retry_us = min(self.retry_us or moment_us, moment_us)

    def mark(self) -> tuple[int, int]:
        """A point to come back to."""
        return len(self._undo), len(self.commands)

    def back_to(self, mark: tuple[int, int]) -> None:
        """Undoes every row and command since `mark`."""
        undo_count, command_count = mark
        for table, key, old in reversed(self._undo[undo_count:]):
            self.state.put(table, key, old)
        del self._undo[undo_count:]
        del self.commands[command_count:]

    def drop(self) -> None:
        """Undoes everything: State is as it was before the trial."""
        self.back_to((0, 0))

    def close(self) -> None:
        """Writes down what this record leaves to the next one."""
        for epoch, uids in self.named.items():
            if epoch in self.state.lists:
                self.put("named", f"{epoch}#{self.sequence}", Named(uids=tuple(uids)))
        row = CycleRow(
            listed=self.listed, retry_us=self.retry_us, statuses=self.statuses, wake=self.wake
        )
        if row != self.state.cycle_row():
            self.put("cycle", "cycle", None if row == CycleRow() else row)

    def moved(self, table: str) -> Iterator[tuple[Any, Any]]:
        """Old and new row of every row of a table that this trial has changed so far; None: none."""
        rows = self.state.tables[table]
        for (name, key), old in self._before.items():
            if name == table:
                new = rows.get(key)
                if new is not old and new != old:
                    yield old, new

    def changes(self) -> tuple[tuple[RowChange, ...], list[tuple[str, DiagnosisChange]]]:
        """The difference to State before, by table and key, and the diagnoses that changed, with their pods' uids."""
        tables, found, diagnoses = self.state.tables, [], []
        order = sorted(self._before, key=lambda name: (_TABLE_ORDER[name[0]], name[1]))
        for table, key in order:
            old, new = self._before[table, key], tables[table].get(key)
            if new is old or new == old:
                continue
            found.append(
                RowChange(key=key, row=_NULL if new is None else Raw(encode_row(new)), table=table)
            )
            if table == "pods":
                diagnosis = _diagnosis_change(old, new)
                if diagnosis is not None:
                    diagnoses.append((key, diagnosis))
        return tuple(found), diagnoses


def _diagnosis_change(old: Row | None, new: Row | None) -> DiagnosisChange | None:
    was = old.diagnosis if isinstance(old, Pod) else None
    now = new.diagnosis if isinstance(new, Pod) else None
    if was == now:
        return None
    pod = new if isinstance(new, Pod) else old
    assert isinstance(pod, Pod)
    key = f"{pod.namespace}/{pod.name}"
    if now is None:
        return DiagnosisChange(code=None, details={}, key=key, message="")
    return DiagnosisChange(code=now.code, details=now.details, key=key, message=now.message)

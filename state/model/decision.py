"""What `decide` returns: changes of rows, commands for the sink, and the bytes that are published."""

from typing import Any

import msgspec
from msgspec import Raw, Struct


class RowChange(Struct, frozen=True, gc=False):
    """One row of State after the decision; `row` is its canonical bytes, `null` when the row is gone."""

    key: str
    row: Raw
    table: str


class Command(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """An effect for the sink: BindPod, EvictPod, PatchStatus or EmitEvent, with fields as in `schemas.envelope`."""

    annotations: dict[str, str] = {}
    deadline_us: int = 0
    fields: dict[str, Any] = {}
    id: str
    kind: str
    message: str = ""
    name: str
    namespace: str
    node: str = ""
    reason: str = ""
    resource: str = ""
    uid: str


class Answer(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """What a decision asks of, or answers to, somebody who follows; kinds as in `schemas.envelope.Request`."""

    id: str = ""
    kind: str
    message: str = ""
    resource: str = ""


class DiagnosisChange(Struct, frozen=True, gc=False):
    """Why a pod waits now; `code` None: no longer."""

    code: str | None
    details: dict[str, Any]
    key: str
    message: str


class Decision(Struct, frozen=True, gc=False):
    """The result of `decide` for one record. `data` is what is published, `digest` chains it."""

    sequence: int
    record_hash: str
    previous_digest: str
    timestamp_us: int
    changes: tuple[RowChange, ...]
    commands: tuple[Command, ...]
    withdrawn: tuple[str, ...]
    ended: tuple[str, ...]
    diagnoses: tuple[DiagnosisChange, ...]
    requests: tuple[Answer, ...]
    next_deadline_us: int
    work_left: bool
    digest: str
    data: bytes


class Head(Struct, frozen=True, gc=False):
    """The fields of a decision's bytes that sort before `digest`."""

    changes: tuple[RowChange, ...]
    commands: tuple[Command, ...]
    diagnoses: tuple[DiagnosisChange, ...]


class Tail(Struct, frozen=True, gc=False):
    """The fields of a decision's bytes that sort after `digest`."""

    ended: tuple[str, ...]
    next_deadline_us: int
    previous_digest: str
    record_hash: str
    requests: tuple[Answer, ...]
    sequence: int
    timestamp_us: int
    version: int
    withdrawn: tuple[str, ...]
    work_left: bool


class Whole(Struct, frozen=True, gc=False):
    """A decision's bytes, decoded."""

    changes: tuple[RowChange, ...]
    commands: tuple[Command, ...]
    diagnoses: tuple[DiagnosisChange, ...]
    digest: str
    ended: tuple[str, ...]
    next_deadline_us: int
    previous_digest: str
    record_hash: str
    requests: tuple[Answer, ...]
    sequence: int
    timestamp_us: int
    version: int
    withdrawn: tuple[str, ...]
    work_left: bool


encode_row = msgspec.json.Encoder().encode
whole_decoder = msgspec.json.Decoder(Whole)

"""The auditor's reading of the journal and of the decisions: one chain that takes every message
once, and one decision of each record, the same wherever it is derived.

Written from the contract (design section 2 and 3) with its own arithmetic: the auditor must not
import `state`, nor the acceptance of `streams`.
"""

import hashlib
import json
from collections import Counter
from typing import Any

from schemas.topics import INTAKE
from streams.log import LogReader
from tests.simulation.violation import Violation

Json = dict[str, Any]
GENESIS = "0" * 64
OBSERVATIONS_MAX = 500
BYTES_MAX = 256 * 1024


class ChainAudit:
    """Accepted records and decisions of one domain; `read` takes in what came since.

    Lists are by sequence - 1. Raises `Violation`.
    """

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._offsets = {"journal": 0, "decisions": 0}
        self._messages: dict[str, list[bytes]] = {topic: [] for topic in INTAKE}
        self._replicas: dict[int, tuple[str, str]] = {}
        self._unmatched: dict[int, list[tuple[Json, bytes]]] = {}
        self._last_hash, self._timestamp_us, self.digest = GENESIS, 0, GENESIS
        self.positions: dict[str, int] = {}
        self.records: list[Json] = []
        self.decisions: list[Json] = []
        self._record_bytes: list[bytes] = []
        self._hashes: list[str] = []
        self._decision_bytes: list[bytes] = []

    def read(self) -> None:
        """Takes in what was appended since."""
        for data in self._new("journal"):
            self._on_record(data)
        for data in self._new("decisions"):
            self._on_decision(json.loads(data), data)

    def note_digest(self, replica: str, sequence: int, digest: str) -> None:
        """A replica derived `digest` at `sequence`."""
        other, known = self._replicas.setdefault(sequence, (replica, digest))
        if known != digest:
            detail = f"{replica} derives {digest[:12]}, {other} {known[:12]}"
            raise Violation("digest-differs", sequence, "", detail)

    def forget_after(self, sequence: int) -> None:
        """The log has lost the records after `sequence`, which had not been decided: no history."""
        assert len(self.decisions) <= sequence <= len(self.records)
        for kept in (self.records, self._record_bytes, self._hashes):
            del kept[sequence:]
        self._last_hash = self._hashes[-1]
        self._timestamp_us = self.records[-1]["timestamp_us"]
        self.positions = dict(self.records[-1]["positions"])
        self._replicas = {at: known for at, known in self._replicas.items() if at <= sequence}
        self._offsets["journal"] = self._reader.end_offset("journal")

    def reread(self, topic: str, offset: int) -> None:
        """What `topic` holds from `offset` on has changed; what is history already is met again."""
        self._offsets[topic] = min(self._offsets[topic], offset)

    def untaken(self) -> dict[str, int]:
        """Messages by intake topic that no accepted record has taken in."""
        ends = {topic: self._reader.end_offset(topic) for topic in INTAKE}
        behind = {topic: end - 1 - self.positions.get(topic, -1) for topic, end in ends.items()}
        return {topic: count for topic, count in behind.items() if count}

    def _new(self, topic: str) -> list[bytes]:
        found = self._reader.read(topic, self._offsets[topic], 1_000_000)
        if found:
            self._offsets[topic] = found[-1].offset + 1
        return [record.value or b"" for record in found]

    # The journal

    def _on_record(self, data: bytes) -> None:
        record = json.loads(data)
        if record["sequence"] != len(self.records) + 1 or record["prev"] != self._last_hash:
            return
        sequence, observations = record["sequence"], record["observations"]
        if record["timestamp_us"] < self._timestamp_us:
            raise Violation("time-went-back", sequence, "", "timestamp_us is below the last one")
        if len(observations) > OBSERVATIONS_MAX or len(data) > BYTES_MAX:
            raise Violation("record-too-large", sequence, "", f"{len(data)} bytes")
        if sequence > 1:
            self._check_intake(record)
        elif [item["kind"] for item in observations] != ["PolicyChanged"]:
            raise Violation("no-genesis", 1, "", "record 1 holds the policy and nothing else")
        self._last_hash, self._timestamp_us = (
            hashlib.sha256(data).hexdigest(),
            record["timestamp_us"],
        )
        self.records.append(record)
        self._record_bytes.append(data)
        self._hashes.append(self._last_hash)
        for decision, value in self._unmatched.pop(sequence, ()):
            self._on_decision(decision, value)

    def _check_intake(self, record: Json) -> None:
        """The observations are those of the messages in (previous positions, positions]."""
        sequence, wanted = record["sequence"], Counter[str]()
        for topic in INTAKE:
            first = self.positions.get(topic, -1) + 1
            last = record["positions"].get(topic, -1)
            if last < first - 1:
                raise Violation("positions-went-back", sequence, topic, f"{topic}: {last}")
            for offset in range(first, last + 1):
                wanted.update(self._said(topic, offset))
            if last >= 0:
                self.positions[topic] = last
        found = Counter(_essence(item) for item in record["observations"])
        for item in (found - wanted) + (wanted - found):
            rule = "intake-taken-twice" if found[item] > wanted[item] else "intake-lost"
            subject = str(json.loads(item).get("uid", ""))
            raise Violation(rule, sequence, subject, f"not once in its place: {item[:300]}")

    def _said(self, topic: str, offset: int) -> list[str]:
        messages = self._messages[topic]
        if offset >= len(messages):
            new = self._reader.read(topic, len(messages), 1_000_000)
            messages.extend(record.value or b"" for record in new)
        try:
            return [_essence(item) for item in json.loads(messages[offset])["observations"]]
        except (ValueError, KeyError, TypeError):
            return [_essence({"kind": "MessageRejected", "topic": topic, "offset": offset})]

    # The decisions

    def _on_decision(self, decision: Json, data: bytes) -> None:
        sequence = decision["sequence"]
        if sequence > len(self.records):
            self._unmatched.setdefault(sequence, []).append((decision, data))
            return
        if decision["record_hash"] != self._hashes[sequence - 1]:
            detail = "a decision was published of a record that is not history"
            raise Violation("decision-of-a-stale-record", sequence, "", detail)
        if sequence <= len(self.decisions):
            if data != self._decision_bytes[sequence - 1]:
                detail = "two decisions of one record were published, and they differ"
                raise Violation("digest-differs", sequence, "", detail)
            return
        if sequence != len(self.decisions) + 1:
            return  # an append that failed left a hole; it is published again
        self._check_digest(decision, data)
        self.decisions.append(decision)
        self._decision_bytes.append(data)
        self.digest = decision["digest"]

    def _check_digest(self, decision: Json, data: bytes) -> None:
        sequence, digest = decision["sequence"], decision["digest"]
        if decision["previous_digest"] != self.digest:
            detail = "previous_digest is not the digest of the decision before"
            raise Violation("digest-differs", sequence, "", detail)
        bare = data.replace(b',"digest":"%s"' % digest.encode(), b"", 1)
        hasher = hashlib.sha256(self.digest.encode())
        hasher.update(self._record_bytes[sequence - 1])
        hasher.update(bare)
        if hasher.hexdigest() != digest:
            raise Violation("digest-differs", sequence, "", "the digest is not that of its bytes")
        self.note_digest("the topic", sequence, digest)


def _essence(item: Json) -> str:
    """One observation as text to compare; of a rejection only where the message stood."""
    if item["kind"] == "MessageRejected":
        item = {name: item[name] for name in ("kind", "topic", "offset")}
    return json.dumps(item, sort_keys=True)

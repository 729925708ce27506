"""What a core has taken in and decided, as the auditor reads it from a log. For tests of the auditor."""

import json

from schemas.codec import decode_record, encode
from tests.builders import Core, Json


class CoreChain:
    """Stands for `tests.simulation.audit_chain.ChainAudit`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.records: list[Json] = []
        self.decisions: list[Json] = []

    def read(self) -> None:
        """Takes in what was decided since."""
        place = len(self.records)
        for record in self._core.records[place:]:
            self.records.append(json.loads(encode(decode_record(record.data))))
        self.decisions += [json.loads(each.data) for each in self._core.decisions[place:]]

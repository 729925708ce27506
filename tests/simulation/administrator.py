"""What an administrator asks for on the topic `admin`."""

from producers.publisher import pack
from schemas.observations import EvictRequested, PolicyChanged
from schemas.topics import ADMIN
from streams.log import LogWriter

#: Nodes are kept for the head of the queue for so long.
KEPT_US = 6_000_000


class Administrator:
    """Writes to the log. `number` makes an id of its own."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log

    def evict(self, namespace: str, name: str, number: int) -> None:
        """Asks for an eviction."""
        self._ask(
            EvictRequested(id=f"evict-{number}", namespace=namespace, name=name, reason="simulated")
        )

    def keep_nodes(self, after_us: int, percent: int, number: int) -> None:
        """Has so many nodes kept for who has been the head of the queue for so long; 0: none, and never."""
        rules = {"holdAfter": after_us, "holdFor": KEPT_US, "holdNodesPercent": percent}
        self._ask(PolicyChanged(id=f"queue-{number}", spec={"queue": rules}))

    def _ask(self, asked: EvictRequested | PolicyChanged) -> None:
        for message in pack("administrator", [asked]):
            self._log.append(ADMIN, None, message)

"""One process's ends of the log: a reader, and a writer whose appends can fail as a real log's do.

An append may be refused, may be in the log though the writer is told nothing, may be there in part,
or may land by itself later, after the writer has gone on. Order is never changed by an append that
was acknowledged.
"""

from collections.abc import Callable, Sequence

from schemas.errors import Unavailable
from streams.log import Entry, LogReader, open_reader, open_writer
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock


class LogEnds:
    """Reader and `LogWriter` of the process that `is_dead` speaks of."""

    def __init__(
        self,
        url: str,
        clock: Clock,
        chaos: Chaos,
        is_dead: Callable[[], bool],
        elections: Callable[[], int],
    ) -> None:
        self.reader: LogReader = open_reader(url)
        self._writer = open_writer(url)
        self._clock = clock
        self._chaos = chaos
        self._is_dead = is_dead
        self._elections = elections

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        """See `LogWriter.append`."""
        return self.append_many([(topic, key, value)])[0]

    def append_many(self, entries: Sequence[Entry]) -> list[int]:
        """See `LogWriter.append_many`."""
        assert not self._is_dead(), "a dead process writes nothing"
        chaos = self._chaos
        if chaos.happens("append_refused"):
            raise Unavailable("the log did not take it")
        if chaos.happens("append_late"):
            late, elections = list(entries), self._elections()
            self._clock.at(
                self._clock.now_us + chaos.between_us(0.05, 10.0),
                lambda: self._land(late, elections),
            )
            raise Unavailable("no answer; it is still under way")
        if chaos.happens("append_partly"):
            self._writer.append_many(entries[: chaos.dice.randint(0, len(entries))])
            raise Unavailable("no answer; some of it is there")
        offsets = self._writer.append_many(entries)
        if chaos.happens("append_unknown"):
            raise Unavailable("no answer; it is there")
        return offsets

    def close(self) -> None:
        """See `LogWriter.close`."""

    def _land(self, entries: list[Entry], elections: int) -> None:
        """Arrives, unless the broker that it was under way to has lost its place since."""
        if elections == self._elections():
            self._writer.append_many(entries)

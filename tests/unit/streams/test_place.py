"""A log that loses its end is noticed by whoever has read or written beyond it."""

import pytest

from schemas.errors import Fatal
from schemas.topics import DECISIONS, JOURNAL
from streams.log_memory import cut_memory_log, drop_memory_log, trim_memory_log
from streams.place import DOUBT_S, Places, check_given
from streams.recovery import recover
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, pod, settle


class Written:
    """A journal of three entries, and the places of a reader that has read them all."""

    def __init__(self, name: str) -> None:
        drop_memory_log(name)
        self.name, self.now_s = name, 0.0
        self.log = Log(name)
        for value in (b"a", b"b", b"c"):
            self.log.writer.append(JOURNAL, None, value)
        self.places = Places({}, lambda: self.now_s)
        for record in self.log.reader.read(JOURNAL, 0, 10):
            self.places.note(record)

    def check(self) -> None:
        """One look."""
        self.places.check(self.log.reader)


def test_what_stands_where_it_was_read_is_no_news() -> None:
    """Neither growth nor retention is a loss."""
    world = Written("place-stands")
    world.check()
    world.log.writer.append(JOURNAL, None, b"d")
    world.check()
    trim_memory_log(world.name, JOURNAL, 3)
    world.check()


def test_a_lost_end_is_believed_after_a_while() -> None:
    """A leader just elected may not know its end for a moment."""
    world = Written("place-short")
    cut_memory_log(world.name, JOURNAL, 1)
    world.check()
    world.now_s = DOUBT_S - 1
    world.check()
    world.now_s = DOUBT_S
    with pytest.raises(Fatal, match="journal: offset 2 was read and is no longer there") as found:
        world.check()
    assert "decisions_ahead" == found.value.cause


def test_another_entry_in_the_place_is_believed_at_once() -> None:
    """The log has lost its end, and somebody has written on."""
    world = Written("place-other")
    cut_memory_log(world.name, JOURNAL, 2)
    world.log.writer.append(JOURNAL, None, b"x")
    with pytest.raises(Fatal, match="offset 2 holds another entry"):
        world.check()


def test_a_place_from_before_the_start_is_learned() -> None:
    """A reader that begins at the end knows what stands before it after one look."""
    world = Written("place-learned")
    places = Places({JOURNAL: 3, DECISIONS: 0})
    places.check(world.log.reader)
    cut_memory_log(world.name, JOURNAL, 2)
    world.log.writer.append(JOURNAL, None, b"x")
    with pytest.raises(Fatal, match="offset 2 holds another entry"):
        places.check(world.log.reader)
    places.forget(JOURNAL)
    places.check(world.log.reader)


def test_an_offset_given_out_twice_stops_the_writer() -> None:
    """It has read beyond what the log now says is its end."""
    check_given(JOURNAL, 7, 7)
    with pytest.raises(Fatal, match="journal: offset 6 was given out again"):
        check_given(JOURNAL, 6, 7)


def test_a_decision_of_a_record_that_was_lost_is_not_called_a_difference() -> None:
    """The journal is at fault: the same core derives other bytes from another record."""
    drop_memory_log("place-record")
    log = Log("place-record")
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    log.sync_all()
    settle(log, sequencer, decider, 1)
    log.publish("pods", pod("a"))
    settle(log, sequencer, decider, 2)
    cut_memory_log("place-record", JOURNAL, log.reader.end_offset(JOURNAL) - 1)
    other = SequencerRole(log)
    other.read()
    log.publish("pods", pod("b"))
    other.take_intake()
    assert other.append(3)
    with pytest.raises(Fatal, match="was made of another record than the journal holds") as found:
        recover(log.history())
    assert "decisions_ahead" == found.value.cause

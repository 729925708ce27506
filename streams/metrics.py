"""Metrics of one process, in Prometheus' text format.

Two tables, so that no role and nothing in the core knows of metrics: what a role keeps anyway is read
when somebody asks (`MEASURED`), and what it says in the log is counted as it is said
(`streams.metrics_events`).
Built by the composition of `lockstep run`, which fills in `Roles`. Must not decide, wait, or read a
log. Counters begin anew with the process, and those of a feed with the feed.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.feed import Feed
from streams.metrics_events import COMMANDS, COUNTED, Events
from streams.roles import DeciderRole, Leadership, SequencerRole
from streams.sink.lease import Lease
from streams.sink.sink import Sink

#: Reasons of dead letters that are shown with 0 before the first one comes.
REJECTIONS: Final = (
    *("Empty", "FutureVersion", "InvalidField", "Lost", "NotJson", "TooLarge"),
    *("UnknownKind", "WrongTopic"),
)

Sample = tuple[tuple[str, ...], float]
Samples = Iterable[Sample]


@dataclass(slots=True)
class Roles:
    """What there is to measure in this process; None for what does not run here."""

    running: bool = False
    #: Why a role stopped for good (`Fatal.cause`); empty while none has.
    stopped: str = ""
    sequencer: SequencerRole | None = None
    decider: DeciderRole | None = None
    sink: Sink | None = None
    lease: Lease | None = None
    leadership: Leadership | None = None
    #: By role.
    feeds: dict[str, Feed] = field(default_factory=dict)
    #: What is stored -> a folder on the same disk.
    disks: dict[str, Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric that is read from the roles. A name that ends in `_total` is a counter."""

    name: str
    meaning: str
    labels: tuple[str, ...]
    read: Callable[[Roles], Samples]


def _one(value: float) -> Samples:
    return [((), float(value))]


def _sequencer(read: Callable[[SequencerRole], float]) -> Callable[[Roles], Samples]:
    return lambda roles: [] if roles.sequencer is None else _one(read(roles.sequencer))


def _decider(read: Callable[[DeciderRole], float]) -> Callable[[Roles], Samples]:
    return lambda roles: [] if roles.decider is None else _one(read(roles.decider))


def _feeds(read: Callable[[Feed], float]) -> Callable[[Roles], Samples]:
    return lambda roles: [((role,), float(read(feed))) for role, feed in roles.feeds.items()]


def _stopped(roles: Roles) -> Samples:
    return [((roles.stopped,), 1.0)] if roles.stopped else []


def _skipped(roles: Roles) -> Samples:
    if roles.decider is not None:
        yield ("journal",), float(roles.decider.decider.chain.skipped)
        yield ("decisions",), float(roles.decider.decider.decisions.skipped)


def _rejected(roles: Roles) -> Samples:
    if roles.sequencer is not None:
        rejected = roles.sequencer.sequencer.rejected
        for reason in sorted({*REJECTIONS, *rejected}):
            yield (reason,), float(rejected[reason])


def _lag_records(roles: Roles) -> Samples:
    if roles.decider is not None:
        yield (), float(_lag(roles, roles.decider)[0])


def _lag_seconds(roles: Roles) -> Samples:
    if roles.decider is not None:
        yield (), _lag(roles, roles.decider)[1] / 1e6


def _lag(roles: Roles, role: DeciderRole) -> tuple[int, int]:
    """Records, and microseconds of log time, from the newest decision to the newest record."""
    decider = role.decider
    sequence, timestamp_us = decider.sequence, decider.state.timestamp_us
    if roles.sequencer is not None:
        sequence = max(sequence, roles.sequencer.sequencer.appended_sequence)
        timestamp_us = max(timestamp_us, roles.sequencer.sequencer.timestamp_us)
    header = decider.decisions.header
    records = max(0, sequence - decider.decisions.sequence)
    if records == 0 or header is None:
        return records, 0
    return records, max(0, timestamp_us - header.timestamp_us)


def _clock_offset(roles: Roles) -> Samples:
    if roles.sequencer is not None:
        offset_us = roles.sequencer.clock_offset_us(time.time_ns() // 1_000)
        if offset_us is not None:
            yield (), offset_us / 1e6


def _checkpoint_age(role: DeciderRole) -> float:
    newest = role.checkpointer.newest
    return 0.0 if newest is None else (role.decider.state.timestamp_us - newest.timestamp_us) / 1e6


def _checkpoint_behind(role: DeciderRole) -> float:
    newest = role.checkpointer.newest
    return role.decider.sequence - (0 if newest is None else newest.sequence)


def _commands_open(roles: Roles) -> Samples:
    if roles.sink is not None:
        kinds = Counter(command.kind for command in roles.sink.open_commands.values())
        for kind in COMMANDS:
            yield (kind,), float(kinds[kind])


def _lease_held(roles: Roles) -> Samples:
    return [] if roles.lease is None else _one(roles.lease.held())


def _leading(roles: Roles) -> Samples:
    return [] if roles.leadership is None else _one(roles.leadership.active)


def _feed_records(roles: Roles) -> Samples:
    for role, feed in roles.feeds.items():
        yield (role, "hint"), float(feed.hinted)
        yield (role, "log"), float(feed.filled)


def _waiting(roles: Roles) -> Samples:
    """Costs a pass over the waiting pods."""
    if roles.decider is None:
        return
    state = roles.decider.decider.state
    told = (state.pods[uid].diagnosis for uid in state.waiting)
    codes = Counter("" if diagnosis is None else str(diagnosis.code) for diagnosis in told)
    for code in sorted({"EvictionFutile", *codes}):
        yield (code,), float(codes[code])


def _disks(roles: Roles) -> Samples:
    for what, path in roles.disks.items():
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        yield (what,), float(shutil.disk_usage(there).free)


MEASURED: Final = (
    Measured(
        "lockstep_running",
        "1 while the roles run; 0 while the log is folded, and after a stop.",
        (),
        lambda roles: _one(roles.running),
    ),
    Measured(
        "lockstep_stopped",
        "1 once a role has stopped for good; the process ends half a minute later.",
        ("cause",),
        _stopped,
    ),
    Measured(
        "lockstep_records_appended_total",
        "Journal records appended, those that lost their place included.",
        (),
        _sequencer(lambda role: role.sequencer.appended),
    ),
    Measured(
        "lockstep_journal_sequence",
        "Sequence of the last accepted record: all records ever accepted.",
        (),
        _decider(lambda role: role.decider.sequence),
    ),
    Measured(
        "lockstep_entries_skipped_total",
        "Entries read that are not history: a stale or a losing writer's.",
        ("topic",),
        _skipped,
    ),
    Measured(
        "lockstep_waiting_pods",
        "Pods of ours without a node, by what they were told; empty: nothing yet.",
        ("code",),
        _waiting,
    ),
    Measured(
        "lockstep_races_lost_total",
        "Own records whose place another writer's record took.",
        (),
        _sequencer(lambda role: role.sequencer.lost_races),
    ),
    Measured(
        "lockstep_observations_appended_total",
        "Observations in appended records.",
        (),
        _sequencer(lambda role: role.sequencer.observations),
    ),
    Measured(
        "lockstep_observations_waiting",
        "Observations read from intake and not yet in a record.",
        (),
        _sequencer(lambda role: role.sequencer.backlog),
    ),
    Measured(
        "lockstep_messages_rejected_total",
        "Intake messages that went to the dead letters.",
        ("reason",),
        _rejected,
    ),
    Measured(
        "lockstep_decisions_sequence",
        "Sequence of the last decision on the topic.",
        (),
        _decider(lambda role: role.decider.decisions.sequence),
    ),
    Measured(
        "lockstep_decisions_made_total",
        "Decisions derived here since the start.",
        (),
        _decider(lambda role: role.made),
    ),
    Measured(
        "lockstep_decisions_published_total",
        "Decisions appended here since the start.",
        (),
        _decider(lambda role: role.published),
    ),
    Measured(
        "lockstep_decision_lag_records",
        "Records without a decision on the topic.",
        (),
        _lag_records,
    ),
    Measured(
        "lockstep_decision_lag_seconds",
        "Log time from the last decision on the topic to the newest record.",
        (),
        _lag_seconds,
    ),
    Measured(
        "lockstep_clock_offset_seconds",
        "Time that is stamped, less the wall clock of this machine.",
        (),
        _clock_offset,
    ),
    Measured(
        "lockstep_checkpoint_age_seconds",
        "Log time since the newest checkpoint.",
        (),
        _decider(_checkpoint_age),
    ),
    Measured(
        "lockstep_checkpoint_behind_records",
        "Records that a restart would fold after the newest checkpoint.",
        (),
        _decider(_checkpoint_behind),
    ),
    Measured(
        "lockstep_checkpoint_write_seconds",
        "What the last checkpoint took to encode and append, beside the decisions.",
        (),
        _decider(lambda role: role.checkpoint_seconds),
    ),
    Measured(
        "lockstep_commands_open",
        "Commands without an end yet.",
        ("command",),
        _commands_open,
    ),
    Measured(
        "lockstep_lease_held",
        "1 while this process may act on the API server.",
        (),
        _lease_held,
    ),
    Measured(
        "lockstep_leading",
        "1 while this process writes the journal and the decisions.",
        (),
        _leading,
    ),
    Measured(
        "lockstep_log_unavailable",
        "1 while the log does not answer the reads of a role.",
        ("role",),
        _feeds(lambda feed: feed.waiting),
    ),
    Measured(
        "lockstep_feed_records_total",
        "Records handed to a role: as Faust delivered them, or read from the log.",
        ("role", "source"),
        _feed_records,
    ),
    Measured(
        "lockstep_feed_gaps_total",
        "Holes in the deliveries that were filled from the log.",
        ("role",),
        _feeds(lambda feed: feed.gaps),
    ),
    Measured(
        "lockstep_feed_repositions_total",
        "Times a role moved its reading place.",
        ("role",),
        _feeds(lambda feed: feed.repositions),
    ),
    Measured(
        "lockstep_faust_app_lost",
        "1 once a role's Faust App has died and its feed goes on by polling.",
        ("role",),
        _feeds(lambda feed: feed.app_lost),
    ),
    Measured(
        "lockstep_disk_free_bytes",
        "Room on the disk of an embedded log, and of the tables.",
        ("of",),
        _disks,
    ),
)


class Metrics(Collector):
    """All metrics of this process. `roles` is filled in by whoever builds them."""

    def __init__(self) -> None:
        self.roles = Roles()
        self.events = Events()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """Prometheus' text format. Call it in the event loop of the roles."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For the library."""
        for measured in MEASURED:
            samples = measured.read(self.roles)
            yield _family(measured.name, measured.meaning, measured.labels, samples)
        for event, counted in COUNTED.items():
            counts = self.events.counts[event]
            samples = [(labels, float(count)) for labels, count in counts.items()]
            yield _family(counted.name, counted.meaning, counted.labels, samples)


def _family(name: str, meaning: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(name, meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family

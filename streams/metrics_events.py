"""Counters of what the process says in its log: one event, one counter, counted as it is said.

So producers and roles need no metrics, and log and metrics cannot disagree. Built by `Metrics`; set
up as a handler of the root logger by the command line.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Final

from schemas.topics import RESOURCES
from streams.logs import fields_of

OUTCOMES: Final = ("Applied", "Refused", "Stale", "Withdrawn")
COMMANDS: Final = ("BindPod", "EvictPod")


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter of one event of the log. Labels are fields of the event; `zeros` are the label values
    that are shown before the first one.
    """

    name: str
    meaning: str
    labels: tuple[str, ...] = ()
    zeros: tuple[tuple[str, ...], ...] = ()


_EVERY_RESOURCE: Final = tuple((resource,) for resource in RESOURCES)
_NONE: Final = ((),)

#: Event of the log -> the counter that it moves.
COUNTED: Final[dict[str, Counted]] = {
    "command_ended": Counted(
        "lockstep_commands_ended_total",
        "Commands that this process carried to their end.",
        ("command", "outcome"),
        zeros=tuple((command, outcome) for command in COMMANDS for outcome in OUTCOMES),
    ),
    "command_not_ended": Counted(
        "lockstep_command_attempts_failed_total",
        "Attempts that the API server refused for now, or did not answer.",
        ("command",),
        zeros=tuple((command,) for command in COMMANDS),
    ),
    "status_not_written": Counted(
        "lockstep_statuses_failed_total", "Statuses that could not be written.", ("resource",)
    ),
    "append_failed": Counted(
        "lockstep_appends_failed_total",
        "Appends of records that failed and were tried again.",
        zeros=_NONE,
    ),
    "publish_failed": Counted(
        "lockstep_publishes_failed_total",
        "Appends of decisions that failed and were tried again.",
        zeros=_NONE,
    ),
    "result_not_published": Counted(
        "lockstep_results_failed_total",
        "Appends of results that failed and were tried again.",
        zeros=_NONE,
    ),
    "feed_restarted": Counted(
        "lockstep_feeds_restarted_total", "Feeds that died and were replaced.", ("role",)
    ),
    "checkpoint_written": Counted(
        "lockstep_checkpoints_written_total", "Checkpoints written.", zeros=_NONE
    ),
    "checkpoint_failed": Counted(
        "lockstep_checkpoints_failed_total",
        "Checkpoints that could not be written; the next one is tried.",
        zeros=_NONE,
    ),
    "clock_alarm": Counted(
        "lockstep_clock_alarms_total",
        "Take-overs at which the wall clock and the log differed.",
        zeros=_NONE,
    ),
    "lease_acquired": Counted(
        "lockstep_lease_acquired_total", "Times this process got the Lease.", zeros=_NONE
    ),
    "lease_lost_or_left": Counted(
        "lockstep_lease_lost_total", "Times this process lost or left the Lease.", zeros=_NONE
    ),
    "lease_not_written": Counted(
        "lockstep_lease_failures_total",
        "Calls about the Lease that the API server refused or did not answer.",
        zeros=_NONE,
    ),
    "synced": Counted(
        "lockstep_informer_lists_total",
        "Whole lists published.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
    "watch_ended": Counted(
        "lockstep_informer_watches_ended_total",
        "Watches that the API server ended.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
    "version_expired": Counted(
        "lockstep_informer_expired_total",
        "Watches that had to begin with a new list.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
    "history_reset": Counted(
        "lockstep_informer_resets_total",
        "Times the API server had gone back in time.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
    "api_server_unavailable": Counted(
        "lockstep_informer_failures_total",
        "Lists and watches that the API server did not serve.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
    "object_rejected": Counted(
        "lockstep_objects_rejected_total",
        "Objects of the API server that could not be observed.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
    "resync_requested": Counted(
        "lockstep_resyncs_requested_total",
        "Lists that a decision asked for.",
        ("resource",),
        zeros=_EVERY_RESOURCE,
    ),
}


class Events(logging.Handler):
    """Counts the events of `COUNTED`; a handler of the root logger, beside the one that writes."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, Counter[tuple[str, ...]]] = {}
        for name, counted in COUNTED.items():
            self.counts[name] = Counter(dict.fromkeys(counted.zeros, 0))

    def emit(self, record: logging.LogRecord) -> None:
        """Called by `logging`, one record at a time."""
        counted = COUNTED.get(str(record.msg))
        if counted is not None:
            said = fields_of(record)
            labels = tuple(str(said.get(label, "")) for label in counted.labels)
            self.counts[str(record.msg)][labels] += 1

"""Structured logs: one JSON object a line on standard error, an event's name with its fields.

Used at the edges only (the core never logs). `event` is how a line is written, `build_logging` is
called once by the command line. Every line about a record or a command carries `sequence` or
`command_id`, so that cause and effect can be joined.
"""

import json
import logging
import sys
import time
from typing import Any, TextIO

_FIELDS = "lockstep_fields"


def event(logger: logging.Logger, level: int, name: str, /, **fields: Any) -> None:
    """Log the event `name` with `fields` (JSON values; others are written as text). None is left
    out.

    Inside an `except` block at level ERROR or above, the traceback goes along.
    """
    if logger.isEnabledFor(level):
        failing = level >= logging.ERROR and sys.exc_info()[0] is not None
        given = {key: value for key, value in fields.items() if value is not None}
        logger.log(level, name, exc_info=failing, extra={_FIELDS: given}, stacklevel=2)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that an event was logged with."""
    fields: dict[str, Any] = getattr(record, _FIELDS, {})
    return fields


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time (UTC, microseconds), level, logger, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        whole, fraction = divmod(round(record.created * 1_000_000), 1_000_000)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
        line: dict[str, Any] = {
            "time": f"{stamp}.{fraction:06d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        for key, value in fields_of(record).items():
            line.setdefault(key, value)
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def build_logging(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send everything that is logged to `stream` (standard error) as JSON lines; replaces earlier
    settings.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level, handlers=[handler], force=True)

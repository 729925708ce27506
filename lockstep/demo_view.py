"""What `lockstep demo` shows: a live picture on a terminal, plain lines elsewhere.

Only drawing, from reports and news; knows neither engine nor cluster. Used by `lockstep.demo`.
"""

from collections import deque
from types import TracebackType
from typing import Any, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

Report = dict[str, Any]

_COLOURS: Final = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
)
_NEWS_SHOWN: Final = 6
_WAITING_SHOWN: Final = 5


class DemoView:
    """Shows one report after another, between `__enter__` and `__exit__`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._news: deque[str] = deque(maxlen=_NEWS_SHOWN)
        self._colours: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, second: int, report: Report, news: list[str]) -> None:
        """Draws the report, or prints a line for each news."""
        if self._live is None:
            for line in news:
                self._console.print(f"{second:4d} s  {line}", highlight=False, soft_wrap=True)
            return
        self._news.extend(f"{second:4d} s  {line}" for line in news)
        self._live.update(
            Group(
                _headline(second, report),
                self._cluster(report),
                _waiting(report),
                Text("\n".join(self._news), style="dim"),
            ),
            refresh=True,
        )

    def _cluster(self, report: Report) -> Table:
        """One line a node, one block a card, coloured by the job that holds it."""
        holders = {
            (pod["node"] or pod["assumed_node"], device["minor"]): _job(pod["name"])
            for pod in report["pods"]
            if pod["phase"] not in ("Succeeded", "Failed")
            for device in pod["devices"]
        }
        table = Table(box=None, pad_edge=False, show_header=False)
        for node in report["nodes"]:
            cards, jobs = Text(), Text()
            shown: dict[str, int] = {}
            for device in node["devices"]:
                holder = holders.get((node["name"], device["minor"]))
                if holder is not None:
                    shown[holder] = shown.get(holder, 0) + 1
                    cards.append("■ ", style=self._colour(holder))
                else:
                    cards.append("□ " if device["healthy"] else "x ", style="dim")
            for name, count in shown.items():
                jobs.append(f"{name} x{count}  ", style=self._colour(name))
            table.add_row(node["name"], cards, jobs)
        return table

    def _colour(self, job: str) -> str:
        return self._colours.setdefault(job, _COLOURS[len(self._colours) % len(_COLOURS)])


def _headline(second: int, report: Report) -> Text:
    cards = [device for node in report["nodes"] for device in node["devices"]]
    used = sum(any(device["used"].values()) for device in cards)
    running = sum(pod["phase"] == "Running" for pod in report["pods"])
    return Text(
        f"{second:4d} s   record {report['sequence']}   digest {report['digest'][:16]}   "
        f"GPUs {used}/{len(cards)}   pods running {running}",
        style="bold",
    )


def _waiting(report: Report) -> Table:
    """Who waits, and why: gangs once, single pods each."""
    table = Table(box=None, pad_edge=False, show_header=False)
    reasons: dict[str, str] = {}
    for pod in report["pods"]:
        if pod["diagnosis"] is not None:
            reasons.setdefault(pod["gang"] or pod["name"], pod["diagnosis"]["message"])
    for name, message in [*reasons.items()][:_WAITING_SHOWN]:
        table.add_row(Text(f"waiting  {name.partition('/')[2] or name}", style="yellow"), message)
    return table


def _job(pod: str) -> str:
    return pod.rpartition("-")[0]

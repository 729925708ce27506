"""`lockstep demo`: the engine on an embedded log, against a simulated GPU cluster, live.

Runs the same Sequencer, Decider and log as the service, with simulated time; ends by itself with a
verified replay of the log it wrote, and the next commands to try. What does the work is imported
when the command runs.
"""

import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from lockstep.demo_workload import SECONDS, DemoLoad, counted

if TYPE_CHECKING:
    from rich.console import Console

    from streams.verify import Verification

_SECOND_US: Final = 1_000_000


def demo(
    seconds: Annotated[
        float, typer.Option(min=0, help="How long the live part lasts; 0: as fast as it goes.")
    ] = 24.0,
    keep: Annotated[
        Path | None, typer.Option(help="Where the log is kept (default: a new temporary folder).")
    ] = None,
) -> None:
    """Watch gangs being placed on a simulated GPU cluster, then verify the log of it."""
    from rich.console import Console

    console = Console()
    folder = keep or Path(tempfile.mkdtemp(prefix="lockstep-demo-"))
    url = f"embedded://{(folder / 'log').absolute()}"
    commands = _play(console, url, seconds)
    verification = _verify(url)
    _print_end(console, url, commands, verification)
    raise typer.Exit(0 if verification.difference is None else 1)


def _play(console: "Console", url: str, seconds: float) -> list[dict[str, Any]]:
    """Plays the whole workload in `seconds` of real time; returns the commands that were decided."""
    from lockstep.demo_view import DemoView
    from lockstep.simulate_play import Play

    play = Play(url)
    workload = DemoLoad(play.cluster)
    started_s = time.monotonic()
    told = _Told()
    try:
        workload.start()
        play.settle()
        with DemoView(console) as view:
            for second in range(SECONDS):
                workload.second(second)
                play.advance(_SECOND_US)
                report = play.report()
                view.show(second, report, [*workload.news, *told.news(report)])
                workload.news.clear()
                wait_s = started_s + seconds * (second + 1) / SECONDS - time.monotonic()
                time.sleep(max(0.0, wait_s))
    finally:
        play.engine.close()
    commands: list[dict[str, Any]] = play.report()["commands"]
    return commands


@dataclass(slots=True)
class _Told:
    """What a reader has been told, so that each decision is told once."""

    commands: int = 0
    waiting: dict[str, None] = field(default_factory=dict)

    def news(self, report: dict[str, Any]) -> list[str]:
        """Who was placed since the last report, and who has begun to wait: one line a job."""
        placed: dict[str, list[str]] = {}
        for command in report["commands"][self.commands :]:
            if command["kind"] == "BindPod":
                placed.setdefault(command["name"].rpartition("-")[0], []).append(command["node"])
        self.commands = len(report["commands"])
        lines = []
        for job, nodes in placed.items():
            self.waiting.pop(job, None)
            lines.append(
                f"{counted(len(nodes), 'pod')} of {job} placed on {', '.join(sorted(set(nodes)))}"
            )
        for pod in report["pods"]:
            job = pod["name"].rpartition("-")[0]
            if pod["diagnosis"] is not None and job not in self.waiting:
                self.waiting[job] = None
                lines.append(f"{job} waits: {pod['diagnosis']['message']}")
        return lines


def _verify(url: str) -> "Verification":
    from streams.history import LogHistory
    from streams.log import open_reader
    from streams.verify import verify

    reader = open_reader(url)
    try:
        return verify(LogHistory(reader, reader))
    finally:
        reader.close()


def _print_end(
    console: "Console", url: str, commands: list[dict[str, Any]], verification: "Verification"
) -> None:
    binds = sum(command["kind"] == "BindPod" for command in commands)
    found = verification.difference
    result = "0 differences" if found is None else f"sequence {found.sequence}: {found.detail}"
    lines = [
        "",
        f"{binds} pods were placed in {verification.records} records"
        f" ({verification.observations} observations).",
        f"Replay: {verification.compared} decisions derived again and compared byte for byte:"
        f" {result}.",
        f"Digest {verification.digest}",
    ]
    if found is None:
        lines += [
            "",
            "Next, on the log that was just written:",
            f"  lockstep replay --log {url} --verify",
            f"  lockstep state gangs --log {url}",
            f"  lockstep state gpus --log {url} --at 2026-01-01T00:01:00Z",
            f"  lockstep decisions --log {url}",
            "and with manifests of your own:",
            "  lockstep simulate FILE.yaml",
            f"The log is in {url.removeprefix('embedded://')}; delete it when you are done.",
        ]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)

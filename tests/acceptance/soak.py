"""`make soak`: the pair under load for half an hour, with a fault every minute. Real broker, real API server.

1,000 nodes; pods arrive, finish and fail. Before the faults a minute of as many pods as go through measures what the
set-up takes; the soak's rate is 60 % of that, unless SOAK_RATE says another. Sampled every 5 s: memory of both
processes, records without a decision, observations that wait, and how long a probe takes from its creation to its bind.
Left in docs/soak/: samples as CSV, a plot, and what was found. Exit 1 when a pod was bound twice, a decision differs, a
pod stays unbound, a process ends by itself, or, from 25 minutes on, memory grew by 5 % after warm-up.

    SOAK_MINUTES=30 SOAK_RATE=20 SOAK_NODES=1000 make soak
"""

import csv
import http.client
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.load import AWAY, Capacity, Load, measure_capacity
from tests.acceptance.pair import SPACE, Pair, applied_commands, running_services
from tests.acceptance.plot import svg
from tests.alerts import parse
from tests.integration.api import wait_for
from tests.integration.lockstep_process import lockstep

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
NODES = int(os.environ.get("SOAK_NODES", "1000"))
CAPACITY_S, SHARE_OF_CAPACITY = 60.0, 0.6
SAMPLE_S, FAULT_S, FROZEN_S = 5.0, 60.0, 15.0
#: Memory is compared from here on, and its growth counts in runs of at least so many minutes.
WARM_UP_S, JUDGED_MINUTES, GROWTH_MAX = 600.0, 25.0, 5.0
SAMPLES_MIN = 5
#: How long all faults take, each once: as much is compared with as much, for a restart is a fault too.
ROUND_S = 6 * FAULT_S
DOCS = Path(__file__).parents[2] / "docs" / "soak"
FIELDS = (
    "seconds",
    "rss_a_mib",
    "rss_b_mib",
    "lag_records",
    "waiting",
    "bind_s",
    "created",
    "leader",
    "fault",
)

Sample = dict[str, float | str]

NOTES = f"""Capacity is that of everything on this machine: the pair, the broker, the API server with etcd, and the load
itself, for each pod is created, bound, read, ended and deleted through the same API server. It is measured before the
first fault, {CAPACITY_S:g} s long: whatever is missing to a backlog is created, whatever has a node is ended; the first
quarter does not count. Where no pod is without a node at the median look, the API server and the load were the limit,
and the pair could take more.

Memory is the resident set. Compared are medians: of the first {ROUND_S:g} s after a warm-up of {WARM_UP_S:g} s, and of
the last {ROUND_S:g} s, each with every fault once; a shorter run takes a third for warm-up and halves the rest. Warm
is who has led, stood by and lived through each fault: until then caches of RocksDB, of the log's clients and of the
allocators fill, and the medians by round show when they are full. Like is compared with like: who leads also informs,
lists and keeps tables, and how long each leads differs from round to round. `a` is frozen but never restarted. `b` is
killed or stopped twice a round and starts again from the log, so its figures say whether a longer log costs it more.
"""


@dataclass(frozen=True)
class Taken:
    """Pods a second of the soak, and the capacity that they are a share of; None: the rate was given."""

    rate: float
    capacity: Capacity | None

    def __str__(self) -> str:
        if self.capacity is None:
            return (
                f"rate: {self.rate:g} pods a second, given by SOAK_RATE; capacity was not measured"
            )
        capacity = self.capacity
        return (
            f"capacity: {capacity.pods_per_s:.1f} pods a second, created, bound, ended and deleted, with a backlog of"
            f" {capacity.backlog} ({capacity.waiting:g} still without a node at the median look);"
            f" rate: {100 * SHARE_OF_CAPACITY:g} % of it, {self.rate:g}"
        )


class Soak:
    """Samples and faults of one run. `a` is never restarted; `b` is, and is young again then."""

    def __init__(self, pair: Pair, load: Load) -> None:
        self._pair, self._load = pair, load
        self._began = time.monotonic()
        self.samples: list[Sample] = []
        self.faults: list[tuple[float, str]] = []

    @property
    def now_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    def run(self) -> None:
        """Samples beside, a fault every minute."""
        ending = threading.Event()
        sampler = threading.Thread(target=self._sample_until, args=(ending,), name="sampler")
        sampler.start()
        faults: list[Callable[[], str]] = [self._freeze, self._kill, self._broker, self._api_server]
        faults += [self._freeze, self._stop]
        try:
            number = 0
            while self.now_s < MINUTES * 60:
                due_s = (number + 1) * FAULT_S
                if due_s > MINUTES * 60 - FAULT_S / 2:
                    time.sleep(max(0.0, MINUTES * 60 - self.now_s))
                    break
                time.sleep(max(0.0, due_s - self.now_s))
                at_s = self.now_s
                self.faults.append((at_s, faults[number % len(faults)]()))
                print(f"{at_s:.0f} s: {self.faults[-1][1]}", flush=True)
                number += 1
        finally:
            ending.set()
            sampler.join()

    # --- faults -----------------------------------------------------------------------------------------------------

    def _freeze(self) -> str:
        run = self._pair.runs["a"]
        run.pause()
        time.sleep(FROZEN_S)
        run.resume()
        return "a frozen"

    def _kill(self) -> str:
        self._pair.runs["b"].kill()
        self._pair.runs["b"].start()
        return "b killed"

    def _stop(self) -> str:
        assert 0 == self._pair.runs["b"].stop()
        self._pair.runs["b"].start()
        return "b stopped"

    def _broker(self) -> str:
        self._pair.broker.kill()
        self._pair.broker.start()
        return "broker restarted"

    def _api_server(self) -> str:
        self._pair.plane.kill_api_server()
        self._pair.plane.start_api_server()
        return "API server restarted"

    # --- samples ----------------------------------------------------------------------------------------------------

    def _sample_until(self, ending: threading.Event) -> None:
        while not ending.wait(SAMPLE_S):
            sample = self._sample()
            self.samples.append(sample)
            with suppress(*AWAY):
                self._probe(sample)

    def _probe(self, sample: Sample) -> None:
        """A pod whose way to its bind is measured; a sample without a figure had none that could be created."""
        name, created_s = self._pair.probe(), self.now_s

        def follow() -> None:
            try:
                self._pair.bound(name)
            except AWAY:
                time.sleep(0.2)
                follow()
            else:
                sample["bind_s"] = round(self.now_s - created_s, 3)
                with suppress(*AWAY):  # one that stays is one pod more
                    self._pair.forget(name)

        threading.Thread(target=follow, daemon=True).start()

    def _sample(self) -> Sample:
        scrapes = {name: self._scrape(name) for name in ("a", "b")}
        leading = scrapes[_leader(scrapes) or "a"]
        return {
            "seconds": round(self.now_s, 1),
            "rss_a_mib": _rss_mib(self._pair.runs["a"].pid),
            "rss_b_mib": _rss_mib(self._pair.runs["b"].pid),
            "lag_records": leading.get("lockstep_decision_lag_records", ""),
            "waiting": leading.get("lockstep_observations_waiting", ""),
            "bind_s": "",
            "created": self._load.created,
            "leader": _leader(scrapes),
            "fault": "",
        }

    def _scrape(self, name: str) -> dict[str, float]:
        """Metric -> the sum over its labels; empty when nobody answers."""
        url = f"http://127.0.0.1:{self._pair.ports[name]}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=2) as page:
                found = parse(page.read().decode())
        except (OSError, http.client.HTTPException):
            return {}
        return {metric: sum(values.values()) for metric, values in found.items()}


def _leader(scrapes: dict[str, dict[str, float]]) -> str:
    """Who says that it holds the Lease; empty: nobody, or one that was frozen does, too."""
    holders = [name for name, scrape in scrapes.items() if scrape.get("lockstep_lease_held", 0)]
    return holders[0] if len(holders) == 1 else ""


def _rss_mib(pid: int) -> float | str:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return ""
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def _points(samples: list[Sample], field: str) -> list[tuple[float, float]]:
    return [(float(s["seconds"]), float(s[field])) for s in samples if s[field] != ""]


@dataclass(frozen=True)
class Growth:
    """Medians of memory, MiB: of the first round of faults after warm-up, and of the last one."""

    early: float
    late: float

    @property
    def percent(self) -> float:
        """Of the late over the early."""
        return 100.0 * (self.late - self.early) / self.early

    def __str__(self) -> str:
        return f"{self.early:.1f} to {self.late:.1f} MiB ({self.percent:+.1f} %)"


def _growth(points: list[tuple[float, float]], end_s: float) -> Growth | None:
    """In a short run warm-up is a third of it, and half of the rest is compared with half. None: too few samples."""
    warm_s = min(WARM_UP_S, end_s / 3)
    span_s = min(ROUND_S, (end_s - warm_s) / 2)
    early = [value for seconds, value in points if warm_s <= seconds <= warm_s + span_s]
    late = [value for seconds, value in points if seconds >= end_s - span_s]
    if min(len(early), len(late)) < SAMPLES_MIN:
        return None
    return Growth(statistics.median(early), statistics.median(late))


def _memory(samples: list[Sample]) -> dict[str, list[tuple[float, float]]]:
    """Samples of each process while it leads, and while the other one does."""
    return {
        f"`{name}` {role}": _points(
            [sample for sample in samples if sample["leader"] == leader], f"rss_{name}_mib"
        )
        for name, other in (("a", "b"), ("b", "a"))
        for leader, role in ((name, "leading"), (other, "standing by"))
    }


def _growths(samples: list[Sample]) -> dict[str, Growth]:
    """By process and role, where there are samples enough."""
    end_s = float(samples[-1]["seconds"])
    found = {what: _growth(points, end_s) for what, points in _memory(samples).items()}
    return {what: growth for what, growth in found.items() if growth is not None}


def _by_round(points: list[tuple[float, float]]) -> str:
    """The median of each round of faults, MiB."""
    rounds: dict[int, list[float]] = {}
    for seconds, value in points:
        rounds.setdefault(int(seconds // ROUND_S), []).append(value)
    return " ".join(f"{statistics.median(values):.0f}" for _, values in sorted(rounds.items()))


def _write(soak: Soak) -> None:
    DOCS.mkdir(parents=True, exist_ok=True)
    for seconds, fault in soak.faults:
        nearest = min(soak.samples, key=lambda s: abs(float(s["seconds"]) - seconds))
        nearest["fault"] = fault
    with (DOCS / "soak.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(soak.samples)
    samples = soak.samples
    panels = {
        "memory, MiB": {"a": _points(samples, "rss_a_mib"), "b": _points(samples, "rss_b_mib")},
        "records without a decision": {"records": _points(samples, "lag_records")},
        "a probe's creation to its bind, s": {"seconds": _points(samples, "bind_s")},
    }
    (DOCS / "soak.svg").write_text(svg(panels, soak.faults, soak.now_s))


def _report(soak: Soak, pair: Pair, load: Load, took: Taken) -> bool:
    """Prints and keeps what was found; whether it is clean."""
    code, found = lockstep("replay", "--log", pair.url, "--verify")
    binds = applied_commands(pair.url)["BindPod"]
    twice = sum(count > 1 for count in binds.values())
    latency = sorted(value for _, value in _points(soak.samples, "bind_s"))
    lag = [value for _, value in _points(soak.samples, "lag_records")]
    growths = _growths(soak.samples)
    lines = [
        f"- {took}",
        f"- {MINUTES:g} minutes, {NODES} nodes; {len(soak.faults)} faults",
        f"- pods: {load.created} arrived ({load.created / (MINUTES * 60):.1f} a second),"
        f" {load.finished} finished, {load.failed} failed",
        f"- bound {len(binds)}, of these more than once: {twice}",
        f"- verify: {found['differences']} differences in {found['records']} records",
        "- memory growth after warm-up: "
        + ", ".join(f"{what} {growth}" for what, growth in growths.items()),
        f"- memory by round of faults ({ROUND_S:g} s), medians in MiB: "
        + ", ".join(
            f"{what} {_by_round(points)}" for what, points in _memory(soak.samples).items()
        ),
        f"- records without a decision: at most {max(lag, default=0):g}, at the end {lag[-1] if lag else 0:g}",
        f"- a probe's bind: median {statistics.median(latency):.2f} s, worst {latency[-1]:.1f} s",
    ]
    (DOCS / "README.md").write_text(
        "# Soak\n\nThe last run of `make soak`, which writes this page, [soak.csv](soak.csv) and the plot.\n\n"
        + "\n".join(lines)
        + f"\n\n{NOTES}\n![memory, lag and latency over time](soak.svg)\n"
    )
    print("\n".join(lines))
    flat = MINUTES < JUDGED_MINUTES or all(each.percent < GROWTH_MAX for each in growths.values())
    return flat and (code, twice) == (0, 0)


def _rate(pair: Pair) -> Taken:
    """What is asked for, or a share of what this machine takes."""
    if (given := os.environ.get("SOAK_RATE")) is not None:
        return Taken(float(given), None)
    capacity = measure_capacity(pair.admin, CAPACITY_S)
    taken = Taken(round(SHARE_OF_CAPACITY * capacity.pods_per_s, 1), capacity)
    print(taken, flush=True)
    return taken


def main() -> int:
    """One run; the exit code."""
    with (
        running_services() as (broker, plane),
        tempfile.TemporaryDirectory(prefix="lockstep-soak-") as directory,
    ):
        pair = Pair(broker, plane, Path(directory))
        try:
            pair.fill(NODES, 0)
            pair.start()
            took = _rate(pair)
            with Load(pair.admin, took.rate) as load:
                soak = Soak(pair, load)
                soak.run()
                ended = [name for name, run in pair.runs.items() if not run.running]
                for name in ended:
                    print(f"{name} ended by itself:\n{pair.runs[name].output.read_text()[-3000:]}")
            wait_for(
                "all pods to be bound",
                lambda: all("nodeName" in pod["spec"] for pod in pair.admin.pods(SPACE)),
                seconds_max=300,
                every=2,
            )
        finally:
            pair.stop()
        _write(soak)
        return 0 if _report(soak, pair, load, took) and not ended else 1


if __name__ == "__main__":
    sys.exit(main())

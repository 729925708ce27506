"""Pods that arrive, finish and fail on a real API server, as many as go through or at a rate. Called by the soak.

`Load` runs in a thread of its own. An API server that is away is tried again: what could not be created arrives late.
"""

import random
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import urllib3

from tests.acceptance.pair import SPACE
from tests.integration import manifests
from tests.integration.api import Api, ApiError, wait_for

LIFETIME_S = 60.0
LOOK_AGAIN_S = 5.0
FAILED_OF_TEN = 1
SUCCEEDED, FAILED, WAITS, GONE = "Succeeded", "Failed", "waits", "gone"
CALLS = 16
AWAY = (ApiError, OSError, urllib3.exceptions.HTTPError)


@dataclass(frozen=True)
class Capacity:
    """What the whole set-up took at most: pods a second that were created, bound, ended and deleted.

    `waiting`: how many of the `backlog` were still without a node, the median of all looks; near 0 the load itself was
    the limit.
    """

    pods_per_s: float
    waiting: float
    backlog: int


def measure_capacity(admin: Api, seconds: float, backlog: int = 300) -> Capacity:
    """Keeps `backlog` pods waiting for a node; each goes as soon as it has one. The first quarter is not counted."""
    began, names, gone_late = time.monotonic(), (f"full-{number}" for number in range(10**9)), 0
    waiting: list[int] = []
    with ThreadPoolExecutor(CALLS) as pool:
        while (now_s := time.monotonic() - began) < seconds:
            bound, unbound = _full_pods(admin)
            waiting.append(len(unbound))
            _create(admin, [next(names) for _ in range(backlog - len(unbound))], ["100m"] * backlog)
            gone = _end_all(pool, admin, bound)
            gone_late += gone if now_s > seconds / 4 else 0
            last_s = time.monotonic() - began
        rate = gone_late / (last_s - seconds / 4)
        wait_for("the backlog to go", lambda: _drained(pool, admin), seconds_max=120, every=0.2)
    return Capacity(rate, statistics.median(waiting[1:]), backlog)


def _full_pods(admin: Api) -> tuple[list[str], list[str]]:
    """Names of the pods of `measure_capacity`: with a node, and without."""
    parts: tuple[list[str], list[str]] = ([], [])
    for pod in admin.pods(SPACE):
        if pod["metadata"]["name"].startswith("full-"):
            parts["nodeName" not in pod["spec"]].append(pod["metadata"]["name"])
    return parts


def _drained(pool: ThreadPoolExecutor, admin: Api) -> bool:
    """Ends what is left of `measure_capacity`; whether there was nothing."""
    bound, unbound = _full_pods(admin)
    _end_all(pool, admin, bound)
    return not (bound or unbound)


def _end_all(pool: ThreadPoolExecutor, admin: Api, names: list[str]) -> int:
    """Ends those that have a node; how many that were."""
    return list(pool.map(partial(_end, admin), names, [SUCCEEDED] * len(names))).count(SUCCEEDED)


def _create(admin: Api, names: Iterable[str], cpus: Iterable[str]) -> None:
    pairs = zip(names, cpus, strict=False)
    admin.create(*[manifests.pod(name, {"cpu": cpu}, namespace=SPACE) for name, cpu in pairs])


def _end(admin: Api, name: str, phase: str) -> str:
    """A pod that has a node ends in `phase` and is deleted; else `WAITS`, to be looked at later, or `GONE`."""
    path = f"/api/v1/namespaces/{SPACE}/pods/{name}"
    try:
        if "nodeName" not in admin.get(path)["spec"]:
            return WAITS
        admin.patch(f"{path}/status", {"status": {"phase": phase}})
        admin.delete(path, grace_seconds=0)
    except ApiError as error:
        return GONE if error.status == 404 else WAITS
    except AWAY:
        return WAITS
    return phase


class Load:
    """Use as a context manager. `rate`: pods a second that arrive, and as many that leave."""

    def __init__(self, admin: Api, rate: float) -> None:
        self._admin = admin
        self._rate = rate
        self._random = random.Random(1)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._pool = ThreadPoolExecutor(CALLS)
        self._ends_at: dict[str, float] = {}
        self.created = self.finished = self.failed = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._pool.shutdown()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ending.wait(0.5):
            now = time.monotonic()
            # At most two seconds' worth at once: after an outage the rest is not made up for.
            due = min(int((now - began) * self._rate) - self.created, int(2 * self._rate))
            with suppress(*AWAY):
                self._arrive(max(due, 0), now)
            if due > self._rate:
                began = now - self.created / self._rate
            self._leave(now)

    def _arrive(self, count: int, now: float) -> None:
        names = [f"load-{self.created + index}" for index in range(count)]
        self.created += count
        for name in names:
            self._ends_at[name] = now + self._random.expovariate(1 / LIFETIME_S)
        _create(self._admin, names, self._cpus())

    def _cpus(self) -> Iterator[str]:
        while True:
            yield self._random.choice(("100m", "250m", "1"))

    def _leave(self, now: float) -> None:
        due = [name for name, ends_at in self._ends_at.items() if ends_at <= now]
        due = due[: int(2 * self._rate)]
        phases = [FAILED if self._random.randrange(10) < FAILED_OF_TEN else SUCCEEDED for _ in due]
        for name, outcome in zip(
            due, self._pool.map(partial(_end, self._admin), due, phases), strict=True
        ):
            if outcome == WAITS:
                self._ends_at[name] = now + LOOK_AGAIN_S
                continue
            del self._ends_at[name]  # gone: it never came, the API server was away
            self.failed += outcome == FAILED
            self.finished += outcome == SUCCEEDED

"""Pods that arrive, finish and fail at a given rate, on a real API server. Called by the soak.

Runs in a thread of its own. An API server that is away is tried again: what could not be created then arrives late.
"""

import random
import threading
import time
from contextlib import suppress

import urllib3

from tests.acceptance.pair import SPACE
from tests.integration import manifests
from tests.integration.api import Api, ApiError

LIFETIME_S = 60.0
FAILED_OF_TEN = 1
AWAY = (ApiError, OSError, urllib3.exceptions.HTTPError)


class Load:
    """Use as a context manager. `rate`: pods a second that arrive, and as many that leave."""

    def __init__(self, admin: Api, rate: float) -> None:
        self._admin = admin
        self._rate = rate
        self._random = random.Random(1)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._ends_at: dict[str, float] = {}
        self.created = self.finished = self.failed = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

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
            with suppress(*AWAY):
                self._leave(now)

    def _arrive(self, count: int, now: float) -> None:
        names = [f"load-{self.created + index}" for index in range(count)]
        self.created += count
        for name in names:
            self._ends_at[name] = now + self._random.expovariate(1 / LIFETIME_S)
        self._admin.create(
            *[
                manifests.pod(
                    name, {"cpu": self._random.choice(("100m", "250m", "1"))}, namespace=SPACE
                )
                for name in names
            ]
        )

    def _leave(self, now: float) -> None:
        due = [name for name, ends_at in self._ends_at.items() if ends_at <= now]
        for name in due[: int(2 * self._rate)]:
            path = f"/api/v1/namespaces/{SPACE}/pods/{name}"
            try:
                self._end(name, path, now)
            except ApiError as error:
                if error.status != 404:
                    raise
                del self._ends_at[name]  # it never came, the API server was away

    def _end(self, name: str, path: str, now: float) -> None:
        """A pod that has a node ends, well or not; one without is looked at later."""
        if "nodeName" not in self._admin.get(path)["spec"]:
            self._ends_at[name] = now + 5
            return
        failed = self._random.randrange(10) < FAILED_OF_TEN
        phase = "Failed" if failed else "Succeeded"
        self._admin.patch(f"{path}/status", {"status": {"phase": phase}})
        self._admin.delete(path, grace_seconds=0)
        del self._ends_at[name]
        self.failed += failed
        self.finished += not failed

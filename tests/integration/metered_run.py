"""`lockstep run` with its metrics, and optionally with a fault that is planted before it starts.

Called by the tests of faults. What it did is in the log; what it says of itself is scraped.
"""

import http.client
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.alerts import fires, parse
from tests.integration.api import wait_for
from tests.integration.process import Service, free_ports

ROLES = ("--sequencer", "--decider")
MAIN = "from lockstep.main import main; main()"


class MeteredRun:
    """One `lockstep run` on `url`, of sequencer and decider unless `options` say otherwise.

    `fault` is Python that runs before it.
    """

    def __init__(
        self, directory: Path, url: str, fault: str = "", options: Sequence[str] = ROLES
    ) -> None:
        (self.port,) = free_ports(1)
        self.datadir = directory / "data"
        self.output = directory / "lockstep.log"
        given = ["--log", url, "--datadir", str(self.datadir), *options]
        given += ["--metrics", f"127.0.0.1:{self.port}"]
        self.service = Service(
            [sys.executable, "-c", f"{fault}\n{MAIN}", "run", *given],
            log=self.output,
            ready=lambda: self.value("lockstep_running") == 1,
        )

    def scrape(self) -> str:
        """What `/metrics` says; empty when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as page:
                text: str = page.read().decode()
                return text
        except (OSError, http.client.HTTPException):
            return ""

    def value(self, metric: str, **labels: str) -> float | None:
        """A metric's value; None when it is not there."""
        return parse(self.scrape()).get(metric, {}).get(frozenset(labels.items()))

    def stops_with(self, alert: str, seconds_max: float = 60) -> str:
        """Waits until it says why it stopped, and for its end; what it wrote. It ends with exit code 1."""
        wait_for(alert, lambda: fires(alert, self.scrape()), seconds_max)
        self.service.terminate()
        assert 1 == self.service.ended()
        return self.output.read_text()

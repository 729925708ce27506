"""What all suites share: which services each test needs, and an honest account of what did not run.

A test that needs a broker or a control plane carries the marker `kafka` or `controlplane` and asks
for the fixtures of `tests/integration/conftest.py`. Where a service cannot be had, those tests are
skipped, and the last lines before pytest's own summary say which suites that were and why.
"""

from collections.abc import Iterator
from typing import Any

import pytest

SERVICES = {
    "kafka": "tests against a real Kafka broker",
    "controlplane": "tests against a real Kubernetes control plane",
}
SERVICE_FOLDERS = ("tests/integration/", "tests/contracts/")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` writes the expectations of scenarios anew."""
    parser.addoption("--rewrite", action="store_true", help="write scenario expectations anew")


@pytest.hookimpl(optionalhook=True)  # xdist asks it
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers, all tests of SERVICE_FOLDERS go to one, one after the other.

    So each service starts once, and two API servers never fight for the cores. xdist's own groups
    would do, but version 3.8 cannot set them under pytest 9.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ServicesTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "services" if nodeid.startswith(SERVICE_FOLDERS) else nodeid

    return ServicesTogether(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """After all that pytest has to say: suites that were skipped for want of a service."""
    yield
    for line in not_run(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line, yellow=True, bold=True)


def not_run(skipped: list[pytest.TestReport]) -> list[str]:
    """One line for each service and reason: how many of its tests were skipped."""
    counts: dict[tuple[str, str], int] = {}
    for report in skipped:
        for service in SERVICES:
            if service in report.keywords and isinstance(report.longrepr, tuple):
                reason = report.longrepr[2].removeprefix("Skipped: ")
                counts[service, reason] = counts.get((service, reason), 0) + 1
    return [
        f"NOT RUN: {count} {SERVICES[service]}: {reason}"
        for (service, reason), count in sorted(counts.items())
    ]

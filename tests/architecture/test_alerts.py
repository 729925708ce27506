"""Alerts, runbooks, metrics and stated causes belong together: none names what is not there."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from streams.metrics import MEASURED
from streams.metrics_events import COUNTED
from tests.alerts import ALERTS, SELECTOR, expressions
from tests.architecture.sources import PACKAGES, ROOT, python_sources

RUNBOOKS = ROOT / "docs" / "runbooks"
#: What every page answers, in this order.
SECTIONS = (
    *("Symptom", "What it means", "Look here", "Do this", "It is over when"),
    "Why it can happen",
)
#: Those of the process itself come with the library.
PROCESS = {
    "process_cpu_seconds_total": "CPU time used, in seconds.",
    "process_max_fds": "Most files that may be open.",
    "process_open_fds": "Files that are open.",
    "process_resident_memory_bytes": "Memory in use.",
    "process_start_time_seconds": "When the process started, in seconds since 1970.",
    "process_virtual_memory_bytes": "Address space in use.",
}
_PAGE = """# Metrics

Generated from `streams/metrics.py` and `streams/metrics_events.py`.

`lockstep run --metrics HOST:PORT` serves them at `/metrics`, and one word at `/healthz`. Off the loopback, `/metrics`
needs `--metrics-token-file FILE`, and the token in it as `Authorization: Bearer …`. What ends in `_total` only grows,
and begins anew with the process. Alerts on them: `deploy/alerts.yaml`, a page each in [runbooks](runbooks/README.md).

| metric | labels | meaning |
|---|---|---|
"""


def known() -> set[str]:
    return {m.name for m in (*MEASURED, *COUNTED.values())} | set(PROCESS)


def _metrics_page() -> str:
    rows = [(m.name, ", ".join(m.labels), m.meaning) for m in (*MEASURED, *COUNTED.values())]
    rows += [(name, "", meaning) for name, meaning in PROCESS.items()]
    return _PAGE + "".join(f"| `{n}` | {labels} | {text} |\n" for n, labels, text in rows)


def _index() -> str:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rows = [
        f"| [{r['alert']}]({r['alert']}.md) | {r['labels']['severity']} | {r['annotations']['summary']} |\n"
        for r in group["rules"]
    ]
    head = (RUNBOOKS / "README.md").read_text().partition("| alert |")[0]
    return head + "| alert | severity | summary |\n|---|---|---|\n" + "".join(rows)


def _write(page: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        page.write_text(text)
    assert text == page.read_text()


def test_the_page_of_metrics_is_current(request: pytest.FixtureRequest) -> None:
    """`docs/metrics.md` is what the code gives now (`pytest --rewrite` writes it anew)."""
    _write(ROOT / "docs" / "metrics.md", _metrics_page(), request)


def test_the_index_of_runbooks_is_current(request: pytest.FixtureRequest) -> None:
    """The table of `docs/runbooks/README.md` lists the alerts in their order."""
    _write(RUNBOOKS / "README.md", _index(), request)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    """Who is woken finds a page of the alert's name."""
    pages = {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    assert set(expressions()) == pages


@pytest.mark.parametrize("alert", expressions())
def test_a_page_answers_everything(alert: str) -> None:
    """Symptom, meaning, where to look with an exact command, what to do, when it is over, why."""
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert [alert, *SECTIONS] == re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    look = text.partition("## Look here")[2].partition("## Do this")[0]
    assert "```sh" in look


@pytest.mark.parametrize("path", [ALERTS, *sorted(RUNBOOKS.glob("*.md"))], ids=lambda p: p.stem)
def test_every_metric_named_exists(path: Path) -> None:
    """An alert or a page on a metric that nobody exposes would stay silent for ever."""
    named = {found[1] for found in SELECTOR.finditer(path.read_text())}
    assert named <= known(), named - known()


def test_every_alert_names_a_metric() -> None:
    """Each expression looks at something."""
    assert [] == [alert for alert, text in expressions().items() if not SELECTOR.search(text)]


def test_every_alert_is_produced_by_a_test() -> None:
    """A test that carries `@produces(ALERT)` brings the condition of each alert about."""
    produced = {
        argument.value
        for source in python_sources("tests")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "produces"
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    assert set(expressions()) == produced


def test_every_counted_event_is_said_somewhere() -> None:
    """A renamed event of the log would leave its counter at zero for ever."""
    words = {
        node.value
        for source in python_sources(*PACKAGES)
        if source.path != "streams/metrics_events.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert [] == [event for event in COUNTED if event not in words]


def test_every_cause_of_a_stop_has_an_alert() -> None:
    """Each `Fatal(cause=…)` of the product is in the expression of an alert, and the other way round."""
    said = {"other", "exception"} | {
        node.value.value
        for source in python_sources(*PACKAGES)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.keyword)
        and node.arg == "cause"
        and isinstance(node.value, ast.Constant)
    }
    asked = re.findall(r'cause=~?"([^"]+)"', ALERTS.read_text())
    assert said == {cause for text in asked for cause in text.split("|")}

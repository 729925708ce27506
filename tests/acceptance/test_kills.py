"""Fifty SIGKILLs over all roles while 5,000 pods arrive and some are evicted. Real broker, real API server.

Every role is a process of its own. What happened is counted three times: from the log, from the objects of the API
server, and from the API server's audit log, which knows of every bind and eviction that it carried out.

    pytest -s tests/acceptance/test_kills.py       (KILLS=50 PODS=5000)
"""

import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from schemas.codec import encode
from schemas.topics import ADMIN
from streams.log import open_writer
from tests.acceptance.pair import HOME, SPACE, applied_commands, running_services
from tests.integration import manifests
from tests.integration.api import Api, wait_for
from tests.integration.builds import Missing
from tests.integration.cluster import ControlPlane
from tests.integration.history import rows_that_differ
from tests.integration.kafka_broker import LocalBroker
from tests.integration.lockstep_process import LockstepRun, lockstep

KILLS = int(os.environ.get("KILLS", "50"))
PODS = int(os.environ.get("PODS", "5000"))
EVICTED_A_ROUND = 4
NODES = 100
SEED = 7
ROLES = ("informers", "sequencer", "decider", "projector", "sink")
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "resources": [{"group": "", "resources": ["pods/binding", "pods/eviction"]}],
        },
        {"level": "None"},
    ],
}

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.controlplane,
    pytest.mark.acceptance,
    pytest.mark.timeout(1800),
]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[LocalBroker, ControlPlane]]:
    """A broker, and a control plane that writes an audit log of binds and evictions."""
    policy = tmp_path / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={tmp_path / 'audit.log'}")
    with ExitStack() as stack:
        try:
            found = stack.enter_context(running_services(flags))
        except Missing as missing:
            pytest.skip(str(missing))
        yield found


@pytest.fixture
def roles(
    services: tuple[LocalBroker, ControlPlane], tmp_path: Path
) -> Iterator[dict[str, LockstepRun]]:
    """A process for each role, running."""
    broker, plane = services
    url = f"{broker.address.url}?prefix=kills."
    kubeconfig = plane.service_account_kubeconfig(HOME, "lockstep")
    cluster = ("--kubeconfig", str(kubeconfig), "--lease-namespace", HOME)
    runs: dict[str, LockstepRun] = {}
    try:
        for role in ("sequencer", "decider", "projector", "informers", "sink"):
            home = tmp_path / role
            home.mkdir()
            options = cluster if role in ("informers", "sink") else ()
            runs[role] = LockstepRun(home, url, f"--{role}", "--identity", role, *options)
            runs[role].start()
        yield runs
    finally:
        for run in runs.values():
            run.stop_if_running()


def _phases(admin: Api) -> dict[str, str]:
    """Name -> phase; Bound where the node has not started it yet."""
    return {
        pod["metadata"]["name"]: pod["status"]["phase"]
        for pod in admin.pods(SPACE)
        if "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]
    }


def _evict(url: str, names: list[str]) -> None:
    requests = [
        {"kind": "EvictRequested", "id": f"e-{n}", "namespace": SPACE, "name": n, "reason": "test"}
        for n in names
    ]
    writer = open_writer(url)
    writer.append(ADMIN, None, encode({"producer": "test", "observations": requests}))
    writer.close()


def _by_the_api_server(audit: Path) -> dict[tuple[str, str], Counter[str]]:
    """(subresource, "done" or "cut off") -> pod's name -> how often. Cut off: the caller was killed in the middle of
    the call; it may have been carried out or not, so it is asked again.
    """
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for line in audit.read_text().splitlines():
        event = json.loads(line)
        what = {201: "done", 504: "cut off"}.get(event["responseStatus"]["code"])
        if what is not None:
            place = event["objectRef"]
            counts[place["subresource"], what][place["name"]] += 1
    return counts


def _kill_while_pods_arrive(
    admin: Api, roles: dict[str, LockstepRun], url: str
) -> tuple[Counter[str], list[str]]:
    """Pods in rounds; in each some evictions are asked for and one role is killed and started again."""
    choose = random.Random(SEED)
    kills: Counter[str] = Counter()
    evicted: list[str] = []
    for number in range(KILLS):
        first, last = number * PODS // KILLS, (number + 1) * PODS // KILLS
        admin.create(
            *[
                manifests.pod(f"p{index}", {"cpu": "100m"}, namespace=SPACE)
                for index in range(first, last)
            ]
        )
        asked = dict.fromkeys(evicted)
        running = [
            n for n, phase in _phases(admin).items() if phase == "Running" and n not in asked
        ]
        chosen = choose.sample(running, min(EVICTED_A_ROUND, len(running)))
        if chosen:
            _evict(url, chosen)
            evicted += chosen
        time.sleep(choose.uniform(0.0, 0.5))
        role = ROLES[number % len(ROLES)]
        roles[role].kill()
        roles[role].start()
        kills[role] += 1
    return kills, evicted


def test_nothing_is_lost_and_nothing_done_twice(
    services: tuple[LocalBroker, ControlPlane], roles: dict[str, LockstepRun], tmp_path: Path
) -> None:
    """Lost 0, double binds 0, double evictions 0, verify 0 differences, tables equal to a refold."""
    admin, url = services[1].api(), roles["sequencer"].url
    amounts = {"cpu": "16", "memory": "64Gi"}
    admin.create(*[manifests.node(f"n{index}", amounts) for index in range(NODES)])
    began = time.monotonic()
    kills, evicted = _kill_while_pods_arrive(admin, roles, url)

    def settled() -> bool:
        return len(admin.pods(SPACE)) == PODS - len(evicted) == len(_phases(admin))

    wait_for("all pods to be bound or evicted", settled, seconds_max=600, every=2)
    wait_for(
        "the results",
        lambda: not lockstep("state", "commands", "--log", url)[1]["commands"],
        seconds_max=120,
        every=2,
    )
    time.sleep(2)  # the tables follow
    assert [0] * len(roles) == [run.stop() for run in roles.values()]
    code, found = lockstep("replay", "--log", url, "--verify")
    audit, applied = _by_the_api_server(tmp_path / "audit.log"), applied_commands(url)
    binds, evictions = audit["binding", "done"], audit["eviction", "done"]
    counts = {
        "lost": PODS - len(evicted) - len(_phases(admin)),
        "double binds, by the audit log": sum(n > 1 for n in binds.values()),
        "double binds, by the log": sum(n > 1 for n in applied["BindPod"].values()),
        "double evictions, by the audit log": sum(n > 1 for n in evictions.values()),
        "double evictions, by the log": sum(n > 1 for n in applied["EvictPod"].values()),
        "differences of verify": found["differences"] + found["undecided"] + code,
        "rows of tables that differ": rows_that_differ(url, roles["projector"].datadir),
    }
    print(
        f"\n{PODS} pods, {len(evicted)} evictions, {sum(kills.values())} kills in"
        f" {time.monotonic() - began:.0f} s: {dict(kills)}"
        f"\nby the audit log: {len(binds)} binds and {len(evictions)} evictions done; cut off by a kill:"
        f" {len(audit['binding', 'cut off'])} and {len(audit['eviction', 'cut off'])}"
    )
    for name, count in counts.items():
        print(f"{name}: {count}")
    assert PODS == len(applied["BindPod"]) == len({*binds, *audit["binding", "cut off"]})
    assert sorted(evicted) == sorted({*evictions, *audit["eviction", "cut off"]})
    assert dict.fromkeys(counts, 0) == counts

"""`lockstep run` and an API server that goes away and comes back. A real one."""

import time
from pathlib import Path

import pytest

from tests.alerts import fires, produces
from tests.integration import manifests
from tests.integration.api import wait_for
from tests.integration.cluster import ControlPlane
from tests.integration.lockstep_process import lockstep
from tests.integration.metered_run import MeteredRun

pytestmark = [pytest.mark.controlplane, pytest.mark.acceptance, pytest.mark.timeout(600)]


@produces("LockstepApiServerAway", "LockstepNoLeader")
def test_an_api_server_that_was_away_is_found_again(
    breakable_cluster: ControlPlane, tmp_path: Path
) -> None:
    """Away for 40 s: the Lease lapses and the alerts say so; back again, the same process binds the next pod."""
    url = f"embedded://{tmp_path}/log"
    kubeconfig = breakable_cluster.kubeconfig()
    run = MeteredRun(tmp_path, url, options=("--kubeconfig", str(kubeconfig)))
    run.service.start()
    try:
        admin = breakable_cluster.api()
        admin.create(manifests.node("n0", {"cpu": "4", "memory": "4Gi"}))
        admin.create(manifests.pod("a", {"cpu": "1"}))
        wait_for("a bound", lambda: _bound(run) == 1, seconds_max=60)
        assert 1 == run.value("lockstep_lease_held")
        before = run.scrape()
        breakable_cluster.kill_api_server()
        time.sleep(40)
        assert fires("LockstepApiServerAway", before, run.scrape())
        assert fires("LockstepNoLeader", run.scrape())
        breakable_cluster.start_api_server()
        began = time.monotonic()
        breakable_cluster.api().create(manifests.pod("b", {"cpu": "1"}))
        wait_for("b bound", lambda: _bound(run) == 2, seconds_max=120)
        print(f"bound {time.monotonic() - began:.1f} s after the API server answered")
        assert 1 == run.value("lockstep_lease_held")
        assert not fires("LockstepNoLeader", run.scrape())
    finally:
        run.service.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])


def _bound(run: MeteredRun) -> float | None:
    return run.value("lockstep_commands_ended_total", command="BindPod", outcome="Applied")

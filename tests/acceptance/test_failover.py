"""What failover costs: the leader killed, stopped, frozen; the broker and the API server restarted. Real services.

    FAILOVER_RUNS=10 pytest -s tests/acceptance/test_failover.py

prints the table of `docs/failover.md`. Each figure is the time from the fault (of a restart: from the moment the
service answers again) to the next decision in the log, and to the bind of a pod that was created after the fault.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.pair import Pair, applied_commands, running_services, seconds
from tests.integration.api import wait_for
from tests.integration.builds import Missing
from tests.integration.lockstep_process import lockstep

RUNS = int(os.environ.get("FAILOVER_RUNS", "3"))
FROZEN_S = float(os.environ.get("FAILOVER_FROZEN_S", "60"))
NODES = int(os.environ.get("FAILOVER_NODES", "100"))
PODS = int(os.environ.get("FAILOVER_PODS", "500"))

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.controlplane,
    pytest.mark.acceptance,
    pytest.mark.timeout(300 + RUNS * (120 + FROZEN_S)),
]

#: Seconds to the next decision, and to the next bind.
Cost = tuple[float, float]
#: Fault -> its runs.
COSTS: dict[str, list[Cost]] = {}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two processes on a cluster with nodes and running pods; what they did must verify at the end."""
    try:
        with running_services() as (broker, plane):
            pair = Pair(broker, plane, tmp_path_factory.mktemp("pair"))
            try:
                pair.fill(NODES, PODS)
                pair.start()
                yield pair
                _print_table()
            finally:
                pair.stop()
            code, found = lockstep("replay", "--log", pair.url, "--verify")
            assert (0, 0, 0) == (code, found["differences"], found["undecided"])
            binds = applied_commands(pair.url)["BindPod"]
            assert {1} == set(binds.values())
            print(f"verify: 0 differences; {len(binds)} pods bound, each once")
    except Missing as missing:
        pytest.skip(str(missing))


def _print_table() -> None:
    print(
        f"\n| fault ({RUNS} runs) | to the next decision: median, worst | to the next bind: median, worst |"
    )
    print("|---|---|---|")
    for fault, costs in COSTS.items():
        columns = [
            f"{statistics.median(each):.1f} s, {max(each):.1f} s"
            for each in zip(*costs, strict=True)
        ]
        print(f"| {fault} | {' | '.join(columns)} |")


def _cost(pair: Pair, began: float, before: int) -> Cost:
    """Waits for a decision behind `before`, and for a new pod's bind."""
    name = pair.probe()
    pair.decided(before)
    decision = time.monotonic() - began
    pair.bound(name)
    return decision, time.monotonic() - began


def _repeat(pair: Pair, fault: str, once: Callable[[], Cost]) -> list[Cost]:
    costs = COSTS.setdefault(fault, [])
    for _ in range(RUNS):
        _settle(pair)
        costs.append(once())
        print(
            f"{fault}: {costs[-1][0]:.2f} s to the next decision, {costs[-1][1]:.2f} s to the next bind"
        )
    return costs


def _settle(pair: Pair) -> None:
    """Both run, one leads, and nothing is under way."""
    for run in pair.runs.values():
        if not run.running:
            run.start()
    pair.bound(pair.probe())
    time.sleep(2)


def test_a_killed_leader_costs_less_than_15_seconds(pair: Pair) -> None:
    """SIGKILL: the other one leads when the Lease has run out."""

    def once() -> Cost:
        old = pair.leader
        began = time.monotonic()
        pair.runs[old].kill()
        cost = _cost(pair, began, pair.decisions())
        assert old != pair.leader
        return cost

    costs = _repeat(pair, "SIGKILL of the leader", once)
    assert max(bind for _, bind in costs) < 15


def test_a_clean_stop_costs_less_than_2_seconds(pair: Pair) -> None:
    """SIGTERM: the Lease is given back, the other one leads before the first has ended. Each run counts, the decision
    and the bind.
    """

    def once() -> Cost:
        old = pair.leader
        began = time.monotonic()
        pair.runs[old].terminate()
        wait_for("the Lease to be given back", lambda: pair.leader != old, every=0.02)
        cost = _cost(pair, began, pair.decisions())
        assert 0 == pair.runs[old].wait()
        return cost

    costs = _repeat(pair, "SIGTERM of the leader", once)
    assert max(bind for _, bind in costs) < 2


def test_a_frozen_leader_that_wakes_up_changes_nothing(pair: Pair) -> None:
    """SIGSTOP, and SIGCONT 60 s later: the other one leads and goes on leading, and no pod is bound twice."""

    def once() -> Cost:
        old = pair.leader
        began = time.monotonic()
        pair.runs[old].pause()
        cost = _cost(pair, began, pair.decisions())
        new = pair.leader
        assert old != new
        time.sleep(max(0.0, began + FROZEN_S - time.monotonic()))
        probes = [pair.probe() for _ in range(5)]
        pair.runs[old].resume()
        probes += [pair.probe() for _ in range(5)]
        awake = seconds(lambda: [pair.bound(name) for name in probes])
        time.sleep(3)
        assert new == pair.leader
        assert awake < 5
        print(f"awake again: 10 pods bound {awake:.2f} s later, the Lease stays")
        return cost

    costs = _repeat(pair, f"SIGSTOP of the leader, SIGCONT after {FROZEN_S:g} s", once)
    assert max(bind for _, bind in costs) < 15


def test_a_broker_that_restarts_is_found_again(pair: Pair) -> None:
    """SIGKILL of the only broker and a start over the same data; counted from when it answers."""

    def once() -> Cost:
        before = pair.decisions()
        pair.broker.kill()
        pair.broker.start()
        return _cost(pair, time.monotonic(), before)

    costs = _repeat(pair, "broker restarted", once)
    assert max(bind for _, bind in costs) < 15


def test_an_api_server_that_restarts_is_found_again(pair: Pair) -> None:
    """SIGKILL of the only API server and a start over the same etcd; counted from when it answers."""

    def once() -> Cost:
        pair.plane.kill_api_server()
        pair.plane.start_api_server()
        return _cost(pair, time.monotonic(), pair.decisions())

    costs = _repeat(pair, "API server restarted", once)
    assert max(bind for _, bind in costs) < 15

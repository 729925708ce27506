"""Evictions that an administrator asks for."""

from state import invariants
from state.model.decision import Answer
from tests.builders import START_US, Core, Json, ended, gone, node, pod

MINUTES_10_US = 600_000_000

REJECTED = Answer(
    kind="EvictionRejected", id="7", message="pod default/ghost is not there to evict"
)


def evict(name: str, identity: str = "1", uid: str = "", reason: str = "drain") -> Json:
    """The request."""
    request = {"kind": "EvictRequested", "id": identity, "namespace": "default", "name": name}
    return {**request, "uid": uid, "reason": reason}


def running() -> Core:
    """A core with one bound pod."""
    core = Core()
    core.see(node("n"), pod("p", node="n", phase="Running"))
    return core


def evictions(core: Core) -> list[tuple[str, str]]:
    """(uid, reason) of every EvictPod so far."""
    commands = [command for decision in core.decisions for command in decision.commands]
    return [(command.uid, command.reason) for command in commands if command.kind == "EvictPod"]


def test_an_eviction_is_commanded_with_reason_and_deadline() -> None:
    """A budget may hold it back for as long as policy says."""
    core = running()
    decision = core.see(evict("p"), topic="admin")
    assert [("uid-p", "drain")] == evictions(core)
    assert core.journal.now_us + MINUTES_10_US == decision.commands[0].deadline_us
    invariants.check(core.state)


def test_the_end_of_an_eviction_forgets_the_request() -> None:
    """Whether applied or refused, and the pod holds its room until it is gone."""
    for outcome in ("Applied", "Refused"):
        core = running()
        command = core.see(evict("p"), topic="admin").commands[0].id
        decision = core.see(ended(command, outcome), topic="results")
        assert ((command,), ()) == (decision.ended, decision.commands)
        assert ({}, {}) == (core.state.tables["evictions"], core.state.commands)
        assert 100 == core.state.columns.used[0, 0]


def test_an_eviction_waits_for_the_open_bind() -> None:
    """A pod has at most one open command; the eviction follows the bind's end."""
    core = Core()
    bind = core.see(node("n"), pod("p")).commands[0].id
    assert () == core.see(evict("p"), topic="admin").commands
    decision = core.see(ended(bind), topic="results")
    assert ["EvictPod"] == [command.kind for command in decision.commands]


def test_an_eviction_comes_before_another_try_to_bind() -> None:
    """The bind was refused: the pod that should go is evicted, not bound."""
    core = Core()
    bind = core.see(node("n"), pod("p")).commands[0].id
    core.see(evict("p"), topic="admin")
    decision = core.see(ended(bind, "Withdrawn"), topic="results")
    assert ["EvictPod"] == [command.kind for command in decision.commands]


def test_a_pending_pod_is_not_bound_while_it_is_evicted() -> None:
    """A refused eviction gives it back to the cycle."""
    core = Core()
    core.see(pod("p"))
    command = core.see(evict("p"), topic="admin").commands[0].id
    assert () == core.see(node("n")).commands
    decision = core.see(ended(command, "Refused"), topic="results")
    assert ["BindPod"] == [item.kind for item in decision.commands]


def test_an_unknown_pod_is_answered() -> None:
    """The decision says that there is nothing to evict."""
    decision = Core().see(evict("ghost", "7"), topic="admin")
    assert (REJECTED,) == decision.requests


def test_a_given_uid_is_not_mistaken_for_its_namesake() -> None:
    """Only the pod of that uid is evicted; without uid the newest of that name."""
    core = running()
    assert core.see(evict("p", uid="other"), topic="admin").requests
    assert [] == evictions(core)
    core.see(pod("p", uid="new", rv=3, node="n", created_us=START_US + 1))
    core.see(evict("p", "2", uid="uid-p"), evict("p", "3"), topic="admin")
    assert ["new", "uid-p"] == sorted(uid for uid, _ in evictions(core))


def test_a_repeated_request_is_one() -> None:
    """The same id once more, before or after its end, asks for nothing."""
    core = running()
    command = core.see(evict("p"), evict("p"), topic="admin").commands[0].id
    core.see(ended(command), topic="results")
    core.see(evict("p"), topic="admin")
    assert 1 == len(evictions(core))


def test_two_requests_for_one_pod_are_met_by_one_eviction() -> None:
    """What was applied once needs not be asked for again."""
    core = running()
    command = core.see(evict("p"), evict("p", "2"), topic="admin").commands[0].id
    core.see(ended(command), topic="results")
    assert (1, {}) == (len(evictions(core)), core.state.tables["evictions"])


def test_a_second_request_outlives_the_refusal_of_the_first() -> None:
    """Each is tried once."""
    core = running()
    command = core.see(evict("p"), evict("p", "2"), topic="admin").commands[0].id
    decision = core.see(ended(command, "Refused"), topic="results")
    assert ["EvictPod"] == [item.kind for item in decision.commands]


def test_a_pod_that_goes_by_itself_needs_no_eviction() -> None:
    """Gone, or terminating, while the request waits for an open bind."""
    for news in (gone("pods", "p"), pod("p", rv=2, node="n", deleted_us=START_US)):
        core = Core()
        bind = core.see(node("n"), pod("p")).commands[0].id
        core.see(evict("p"), topic="admin")
        core.see(news)
        core.see(ended(bind), topic="results")
        assert ([], {}) == (evictions(core), core.state.tables["evictions"])


def test_a_pod_gone_during_its_eviction_is_stale() -> None:
    """The command ends all the same and the request with it."""
    core = running()
    command = core.see(evict("p"), topic="admin").commands[0].id
    core.see(gone("pods", "p"))
    core.see(ended(command, "Stale", status=404), topic="results")
    assert ({}, {}) == (core.state.commands, core.state.tables["evictions"])


def test_nothing_is_evicted_while_the_gate_is_closed() -> None:
    """The request waits for the list."""
    core = running()
    start = {"kind": "SyncStarted", "resource": "nodes", "producer": "t", "epoch": "e"}
    core.see({**start, "list_rv": 5, "cold": True}, topic="nodes")
    assert () == core.see(evict("p"), topic="admin").commands
    named = {**node("n"), "epoch": "e"}
    finish = {"kind": "SyncFinished", "resource": "nodes", "epoch": "e", "list_rv": 5}
    decision = core.see(named, finish, topic="nodes")
    assert ["EvictPod"] == [command.kind for command in decision.commands]


def test_a_probe_is_answered() -> None:
    """A sign of life in the decision that folds it."""
    decision = Core().see({"kind": "ProbeRequested", "id": "x"}, topic="admin")
    assert (Answer(kind="ProbeFolded", id="x"),) == decision.requests

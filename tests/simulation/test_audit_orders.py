"""The auditor's account of gangs, against records and decisions of the core."""

from tests.builders import Core, gone, member, node, podgroup
from tests.simulation.audit_orders import OrdersAudit
from tests.simulation.core_chain import CoreChain
from tests.unit.state.test_sync import finished, started, still


def _with_one_bound() -> Core:
    """Two of the three members that g needs; another scheduler bound g-1 while a first list was under way."""
    core = Core()
    core.see(node("n"), podgroup("g", 3), member("g-0", "g"), member("g-1", "g"))
    core.see(started("first", 5, cold=True))
    core.see(member("g-1", "g", rv=4, node="n"))
    assert {} == core.binds()
    return core


def test_a_list_that_names_a_pod_deleted_since_takes_no_bind_back() -> None:
    """Deletion and the older list in one record: the tombstone is no pod that came back, and g-0 may come alone."""
    core = _with_one_bound()
    core.see(gone("pods", "g-1", rv=6), still("first", "g-0"), still("first", "g-1", 4))
    core.see(finished("first", 5))
    assert {"g-0": "n"} == core.binds()
    audit = OrdersAudit(CoreChain(core))  # type: ignore[arg-type]
    audit.read()
    assert audit.groups["default/g"].ever_bound


def test_a_pod_that_a_restore_brought_back_unbound_was_never_bound() -> None:
    """It was gone, and a list of a history that was reset has it without a node: the gang needs its minimum again."""
    core = _with_one_bound()
    core.see(gone("pods", "g-1", rv=6), still("first", "g-0"))
    core.see(started("reset", 3, cold=True))
    core.see({**member("g-1", "g"), "epoch": "reset"}, still("reset", "g-0"))
    core.see(finished("reset", 3))
    assert {} == core.binds()
    audit = OrdersAudit(CoreChain(core))  # type: ignore[arg-type]
    audit.read()
    assert not audit.groups["default/g"].ever_bound

"""The example subscriber reads the same history as everybody else."""

from examples.subscriber import accepted
from tests.builders import Core, node, pod


def test_the_subscriber_skips_what_is_stale() -> None:
    """Repeated decisions, and those of a fork that lost, are skipped; the rest comes in order."""
    core, fork = Core(), Core()
    for world, name in ((core, "a"), (fork, "b")):
        world.see(node(f"n-{name}"), topic="nodes")
        world.see(pod(name))
    values = [decision.data for decision in core.decisions]
    lost = [decision.data for decision in fork.decisions[2:]]
    mixed = [*values[:3], values[1], *lost, values[3], values[3]]
    assert [1, 2, 3, 4] == [decision["sequence"] for decision in accepted(mixed)]
    assert values == [
        value for value in values if any(d["digest"].encode() in value for d in accepted(mixed))
    ]

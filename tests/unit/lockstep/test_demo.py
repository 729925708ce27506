"""`lockstep demo`: it ends by itself, places gangs, survives a lost node, and its log verifies."""

from pathlib import Path

import pytest
from typer import Exit

from lockstep.demo import demo
from lockstep.demo_workload import DemoLoad
from producers.simulated.cluster import Cluster


def test_the_demo_ends_with_a_verified_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As fast as it goes and without a terminal it prints lines, and exits 0."""
    with pytest.raises(Exit) as ended:
        demo(seconds=0, keep=tmp_path)
    assert 0 == ended.value.exit_code
    shown = capsys.readouterr().out
    wanted = ("gpu-05 fails", "gpu-05 is back", "pretrain-b waits", "6 pods of pretrain-b placed")
    assert [] == [
        text for text in (*wanted, "0 differences", "lockstep replay") if text not in shown
    ]


def test_the_workload_is_the_same_each_time() -> None:
    """Two clusters that play the first minute without any engine hold the same objects."""

    def play() -> list[dict[str, object]]:
        cluster = Cluster(0)
        workload = DemoLoad(cluster)
        workload.start()
        for second in range(60):
            workload.second(second)
        return [event.raw for event in cluster.take_events()]

    assert play() == play()

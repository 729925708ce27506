"""`lockstep bench NAME`: the benchmarks of the performance page. Prints JSON or one line a figure; decides nothing."""

import tempfile
from enum import StrEnum
from typing import Annotated, Any

import typer

from lockstep.options import Output, OutputOption, print_json, progress_bar


class Name(StrEnum):
    """The benchmarks that exist."""

    CORE = "core"
    GANGS = "gangs"
    REPLAY = "replay"
    RECOVERY = "recovery"


def bench(
    *,
    name: Annotated[
        Name,
        typer.Argument(
            help=(
                "core: decisions/s; gangs: the same of gangs; replay: a verified replay; "
                "recovery: start to first decision."
            )
        ),
    ],
    nodes: Annotated[int, typer.Option(help="Nodes; gangs: a multiple of 500.", min=1)] = 5_000,
    pods: Annotated[int, typer.Option(help="core: pods placed in each repeat.", min=1)] = 20_000,
    repeats: Annotated[
        int,
        typer.Option(help="core and gangs (after one warm-up), recovery: measured repeats.", min=1),
    ] = 5,
    observations: Annotated[
        int, typer.Option(help="replay: observations in the journal.", min=1)
    ] = 1_000_000,
    live: Annotated[
        int, typer.Option(help="replay, recovery: pods that run at once.", min=1)
    ] = 50_000,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a benchmark on this machine."""
    if name is Name.CORE:
        results = _core(nodes, pods, repeats)
    elif name is Name.GANGS:
        results = _gangs(nodes, repeats)
    elif name is Name.REPLAY:
        results = _replay(nodes, observations, live)
    else:
        results = _recovery(nodes, live, repeats)
    if output is Output.JSON:
        print_json(results)
        return
    for label, figures in results.items():
        print(label)
        for figure, value in figures.items():
            print(f"  {figure}: {value}")


def _core(nodes: int, pods: int, repeats: int) -> dict[str, dict[str, Any]]:
    from bench.core import run_core

    return {
        "C1 identical pods": run_core(nodes, pods, 1, repeats),
        "C2 100 mixed shapes": run_core(nodes, pods, 100, repeats),
        "C3 identical pods, 20 times the nodes": run_core(20 * nodes, pods, 1, repeats),
        "C3 100 mixed shapes, 20 times the nodes": run_core(20 * nodes, pods, 100, repeats),
        "C4 100 mixed shapes, 5 times the pods placed before": run_core(
            nodes, pods, 100, 1, init=5 * pods
        ),
    }


def _gangs(nodes: int, repeats: int) -> dict[str, dict[str, Any]]:
    from bench.gangs import run_gangs

    return run_gangs(nodes, repeats)


def _replay(nodes: int, observations: int, live: int) -> dict[str, dict[str, Any]]:
    from bench.replay import run_replay, write_history

    with tempfile.TemporaryDirectory() as folder:
        url = f"embedded://{folder}/log"
        written = write_history(url, nodes, observations, live, shapes=100)
        with progress_bar("replay") as progress:
            replayed = run_replay(url, progress)
    return {"journal": written, "R2 verified replay": replayed}


def _recovery(nodes: int, live: int, repeats: int) -> dict[str, dict[str, Any]]:
    from bench.recovery import run_recovery

    results = {}
    for pods_per_s in (10, 100):
        with tempfile.TemporaryDirectory() as folder:
            found = run_recovery(f"embedded://{folder}/log", nodes, live, pods_per_s, repeats)
        results[f"R4 start, a minute of {pods_per_s} pods/s after the checkpoint"] = found
    return results

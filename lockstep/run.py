"""`lockstep run`: the service. Parses what was asked for, recovers, runs until SIGTERM or SIGINT."""

import asyncio
import logging
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from lockstep.options import DatadirOption, DomainOption, LogOption, datadir_of, progress_bar


def run(
    *,
    log: LogOption,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: the pod's own access, else ~/.kube/config.")
    ] = None,
    informers: Annotated[bool, typer.Option("--informers", help="Read the API server.")] = False,
    sequencer: Annotated[bool, typer.Option("--sequencer", help="Write the journal.")] = False,
    decider: Annotated[bool, typer.Option("--decider", help="Write decisions.")] = False,
    projector: Annotated[bool, typer.Option("--projector", help="Keep the tables.")] = False,
    sink: Annotated[bool, typer.Option("--sink", help="Bind and evict.")] = False,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Policy that a new log starts with.")
    ] = None,
    domain: DomainOption = 0,
    datadir: DatadirOption = None,
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Namespace of the Lease.")
    ] = "kube-system",
    identity: Annotated[
        str, typer.Option(envvar="LOCKSTEP_IDENTITY", help="Unique name of this process.")
    ] = "",
) -> None:
    """Run the service; without a role named, all of them."""
    from lockstep.manifests import read_policy
    from lockstep.service import Service, ServiceSettings
    from streams.log import create_topics
    from streams.logs import build_logging

    everything = not (informers or sequencer or decider or projector or sink)
    settings = ServiceSettings(
        log=log,
        domain=domain,
        datadir=datadir_of(log, datadir),
        policy=None if policy is None else read_policy(str(policy)),
        kubeconfig=None if kubeconfig is None else str(kubeconfig),
        lease_namespace=lease_namespace,
        identity=identity,
        informers=everything or informers,
        sequencer=everything or sequencer,
        decider=everything or decider,
        projector=everything or projector,
        sink=everything or sink,
    )
    build_logging()
    for chatty in ("faust", "mode", "aiokafka", "streams.embedded.transport"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    create_topics(log, domain + 1)
    asyncio.run(_serve(Service, settings))


async def _serve(build: Any, settings: Any) -> None:
    """Recovers and runs; SIGTERM and SIGINT are a clean stop."""
    service = build(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop.set)
    try:
        with progress_bar("recovery") as progress:
            await asyncio.to_thread(service.recover, progress)
        await service.run()
    except BaseExceptionGroup as errors:
        raise _first(errors) from errors
    finally:
        await loop.shutdown_default_executor()
        service.close()


def _first(errors: BaseException) -> BaseException:
    """The first single error in a group of groups."""
    while isinstance(errors, BaseExceptionGroup):
        errors = errors.exceptions[0]
    return errors

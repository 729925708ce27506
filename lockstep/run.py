"""`lockstep run`: the service. Parses what was asked for, recovers, runs until SIGTERM or SIGINT."""

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from lockstep.options import DatadirOption, DomainOption, LogOption, datadir_of, progress_bar
from schemas.errors import Fatal, LockstepError
from streams.logs import event

logger = logging.getLogger("lockstep")

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
#: How long the metrics of a process that has failed are shown: two scrapes of Prometheus, as it comes.
SHOWN_S: Final = 31.0


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
    standby: Annotated[
        bool, typer.Option("--standby", help="Fold a log that another process leads; take over.")
    ] = False,
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
    metrics: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve /metrics and /healthz there."),
    ] = None,
    metrics_token_file: Annotated[
        Path | None, typer.Option(help="Bearer token of /metrics; needed off the loopback.")
    ] = None,
) -> None:
    """Run the service; without a role named, all of them."""
    from lockstep.manifests import read_policy
    from lockstep.memory import bound_free_memory
    from lockstep.service import Service, ServiceSettings
    from streams.metrics_endpoint import MetricsAddress

    everything = not (informers or sequencer or decider or projector or sink)
    settings = ServiceSettings(
        log=log,
        domain=domain,
        datadir=datadir_of(log, datadir),
        policy=None if policy is None else read_policy(str(policy)),
        kubeconfig=None if kubeconfig is None else str(kubeconfig),
        lease_namespace=lease_namespace,
        identity=identity,
        standby=standby,
        metrics=None if metrics is None else MetricsAddress.parse(metrics, metrics_token_file),
        informers=everything or informers,
        sequencer=everything or sequencer,
        decider=everything or decider,
        projector=everything or projector,
        sink=everything or sink,
    )
    _check_standby(settings)
    _log_quietly()
    bound_free_memory()
    asyncio.run(_serve(Service, settings))


def _log_quietly() -> None:
    """Our own events, and of the libraries what matters."""
    from streams.logs import build_logging

    build_logging()
    for chatty in ("faust", "mode", "streams.embedded.transport"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # Thirty lines a second while a broker is away; the feeds say the same once in a while.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def _check_standby(settings: Any) -> None:
    """Raises `LockstepError` where nobody could stand by."""
    if not settings.standby:
        return
    if not settings.log.startswith("kafka://"):
        raise LockstepError(
            f"--standby: one process at a time opens {settings.log}; it takes a log on Kafka"
        )
    if not settings.sink:
        raise LockstepError("--standby: who leads is said by the Lease, which comes with --sink")


def _check_datadir(datadir: Path) -> None:
    """Raises `LockstepError` where no tables can be kept."""
    try:
        datadir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LockstepError(f"--datadir {datadir}: cannot be made: {error.strerror}") from error
    if not os.access(datadir, os.W_OK | os.X_OK):
        raise LockstepError(f"--datadir {datadir}: cannot be written")


async def _serve(build: Any, settings: Any) -> None:
    """Serves metrics around the service's run, and for a while after it has failed."""
    from streams.metrics import Metrics
    from streams.metrics_endpoint import serving

    metrics = Metrics()
    logging.getLogger().addHandler(metrics.events)
    try:
        async with AsyncExitStack() as stack:
            if settings.metrics is not None:
                await stack.enter_async_context(serving(settings.metrics, metrics))
            error = await _outcome(_run(build, settings, metrics))
            if error is not None and settings.metrics is not None:
                await _show(error, metrics.roles)
    finally:
        logging.getLogger().removeHandler(metrics.events)
    if error is not None:
        raise error


async def _run(build: Any, settings: Any, metrics: Any) -> None:
    """Recovers and runs; SIGTERM and SIGINT are a clean stop. The log is given back at the end."""
    from streams.log import check_history, create_topics

    domains = settings.domain + 1
    await asyncio.to_thread(check_history, settings.log, domains)
    if not settings.standby:
        await asyncio.to_thread(create_topics, settings.log, domains)
    service = build(settings, metrics)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, service.stop.set)
    try:
        _check_datadir(settings.datadir)
        if settings.standby and not await service.wait_for_history():
            return
        with progress_bar("recovery") as progress:
            await asyncio.to_thread(service.recover, progress)
        await service.run()
    finally:
        await loop.shutdown_default_executor()
        service.close()


async def _outcome(running: Coroutine[Any, Any, None]) -> Exception | None:
    """What ended `running`; the first error of a group."""
    try:
        await running
    except Exception as error:  # noqa: BLE001  (whatever it was, it is shown, then raised)
        return _first(error)
    return None


async def _show(error: Exception, roles: Any) -> None:
    """Says why it stopped, and leaves time to read it from the metrics: a process that is gone has none.

    By now no role runs, the Lease is free and the log is closed, so nobody waits for this one.
    """
    if isinstance(error, LockstepError) and not isinstance(error, Fatal):
        return
    roles.running = False
    roles.stopped = getattr(error, "cause", "exception")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, ended.set)
    event(logger, logging.CRITICAL, "stopped_for_good", cause=roles.stopped, detail=str(error))
    with suppress(TimeoutError):
        async with asyncio.timeout(SHOWN_S):
            await ended.wait()


def _first(error: Exception) -> Exception:
    """The first single error in a group of groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error

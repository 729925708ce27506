"""`lockstep device-agent`: one on each GPU node; reads the node's GPUs and publishes them when something changed."""

import asyncio
from typing import Annotated

import typer

from lockstep.options import DomainOption, LogOption


def device_agent(
    *,
    log: LogOption,
    node: Annotated[
        str, typer.Option(envvar="NODE_NAME", help="Name of the Node object of this machine.")
    ],
    domain: DomainOption = 0,
) -> None:
    """Publish this node's GPUs to the log (a Kafka log: an embedded one has a single writer)."""
    from streams.logs import build_logging

    build_logging()
    asyncio.run(_run(log, node, domain))


async def _run(log: str, node: str, domain: int) -> None:
    from producers.devices import DeviceAgent, boot_id
    from producers.nvml import Nvml
    from producers.publisher import PackingPublisher
    from streams.log import open_writer

    writer = open_writer(log, domain)
    try:
        publisher = PackingPublisher(f"device-agent/{node}", writer.append_many)
        await DeviceAgent(node, Nvml().gpus, publisher, boot=boot_id()).run()
    finally:
        writer.close()

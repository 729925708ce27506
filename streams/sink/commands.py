"""The part of a decision that the sink is for, read from its bytes without decoding the rest."""

from typing import Any, Final, NamedTuple

import msgspec

from schemas.envelope import BindPod, Command, EmitEvent, EvictPod, PatchStatus

_MODELS: Final[dict[str, type[BindPod | EvictPod | PatchStatus | EmitEvent]]] = {
    "BindPod": BindPod,
    "EvictPod": EvictPod,
    "PatchStatus": PatchStatus,
    "EmitEvent": EmitEvent,
}


class _Part(msgspec.Struct):
    commands: tuple[dict[str, Any], ...]
    ended: tuple[str, ...]
    withdrawn: tuple[str, ...]
    requests: tuple[dict[str, str], ...]


_decoder = msgspec.json.Decoder(_Part)


class Commands(NamedTuple):
    """The arguments of `Sink.on_decision`, in their order, then the resources to be listed anew."""

    commands: tuple[Command, ...]
    ended: tuple[str, ...]
    withdrawn: tuple[str, ...]
    resyncs: tuple[str, ...]


def read_commands(data: bytes) -> Commands:
    """Of the bytes of an accepted decision. Raises `KeyError` for a kind of command that this build
    does not know: a sink that skipped it would leave it unanswered for ever.
    """
    part = _decoder.decode(data)
    commands = tuple(_MODELS[item["kind"]](**item) for item in part.commands)
    asked = [item for item in part.requests if item["kind"] == "ResyncRequested"]
    resyncs = tuple(item["resource"] for item in asked)
    return Commands(commands, part.ended, part.withdrawn, resyncs)

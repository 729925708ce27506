"""The sink of `simulate` and `demo`: carries commands out on the simulated cluster and gives their
ends.

Judges every answer with the real sink's rules (`streams.sink.outcomes`); only the calls and the
waiting are its own. Must not: read a clock, or end a command whose outcome is not known.
"""

from dataclasses import dataclass
from typing import Final

from producers.simulated.cluster import Cluster
from producers.simulated.faults import Reply
from schemas.envelope import BindPod, EvictPod
from schemas.labels import COMMAND_ID
from schemas.observations import CommandEnded
from state.model.decision import Command, Decision
from streams.sink.api import Response
from streams.sink.bodies import status_body
from streams.sink.outcomes import (
    NotDone,
    ReadPod,
    TryAgain,
    judge,
    judge_conflict,
    judge_pod,
    refused_by_budget,
    withdrawn,
)

#: The commands that end; an Event is not kept by the simulated cluster.
ENDING: Final = ("BindPod", "EvictPod")
#: How long an answer that ends nothing waits for the next try, in microseconds.
RETRY_US: Final = 1_000_000


@dataclass(slots=True)
class _Open:
    """A command without an end. `try_us`: not before; `doubt`: the answer that left it open."""

    command: BindPod | EvictPod
    try_us: int = 0
    doubt: TryAgain | None = None
    withdrawn: bool = False


class SimulatedSink:
    """Open commands of one engine, in the order in which they were decided."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[str, _Open] = {}

    def take(self, decision: Decision) -> None:
        """Takes over a decision's commands and withdrawals; statuses are written at once."""
        for command in decision.commands:
            if command.kind == "PatchStatus":
                place = command.resource, command.namespace, command.name, command.uid
                fields = command.fields
                if command.resource != "pods":
                    fields = status_body(command.resource, fields)
                self._cluster.patch_status(*place, fields)
            elif command.kind in ENDING:
                self._open[command.id] = _Open(_on_the_wire(command))
        self._withdraw(decision)

    def recover(self, decisions: list[Decision]) -> None:
        """Forgets everything and takes the open commands from the history of decisions."""
        self._open.clear()
        for decision in decisions:
            for command in decision.commands:
                if command.kind in ENDING:
                    self._open[command.id] = _Open(_on_the_wire(command))
            self._withdraw(decision)
            for command_id in decision.ended:
                self._open.pop(command_id, None)

    def act(self) -> list[CommandEnded]:
        """Tries every open command that may be tried now; returns the ends."""
        ends = []
        for item in [*self._open.values()]:
            end = None if self._must_wait(item) else self._try(item)
            if end is not None:
                del self._open[item.command.id]
                ends.append(end)
        return ends

    @property
    def next_event_us(self) -> int | None:
        """When something is to be tried or given up next, or None."""
        moments = []
        for item in self._open.values():
            if item.doubt is not None and item.doubt.budget:
                assert isinstance(item.command, EvictPod)
                moments.append(item.command.deadline_us)
            elif item.try_us > self._cluster.now_us:
                moments.append(item.try_us)
        return min(moments, default=None)

    def _withdraw(self, decision: Decision) -> None:
        for command_id in decision.withdrawn:
            item = self._open.get(command_id)
            if item is not None and not self._on_its_way(item):
                item.withdrawn = True

    def _on_its_way(self, item: _Open) -> bool:
        """A delayed bind has left the sink: it can't be withdrawn, its end comes when it comes."""
        place = item.command.namespace, item.command.name
        return isinstance(item.command, BindPod) and place in self._cluster.faults.delayed

    def _must_wait(self, item: _Open) -> bool:
        return self._on_its_way(item) or item.try_us > self._cluster.now_us

    def _try(self, item: _Open) -> CommandEnded | None:
        command = item.command
        if item.doubt is not None and (item.doubt.uncertain or item.withdrawn):
            found = judge_pod(command, self._read(command), item.doubt.why)
            if not isinstance(found, NotDone):
                return self._settle(item, found)
        if item.withdrawn:
            return withdrawn(command)
        answer = self._call(command)
        verdict = judge(command, answer)
        if isinstance(verdict, ReadPod):
            verdict = judge_conflict(command, answer, self._read(command))
        return self._settle(item, verdict)

    def _settle(self, item: _Open, verdict: CommandEnded | TryAgain) -> CommandEnded | None:
        if isinstance(verdict, CommandEnded):
            return verdict
        now_us, command = self._cluster.now_us, item.command
        if verdict.budget and isinstance(command, EvictPod) and now_us >= command.deadline_us:
            return refused_by_budget(command, verdict.why)
        # A budget may yield with any change, so it is asked again at every occasion.
        item.doubt, item.try_us = verdict, 0 if verdict.budget else now_us + RETRY_US
        return None

    def _call(self, command: BindPod | EvictPod) -> Response:
        place = command.namespace, command.name, command.uid
        if isinstance(command, BindPod):
            annotations = {**command.annotations, COMMAND_ID: command.id}
            return _response(self._cluster.bind(*place, command.node, annotations))
        return _response(self._cluster.evict(*place))

    def _read(self, command: BindPod | EvictPod) -> Response:
        pod = self._cluster.read_pod(command.namespace, command.name)
        return Response(404) if pod is None else Response(200, body=pod)


def _response(reply: Reply) -> Response:
    cause = {"details": {"causes": [{"reason": "DisruptionBudget"}]}}
    return Response(reply.status, message=reply.message, body=cause if reply.budget else {})


def _on_the_wire(command: Command) -> BindPod | EvictPod:
    """The core's command as the wire's, which the sink's rules judge."""
    if command.kind == "BindPod":
        return BindPod(
            id=command.id,
            namespace=command.namespace,
            name=command.name,
            uid=command.uid,
            node=command.node,
            annotations=command.annotations,
        )
    return EvictPod(
        id=command.id,
        namespace=command.namespace,
        name=command.name,
        uid=command.uid,
        reason=command.reason,
        deadline_us=command.deadline_us,
    )

"""Puts pods on nodes within one trial, holds them there, lets them go, and writes why a pod has none.

Called by `state.units`, which decides what belongs together. What didn't fit is remembered for the trial: room only
shrinks while units are tried, but for `let_go`, which forgets it.
"""

from itertools import groupby
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from state.candidates import (
    count_reasons,
    fits_on,
    most_free,
    pick_node,
    pick_nodes,
    roominess,
)
from state.model.diagnoses import FOR_ROOM, Code, Diagnosis
from state.model.facts import let_go
from state.model.gangs import podgroup_of
from state.model.limits import TOLD_MAX
from state.model.podclass import group_field
from state.model.policy import reads_kubernetes
from state.model.rows import Node, OpenCommand, Pod
from state.model.scores import MAY, ClassScores
from state.model.seen import DeviceHeld
from state.model.state import State
from state.model.trial import Trial
from state.packing import Roominess
from state.rules.allocate import allocation_annotation, whole_cards
from state.rules.explain import Misfit, misfit_code, with_conflicts
from state.rules.filters import node_reason


class Mark(Struct, frozen=True):
    """A point of a trial to come back to."""

    trial: tuple[int, int]
    placed: int
    moves: int
    let_some_go: bool
    told: int
    misfits: dict[bytes, Misfit]
    misfits_known: int


class Fit(Struct):
    """Nodes for pods that belong together, worked out and not written: `chosen` pods with their nodes' ordinals.

    `rest`: pods that got none; `misfit`: why, None where no more of them were needed; `odd`: the first of those who
    don't fit, where not all are alike.
    """

    chosen: list[tuple[Pod, int]]
    rest: list[Pod]
    misfit: Misfit | None = None
    odd: Pod | None = None


class Placement:
    """Writes of one trial's units. `placed`: pods that got a node. `let_some_go`: room came free on the way."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.state: State = trial.state
        self.placed = 0
        self.let_some_go = False
        self.untold = False  # there was more to tell than one decision takes
        self._news = 0
        self.moves = 0  # pods placed, or taken off a node, and not undone
        self._misfits: dict[bytes, Misfit] = {}
        self._misfits_at: dict[bytes, tuple[tuple[int, int], Misfit]] = {}
        self._told: dict[str, None] = {}  # who let go: why is worth more than what it lacks now

    def mark(self) -> Mark:
        """Where things stand."""
        return Mark(
            self.trial.mark(),
            self.placed,
            self.moves,
            self.let_some_go,
            len(self._told),
            self._misfits,
            len(self._misfits),
        )

    def back_to(self, mark: Mark) -> None:
        """As things stood at `mark`."""
        self.trial.back_to(mark.trial)
        self.placed, self.moves = mark.placed, mark.moves
        self.let_some_go = mark.let_some_go
        self._misfits = mark.misfits
        _cut(self._misfits, mark.misfits_known)
        _cut(self._told, mark.told)

    # -- nodes -----------------------------------------------------------------------------------------------

    def place(self, pod: Pod, held_until_us: int = 0) -> bool:
        """Assumes the pod on its best node and commands the bind, unless it is to be held; False: no node fits."""
        if bytes(pod.spec) in self._misfits:
            return False
        node_ord = pick_node(self.state, self.state.scores_of(pod))
        if node_ord < 0:
            return False
        self.put_on(pod, node_ord, held_until_us)
        return True

    def put_on(self, pod: Pod, node_ord: int, held_until_us: int = 0) -> None:
        """Assumes the pod on a node where it fits, and commands the bind, unless it is to be held."""
        node = self.state.columns.names[node_ord]
        allocations = self._cards(self.state.scores_of(pod), node)
        self.placed += 1
        self.moves += 1
        placed = replace(
            pod,
            allocations=allocations,
            assumed=node,
            backoff_us=0,
            command="" if held_until_us else self._command(pod, node, allocations),
            diagnosis=_holding(node, held_until_us) if held_until_us else None,
            held_until_us=held_until_us,
            nominated="",
            nominated_until_us=0,
            parked=False,
        )
        self.trial.put("pods", pod.uid, placed)

    def place_run(self, pods: list[Pod]) -> int:
        """Assumes pods of one class, as `place` would one after another, until one has no node; how many."""
        ords = self._nodes_for(pods[0], len(pods))
        for pod, node_ord in zip(pods, ords, strict=False):
            self.put_on(pod, node_ord)
        return len(ords)

    def _nodes_for(self, pod: Pod, count: int) -> list[int]:
        """Nodes for so many pods like this one; fewer: no more fit."""
        if not count or bytes(pod.spec) in self._misfits:
            return []
        return pick_nodes(self.state, self.state.scores_of(pod), count)

    def fit(self, pods: list[Pod], needed: int) -> Fit:
        """Nodes for the first `needed` pods that fit, as if they were placed one after another. Writes nothing."""
        fit = Fit(chosen=[], rest=[])
        columns, charged = self.state.columns, []
        misfits: list[tuple[list[Pod], Misfit]] = []
        for run in runs(pods):
            wanted = min(len(run), needed - len(fit.chosen))
            scores = self.state.scores_of(run[0])
            ords = self._nodes_for(run[0], wanted)
            fit.chosen += zip(run, ords, strict=False)
            fit.rest += run[len(ords) :]
            if ords and len(fit.chosen) < needed:  # whoever comes next must see it
                columns.charge(scores.request, scores.podclass.cards, ords, +1)
                charged.append((scores, ords))
            if len(ords) < wanted:
                misfits.append((run, self.misfit(run[0])))
        for scores, ords in charged:
            columns.charge(scores.request, scores.podclass.cards, ords, -1)
        if misfits and len(fit.chosen) < needed:
            run, fit.misfit = _worst(misfits, len(pods) - needed)
            fit.odd = run[0] if len(run) < len(pods) else None
        return fit

    def send(self, pod: Pod) -> None:
        """Commands the bind of a pod that is assumed."""
        command = self._command(pod, pod.assumed, pod.allocations)
        sent = replace(pod, command=command, diagnosis=None, held_until_us=0)
        self.trial.put("pods", pod.uid, sent)

    def _command(self, pod: Pod, node: str, allocations: tuple[DeviceHeld, ...]) -> str:
        opened = OpenCommand(
            kind="BindPod",
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            annotations=allocation_annotation(allocations),
            node=node,
        )
        return self.trial.open(opened)

    def renounce(self, pod: Pod) -> Pod:
        """Gives up the room that the pod is nominated for, or holds; the pod as it is then."""
        if not pod.nominated and not pod.held_until_us:
            return pod
        freed = let_go(pod)
        self.trial.put("pods", pod.uid, freed)
        self._misfits = {}  # not cleared: marks know it
        return freed

    def nominate(self, pod: Pod, node: str, diagnosis: Diagnosis | None = None) -> None:
        """Keeps room on the node for the pod, which waits there for others to leave."""
        assert self.state.policy is not None
        until_us = self.trial.now_us + self.state.policy.preemption.nominatedFor
        nominated = replace(
            pod,
            backoff_us=0,
            diagnosis=diagnosis,
            nominated=node,
            nominated_until_us=until_us,
            parked=True,
        )
        self.trial.put("pods", pod.uid, nominated)
        self.moves += 1

    def let_go(self, pod: Pod, diagnosis: Diagnosis) -> None:
        """Takes back a node that the pod held; whoever was tried before may fit now."""
        self._told[pod.uid] = None
        told = replace(let_go(pod), diagnosis=diagnosis, parked=True)
        self.trial.put("pods", pod.uid, told)
        self._misfits = {}  # not cleared: marks know it
        self.moves += 1
        self.let_some_go = True

    def may_stay(self, pod: Pod) -> bool:
        """Whether the node that the pod holds, or is nominated for, is still open to it, and what it holds is there."""
        node = self.state.nodes.get(pod.assumed or pod.nominated)
        if node is None or node_reason(self.state.class_of(pod), node) != MAY:
            return False
        return bool(pod.nominated) or self._still_fits(pod, node)

    def _still_fits(self, pod: Pod, node: Node) -> bool:
        """Whether the node has not become too small for what is on it, and the pod's cards are healthy.

        Room that is kept there for others comes free when pods leave; it does not make the node smaller.
        """
        state, scores = self.state, self.state.scores_of(pod)
        total, used = state.columns.total[:, node.ord], state.columns.used[:, node.ord].copy()
        there = state.pods_on.get(node.name, ()) if state.nominated else ()
        for other in (state.pods[uid] for uid in there if uid in state.nominated):
            for axis, amount in state.scores_of(other).request.items():
                used[axis] -= amount
        if any(used[axis] > total[axis] for axis in scores.axes):
            return False
        report, cards = state.devices_of(node.name), scores.podclass.cards
        if report is None:
            return not pod.allocations and (not cards or scores.podclass.by_kubelet)
        healthy = {(card.type, card.minor): None for card in report.devices if card.healthy}
        held = [(each.type, each.minor) for each in pod.allocations]
        return len(held) == cards and all(each in healthy for each in held)

    def roominess(self, pod: Pod) -> Roominess:
        """How many pods like this one fit now, each on some node."""
        return roominess(self.state, self.state.scores_of(pod))

    def fits_on(self, pod: Pod, node: str) -> bool:
        """Whether the pod fits on the node now."""
        row = self.state.nodes.get(node)
        return row is not None and fits_on(self.state, self.state.scores_of(pod), row.ord)

    def _cards(self, scores: ClassScores, node: str) -> tuple[DeviceHeld, ...]:
        count = scores.podclass.cards
        if not count or self.state.devices_of(node) is None:
            return ()
        return whole_cards(self.state.free_cards(node), count)

    # -- words -----------------------------------------------------------------------------------------------

    def is_ready(self, pod: Pod) -> bool:
        """Whether the pod may be tried; says why not."""
        why = self.unready(pod)
        if why is not None:
            self.explain(pod, why)
        return why is None and pod.backoff_us <= self.trial.now_us

    def unready(self, pod: Pod) -> Diagnosis | None:
        """Why the pod itself must change before it is tried, or None; a back-off is told when it begins."""
        podclass = self.state.class_of(pod)
        unsupported = podclass.unsupported
        if pod.scheduling_group and not unsupported:
            unsupported = self._unsupported_group(pod)
        if pod.gates:
            code, message = Code.GATED, f"scheduling gates: {', '.join(pod.gates)}"
        elif podclass.invalid:
            code, message = Code.INVALID_REQUEST, podclass.invalid
        elif unsupported:
            code, message = Code.UNSUPPORTED, f"this version does not decide: {unsupported}"
        else:
            return None
        return Diagnosis(code=code, message=message)

    def _unsupported_group(self, pod: Pod) -> str:
        """What the pod's scheduling group of Kubernetes asks for that is not decided; empty: nothing."""
        if not reads_kubernetes(self.state.policy):
            field = group_field(pod.scheduling_group).removeprefix("spec.")
            return f"{field} (policy gangs.kubernetesWorkloads is off)"
        group = podgroup_of(self.state, self.state.gang_key(pod))
        return ", ".join(group.unsupported) if group is not None else ""

    def misfit(self, pod: Pod) -> Misfit:
        """Why pods like this one have no node now."""
        key = bytes(pod.spec)
        found = self._misfits.get(key)
        if found is None:
            found = self._misfits[key] = self._misfit_now(key, self.state.scores_of(pod))
        return found

    def _misfit_now(self, key: bytes, scores: ClassScores) -> Misfit:
        columns = self.state.columns
        at = columns.touched.end, columns.respecified.end
        known = self._misfits_at.get(key)
        if known is not None and known[0] == at:  # going back to a mark forgets what is true still
            return known[1]
        found = Misfit(
            nodes=count_reasons(self.state, scores), resources=most_free(self.state, scores)
        )
        self._misfits_at[key] = at, found
        return found

    def forget_misfits(self) -> None:
        """Other nodes are open now than when they were found."""
        self._misfits = {}  # not cleared: marks know it

    def is_misfit(self, spec: bytes) -> bool:
        """Whether a pod of that class was found to have no node, and nothing came free since."""
        return spec in self._misfits

    def explain(self, pod: Pod, diagnosis: Diagnosis, *, parked: bool = True) -> None:
        """Writes why the pod waits; a parked pod is tried again only when something came that may help."""
        if pod.uid in self._told:
            return
        pod = self.state.pods[pod.uid]
        diagnosis = with_conflicts(diagnosis, self.state.membership(pod).conflicts)
        backoff_us = pod.backoff_us if pod.backoff_us > self.trial.now_us else 0
        if (pod.diagnosis, pod.parked, pod.backoff_us) != (diagnosis, parked, backoff_us):
            if self._news >= TOLD_MAX:
                self.untold = True
                return
            self._news += 1
            told = replace(pod, backoff_us=backoff_us, diagnosis=diagnosis, parked=parked)
            self.trial.put("pods", pod.uid, told)


def _worst(misfits: list[tuple[list[Pod], Misfit]], surplus: int) -> tuple[list[Pod], Misfit]:
    """Why too few fit: the first of these misfits; room, where those whom no room helps are not needed."""
    hopeless = [(run, each) for run, each in misfits if misfit_code(each) not in FOR_ROOM]
    if len(hopeless) == len(misfits) or sum(len(run) for run, _ in hopeless) > surplus:
        return misfits[0]
    return next((run, each) for run, each in misfits if misfit_code(each) in FOR_ROOM)


def _cut(known: dict[Any, Any], count: int) -> None:
    """Forgets what came after the first `count`."""
    if len(known) > count:
        for key in list(known)[count:]:
            del known[key]


def runs(pods: list[Pod]) -> list[list[Pod]]:
    """Pods in a row that are of one class."""
    return [list(run) for _, run in groupby(pods, key=lambda pod: bytes(pod.spec))]


def _holding(node: str, until_us: int) -> Diagnosis:
    return Diagnosis(
        code=Code.HOLDING,
        details={"node": node, "until_us": until_us},
        message=f"holds room on {node} until the rest of its gang has a node, or its wait time is over",
    )

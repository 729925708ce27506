"""A pod was observed."""

from msgspec.structs import replace

from state.model.facts import forget_facts, merge_facts, store_pod
from state.model.gangs import unmark_satisfied
from state.model.lists import admits, doubt, is_namesake, is_newer, resets, weigh_lack
from state.model.rows import Pod, same_words
from state.model.seen import PodSeen
from state.model.state import FINISHED
from state.model.trial import Trial
from state.rules.allocate import annotated_allocations


def on_pod_seen(trial: Trial, seen: PodSeen) -> None:
    """Takes the pod in: the higher version wins, facts only appear, a uid that is gone stays gone."""
    old = trial.state.pods.get(seen.uid)
    was_gone = seen.uid in trial.state.tables["tombstones"]
    if not is_namesake(old, seen) or not admits(trial, seen, "pods", old):
        return
    listing = trial.state.lists.get(seen.epoch) if seen.epoch else None
    if listing is not None and old is not None and _lacks(seen, old):
        if listing.reset:
            doubt(trial, "pods")  # a belated list takes back what a later one has said
        elif old.rv <= listing.list_rv:
            weigh_lack(trial, listing, old.told_at)
    if old is not None and not is_newer(trial, seen.rv, old.rv, seen.epoch):
        store_pod(trial, old, merge_facts(old, seen))
        return
    state = trial.state
    facts = None
    if old is not None:
        facts = (forget_facts if resets(trial, seen.epoch) else merge_facts)(old, seen)
    new = Pod(
        created_us=seen.created_us,
        name=seen.name,
        namespace=seen.namespace,
        phase=facts.phase if facts and facts.phase in FINISHED else seen.phase,
        rv=seen.rv,
        spec=state.intern(seen.spec),
        uid=seen.uid,
        allocations=facts.allocations if facts else seen.allocations,
        annotations=state.intern(seen.annotations),
        assumed=facts.assumed if facts else "",
        deleted_us=facts.deleted_us if facts else (seen.deleted_us or 0),
        gates=seen.gates,
        held_until_us=facts.held_until_us if facts else 0,
        labels=state.intern(seen.labels),
        node=facts.node if facts else (seen.node or ""),
        nominated=facts.nominated if facts else "",
        nominated_until_us=facts.nominated_until_us if facts else 0,
        owner=seen.owner or "",
        scheduling_group=seen.scheduling_group or "",
        started_us=facts.started_us if facts else (seen.started_us or 0),
        told_at=facts.told_at if facts and _lacks(seen, facts) else 0,
        command=state.open_command_of(seen.uid) if old is None else old.command,
    )
    if old is None:
        new = _with_held(trial, new)
    else:
        same = same_words(old, new) and (old.spec, old.gates) == (new.spec, new.gates)
        new = replace(
            new,
            attempts=old.attempts,
            backoff_us=old.backoff_us,
            diagnosis=old.diagnosis,
            parked=old.parked and same,
        )
        if resets(trial, seen.epoch):
            new = _with_held(trial, new)
    store_pod(trial, old, new)
    if was_gone and not new.node:
        unmark_satisfied(trial, new)


def _with_held(trial: Trial, pod: Pod) -> Pod:
    """A pod that was gone, or bound, and is not any more, as after a restore of etcd: its open bind may still put it
    where it says.
    """
    opened = trial.state.commands.get(pod.command)
    if opened is None or opened.kind != "BindPod" or pod.node:
        return pod
    allocations = pod.allocations or annotated_allocations(opened.annotations)
    return replace(pod, allocations=allocations, assumed=opened.node)


def _lacks(seen: PodSeen, known: Pod) -> bool:
    """The pod is seen without a fact that is known of it."""
    return bool(
        (known.node and not seen.node)
        or (known.deleted_us and not seen.deleted_us)
        or (known.phase in FINISHED and seen.phase not in FINISHED)
    )

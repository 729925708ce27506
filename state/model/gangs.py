"""Gang rows from whatever spells them: a PodGroup of any API group, a Workload, else the first member's own words."""

from msgspec.structs import replace

from state.model.limits import KUBERNETES
from state.model.podclass import gang_groups, gang_match, gang_mode, gang_wait_us
from state.model.policy import reads_kubernetes
from state.model.rows import Gang, Pod, PodGroup
from state.model.state import State
from state.model.trial import Trial
from state.model.workloads import workload_of


def refresh_gang(trial: Trial, key: str) -> None:
    """Works out the gang `ns/name` anew after a PodGroup or a member came, changed or went."""
    if not key:
        return
    state = trial.state
    old = state.gangs.get(key)
    group = podgroup_of(state, key)
    members = state.members.get(key)
    if group is not None and (members or not workload_of(key)):
        new = _from_podgroup(state, group, key, old)
    elif members:
        new = _from_members(state, key, old)
    else:
        new = None
    if new != old:
        trial.put("gangs", key, new)
        trial.gangs_changed[key] = None


def refresh_member(trial: Trial, key: str) -> None:
    """The same where only a member came or went: what a PodGroup says of the gang is as it was."""
    if not key:
        return
    group, gang = podgroup_of(trial.state, key), trial.state.gangs.get(key)
    if group is None or gang is None or gang.source != group.uid or workload_of(key):
        refresh_gang(trial, key)
    elif not gang.satisfied and any_bound(trial.state, key):
        trial.put("gangs", key, replace(gang, satisfied=True))
        trial.gangs_changed[key] = None


def refresh_replicas(trial: Trial, workload: str) -> None:
    """Works out anew the gangs of the Workload `ns/name`."""
    for key in sorted(trial.state.replicas.of.get(workload, ())):
        refresh_gang(trial, key)


def mark_satisfied(trial: Trial, pod: Pod) -> None:
    """A bound member was seen: under match policy once-satisfied later members come alone, whatever dies meanwhile."""
    key = trial.state.gang_key(pod)
    gang = trial.state.gangs.get(key) if key else None
    if gang is not None and not gang.satisfied:
        trial.put("gangs", key, replace(gang, rest_until_us=0, satisfied=True, timeouts=0))
        trial.gangs_changed[key] = None


def unmark_satisfied(trial: Trial, pod: Pod) -> None:
    """History was reset and a bind with it: a gang without any bound member has never been placed."""
    key = trial.state.gang_key(pod)
    gang = trial.state.gangs.get(key) if key else None
    if gang is not None and gang.satisfied and not any_bound(trial.state, key):
        trial.put("gangs", key, replace(gang, satisfied=False))
        trial.gangs_changed[key] = None


def podgroup_of(state: State, key: str) -> PodGroup | None:
    """The PodGroup of that `ns/name`: of several API groups' that of Koordinator, of upstream, of Kubernetes; of two
    namesakes the newer.
    """
    groups = podgroups_named(state, key)
    if len(groups) < 2:
        return groups[0] if groups else None
    return min(
        groups,
        key=lambda row: (row.group == KUBERNETES, row.group, -row.rv, row.uid),
    )


def podgroups_named(state: State, key: str) -> list[PodGroup]:
    """All PodGroups of that `ns/name` that policy has read; for the gang of a Workload what that says of it."""
    rows = [state.podgroups[uid] for uid in state.groups_named.get(key, ())]
    if not reads_kubernetes(state.policy):
        return [row for row in rows if row.group != KUBERNETES]
    declared = state.replicas.podgroup_of(key) if workload_of(key) else None
    return rows if declared is None else [*rows, declared]


def any_bound(state: State, key: str) -> bool:
    """Some member has a node by the API server's word."""
    return key in state.crews.bound


def with_self(groups: tuple[str, ...], key: str) -> tuple[str, ...]:
    """The group of the gang `key`, sorted: it belongs to it whether it names itself or not; empty: alone."""
    if not groups or groups == (key,):
        return ()
    return groups if key in groups else tuple(sorted((*groups, key)))


def _from_podgroup(state: State, group: PodGroup, key: str, old: Gang | None) -> Gang:
    same = old is not None and old.source in ("", group.uid)
    # What Kubernetes promises: so many have a node or get one now. A replica arrives with its first pod.
    match = gang_match(group.annotations)
    default = "waiting-and-running" if group.group == KUBERNETES else ""
    created_us = state.crews.first(key).created_us if workload_of(key) else group.created_us
    return Gang(
        created_us=created_us,
        name=group.name,
        namespace=group.namespace,
        groups=with_self(gang_groups(group.annotations), key),
        match=match or default,
        min_member=group.min_member,
        mode=gang_mode(group.annotations),
        rest_until_us=old.rest_until_us if old is not None and same else 0,
        satisfied=(old is not None and same and old.satisfied) or any_bound(state, key),
        source=group.uid,
        timeouts=old.timeouts if old is not None and same else 0,
        wait_us=group.schedule_timeout_us or gang_wait_us(group.annotations),
    )


def _from_members(state: State, key: str, old: Gang | None) -> Gang:
    if old is not None and old.source == "pods":
        return old
    first = state.crews.first(key)
    said = state.membership(first)
    initialised = said.from_pods and said.min_member > 0
    return Gang(
        created_us=first.created_us,
        name=said.gang,
        namespace=first.namespace,
        groups=with_self(said.groups, key) if initialised else (),
        match=said.match,
        min_member=said.min_member if initialised else 0,
        mode=said.mode,
        satisfied=any_bound(state, key),
        source="pods" if initialised else "",
        wait_us=said.wait_us,
    )

"""The auditor's rules for room that is made and kept: evictions that nobody asked for, holds, nominations.

Asked by the audit of orders once for each decision, with the rows as they are after it. Must not import `state`.
"""

from collections.abc import Mapping
from typing import Any

from tests.simulation.violation import Violation

Json = dict[str, Any]
PREEMPTION = "PreemptionByScheduler"
#: So long nobody is asked again who was to make room.
REMEMBERED_US = 3_600_000_000


class RoomAudit:
    """Follows decisions. `check` raises `Violation`."""

    def __init__(self, rows: Mapping[str, dict[str, Json]]) -> None:
        self._rows = rows
        self._asked: dict[str, int] = {}  # uid of a victim -> when
        self._known: dict[str, None] = {}  # evictions that were asked for

    def check(self, decision: Json, minimums: Mapping[str, tuple[int, list[str]]]) -> None:
        """`minimums`: of each gang that has not begun, the members it needs, and who they are."""
        acts = [each for each in decision["commands"] if each["kind"] in ("BindPod", "EvictPod")]
        for command in acts:
            if command["kind"] == "EvictPod" and command["reason"].startswith(PREEMPTION):
                self._check_victim(decision, command)
        if acts:  # so it was free to act
            self._check_times(decision)
        evictions = self._rows.get("evictions", {})
        new = [key for key in evictions if key.startswith("preempt-") and key not in self._known]
        self._known = dict.fromkeys(evictions)
        for key in new:
            self._check_gangs(decision, evictions[key], minimums)
            self._check_budgets(decision, evictions[key])

    def on_withdrawn(self, uid: str) -> None:
        """The eviction of the pod was taken back before it happened: it may be asked to leave again."""
        self._asked.pop(uid, None)

    def _pods(self) -> dict[str, Json]:
        return self._rows.get("pods", {})

    def _check_victim(self, decision: Json, command: Json) -> None:
        sequence, uid, name = decision["sequence"], command["uid"], command["name"]
        victim = self._pods()[uid]
        if decision["timestamp_us"] < self._asked.get(uid, -REMEMBERED_US) + REMEMBERED_US:
            raise Violation("evicted-twice", sequence, uid, f"{name} was asked to leave before")
        self._asked[uid] = decision["timestamp_us"]
        if not any(
            pod.get("nominated") == victim.get("node") and _priority(pod) > _priority(victim)
            for pod in self._pods().values()
        ):
            detail = f"{name} is evicted, and room is kept for nobody more important there"
            raise Violation("evicted-in-vain", sequence, uid, detail)

    def _check_gangs(
        self, decision: Json, eviction: Json, minimums: Mapping[str, tuple[int, list[str]]]
    ) -> None:
        """Where room is made for gangs, all that they need has room then."""
        for gang in eviction["reason"].rpartition(" makes room for ")[2].split(", "):
            minimum, members = minimums.get(gang, (0, []))
            placed = [uid for uid in members if _has_room(self._pods().get(uid, {}))]
            if len(placed) < minimum:
                detail = f"an eviction for {gang}: room for {len(placed)} of {minimum}"
                raise Violation(
                    "evicted-for-half-a-gang", decision["sequence"], eviction["uid"], detail
                )

    def _check_times(self, decision: Json) -> None:
        now_us = decision["timestamp_us"]
        for uid, pod in self._pods().items():
            for what in ("held_until_us", "nominated_until_us"):
                if 0 < pod.get(what, 0) <= now_us:
                    detail = f"{pod['name']}: {what} {pod[what]} is over at {now_us}"
                    raise Violation("held-too-long", decision["sequence"], uid, detail)

    def _check_budgets(self, decision: Json, eviction: Json) -> None:
        """Where somebody is asked to make room, every budget over all pods allows so many evictions under way."""
        leaving = {row["uid"]: None for row in self._rows["evictions"].values()}
        under_way = len([uid for uid in leaving if self._is_there(uid)])
        for budget in self._rows.get("budgets", {}).values():
            allowed = budget.get("disruptions_allowed", 0)
            if budget.get("selector") == [] and under_way > allowed:
                detail = f"{under_way} evictions under way; {budget['name']} allows {allowed}"
                raise Violation("budget-broken", decision["sequence"], eviction["uid"], detail)

    def _is_there(self, uid: str) -> bool:
        pod = self._pods().get(uid)
        return pod is not None and not pod.get("deleted_us")


def _priority(pod: Json) -> int:
    return int(pod["spec"].get("priority", 0))


def _has_room(pod: Json) -> bool:
    return bool(pod.get("node") or pod.get("assumed") or pod.get("nominated"))

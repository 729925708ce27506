"""What goes wrong in the simulated cluster: refused or delayed binds, slow evictions, any fault.

Holds plans only; the cluster asks before it acts. `intercept` is the door for seeded fault
simulations: whatever it returns is the answer of the call, and the call is not carried out.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Call:
    """One write to the API server."""

    verb: Literal["bind", "evict"]
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of the API server: HTTP status and message. `budget`: a PodDisruptionBudget."""

    status: int
    message: str = ""
    budget: bool = False

    @property
    def ok(self) -> bool:
        """Whether the call was carried out."""
        return self.status < 300


def _no_fault(_call: Call) -> Reply | None:
    return None


@dataclass(slots=True)
class Faults:
    """Planned faults by (namespace, name) of the pod. Times in microseconds."""

    refused: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    delayed: dict[tuple[str, str], bool] = field(default_factory=dict)
    slow_us: dict[tuple[str, str], int] = field(default_factory=dict)
    intercept: Callable[[Call], Reply | None] = _no_fault

    def answer(self, call: Call) -> Reply | None:
        """The planned answer of this call, if it has one; a planned refusal is used up."""
        planned = self.refused.get((call.namespace, call.name))
        if call.verb == "bind" and planned:
            return Reply(planned.pop(0), "refused by the simulation")
        return self.intercept(call)

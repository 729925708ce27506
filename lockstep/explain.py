"""`lockstep explain`: why a pod or a gang waits, or where it went, now or at any moment of the history.

The answer is worked out by `state.explain` on State at that moment; how long it waited for what, by `state.waits`
from the decisions. `docs/explain.md` describes the fields.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from lockstep.options import (
    DomainOption,
    LogOption,
    Output,
    OutputOption,
    format_time,
    object_name,
    opened_history,
    print_json,
    progress_bar,
    singular,
)
from lockstep.state import fold_state

Answer = dict[str, Any]
#: Names of pods on one line for people; all of them are in the JSON.
_NAMES_MAX: Final = 4
#: Verdicts whose exit code is 1: the answer is no.
_NO: Final = ("Waits", "NotOurs", "Unknown")


def explain(
    *,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="pod or gang.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="NAME or NAMESPACE/NAME.")],
    log: LogOption,
    at: Annotated[
        str | None, typer.Option(metavar="S|TIME", help="The moment; default: the end.")
    ] = None,
    domain: DomainOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say why a pod or a gang waits, or where it went; exit 1 if it waits, or is not known at that moment."""
    wanted = singular(kind, {"pod": explain, "gang": explain})
    namespace, short = object_name(name)
    known = fold_state(log, domain, at)
    answer = {
        "sequence": known.sequence,
        "time": format_time(known.timestamp_us),
        "digest": known.digest,
        "kind": wanted,
        "namespace": namespace or "default",
        "name": short,
        "verdict": "Unknown",
        **_answer(known, wanted, namespace or "default", short),
    }
    if answer["verdict"] not in ("NotOurs", "Unknown"):
        answer["waited"] = _waited(answer, known, log, domain)
    if output is Output.JSON:
        print_json(answer)
    else:
        print("\n".join(_lines(answer)), flush=True)
    raise typer.Exit(1 if answer["verdict"] in _NO else 0)


def _answer(known: Any, kind: str, namespace: str, name: str) -> Answer:
    from state.explain import explain_gang, explain_pod, newest_named

    if kind == "gang":
        key = f"{namespace}/{name}"
        return explain_gang(known, key) if key in known.gangs else {}
    uid = newest_named(known, namespace, name)
    return {} if uid is None else explain_pod(known, uid)


def _waited(answer: Answer, known: Any, log: str, domain: int) -> Answer:
    """Reads the decisions up to the moment; a log without its head is read from where it begins."""
    from state.waits import Waits
    from streams.history import accepted_decisions
    from streams.translate import to_state

    if answer["kind"] == "pod":
        waits = Waits(uid=answer["pod"]["uid"])
    else:
        waits = Waits(gang=f"{answer['namespace']}/{answer['name']}")
    with opened_history(log, domain) as history, progress_bar("waits") as progress:
        start = history.first()
        size = history.size(start)
        if start.state_bytes is not None:
            before = to_state(start.state_bytes)
            if before.sequence <= known.sequence:
                waits.begin(before.pods.values(), before.timestamp_us)
        for chain, data in accepted_decisions(history, start):
            if chain.sequence > known.sequence:
                break
            if chain.sequence % 64 == 0:
                progress(chain.sequence - start.sequence, size)
            waits.take(data)
    return waits.split(known.timestamp_us)


# -- for people ----------------------------------------------------------------------------------------------

_SAID: Final = {
    "Placed": "has what it needs",
    "Fits": "fits: the next cycle that tries it places it",
    "Waits": "waits",
    "Finished": "has finished",
    "Leaving": "is being deleted",
    "NotOurs": "is left to another scheduler: its schedulerName is not in the policy",
    "Unknown": "is not known",
}


def _lines(answer: Answer) -> Iterator[str]:
    title = f"{answer['kind']} {answer['namespace']}/{answer['name']}"
    yield f"{title} {_SAID[answer['verdict']]} (sequence {answer['sequence']}, {answer['time']})"
    if answer["verdict"] == "Unknown":
        return
    if answer["diagnosis"]:
        yield _row("told", f"{answer['diagnosis']['code']}: {answer['diagnosis']['message']}")
    if answer["unsynced"]:
        yield _row("not listed", f"nothing is placed before: {', '.join(answer['unsynced'])}")
    if "pod" in answer:
        yield from _pod_lines(answer["pod"])
    for gang in answer["gangs"]:
        yield from _gang_lines(gang)
    for lacking in answer["lacking"]:
        yield from _lacking_lines(lacking)
    yield from _freeing_lines(answer)
    for held in answer["holds"]:
        yield _row(
            "holds", f"{held['pod']} on {held['node']} until {format_time(held['until_us'])}"
        )
    for kept in answer["nominations"]:
        leaving = _names(kept["leaving"]) or "nobody any more"
        until = format_time(kept["until_us"])
        yield _row(
            "nominated", f"{kept['pod']} on {kept['node']} until {until}; must leave: {leaving}"
        )
    yield from _queue_lines(answer["queue"])
    head = answer["head"]
    if head and head["nodes"]:
        whom = "it" if head["is_it"] else _names(head["names"])
        until = format_time(head["until_us"])
        yield _row(
            "kept", f"for {whom}, at the head of the queue, until {until}: {_names(head['nodes'])}"
        )
    waited = answer.get("waited")
    if waited and waited["total_us"]:
        causes = sorted(waited["causes_us"].items(), key=lambda each: (-each[1], each[0]))
        parts = ", ".join(f"{cause} {_seconds(spent)}" for cause, spent in causes)
        yield _row("waited", f"{_seconds(waited['total_us'])}: {parts}")


def _pod_lines(pod: Answer) -> Iterator[str]:
    if pod["node"]:
        yield _row("node", pod["node"])
    elif pod["assumed_node"]:
        yield _row("node", f"{pod['assumed_node']}, not bound yet")
    if pod["backoff_until_us"]:
        yield _row("backs off", f"until {format_time(pod['backoff_until_us'])}")
    if pod["alone"]:
        node = pod["alone"]["node"]
        fits = f"would fit on {node}" if node else "would not fit anywhere either"
        yield _row("alone", f"{fits}, without gang {pod['gang']}")


def _gang_lines(gang: Answer) -> Iterator[str]:
    if not gang["declared"]:
        yield _row("gang", f"{gang['gang']}: nothing declares it, {gang['seen']} members seen")
        return
    placed = f"{gang['bound']} bound, {gang['assumed']} being bound, {gang['held']} holding room"
    yield _row(
        "gang",
        f"{gang['gang']} ({gang['mode']}, {gang['match']}): minMember {gang['min_member']}, {gang['seen']} seen,"
        f" {gang['ready']} ready; {placed}",
    )
    yield _row(
        "",
        f"still needs {gang['needed']}: {gang['placeable']} placeable, {gang['missing']} missing",
    )
    for code, pods in gang["not_ready"].items():
        yield _row("", f"{code}: {_names(pods)}")
    if gang["partners"]:
        yield _row("", f"starts only together with {', '.join(gang['partners'])}")
    for conflict in gang["conflicts"]:
        yield _row("", f"contradiction: {conflict}")
    if gang["refused"]:
        yield _row("", f"not tried: {gang['refused']['message']}")
    if gang["rests_until_us"]:
        yield _row("", f"holds nothing until {format_time(gang['rests_until_us'])}")


def _lacking_lines(lacking: Answer) -> Iterator[str]:
    yield _row("fits nowhere", f"{_names(lacking['pods'])}: {lacking['message']}")
    for near in lacking["closest"]:
        parts = [_amount(name, lack) for name, lack in near["resources"].items()]
        if near["cards"]:
            parts.append(_amount("whole GPUs", near["cards"]))
        if near["code"] == "KeptForHead":
            parts.append("kept for the head of the queue")
        parts += [f"taint {taint} not tolerated" for taint in near["taints"]]
        parts += [f"{label} not matched" for label in near["unmatched"]]
        small = " (too small, were it empty)" if near["small"] else ""
        yield _row("", f"closest {near['node']}{small}: {', '.join(parts)}")


def _amount(name: str, lack: Answer) -> str:
    return f"{lack['missing']} {name} missing (wants {lack['want']}, {lack['have']} free)"


def _freeing_lines(answer: Answer) -> Iterator[str]:
    freeing = answer["to_free"]
    for node in freeing["nodes"] if freeing else ():
        parts = [f"{amount} {name}" for name, amount in node["resources"].items()]
        if node["cards"]:
            parts.append(f"{node['cards']} whole GPUs")
        yield _row("to free", f"{', '.join(parts)} on {node['node']}, for {_names(node['pods'])}")
    if freeing and freeing["never"]:
        never = f"{freeing['never']} of them fit on no node that they may use, were it empty"
        yield _row("to free", never)
    plan = answer["preemption"]
    if plan is None:
        return
    if plan["victims"]:
        victims = [
            f"{each['pod']} on {each['node']} (priority {each['priority']})"
            for each in plan["victims"]
        ]
        allowed = "" if plan["allowed"] else "; policy has preemption off"
        yield _row("evicting", f"{_names(victims)} would make room{allowed}")
    else:
        yield _row("evicting", f"does not help: {plan['message']}")


def _queue_lines(queue: Answer | None) -> Iterator[str]:
    if queue is None:
        return
    rank = f"priority {queue['priority']}, sub-priority {queue['sub_priority']}"
    yield _row("queue", f"{rank}, since {format_time(queue['created_us'])}; {queue['ahead']} ahead")
    for unit in queue["first"]:
        names = _names(unit["names"])
        code = f", {unit['code']}" if unit["code"] else ""
        yield _row("", f"{unit['kind']} {names} (priority {unit['priority']}{code})")


def _names(names: list[str]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _seconds(amount_us: int) -> str:
    whole, rest = divmod(amount_us, 1_000_000)
    fraction = f"{rest:06d}".rstrip("0")
    return f"{whole}.{fraction} s" if fraction else f"{whole} s"


def _row(title: str, text: str) -> str:
    return f"  {title:<12}  {text}"

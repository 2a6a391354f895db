"""The fleet limits and the dead letters as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.queue.snapshot import OutOfUse

from gpu_recovery_client.render.formats import clock, since, until
from gpu_recovery_client.render.table import line, table

View = Mapping[str, Any]
NOT_COUNTED = "not counted yet: the reconciler counts them every minute"
LISTED_ABOVE = (OutOfUse.HELD, OutOfUse.QUARANTINED)
"""Causes of instances out of use that have a table of their own."""


def fleet(view: View, now: datetime, width: int | None = None) -> str:
    """Return the fleet limits as lines of `name  value`, then the held repairs and what needs an operator."""
    under, counted = view["repairing"], view.get("gpu_instances_counted", True)
    at_most = f" of at most {view['repairs_at_once_max']}" if counted else ""
    rows = [
        ("under repair", f"{len(under)}{at_most}: {', '.join(under) or 'none'}"),
        ("instances with GPUs", str(view["gpu_instances"]) if counted else NOT_COUNTED),
        ("breaker", _breaker(view["breaker"], now, counted)),
        ("blamed lately", ", ".join(view["breaker"]["blamed"])),
        ("deaf", _reporting_outage(view["deaf"], now)),
        ("paused", _pause(view["pause"], now)),
        ("observe-only", "yes: nothing is stopped, rebooted or replaced" if view["observe_only"] else ""),
        ("replacing", "on" if view["replace"] else "off: what a reboot does not cure waits for a person"),
    ]
    text = table(None, [row for row in rows if row[1]], width)
    held = [
        (
            instance["instance_id"],
            instance["rung"] or "-",
            since(instance["since"], now),
            f"{instance['because']}; {instance['evidence'] or ''}",
        )
        for instance in view["held"]
    ]
    if held:
        text += "\n" + table(("HELD", "NEEDS", "SINCE", "BECAUSE"), held, width)
    waiting = [
        (instance["instance_id"], since(instance["since"], now), instance["because"])
        for instance in view["for_a_person"]
    ]
    if waiting:
        text += "\n" + table(("FOR A PERSON", "SINCE", "BECAUSE"), waiting, width)
    others = [
        (one["instance_id"], one["kind"].upper(), since(one["since"], now), one["because"])
        for one in view.get("out_of_use") or ()
        if one["kind"] not in LISTED_ABOVE
    ]
    if others:
        text += "\n" + table(("OUT OF USE", "CAUSE", "SINCE", "BECAUSE"), others, width)
    more = view.get("out_of_use_more")
    return text + (line(f"and {more} more, which `gpu-recovery instances` lists") if more else "")


def _breaker(breaker: View, now: datetime, counted: bool) -> str:
    if not breaker["since"]:
        opens = f"{breaker['opens_at']} instances blamed at once would open it"
        return f"{breaker['state']}; {opens if counted else 'its limit follows from that number'}"
    words = f"{breaker['state']} since {clock(breaker['since'])} ({since(breaker['since'], now)}): {breaker['because']}"
    if breaker["probe"]:
        return f"{words}; {breaker['probe']} tries"
    return f"{words}; one instance may try {until(breaker['probe_at'], now)}"


def _reporting_outage(outage: View | None, now: datetime) -> str:
    """Return the reporting outage in a sentence; "" if there is none."""
    if outage is None:
        return ""
    return f"since {clock(outage['since'])} ({since(outage['since'], now)}): {outage['because']}"


def _pause(pause: View | None, now: datetime) -> str:
    if pause is None:
        return "no"
    return f"by {pause['by']} since {clock(pause['at'])} ({since(pause['at'], now)}): {pause['because']}"


def dead_letters(view: View) -> str:
    """Return what each queue holds, and what a redrive would do with its first messages."""
    text = ""
    for queue in view["queues"]:
        text += line(queue["queue"], f"{queue['letters']} message(s)")
        rows = [
            (letter["message_id"], *_origin(letter), letter["for"] or "-", _redrive_result(letter, "would go"))
            for letter in queue["shown"]
        ]
        text += table(("MESSAGE", "SOURCE", "ACCOUNT", "FOR", "THEN"), rows, None) if rows else ""
    return text


def redriven(view: View) -> str:
    """Return the result of each message, and how many are left."""
    rows = [
        (
            letter["queue"],
            letter["message_id"],
            *_origin(letter),
            letter["for"] or "-",
            _redrive_result(letter, "given again"),
        )
        for letter in view["letters"]
    ]
    text = (
        table(("QUEUE", "MESSAGE", "SOURCE", "ACCOUNT", "FOR", "THEN"), rows, None) if rows else "nothing to redrive\n"
    )
    if view.get("stopped_because"):
        text += line(f"stopped half-way: {view['stopped_because']}")
    left = ", ".join(f"{queue} {number}" for queue, number in view["left"].items() if number)
    return text + (line(f"about as many are left: {left}") if left else "")


def _origin(letter: View) -> tuple[str, str]:
    """Return source and account of the event. Answers of releases before 0.2 have neither."""
    return letter.get("source") or "-", letter.get("account") or "-"


def _redrive_result(letter: View, done: str) -> str:
    return f"stays: {letter['kept_because']}" if letter["kept_because"] else done

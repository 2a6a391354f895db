"""The fleet limits and the dead letters as text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.queue.snapshot import OutOfUse

from gpu_recovery_client.render.formats import clock, since, until
from gpu_recovery_client.render.table import table
from gpu_recovery_client.render.text import line
from gpu_recovery_client.texts import heads, tr

View = Mapping[str, Any]
LISTED_ABOVE = (OutOfUse.HELD, OutOfUse.QUARANTINED)
"""Causes of instances out of use that have a table of their own."""


def fleet(view: View, now: datetime, width: int | None = None) -> str:
    """Return the fleet limits as lines of `name  value`, then the held repairs and what needs an operator."""
    under, counted = view["repairing"], view.get("gpu_instances_counted", True)
    repairs = ", ".join(under) or tr("none")
    most = view["repairs_at_once_max"] if counted else None
    rows = [
        (tr("under repair"), _under_repair(len(under), most, repairs)),
        (
            tr("instances with GPUs"),
            str(view["gpu_instances"]) if counted else tr("not counted yet: the reconciler counts them every minute"),
        ),
        (tr("circuit breaker"), _breaker(view["breaker"], now, counted)),
        (tr("recently suspected"), ", ".join(view["breaker"]["blamed"])),
        (tr("reporting outage"), _reporting_outage(view["deaf"], now)),
        (tr("paused"), _pause(view["pause"], now)),
        (tr("observe-only"), tr("yes: nothing is stopped, rebooted or replaced") if view["observe_only"] else ""),
        (
            tr("replacing"),
            tr("on") if view["replace"] else tr("off: a fault that a reboot does not end needs an operator"),
        ),
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
        text += "\n" + table(heads("HELD", "NEEDS", "SINCE", "BECAUSE"), held, width)
    waiting = [
        (instance["instance_id"], since(instance["since"], now), instance["because"])
        for instance in view["for_a_person"]
    ]
    if waiting:
        text += "\n" + table(heads("NEEDS OPERATOR", "SINCE", "BECAUSE"), waiting, width)
    others = [
        (one["instance_id"], one["kind"].upper(), since(one["since"], now), one["because"])
        for one in view.get("out_of_use") or ()
        if one["kind"] not in LISTED_ABOVE
    ]
    if others:
        text += "\n" + table(heads("OUT OF USE", "CAUSE", "SINCE", "BECAUSE"), others, width)
    more = view.get("out_of_use_more")
    return text + (line(tr("and {number} more, which `gpu-recovery instances` lists", number=more)) if more else "")


def _breaker(breaker: View, now: datetime, counted: bool) -> str:
    if not breaker["since"]:
        if not counted:
            return tr("{state}; its limit follows from that number", state=breaker["state"])
        values = {"state": breaker["state"], "number": breaker["opens_at"]}
        return tr("{state}; opens when {number} instances are suspected at once", **values)
    times = {"at": clock(breaker["since"]), "age": since(breaker["since"], now)}
    words = tr("{state} since {at} ({age}): {reason}", state=breaker["state"], reason=breaker["because"], **times)
    if breaker["probe"]:
        return tr("{sentence}; {instance} is repaired as a trial", sentence=words, instance=breaker["probe"])
    when = until(breaker["probe_at"], now)
    return tr("{sentence}; one instance may be repaired as a trial {when}", sentence=words, when=when)


def _under_repair(number: int, most: int | None, instances: str) -> str:
    if most is None:
        return f"{number}: {instances}"
    return tr("{number} of at most {most}: {instances}", number=number, most=most, instances=instances)


def _reporting_outage(outage: View | None, now: datetime) -> str:
    """Return the reporting outage in a sentence; "" if there is none."""
    if outage is None:
        return ""
    values = {"at": clock(outage["since"]), "age": since(outage["since"], now), "reason": outage["because"]}
    return tr("since {at} ({age}): {reason}", **values)


def _pause(pause: View | None, now: datetime) -> str:
    if pause is None:
        return tr("no")
    values = {"at": clock(pause["at"]), "age": since(pause["at"], now), "reason": pause["because"]}
    return tr("by {user} since {at} ({age}): {reason}", user=pause["by"], **values)


def dead_letters(view: View, width: int | None = None) -> str:
    """Return what each queue holds, and what a redrive would do with its first messages."""
    text = ""
    for queue in view["queues"]:
        text += line(queue["queue"], tr("messages: {number}", number=queue["letters"]))
        rows = [
            (letter["message_id"], *_origin(letter), letter["for"] or "-", _redrive_result(letter, tr("would be sent")))
            for letter in queue["shown"]
        ]
        text += (
            table(heads("MESSAGE", "SOURCE", "ACCOUNT", "TARGET", "RESULT"), rows, width, optional=(2, 1))
            if rows
            else ""
        )
    return text


def redriven(view: View, width: int | None = None) -> str:
    """Return the result of each message, and how many are left."""
    rows = [
        (
            letter["queue"],
            letter["message_id"],
            *_origin(letter),
            letter["for"] or "-",
            _redrive_result(letter, tr("sent again")),
        )
        for letter in view["letters"]
    ]
    text = (
        table(heads("QUEUE", "MESSAGE", "SOURCE", "ACCOUNT", "TARGET", "RESULT"), rows, width, optional=(3, 2))
        if rows
        else line(tr("no messages to send again"))
    )
    if view.get("stopped_because"):
        text += line(tr("stopped before the end: {reason}", reason=view["stopped_because"]))
    left = ", ".join(f"{queue} {number}" for queue, number in view["left"].items() if number)
    return text + (line(tr("messages left, approximately: {queues}", queues=left)) if left else "")


def _origin(letter: View) -> tuple[str, str]:
    """Return source and account of the event. Answers of releases before 0.2 have neither."""
    return letter.get("source") or "-", letter.get("account") or "-"


def _redrive_result(letter: View, done: str) -> str:
    return tr("stays: {reason}", reason=letter["kept_because"]) if letter["kept_because"] else done

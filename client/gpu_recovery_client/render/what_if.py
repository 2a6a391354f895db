"""The report of `fleet what-if` as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpu_recovery_client.render.table import table
from gpu_recovery_client.texts import heads, tr

View = Mapping[str, Any]
CAUSES_MAX = 8
"""Causes at most that have a row."""


def what_if(report: View, width: int | None = None) -> str:
    """Return the report: the control, the figures of both policies, each other incident, and the assumptions."""
    return "".join(f"{part}\n" for part in _parts(report, width))


def _parts(report: View, width: int | None) -> Iterator[str]:
    records, counts = report["records"], report["interruptions"]
    yield tr(
        "{events} events from {since} to {until}, {number} interruptions of a training",
        events=records["events"],
        since=records["since"][:16],
        until=records["until"][:16],
        number=counts["recorded"],
    )
    for policy in report["policies"]:
        changed = ", ".join(f"{name} {_shown(was)} -> {_shown(new)}" for name, (was, new) in policy["changed"].items())
        yield f"{policy['course']}: {changed or tr('the policies are the same')}"
    yield ""
    yield tr(
        "Control: {same} of {number} replayed interruptions are decided as recorded",
        same=counts["reproduced"],
        number=counts["replayed"],
    )
    for line in report["not_reproduced"]:
        yield f"  {line['incident'] or line['course']}"
        yield from _both(tr("recorded"), line["recorded"], tr("replayed"), line["replayed"])
    for line in report["not_replayable"]:
        yield "  " + tr("{incident} cannot be replayed: {why}", incident=line["incident"], why=line["why"])
    yield ""
    yield table(heads("FIGURE", "RECORDED POLICY", "NEW POLICY", "CHANGE"), list(_figures(report)), width).rstrip("\n")
    change = report["ettr_change"]
    if change["points"] is not None:
        yield tr(
            "ETTR changes by {points} points ({low} to {high}: {over})",
            points=_signed(change["points"], 3),
            low=_signed(change["low"], 3),
            high=_signed(change["high"], 3),
            over=change["over"],
        )
    yield ""
    yield from _incidents(report)
    yield ""
    yield tr("Assumptions, where the records do not tell")
    for line in report["assumptions"]:
        place = f"{line['incident']}: " if line["incident"] else ""
        yield f"  {place}{line['assumption']} ({line['source']})"
    yield tr("Bounds")
    yield from (f"  {bound}" for bound in report["bounds"])


def _figures(report: View) -> Iterator[tuple[str, str, str, str]]:
    control, new = report["control"], report["new"]
    names = {
        "interruptions": tr("interruptions"),
        "reboots": tr("reboots"),
        "replacements": tr("replacements"),
        "checks": tr("health checks"),
        "quarantines": tr("quarantines"),
        "wrongful_evictions": tr("wrongful evictions"),
        "people_called": tr("calls for an operator"),
    }
    for name, text in names.items():
        yield text, str(control[name]), str(new[name]), _signed(new[name] - control[name], 0)
    causes = dict.fromkeys([*control["minutes_lost"], *new["minutes_lost"]])
    for cause in list(causes)[:CAUSES_MAX]:
        was, now = control["minutes_lost"].get(cause, 0.0), new["minutes_lost"].get(cause, 0.0)
        yield tr("minutes lost, {cause}", cause=cause), f"{was:.1f}", f"{now:.1f}", _signed(now - was, 1)
    if control["ettr"] is not None:
        was, now = 100 * control["ettr"], 100 * new["ettr"]
        yield "ETTR, %", f"{was:.3f}", f"{now:.3f}", _signed(now - was, 3)


def _incidents(report: View) -> Iterator[str]:
    changed = [line for line in report["incidents"] if line["difference"] is not None]
    number = len(report["incidents"])
    yield tr("{changed} of {number} incidents would have gone otherwise", changed=len(changed), number=number)
    for line in changed:
        figures = [
            f"{text} {_shown(line[name][0])} -> {_shown(line[name][1])}"
            for name, text in (
                ("interruptions", tr("interruptions")),
                ("reboots", tr("reboots")),
                ("replacements", tr("replacements")),
                ("checks", tr("health checks")),
                ("down_minutes", tr("minutes down")),
            )
            if line[name][0] != line[name][1]
        ]
        told = ", ".join(figures) or tr("the same figures")
        control = "" if line["reproduced"] else " " + tr("(its control was not decided as recorded)")
        yield f"  {line['incident']}, {line['cause']}: {told}{control}"
        difference = line["difference"]
        yield from _both(tr("recorded policy"), difference["control"], tr("new policy"), difference["new"])


def _both(name: str, first: str | None, other_name: str, second: str | None) -> Iterator[str]:
    yield f"    {name}: {first or tr('no such decision')}"
    yield f"    {other_name}: {second or tr('no such decision')}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _signed(value: float, places: int) -> str:
    return f"{value:+.{places}f}" if round(value, places) else "0"

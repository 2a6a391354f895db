"""The report of a comparison as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LEFT = 1
"""Number of columns, from the left, that are aligned to the left."""
CAUSES_MAX = 6
"""Largest number of causes with a column of their own."""


def text(report: Mapping[str, Any]) -> str:
    """Return the report as text of about a terminal's width.

    Args:
        report: the result of `report.report`.
    """
    profile = report["profile"]
    seeds = report.get("seeds")
    head = (
        f"{profile['name']}: {profile['about']}\n"
        f"{profile['instances']:,} instances, {profile['gpus']:,} GPUs, {profile['days']:g} days, "
        f"{profile['failures']:g} failures ({profile['failures_per_1000_node_days']:.4g} per 1,000 node-days), "
        + (f"mean of seeds {seeds[0]} to {seeds[-1]}" if seeds else f"seed {report['seed']}")
        + f", facts {report['facts']}"
    )
    if report["tuned"]:
        head += "\ntuned: " + ", ".join(f"{name} {value:g}" for name, value in report["tuned"].items())
    if report["legs"] > 1:
        head += f"\nthe product's own runs in {report['legs']} legs"
    parts = [head, _policies(report), _points_lost(report), _causes(report), _sweeps(report), _conditions(report)]
    formula = report["formula"]
    parts.append(
        f"Published formula, restarts of {formula['recovery_s']:g} s only: {_percent(formula['published'])}; "
        f"simulated: {_percent(formula['simulated'])}"
    )
    parts.append("Bounds\n" + "\n".join(f"- {bound}" for bound in report["bounds"]))
    return "\n\n".join(parts)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a text table. Each column is as wide as its widest entry, and numbers are aligned to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [_row(row, widths) for row in (head, *rows)]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _row(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if i < LEFT else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _policies(report: Mapping[str, Any]) -> str:
    ranged = "seeds" in report
    head = (
        "policy",
        "ETTR",
        *(("min", "max") if ranged else ()),
        "overhead",
        "own way",
        "MTTD",
        "MTTR p50",
        "p90",
        "p99",
        "stops",
        "reboots",
        "needless",
        "replaced",
        "mails",
        "people",
    )
    rows = [
        (
            policy["name"],
            _percent(policy["ettr"]),
            *(map(_percent, policy["range"]["ettr"]) if ranged else ()),
            _ratio(policy["overhead"]),
            _ratio(policy["over_own_way"]),
            _duration(policy["mttd_s"]),
            *(_duration(policy["mttr_s"][p]) for p in ("p50", "p90", "p99")),
            *(
                f"{policy[key]:,.0f}"
                for key in (
                    "interruptions",
                    "reboots",
                    "false_reboots",
                    "replacements",
                    "notifications",
                    "people_called",
                )
            ),
        )
        for policy in report["policies"]
    ]
    return table(head, rows) + (
        "\noverhead: time of all recoveries / their bound"
        "\nown way: the same / the product's own way at its best, which another way can undercut"
    )


def _points_lost(report: Mapping[str, Any]) -> str:
    phases = list(next(iter(report["points_lost"].values())))
    rows = [
        (name, *(f"{points[phase]:.2f}" for phase in phases), f"{sum(points.values()):.2f}")
        for name, points in report["points_lost"].items()
    ]
    return "Points of ETTR lost, by phase\n" + table(("policy", *phases, "all"), rows)


def _causes(report: Mapping[str, Any]) -> str:
    policies = report["policies"]
    sums: dict[str, float] = {}
    for policy in policies:
        for cause, hours in policy["gpu_hours_lost"].items():
            sums[cause] = sums.get(cause, 0.0) + hours
    causes = sorted(sums, key=lambda cause: -sums[cause])[:CAUSES_MAX]
    rows = []
    for policy in policies:
        hours = [policy["gpu_hours_lost"].get(cause, 0.0) for cause in causes]
        rest = sum(policy["gpu_hours_lost"].values()) - sum(hours)
        rows.append((policy["name"], *(f"{value:,.0f}" for value in (*hours, rest))))
    return "GPU-hours lost, by cause\n" + table(("policy", *causes, "all others"), rows)


def _sweeps(report: Mapping[str, Any]) -> str:
    sensitivity = report["sensitivity"]
    names = [policy["name"] for policy in report["policies"]]
    by_interval = sensitivity["checkpoint_s"]
    checkpoints = table(
        ("policy", *(f"{row['checkpoint_s']:.0f} s" for row in by_interval[:-1]), "in memory"),
        [(name, *(_percent(row["ettr"][name]) for row in by_interval)) for name in names],
    )
    lines = []
    for title, sweep, key, value_key in (
        ("check level", "check_level", "level", "ettr"),
        ("spares", "spares", "spares", "ettr"),
        ("share of nodes' faults that a reboot cures", "reboot_share", "reboot_share", "ettr"),
        ("the same without spares", "reboot_share", "reboot_share", "ettr_without_spares"),
    ):
        if sensitivity[sweep]:
            lines.append(
                f"{title}: " + ", ".join(f"{row[key]:g}: {_percent(row[value_key])}" for row in sensitivity[sweep])
            )
    left_out = ", ".join(
        f"{'never' if row['times'] is None else row['times']}: {_percent(row['ettr'])}"
        for row in sensitivity["leave_out_after"]
    )
    lines.append(f"a machine left out though no check finds it faulty, when its rank ended first so often: {left_out}")
    improvements = table(
        ("each on top of those above", "by", "ETTR"),
        [(row["what"], row["by"], _percent(row["ettr"])) for row in sensitivity["ladder"]],
    )
    if sensitivity["skipped"]:
        lines.append(
            f"left out in a replay, because other failures would be drawn: {', '.join(sensitivity['skipped'])}"
        )
    return (
        "ETTR by the interval of checkpoints; the last interval but one is the best for these stalls (Young)\n"
        + checkpoints
        + "\n\nETTR of the product's own way at its best by\n"
        + "\n".join(lines)
        + "\n\nWhat would raise the ETTR of the product's own way at its best\n"
        + improvements
    )


def _conditions(report: Mapping[str, Any]) -> str:
    rows = [
        (
            row["condition"],
            f"{row['low']:g}",
            f"{row['high']:g}",
            _percent(row["ettr_at_low"]),
            _percent(row["ettr_at_high"]),
        )
        for row in report["sensitivity"]["conditions"]
        if row["ettr_at_low"] != row["ettr_at_high"]
    ]
    without_effect = [
        row["condition"] for row in report["sensitivity"]["conditions"] if row["ettr_at_low"] == row["ettr_at_high"]
    ]
    head = ("condition", "low", "high", "ETTR at low", "ETTR at high")
    ending = f"\nwithout effect on it: {', '.join(without_effect)}" if without_effect else ""
    return "ETTR of the product's own way at its best, at both ends of each range\n" + table(head, rows) + ending


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"

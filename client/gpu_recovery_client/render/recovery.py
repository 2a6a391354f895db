"""The recovery of a job as text: what a submission expects, and the bill of a downtime. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery_client.render.formats import duration
from gpu_recovery_client.texts import tr

View = Mapping[str, Any]
PHASES: Mapping[str, str] = {
    "notice": "{time} to notice the failure",
    "stop": "{time} to stop the ranks",
    "check": "{time} to find and check the cause",
    "repair": "{time} to repair an instance",
    "wait": "{time} to wait for free instances",
    "start": "{time} to start the ranks",
    "first_step": "{time} until the training went on",
    "suspended": "{time} suspended, which does not count",
}
"""What each phase of a downtime is for."""
CAUSES: Mapping[str, str] = {
    "hardware": "hardware",
    "network": "network",
    "application": "application",
    "interruption": "interruption by AWS, such as Spot",
    "capacity": "missing capacity or permission",
    "operator": "a user",
    "unknown": "not known",
}
"""Why a job was down."""
CHANGES: Mapping[str, str] = {
    "spare": "keep one idle spare instance",
    "progress_reports": "report progress (reports_progress: true), so that a hang is noticed within two minutes",
    "restart_in_place": "restart in place (restart_in_place: true, with node agents)",
    "warm_spare": "keep one warm spare (warm_spares: 1, with restart in place and node agents)",
    "memory_checkpoints": "save memory checkpoints in each step",
}
"""Changes that would meet a recovery contract."""
RATES: Mapping[str | None, str] = {
    "fleet": "{rate} per 1,000 instance-days: {number} incidents in {gpu_days} GPU-days of this fleet, and published",
    "blended": "{rate} per 1,000 instance-days: the published rate (RSC-1), and {number} incidents in {gpu_days} "
    "GPU-days of this fleet, too few for a rate of its own",
    "published": "{rate} per 1,000 instance-days: the published rate (RSC-1); this fleet has no figures yet",
    "unread": "{rate} per 1,000 instance-days: the published rate (RSC-1); the figures of this fleet could not be read",
}
"""Whose failure rate was used."""


def expectation_rows(view: View) -> list[tuple[str, str]]:
    """Return `name  value` rows about the recovery contract, of a new job or of a dry run; none without a contract."""
    found = view.get("recovery_expectation")
    if not found:
        return []
    incidents = tr(
        "{number} in {days} days (90 % range {low} to {high})",
        number=f"{found['incidents']:.1f}",
        days=f"{found['days']:.3g}",
        low=f"{found['incidents_low']:.1f}",
        high=f"{found['incidents_high']:.1f}",
    )
    verdict = tr("met in 95 % of the incidents") if found["is_met"] else tr("NOT met in 95 % of the incidents")
    kept = tr(
        "down time within the limit in {down} %, lost time in {lost} %",
        down=f"{100 * found['down_kept']:.0f}",
        lost=f"{100 * found['lost_kept']:.0f}",
    )
    rows = [
        (tr("incidents"), incidents),
        (tr("downtime of an incident"), _quantiles(found, "down")),
        (tr("lost time of an incident"), _quantiles(found, "lost")),
        (tr("recovery contract"), f"{verdict}: {kept}"),
    ]
    rows += [(tr("changes that meet the contract"), _alternative(each)) for each in found.get("alternatives") or ()]
    if not found["is_met"] and not found.get("alternatives"):
        rows.append((tr("changes that meet the contract"), tr("no change that is known here")))
    assumed = tr(
        "a checkpoint every {minutes} min, spare instances: {spares}",
        minutes=f"{found['checkpoint_every_s'] / 60:g}",
        spares=found["spares"],
    )
    if (reports := found.get("reports_progress")) is not None:  # a deployment of an older release does not say it
        without = tr("no progress reports (if the program reports progress, set reports_progress: true)")
        assumed += f"; {tr('progress reports') if reports else without}"
    rate = tr(
        RATES.get(found.get("rate_source"), RATES["fleet"]),  # a deployment of an older release does not say it
        rate=f"{found['rate_per_1000_instance_days']:.2f}",
        number=found["own_incidents"],
        gpu_days=f"{found['own_gpu_days']:.0f}",
    )
    times = tr("{number} recoveries of this fleet, and published times", number=found["own_recoveries"])
    return [*rows, (tr("assumed"), assumed), (tr("failure rate"), rate), (tr("source of the times"), times)]


def bill_sentences(view: View) -> list[str]:
    """Return what the open or the last downtime of a job has cost; [] if the job was never down."""
    down = view.get("downtime")
    if not down:
        return []
    phases = ", ".join(_phase(name, seconds) for name, seconds in down["phases"].items())
    values = {"time": duration(down["down_s"]), "phases": phases, "cause": _known(CAUSES, down["cause"])}
    is_open = down.get("until") is None
    told = [
        tr("down now, for {time}: {phases}; cause: {cause}", **values)
        if is_open
        else tr("down for {time}: {phases}; cause: {cause}", **values)
    ]
    if not is_open:
        repeated = down.get("repeated_s")
        told.append(
            tr("how much work was done again is not known")
            if repeated is None
            else tr("work of {time} was done again", time=duration(repeated))
        )
    if down.get("kept") is not None:
        told.append(tr("recovery contract: kept") if down["kept"] else tr("recovery contract: NOT kept"))
    return told


def lost_text(view: View) -> str:
    """Return the time that all downtimes of a job have cost, by cause; "" if there was none."""
    lost = view.get("lost_s") or {}
    return ", ".join(
        f"{_known(CAUSES, cause)} {duration(seconds)}"
        for cause, seconds in sorted(lost.items(), key=lambda one: -one[1])
    )


def contract_text(view: View) -> str:
    """Return the limits of the recovery contract of a job; "" without a contract."""
    down, lost = view.get("max_down_minutes"), view.get("max_lost_minutes")
    limits = (
        "" if down is None else tr("down for {minutes} min at most", minutes=down),
        "" if lost is None else tr("lost {minutes} min at most", minutes=lost),
    )
    return ", ".join(filter(None, limits))


def _known(texts: Mapping[str, str], name: str) -> str:
    """Return the text of a name, or the name itself if only a newer deployment knows it."""
    return tr(texts[name]) if name in texts else name


def _phase(name: str, seconds: float) -> str:
    time = duration(seconds)
    return tr(PHASES[name], time=time) if name in PHASES else f"{name} {time}"


def _quantiles(found: View, name: str) -> str:
    half, most = found[f"{name}_p50_s"], found[f"{name}_p95_s"]
    return tr(
        "{half} min in half of the cases, {most} min at most in 95 %", half=f"{half / 60:.1f}", most=f"{most / 60:.1f}"
    )


def _alternative(alternative: View) -> str:
    changes = [_known(CHANGES, name) for name in alternative["changes"]]
    if alternative.get("checkpoint_every_s") is not None:
        every = f"{alternative['checkpoint_every_s'] / 60:g}"
        changes.append(tr("save a checkpoint every {minutes} min", minutes=every))
    return tr(
        "{changes}; then 95 % are down for {down} min at most and lose {lost} min at most",
        changes=tr(", and ").join(changes),
        down=f"{alternative['down_p95_s'] / 60:.1f}",
        lost=f"{alternative['lost_p95_s'] / 60:.1f}",
    )

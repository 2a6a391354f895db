"""What trainings tell for a diagnosis, on its way to where it is kept: for the attempts that are on that instance.

A token speaks for its own instance only. Whatever is told of an attempt that is not there is left out and counted; an
attempt whose ranks were lately heard of there still counts, for the last word of a rank comes after its end. Where
several jobs share the instance nobody is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from gpu_recovery.core.diagnosis import observations
from gpu_recovery.core.heartbeat import AgentReport, Heartbeat, RankHeartbeat, RunningRank
from gpu_recovery.ports.store import Store


def save_observations(
    store: Store,
    report: AgentReport,
    before: Heartbeat | None,
    ranks: Mapping[int, RunningRank],
    look_up: Callable[[str], Iterable[RunningRank]],
    now: datetime,
) -> int:
    """Keep what `report` brings; how many of its reports were left out. Raises TryAgainSoon.

    ranks: those that it reports and that are known there. look_up: the ranks that have GPUs there, for one read.
    """
    if not report.observations:
        return report.unread
    remembered: list[RankHeartbeat | RunningRank] = [*ranks.values(), *(before.ranks.values() if before else ())]
    here = {(one.job_id, one.attempt) for one in remembered}
    if len({one.job_id for one in ranks.values()}) > 1:
        # Any process of the instance may write to the socket: one job's could speak in the name of another's.
        return report.unread + len(report.observations)
    wanted = {(one.job_id, one.attempt) for one in report.observations}
    if not wanted <= here:
        here |= {(one.job_id, one.attempt) for one in look_up(report.instance_id)}
    kept: dict[tuple[str, int], list[observations.Observation]] = {}
    for one in report.observations:
        attempt = one.attempt or max((number for job, number in here if job == one.job_id), default=0)
        if attempt and (one.job_id, attempt) in here:
            told = replace(one.report, at_s=round(now.timestamp() - report.age_s - one.age_s, 3))
            kept.setdefault((one.job_id, attempt), []).append(told)
    left_out = report.unread + len(report.observations) - sum(len(found) for found in kept.values())
    for (job_id, attempt), found in kept.items():
        store.add_observations(job_id, attempt, report.instance_id, found, report.lost + left_out)
    return left_out

"""Saves the observations that training processes report for a diagnosis.

A token is valid for its own instance only. So observations count only for attempts with ranks on that instance: the
others are left out and counted. Ranks that reported there recently still qualify their attempt, because the last
observation of a rank arrives after its end. If several jobs share the instance, no observation is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    accept: Callable[[str, str, Sequence[observations.Observation]], None] = lambda *_: None,
) -> int:
    """Save the observations in `report`.

    Args:
        before: the heartbeat before this report; None if this is the first.
        ranks: the reported ranks that are known on the instance.
        look_up: returns the ranks with GPUs on the instance; costs a read.
        accept: receives the job, the instance and its observations that are saved.

    Returns:
        The number of observations that were left out or could not be parsed.

    Raises:
        TryAgainSoon: other writers changed the stored observations at every try.
    """
    if not report.observations:
        return report.unread
    remembered: list[RankHeartbeat | RunningRank] = [*ranks.values(), *(before.ranks.values() if before else ())]
    attempts_here = {(rank.job_id, rank.attempt) for rank in remembered}
    if len({rank.job_id for rank in ranks.values()}) > 1:
        # Any process on the instance can write to the socket, also in the name of another job.
        return report.unread + len(report.observations)
    wanted = {(received.job_id, received.attempt) for received in report.observations}
    if not wanted <= attempts_here:
        attempts_here |= {(rank.job_id, rank.attempt) for rank in look_up(report.instance_id)}
    by_attempt: dict[tuple[str, int], list[observations.Observation]] = {}
    for received in report.observations:
        attempt = received.attempt or max(
            (number for job, number in attempts_here if job == received.job_id), default=0
        )
        if attempt and (received.job_id, attempt) in attempts_here:
            observation = replace(received.report, at_s=round(now.timestamp() - report.age_s - received.age_s, 3))
            by_attempt.setdefault((received.job_id, attempt), []).append(observation)
    left_out = report.unread + len(report.observations) - sum(len(accepted) for accepted in by_attempt.values())
    for (job_id, attempt), accepted in by_attempt.items():
        accept(job_id, report.instance_id, accepted)
        store.add_observations(job_id, attempt, report.instance_id, accepted, report.lost + left_out)
    return left_out

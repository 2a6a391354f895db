"""Accounting: ETTR, MTTD, MTTR and lost GPU-hours of a run, from its episodes. The same arithmetic for every policy.

A failure loses the training since the newest checkpoint that a new attempt can read. Checkpoints are counted from the
beginning of each attempt. The run begins with training and is cut off at its end.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from simulator.goodput.assumptions import Conditions
from simulator.goodput.policy import Episode, PolicyRun

WRITING = "writing checkpoints"
"""Name of the loss by writing checkpoints, beside the causes and phases."""
PHASES = ("shows", "notice", "stop", "check", "repair", "start", "rejoin", "lost work")
"""Phases of a recovery, in order, and the training that the failure undoes."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Seconds of one stretch of training: kept, lost at its end, and spent on writing checkpoints."""

    kept: float
    lost: float
    writing: float


def trained(seconds: float, conditions: Conditions, *, broken: bool) -> Trained:
    """Divide one stretch of training into kept work, lost work and the writing of checkpoints.

    Args:
        seconds: length of the stretch, which began with an attempt.
        conditions: `checkpoint_s`, `stall_s` and `persist_s` of the trainer.
        broken: whether a failure ended the stretch.
    """
    interval, stall = conditions.checkpoint_s, conditions.stall_s
    done = math.floor(seconds / (interval + stall))
    into = seconds - done * (interval + stall)
    work, writing = done * interval + min(into, interval), done * stall + max(0.0, into - interval)
    if not broken:
        return Trained(work, 0.0, writing)
    readable = max(0, math.floor((seconds - conditions.persist_s) / (interval + stall)))
    kept = min(done, readable) * interval
    return Trained(kept, work - kept, writing)


def stretches(run: PolicyRun, seconds: float) -> Iterator[tuple[float, Episode | None]]:
    """Yield the seconds of each stretch of training with the episode that ended it, or None for the end of the run.

    Raises:
        ValueError: an episode begins while no training runs.
    """
    began: float | None = 0.0
    for episode in run.episodes:
        if began is None:
            raise ValueError(f"failure {episode.failure} stops a training that had not begun again")
        yield episode.fault_at - began, episode
        began = episode.training_at
    if began is not None:
        yield seconds - began, None


def ettr(run: PolicyRun, seconds: float, conditions: Conditions) -> float:
    """Effective training time ratio: the share of the run's `seconds` that went into steps that count."""
    parts = [trained(length, conditions, broken=episode is not None) for length, episode in stretches(run, seconds)]
    return sum(part.kept for part in parts) / seconds


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least `share` of the values do not exceed; None without values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)] if values else None


def phases(episode: Episode, end: float) -> dict[str, float]:
    """Seconds of one recovery by phase, without the time after `end`, the end of the run in seconds.

    Raises:
        ValueError: the moments of the episode are not in order.
    """
    again = end if episode.training_at is None else episode.training_at
    moments = (
        episode.fault_at,
        min(episode.shown_at, episode.detected_at),
        episode.detected_at,
        episode.stopped_at,
        episode.checked_at,
        episode.placed_at,
        episode.started_at,
        again,
    )
    if any(later < earlier for earlier, later in pairwise(moments[:-1])):
        raise ValueError(f"the moments of failure {episode.failure} go backwards: {moments}")
    lengths = [later - earlier for earlier, later in pairwise(min(moment, end) for moment in moments)]
    return dict(zip(PHASES[:-1], lengths, strict=True))


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of a run. Hours are GPU-hours of the gang; those of the spares are counted apart.

    `unfelt` is the number of failures that interrupted no training.
    """

    ettr: float
    mttd_s: float | None
    mttr_s: dict[str, float | None]
    episodes: int
    relapses: int
    unfelt: int
    unrecovered: int
    reboots: int
    false_reboots: int
    replacements: int
    messages: int
    called: int
    hours_by_cause: dict[str, float]
    hours_by_phase: dict[str, float]
    spare_hours: float


def account(run: PolicyRun, seconds: float, gpus: int, gpus_per_instance: int, conditions: Conditions) -> Account:
    """Compute the figures of a run.

    Args:
        run: the episodes and actions of the policy.
        seconds: length of the run.
        gpus: GPUs of the gang.
        gpus_per_instance: GPUs of one instance, for the hours of the spares.
        conditions: the delays of the trainer.
    """
    by_cause, by_phase = defaultdict[str, float](float), dict.fromkeys(PHASES, 0.0)
    kept = 0.0
    for length, episode in stretches(run, seconds):
        part = trained(length, conditions, broken=episode is not None)
        kept += part.kept
        by_cause[WRITING] += part.writing
        if episode is not None:
            spent = phases(episode, seconds) | {"lost work": part.lost}
            by_cause[episode.cause] += sum(spent.values())
            for phase, length_s in spent.items():
                by_phase[phase] += length_s
    ended = [episode for episode in run.episodes if episode.training_at is not None]
    recovery_times = [episode.training_at - episode.fault_at for episode in ended if episode.training_at is not None]
    hours = gpus / 3_600
    return Account(
        ettr=kept / seconds,
        mttd_s=mean(episode.detected_at - episode.fault_at for episode in run.episodes) if run.episodes else None,
        mttr_s={f"p{percent}": percentile(recovery_times, percent / 100) for percent in (50, 90, 99)},
        episodes=len(run.episodes),
        relapses=sum(episode.is_relapse for episode in run.episodes),
        unfelt=run.unnoticed,
        unrecovered=len(run.episodes) - len(ended),
        reboots=len(run.reboots),
        false_reboots=sum(not reboot.needed for reboot in run.reboots),
        replacements=run.replacements,
        messages=run.messages,
        called=run.called,
        hours_by_cause={cause: by_cause[cause] * hours for cause in sorted(by_cause, key=lambda c: -by_cause[c])},
        hours_by_phase={phase: length_s * hours for phase, length_s in by_phase.items()}
        | {WRITING: by_cause[WRITING] * hours},
        spare_hours=run.spares * gpus_per_instance * seconds / 3_600,
    )

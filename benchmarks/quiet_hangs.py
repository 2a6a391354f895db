"""Benchmark of hangs without progress reports: false alarms in courses of trainings, and the time to a notice.

The samples go through the history of the agent (`sensors/activity_history.py`), the text of the heartbeat and the rule
of the server (`core/hang_signals.py`). The courses are those of `simulator/cloud/rank_course.py`: their lengths are
assumptions. Long training between two pauses is cut short, because it cannot raise an alarm. Recorded courses are
stretched: each recorded row stands for one sample. All random numbers are seeded.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_recovery.core.hang_signals import is_confirmed, rank_limit_s, signs_of_hang
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.rank_activity import RankActivity, activity_of, activity_text
from gpu_recovery_agent.sensors.activity_history import ActivityHistory, Sample

from simulator.cloud.rank_course import COURSES, HANGS, Course, Phase, RankCourse, Segment

RANKS, SAMPLE_S, DAY_S = 3, 15.0, 86_400.0
"""Ranks of a gang, seconds between two samples of the agent, and seconds of a day."""
JOBS, JOB_DAYS = 36, 10
"""Courses of each kind, and their days: more than 3,000 job-days of the courses that should raise no alarm, for a bound
below one false alarm per 1,000 job-days. They take about eleven minutes of processor time."""
LOOK_LIKE_A_HANG = (
    "waits of all ranks for a remote service, 3 to 5 minutes every 2 hours",
    "waits of rank 0 for a remote service, 1 to 3 minutes every 2 hours, the others in a collective",
)
"""The courses that raise alarms by the rule. They are not in the rate of all other courses."""
CONFIRMED_S = float(RecoveryPolicy().progress_timeout_min_s)
"""Shortest progress timeout, in seconds."""
CHANCE = 0.05
"""Chance that the true rate is above the bound."""
OTHER_FAILURE_S = (6 * 3_600.0, 18 * 3_600.0)
"""Bounds of the seconds between two other failures of the job, each of which begins a new attempt."""
SHORTENED_S = 45 * SAMPLE_S
"""Longest training that is simulated in full. The rest of a longer one is left out of the samples, and counted."""
HANGS_OF_KIND, SLOW_HANGS = 100, 5
"""Hangs of each kind whose notice is timed, and those of the kind that may be a checkpoint."""
REPORT_S, POLL_EVERY_S, EXECUTE_S = 15.0, 30.0, 3.0
"""Seconds between two reports, between two polls that ranks bring forward, and from a report to the decision."""
RECORDED = Path(__file__).parents[1] / "tests" / "recorded_gpu" / "h200_580" / "course.csv"
PHASES = ("training", "checkpoint", "evaluation", "spinning kernel", "sleep")
"""Recorded phases of one rank."""


@dataclass
class Gang:
    """The histories of a gang, and the notices: one for each time in which every rank is quiet without a break.

    `clock_s` counts also the training that is left out. `confirmed` counts the times in which the activity of every
    rank confirmed a hang after `CONFIRMED_S` without progress, as for a job that reports progress.
    """

    histories: list[ActivityHistory] = field(default_factory=lambda: [ActivityHistory() for _ in range(RANKS)])
    notices: int = 0
    clock_s: float = 0.0
    confirmed: int = 0
    _is_told: bool = False
    _is_confirmed: bool = False

    def add(self, samples: list[Sample], stalled_s: float = 0.0) -> None:
        """Add a sample of each rank, and judge the gang.

        Args:
            samples: the sample of each rank.
            stalled_s: seconds since the last training.
        """
        for history, sample in zip(self.histories, samples, strict=True):
            history.add(sample)
        self.clock_s += samples[0].seconds
        if stalled_s < CONFIRMED_S:
            self._is_confirmed = False
        elif not self._is_confirmed and is_confirmed(self._ranks(), stalled_s):
            self.confirmed, self._is_confirmed = self.confirmed + 1, True
        first = reported(self.histories[0])
        if first is None or first.quiet_s == 0:
            self._is_told = False
            return
        asks = not self._is_told and first.quiet_s >= rank_limit_s(first)
        if asks and signs_of_hang(self._ranks()) is not None:
            self.notices, self._is_told = self.notices + 1, True

    def _ranks(self) -> dict[int, RankActivity | None]:
        return {rank: reported(history) for rank, history in enumerate(self.histories)}

    def restarted(self) -> Gang:
        """Return the gang in its next attempt. Its agents remember the longest pause of the job."""
        histories = [ActivityHistory(history.pause_s, history) for history in self.histories]
        return Gang(histories, self.notices, self.clock_s, self.confirmed)


def reported(history: ActivityHistory) -> RankActivity | None:
    """Return what the server knows of a rank."""
    return activity_of({"0": activity_text(history.values())}, 0)


class _Shortened:
    """Segments in which long training is cut, with the seconds that were left out since the last question."""

    def __init__(self, segments: Iterator[Segment]) -> None:
        self._segments, self.left_out_s = segments, 0.0

    def __iter__(self) -> Iterator[Segment]:
        for segment in self._segments:
            cut_s = max(0.0, segment.seconds - SHORTENED_S) if segment.phase.trains else 0.0
            self.left_out_s += cut_s
            yield Segment(segment.phase, segment.seconds - cut_s)


def healthy_job(course: Course, seed: int) -> Gang:
    """Return the gang of one job that never hangs, after `JOB_DAYS` days."""
    drawn, gang = random.Random(f"job {seed}"), Gang()
    attempt, stalled_s = 0, 0.0
    while gang.clock_s < JOB_DAYS * DAY_S:
        attempt += 1
        ends_s = gang.clock_s + drawn.uniform(*OTHER_FAILURE_S)
        name = f"{seed}/{attempt}"
        cut = [_Shortened(course(random.Random(name))) for _ in range(RANKS)]
        ranks = [RankCourse(iter(cut[rank]), rank, random.Random(f"{name}/{rank}")) for rank in range(RANKS)]
        while gang.clock_s < ends_s:
            samples = [rank.sample(SAMPLE_S) for rank in ranks]
            stalled_s = 0.0 if ranks[0].trains else stalled_s + SAMPLE_S
            gang.add(samples, stalled_s)
            gang.clock_s += cut[0].left_out_s
            cut[0].left_out_s = 0.0
        gang = gang.restarted()
    return gang


def notice_s(hang: Phase, seed: int, course: Course) -> float:
    """Return the seconds from a hang to its notice.

    Samples and reports of each rank come at their own times. The agents of the first two ranks bring the poll forward.
    """
    drawn = random.Random(f"{hang} {seed}")
    hangs_s = drawn.uniform(1_500.0, 5_000.0)
    ranks = [RankCourse(course(random.Random(seed)), rank, random.Random(f"{seed}/{rank}")) for rank in range(RANKS)]
    histories = [ActivityHistory() for _ in range(RANKS)]
    samples_s = [drawn.uniform(0.0, SAMPLE_S) for _ in range(RANKS)]
    reports_s = [drawn.uniform(0.0, REPORT_S) for _ in range(RANKS)]
    known: dict[int, RankActivity | None] = dict.fromkeys(range(RANKS))
    polled_s = 0.0
    while True:
        at_s = min(*samples_s, *reports_s)
        for rank in range(RANKS):
            if samples_s[rank] == at_s:
                hung_s = min(max(at_s - hangs_s, 0.0), SAMPLE_S)
                histories[rank].add(ranks[rank].sample(SAMPLE_S, hang if hung_s else None, hung_s))
                samples_s[rank] += SAMPLE_S
            if reports_s[rank] != at_s:
                continue
            reports_s[rank] += REPORT_S * drawn.uniform(0.9, 1.1)
            known[rank] = activity = reported(histories[rank])
            asks = rank < 2 and activity is not None and activity.quiet_s >= rank_limit_s(activity)
            if asks and at_s >= polled_s + POLL_EVERY_S:
                polled_s = at_s
                if signs_of_hang(known) is not None:
                    return at_s + EXECUTE_S - hangs_s
        if at_s > hangs_s + DAY_S:
            raise RuntimeError("the hang was never found")


def recorded_samples(phase: str, traffic_mb_s: float | None = None) -> list[Sample]:
    """Return the samples of a recorded phase: each row of the record stands for one sample.

    Args:
        phase: the name of the phase.
        traffic_mb_s: the traffic of network and disks, which was not recorded.
    """
    with RECORDED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["phase"] == phase and row["rank"] == "0"]
    samples = []
    for before, row in pairwise(rows):
        seconds = float(row["t_s"]) - float(before["t_s"])
        cores = (float(row["cpu_s"]) - float(before["cpu_s"])) / seconds
        waits = row["state"] == "D"
        sample = Sample(SAMPLE_S, float(row["utilization_percent"]), float(row["power_w"]), cores)
        samples.append(sample._replace(traffic_mb_s=traffic_mb_s, waits_for_io=waits))
    return samples


def recorded_notices(phases: tuple[str, ...], traffic_mb_s: float | None = 0.0) -> int:
    """Return the notices of a gang whose ranks all have the recorded phases, one after the other."""
    gang = Gang()
    for phase in phases:
        for sample in recorded_samples(phase, traffic_mb_s):
            gang.add([sample] * RANKS)
    return gang.notices


def bound_per_1000(alarms: int, job_days: float) -> float:
    """Return the upper bound of the false alarms per 1,000 job-days, with 95 % confidence (Garwood).

    The number of alarms counts as Poisson distributed. Without an alarm this is the rule of three: 3 / `job_days`.
    """
    low, high = 0.0, 10.0 * (alarms + 1)
    for _ in range(60):
        mean = (low + high) / 2
        at_most = sum(math.exp(-mean) * mean**number / math.factorial(number) for number in range(alarms + 1))
        low, high = (mean, high) if at_most > CHANCE else (low, mean)
    return 1_000 * high / job_days


def figures(jobs: int = JOBS) -> dict[str, Any]:
    """Return all figures.

    Args:
        jobs: number of jobs of each course. Each trains for `JOB_DAYS` days.
    """
    gangs = {name: [healthy_job(course, seed) for seed in range(jobs)] for name, course in COURSES.items()}
    alarms = {name: sum(gang.notices for gang in of_course) for name, of_course in gangs.items()}
    job_days = jobs * JOB_DAYS
    others = {name: count for name, count in alarms.items() if name not in LOOK_LIKE_A_HANG}
    other_alarms, other_days = sum(others.values()), job_days * len(others)
    noticed = {}
    for name, hang in HANGS.items():
        count = SLOW_HANGS if "without end" in name else HANGS_OF_KIND
        taken = sorted(notice_s(hang, seed, COURSES["even steps"]) for seed in range(count))
        noticed[name] = {"median_s": round(taken[len(taken) // 2]), "longest_s": round(taken[-1]), "hangs": count}
    return {
        "job_days_of_each_course": job_days,
        "false_alarms": alarms,
        "confirmed": {name: sum(gang.confirmed for gang in of_course) for name, of_course in gangs.items()},
        "false_alarms_per_1000_job_days": {name: round(1_000 * count / job_days, 1) for name, count in alarms.items()},
        "other_courses": {
            "courses": len(others),
            "job_days": other_days,
            "false_alarms": other_alarms,
            "below_per_1000_job_days": round(bound_per_1000(other_alarms, other_days), 2),
            "each_below_per_1000_job_days": round(bound_per_1000(max(others.values()), job_days), 1),
        },
        "notice": noticed,
        "recorded_notices": {phase: recorded_notices((*("training",) * 3, phase)) for phase in PHASES},
    }

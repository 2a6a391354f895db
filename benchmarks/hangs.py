"""Benchmark of the progress timeout: false alarms in simulated courses of step times, and how soon a hang is found.

    python -m benchmarks.hangs        measures, and writes the keys `hangs` and `quiet_hangs` of benchmarks/results.json
    python -m benchmarks.hangs quiet [JOBS]  measures hangs without progress reports alone (`benchmarks/quiet_hangs.py`)

A course is the training of one job for ten days, with other failures between. Its steps go through the library that
measures step times (`client/gpu_recovery_client/diagnosis/step_times.py`) and the rule of the server
(`core/progress_timeout.py`). An interval that is longer than the limit is a false alarm: the job starts again, as after
a stop for a hang. The courses are assumptions, and no course is a measured trace. All random
numbers are seeded.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.progress_timeout import FORMER_MAX, STEPS_MIN, are_hangs_forgotten, progress_timeout
from gpu_recovery_client.diagnosis.step_times import StepTimes

from benchmarks import quiet_hangs, results

POLICY = RecoveryPolicy()
DAY_S, JOB_DAYS, JOBS = 86_400.0, 10, 10
"""Seconds of a day, days of a course, and courses of each kind and step time."""
STEP_S = (2.0, 10.0, 25.0)
"""Median step times in seconds."""
OTHER_FAILURE_S = (6 * 3_600.0, 18 * 3_600.0)
"""Bounds of the seconds between two other failures of the job, each of which begins a new attempt."""
CHECKPOINT_S = 600.0
"""Seconds between two checkpoints from which an attempt goes on, at most."""
FIXED_S = (60.0, 180.0)
"""Fixed limits for comparison. They hold after the same first steps, and know neither marks nor earlier steps."""
FIXED_ALARMS_MAX = 200
"""False alarms after which a course with a fixed limit is ended."""
REPORT_S = 25.0
"""Seconds between the end of a limit and the poll at most: a progress report every 10 s, an agent report every 15 s."""


@dataclass(frozen=True)
class Interval:
    """Seconds between two changes of the progress; `marked` if the program marks the phase in it."""

    seconds: float
    marked: bool = False


Draw = Callable[[random.Random, float], float]


def lognormal(sigma: float) -> Draw:
    """Return a source of step times with a median and the given spread."""
    return lambda drawn, median_s: median_s * drawn.lognormvariate(0.0, sigma)


def with_stalls(drawn: random.Random, median_s: float) -> float:
    """Return a step that waits for storage once in a thousand: a Pareto tail of index 1.5 from 5 s to 600 s."""
    wait_s = min(5.0 * drawn.paretovariate(1.5), 600.0) if drawn.random() < 0.001 else 0.0
    return median_s * drawn.lognormvariate(0.0, 0.05) + wait_s


@dataclass(frozen=True)
class Course:
    """A kind of training.

    step: draws the seconds of a step.
    first_s: additional seconds of the first and the second step, for compilation and data loaders.
    phase_s, every_s: seconds of a phase without progress, with 20 % of spread, and the trained time between two phases.
    marked: whether the program marks the phase.
    """

    step: Draw
    first_s: tuple[float, float] = (120.0, 30.0)
    phase_s: float = 0.0
    every_s: float = 0.0
    marked: bool = False

    def intervals(self, drawn: random.Random, median_s: float, trained_s: float) -> Iterator[Interval]:
        """Yield the intervals of an attempt without end, which goes on after `trained_s` seconds of training."""
        for extra_s in self.first_s:
            yield Interval(self.step(drawn, median_s) + extra_s)
        due_s = (trained_s // self.every_s + 1) * self.every_s if self.every_s else float("inf")
        while True:
            seconds = self.step(drawn, median_s)
            trained_s += seconds
            if trained_s >= due_s:
                due_s += self.every_s
                yield Interval(seconds + self.phase_s * drawn.uniform(0.8, 1.2), self.marked)
            else:
                yield Interval(seconds)


EVEN = lognormal(0.05)
COURSES: Mapping[str, Course] = {
    "even steps": Course(EVEN),
    "uneven sequences": Course(lognormal(0.5)),
    "storage stalls with a heavy tail": Course(with_stalls),
    "first compilation of 10 minutes": Course(EVEN, first_s=(600.0, 300.0)),
    "checkpoints of 25 s every 10 minutes": Course(EVEN, phase_s=25.0, every_s=600.0),
    "checkpoints of 100 s every hour": Course(EVEN, phase_s=100.0, every_s=3_600.0),
    "evaluations of 5 minutes every 2 hours": Course(EVEN, phase_s=300.0, every_s=7_200.0),
    "evaluations of 5 minutes every 2 hours, marked": Course(EVEN, phase_s=300.0, every_s=7_200.0, marked=True),
}
"""The courses by name. A mark is only stated where the program sets it."""


@dataclass
class TrainedJob:
    """A job under the progress timeout, over its attempts.

    fixed_s: a fixed limit; None: the rule of the product.
    trained_s, kept_s: seconds of training, and those that the last checkpoint keeps.
    alarms: times of the false alarms, in seconds.
    in_a_row: false alarms without a stable run between.
    former: longest step of each former attempt.
    """

    course: Course
    median_s: float
    drawn: random.Random
    fixed_s: float | None = None
    clock_s: float = 0.0
    trained_s: float = 0.0
    hang_stops: int = 0
    hang_run_s: float = 0.0
    calm_s: float = 0.0
    in_a_row: int = 0
    failed: bool = False
    alarms: list[float] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    former: list[float] = field(default_factory=list)

    def train(self) -> TrainedJob:
        """Train for JOB_DAYS days, attempt after attempt."""
        while self.clock_s < JOB_DAYS * DAY_S:
            self._attempt()
            if self.fixed_s is not None and len(self.alarms) >= FIXED_ALARMS_MAX:
                break
        return self

    def _attempt(self) -> None:
        times, began_s, least_s = StepTimes(), self.clock_s, self.fixed_s or POLICY.progress_timeout_min_s
        ends_s = began_s + self.drawn.uniform(*OTHER_FAILURE_S)
        for interval in self.course.intervals(self.drawn, self.median_s, self.trained_s):
            if interval.seconds > least_s:
                limit_s = self._limit_s(times, interval.marked)
                if interval.seconds > limit_s:
                    self._alarm(began_s, limit_s)
                    break
            if not interval.marked:
                times.add(interval.seconds)
            self.clock_s += interval.seconds
            self.trained_s += min(interval.seconds, 4 * self.median_s)
            ran_s = self.clock_s - began_s
            if ran_s >= POLICY.stable_run_s:
                self.in_a_row = 0
                if self.hang_stops and are_hangs_forgotten(self.hang_run_s, self.calm_s + ran_s, POLICY):
                    self.hang_stops, self.hang_run_s = 0, 0.0
            if self.clock_s >= ends_s:
                break
        if self.clock_s - began_s >= POLICY.stable_run_s and not (self.alarms and self.alarms[-1] == self.clock_s):
            self.calm_s += self.clock_s - began_s
        self.limits_s.append(self._limit_s(times, False))
        self.former.append(times.slowest_s)
        self.trained_s = max(0.0, self.trained_s - self.drawn.uniform(0.0, CHECKPOINT_S))

    def _alarm(self, began_s: float, limit_s: float) -> None:
        self.hang_run_s, self.calm_s = max(self.hang_run_s, self.clock_s - began_s), 0.0
        self.clock_s += limit_s
        self.alarms.append(self.clock_s)
        self.hang_stops, self.in_a_row = self.hang_stops + 1, self.in_a_row + 1
        self.failed = self.failed or self.in_a_row >= POLICY.attempts_max

    def _limit_s(self, times: StepTimes, marked: bool) -> float:
        if self.fixed_s is not None:
            return self.fixed_s if times.count >= STEPS_MIN else POLICY.progress_timeout_s
        report = ProgressReport(
            report_id="p", at_s=0.0, value=1.0, paused="evaluation" if marked else "", **times.fields()
        )
        former_s = max(self.former[-FORMER_MAX:], default=0.0)
        return progress_timeout([report], POLICY, None, self.hang_stops, former_s).seconds


def hang_figures(jobs: int = JOBS) -> dict[str, Any]:
    """Return the false alarms of each course and step time, of the product and of fixed limits."""
    return {
        "jobs": jobs,
        "days": JOB_DAYS,
        "found_within_s": REPORT_S,
        "courses": {
            name: {f"steps of {median_s:g} s": course_figures(course, median_s, jobs) for median_s in STEP_S}
            for name, course in COURSES.items()
        },
    }


def course_figures(course: Course, median_s: float, jobs: int) -> dict[str, Any]:
    """Return the median limit, the false alarms of a job in its first day and in each later day, and failed jobs."""
    trained = [TrainedJob(course, median_s, random.Random(seed)).train() for seed in range(jobs)]
    limits_s = sorted(limit_s for one in trained for limit_s in one.limits_s)
    alarms = [alarm_s for one in trained for alarm_s in one.alarms]
    first = sum(alarm_s <= DAY_S for alarm_s in alarms)
    figures: dict[str, Any] = {
        "limit_s": round(limits_s[len(limits_s) // 2]),
        "false_alarms_first_day": round(first / jobs, 2),
        "false_alarms_later_day": round((len(alarms) - first) / jobs / (JOB_DAYS - 1), 3),
        "failed_jobs": sum(one.failed for one in trained),
    }
    for fixed_s in FIXED_S:
        one = TrainedJob(course, median_s, random.Random(0), fixed_s).train()
        figures[f"fixed_{fixed_s:.0f}_s_per_day"] = round(len(one.alarms) / (one.clock_s / DAY_S), 2)
    return figures


def main() -> None:
    """Measure and write the figures."""
    asked = sys.argv[1:]
    figures = {"quiet_hangs": quiet_hangs.figures(*map(int, asked[1:]))}
    if asked[:1] != ["quiet"]:
        figures["hangs"] = hang_figures()
    for key, measured in figures.items():
        results.update(key, measured)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

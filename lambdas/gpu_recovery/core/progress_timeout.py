"""Progress timeout of a running job: how long its ranks may stay without progress before the gang counts as hung.

The timeout follows the step times that the ranks report (docs/hangs.md). It is the largest of three times:

- The first is `progress_timeout_min_s` of the policy.
- The second is `progress_timeout_steps` times the median step, or `progress_timeout_confirmed_percent` of that if the
  activity of every rank confirms the hang (`hang_signals.is_confirmed`).
- The third is `SLOWEST_FACTOR` times the longest step of this attempt and of the last attempts.

It is never longer than `progress_timeout_s`, which alone applies while the step times are not known: in the first steps
of an attempt, in a phase that the program has marked (`pause`), and for programs with an older library. Each stop of
the job for a hang multiplies the timeout by `BACKOFF_FACTOR`, unless it is known to be no false alarm
(`job/hang_stops.py`). The stops are forgotten once the runs since have lasted much longer than the runs that were
stopped (`are_hangs_forgotten`). So a program with an unmarked long phase loses a bounded number of attempts: a later
attempt gets over the phase, and its length is known from then on. A timeout in the specification of the job replaces
all of this.

A job that reports no progress is judged by the activity of its ranks, if the policy asks for it (`hang_signals.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import PERCENT_MAX, HangAction, RecoveryPolicy

STEPS_MIN = 20
"""Steps after the warm-up of the library that must be known before the timeout follows them."""
SLOWEST_FACTOR = 2.0
"""Factor between the longest step so far and the timeout."""
BACKOFF_FACTOR = 4.0
"""Factor by which each counted stop for a hang lengthens the timeout, until the stops are forgotten."""
FORGET_FACTOR = 2.0
"""Factor between the longest run that was stopped for a hang and the time after which the stops are forgotten.

A phase that comes at intervals begins within one interval of an attempt's start. So it begins before that time.
"""
FORMER_MAX = 20
"""Former attempts whose longest step counts. They are read only for a gang that has stood still for its timeout."""
BACKOFFS_MAX = 10
"""Stops for a hang that lengthen the timeout at most. The power stays small."""
QUIET_S = 90.0
"""Seconds for which every rank must be quiet, and again between the notice of a hang and the stop for it."""


def is_judged(policy: RecoveryPolicy) -> bool:
    """Return whether ranks are judged by their activity."""
    return policy.diagnose and policy.hang_without_progress is not HangAction.OFF


@frozen_dataclass()
class ProgressTimeout:
    """The timeout in seconds, and the reason for it as an addition to a sentence."""

    seconds: float
    reason: str


def progress_timeout(
    newest: Iterable[ProgressReport],
    policy: RecoveryPolicy,
    own_s: int | None = None,
    hang_stops: int = 0,
    former_slowest_s: float = 0.0,
    *,
    confirmed: bool = False,
) -> ProgressTimeout:
    """Return the progress timeout of a gang.

    Args:
        newest: the newest report of each process that reports progress. The process with the longest timeout decides.
        policy: the policy with the bounds.
        own_s: the timeout in the specification of the job; None if it has none.
        hang_stops: number of stops of the job for a hang that count (`job/hang_stops.py`).
        former_slowest_s: longest step of the former attempts.
        confirmed: whether the activity of the ranks confirms the hang.
    """
    if own_s is not None:
        return ProgressTimeout(float(own_s), f"the job allows {own_s} s")
    most = ProgressTimeout(float(policy.progress_timeout_s), f"the limit is {policy.progress_timeout_s} s")
    steps = _steps(policy, confirmed)
    of_processes = [_of_process(report, policy, steps, former_slowest_s) for report in newest]
    if not of_processes or None in of_processes:
        return most
    longest = max((limit for limit in of_processes if limit is not None), key=lambda limit: limit.seconds)
    seconds = longest.seconds * BACKOFF_FACTOR ** min(hang_stops, BACKOFFS_MAX)
    if seconds >= most.seconds:
        return most
    again = f", after {hang_stops} stop(s) for a hang" if hang_stops else ""
    return ProgressTimeout(seconds, f"the limit is {seconds:.0f} s{again}{longest.reason}")


def are_hangs_forgotten(hang_run_s: float, ran_s: float, policy: RecoveryPolicy) -> bool:
    """Return whether earlier stops for a hang no longer count after `ran_s` seconds in stable runs.

    Args:
        hang_run_s: longest run, in seconds, that was stopped for a hang.
        ran_s: seconds of the stable runs since the last stop, the present run included.
        policy: the policy with the length of a stable run.
    """
    return ran_s >= max(float(policy.stable_run_s), FORGET_FACTOR * hang_run_s)


def _steps(policy: RecoveryPolicy, confirmed: bool) -> int:
    """Return the median steps without progress that make a hang."""
    percent = policy.progress_timeout_confirmed_percent if confirmed else PERCENT_MAX
    return -(-policy.progress_timeout_steps * percent // PERCENT_MAX)


def _of_process(
    report: ProgressReport, policy: RecoveryPolicy, steps: int, former_slowest_s: float
) -> ProgressTimeout | None:
    """Return the timeout of one process, with its cause; None if its step times say nothing about the present phase."""
    if report.paused or report.steps is None or report.step_s is None or report.slowest_s is None:
        return None
    if report.steps < STEPS_MIN:
        return None
    least = float(policy.progress_timeout_min_s)
    by_median = steps * report.step_s
    by_slowest = SLOWEST_FACTOR * max(report.slowest_s, former_slowest_s)
    seconds = max(least, by_median, by_slowest)
    if seconds == least:
        cause = ""
    elif seconds == by_median:
        cause = f": {steps} steps of {report.step_s:.1f} s"
    else:
        cause = f": {SLOWEST_FACTOR:g} times its longest step"
    return ProgressTimeout(seconds, cause)

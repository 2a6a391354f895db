"""Cause line: the one line of a log that explains how the log ends.

A kernel log may hold faults of many days, and a training log errors that the program survived. So the findings are
divided into episodes, and the last episode that holds a failure has the cause.

Within an episode the first root is the cause, because a fault comes before its consequences. Two rules of kind precede
it. A line that names a reason precedes a line that only says that a process ended. Faults of the hardware and of the
host precede errors of an application, which cannot cause them. Consequences and warnings come last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from gpu_recovery.core.logs.classified_line import ClassifiedLine
from gpu_recovery.core.logs.kinds import CLASSES, LineKind, LineRole, LogClass

EPISODE_GAP_S = 3_600.0
"""Two findings that are further apart belong to different episodes. Twice the longest default timeout of a collective
operation (30 minutes, gloo and older releases of NCCL's process group)."""
CONSEQUENCE_MAX_S = 86_400.0
"""A consequence without a root in its own episode is explained by an earlier episode of the last 24 hours."""
_NOT_CAUSED_BY_PROGRAMS = frozenset({LogClass.HARDWARE})
_OF_PROGRAMS = frozenset({LineKind.XID_APPLICATION, LineKind.RUNTIME_ERROR_CUDA})
"""Kinds that a program causes, and that a fault of the hardware also causes."""
_FAILURES = (LineRole.ROOT, LineRole.CONFIRMATION)


def cause_line_of(findings: Iterable[ClassifiedLine]) -> ClassifiedLine | None:
    """Return the line that explains how the log ends; None if no line reports a failure. Advice is never the cause."""
    speaking = [finding for finding in findings if finding.role is not LineRole.ADVICE]
    failed = [finding for finding in speaking if finding.role is not LineRole.WARNING]
    if not failed:
        return speaking[-1] if speaking else None
    end = failed[-1]
    consequence = None
    for episode in reversed(_episodes(failed)):
        if consequence is not None and _seconds_between(episode[-1], end) > CONSEQUENCE_MAX_S:
            break
        cause = _cause_within(episode)
        if cause.role in _FAILURES:
            return cause
        consequence = consequence or cause
    return consequence


def _episodes(findings: Sequence[ClassifiedLine]) -> list[list[ClassifiedLine]]:
    """Divide findings where the time between two of them is longer than `EPISODE_GAP_S`."""
    episodes = [[findings[0]]]
    for before, finding in pairwise(findings):
        if _seconds_between(before, finding) > EPISODE_GAP_S:
            episodes.append([])
        episodes[-1].append(finding)
    return episodes


def _seconds_between(before: ClassifiedLine, after: ClassifiedLine) -> float:
    """Return the seconds between two findings; 0 if their times are unknown or of different clocks."""
    if before.time is None or after.time is None or before.time.clock is not after.time.clock:
        return 0.0
    return after.time.seconds - before.time.seconds


def _cause_within(episode: Sequence[ClassifiedLine]) -> ClassifiedLine:
    """Return the cause of one episode."""
    roots = [finding for finding in episode if finding.role is LineRole.ROOT]
    reasons = [root for root in roots if root.gives_reason]
    if reasons and reasons[0].kind in _OF_PROGRAMS:
        reasons = [root for root in reasons if CLASSES[root.kind] in _NOT_CAUSED_BY_PROGRAMS] or reasons
    confirmations = [finding for finding in episode if finding.role is LineRole.CONFIRMATION]
    return next(found[0] for found in (reasons, confirmations, roots, episode) if found)

"""The first end of a rank, as the tests of suspension give it."""

from __future__ import annotations

from dataclasses import replace

from gpu_recovery.core import events
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.task import Ending, EndingKind

from tests.core.build import NOW, failure


def ends(record: Job, kind: EndingKind, code: int | None = None, rank: int = 0) -> events.RankFailed:
    """Return the event that rank `rank` of the job is the first to end, with exit code `code`."""
    first = replace(failure(kind, rank=rank), ending=Ending(kind, code, f"exited with code {code}"))
    return events.RankFailed(at=NOW, attempt=record.attempt, failure=first)

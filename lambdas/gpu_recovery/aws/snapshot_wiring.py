"""The writer of the console snapshots, for the scheduler and the reconciler."""

from __future__ import annotations

from functools import cache

from gpu_recovery.aws.console_snapshots import S3ConsoleSnapshots
from gpu_recovery.aws.wiring import recovery, settings
from gpu_recovery.ports.console_snapshots import SnapshotWriter


@cache
def snapshot_writer() -> SnapshotWriter:
    """Return the writer of the console snapshots. It remembers between invocations what it wrote last."""
    loop = recovery()
    return SnapshotWriter(S3ConsoleSnapshots(settings().verdict_bucket), loop.clock, loop.decision_log.snapshot_failed)

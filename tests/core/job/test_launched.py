"""What the record of a job keeps when all its ranks have their task."""

from __future__ import annotations

from gpu_recovery.core import events

from tests.core.build import NOW, applied, placed, queued, tell


def test_a_launched_attempt_is_recorded_as_launched_and_ended() -> None:
    """An event that comes late then knows that the launch is over."""
    record = placed(queued())
    after = applied(tell(record, events.AttemptLaunched(at=NOW, attempt=record.attempt)))
    assert (after.launched, after.launch_ended) == (True, True)
    assert (record.launched, record.launch_ended) == (False, False)

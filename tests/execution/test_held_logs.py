"""The log of a container that was held holds the lines of several attempts; each is judged by its own."""

from __future__ import annotations

import pytest
from gpu_recovery.execution.evidence import lines_of_attempt

LOG = (
    "step 1",
    "KeyError: 'rate'",
    "gpu-recovery-run: attempt 2 starts in this container",
    "step 2",
    "gpu-recovery-run: attempt 3 starts in this container",
    "503 Server Error",
)


@pytest.mark.parametrize(
    ("attempt", "lines"),
    [(3, LOG[5:]), (2, LOG[3:]), (1, LOG), (4, LOG)],
)
def test_the_lines_of_an_earlier_attempt_explain_no_later_end(attempt: int, lines: tuple[str, ...]) -> None:
    """The start of an attempt may be older than the end of the log that is read."""
    assert tuple(lines_of_attempt(LOG, attempt)) == lines
    assert tuple(lines_of_attempt((), attempt)) == ()

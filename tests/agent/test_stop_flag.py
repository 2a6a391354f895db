"""The flag that ends an agent: a signal may arrive at any moment of a wait."""

from __future__ import annotations

import subprocess
import sys

from gpu_recovery_agent.stop_flag import StopFlag

WITHIN_S = 60
SET_IN_EVERY_LINE = """
import sys
from gpu_recovery_agent.stop_flag import StopFlag

def lines_of_a_wait(number):
    '''Set the flag in this thread before line `number` of a wait. Return how many lines the wait has.'''
    flag, seen = StopFlag(), 0
    def trace(frame, event, argument):
        nonlocal seen
        if event == "line":
            seen += 1
            if seen == number:
                sys.settrace(None)
                flag.set()
        return trace
    sys.settrace(trace)
    flag.wait(0)
    sys.settrace(None)
    assert flag.is_set() is (seen >= number)
    return seen

lines = lines_of_a_wait(1_000)
for number in range(1, lines + 1):
    lines_of_a_wait(number)
print(lines)
"""


def test_a_signal_at_any_moment_of_a_wait_sets_the_flag() -> None:
    """A handler runs in the thread that waits. A lock that the wait holds would never be given back."""
    done = subprocess.run(
        [sys.executable, "-c", SET_IN_EVERY_LINE], capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


def test_a_wait_ends_when_the_flag_is_set() -> None:
    """Also when it was set before, and as often as it is asked. A second signal changes nothing."""
    flag = StopFlag()
    assert not flag.wait(0) and not flag.is_set()
    flag.set()
    flag.set()
    assert flag.wait(10**6) and flag.wait(10**6) and flag.is_set()

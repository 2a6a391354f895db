"""Back-off: repeats a throttled call within one invocation, after waits that become longer, with jitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.ports.errors import TryAgainSoon

FIRST_WAIT_S, WAIT_S_MAX = 1.0, 8.0
"""First and longest wait between two tries, in seconds, before the jitter."""
RETRIES_MAX = 8
"""Upper bound of the tries after the first. Their waits are at most 47 s."""
Result = TypeVar("Result")


@frozen_dataclass()
class BackOff:
    """Repeats what AWS throttled.

    wait: waits for a number of seconds.
    draw: returns a random number from 0 to 1.
    """

    wait: Callable[[float], object]
    draw: Callable[[], float]

    def repeat(self, attempt: Callable[[int], Result], has_time: Callable[[], bool]) -> Result:
        """Call `attempt` until AWS does not throttle it, while there is time.

        Args:
            attempt: does the work. Receives the number of the retry; 0 for the first try.
            has_time: returns whether there is time for another try.

        Raises:
            TryAgainSoon: AWS throttled the last try.
        """
        for retry in range(RETRIES_MAX):
            try:
                return attempt(retry)
            except TryAgainSoon:
                if not has_time():
                    raise
                longest_s = min(WAIT_S_MAX, FIRST_WAIT_S * 2**retry)
                self.wait(longest_s * (1 + self.draw()) / 2)
                if not has_time():
                    raise
        return attempt(RETRIES_MAX)

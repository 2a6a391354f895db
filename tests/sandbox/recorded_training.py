"""A rank of a gang that keeps PyTorch's flight records, without PyTorch. In the first attempt one rank hangs.

The ranks call their collectives over TCP, and each call is recorded. A byte at the pipe makes the process write its
dump, and so does a collective that times out, as in PyTorch. The rank in HUNG does not call collective LAST, as if its
data loader blocked.

A hang takes seconds here instead of minutes. So every record is a minute older than it is: the rules take an operation
of less than 30 s for one that may still end.
"""

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_recovery_client import diagnosis

from sandbox.trainers.plain_python import VECTOR, CollectiveTimeout, RankGroup, TrainerSettings, say, stop_on_sigterm
from tests.agent.flight_recorder.dumps import dump, entry, pickled

LAST = 40
"""Steps until the collective that hangs: enough for the step times to be known."""
MINUTE_NS = 60_000_000_000
PIPE_EVERY_S = 1.0
"""TORCH_NCCL_COORD_CHECK_MILSEC: how often PyTorch looks at its pipe."""


class Recorder:
    """The flight records of this process on the group of all ranks."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._group, self._rank = RankGroup(settings), settings.rank
        self._members = {"0": range(settings.world_size)}
        self._entries: list[dict[str, Any]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def all_reduce(self) -> None:
        """One recorded collective."""
        created_ns = time.time_ns() - MINUTE_NS
        called = entry("0", len(self._entries) + 1, state="scheduled", time_created_ns=created_ns)
        self._entries.append(called)
        self._group.mean([0.0] * VECTOR)
        called |= {"state": "completed", "time_discovered_completed_ns": time.time_ns() - MINUTE_NS, "retired": True}

    def write_dump(self) -> None:
        """The records of this process, to the place that PyTorch takes."""
        path = Path(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{self._rank}")
        path.write_bytes(pickled(dump(self._members, self._entries)))

    def _listen(self) -> None:
        pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{self._rank}.pipe"
        os.mkfifo(pipe)
        end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        while True:
            # A writer that has opened the pipe and not written yet makes a read fail.
            with suppress(BlockingIOError):
                if os.read(end, 128):
                    self.write_dump()
            time.sleep(PIPE_EVERY_S)


def main() -> None:
    """Train to the collective LAST. A collective that times out ends the process, as PyTorch's watchdog does."""
    stop_on_sigterm()
    recorder = Recorder(TrainerSettings.from_env(os.environ))
    for step in range(1, LAST + 1):
        if step == LAST and (os.environ["ATTEMPT"], os.environ["RANK"]) == ("1", os.environ["HUNG"]):
            say("blocks")
            time.sleep(600)
        try:
            recorder.all_reduce()
        except CollectiveTimeout:
            recorder.write_dump()
            os.abort()
        diagnosis.progress(step)
    say("trained")


if __name__ == "__main__":
    sys.exit(main())

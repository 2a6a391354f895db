"""A program that hangs as a training under PyTorch does: it dumps the records of its ranks once a pipe is written to.

Its arguments are the ranks. The dumps to come lie beside those that it writes.
"""

import os
import shutil
import sys
import time
from pathlib import Path


def main() -> None:
    """Listen at the pipes of the ranks, dump when asked, and never end."""
    prefix, pipe = os.environ["TORCH_FR_DUMP_TEMP_FILE"], os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"]
    listen = {}
    for rank in sys.argv[1:]:
        os.mkfifo(f"{pipe}{rank}.pipe")
        listen[rank] = os.open(f"{pipe}{rank}.pipe", os.O_RDONLY | os.O_NONBLOCK)
    if "WATCHDOG_S" in os.environ:
        from gpu_recovery_client import training  # noqa: PLC0415

        training.set_watchdog_time(float(os.environ["WATCHDOG_S"]))
    print("hangs", flush=True)
    while True:
        for rank, end in listen.items():
            if _asked(end) and "DUMPS" not in os.environ:
                shutil.copyfile(Path(prefix).parent / f"to_come_{rank}", f"{prefix}{rank}")
        time.sleep(0.02)


def _asked(end: int) -> bool:
    """Whether a byte has come. A writer that has opened the pipe and not written yet makes a read fail."""
    try:
        return bool(os.read(end, 128))
    except BlockingIOError:
        return False


if __name__ == "__main__":
    main()

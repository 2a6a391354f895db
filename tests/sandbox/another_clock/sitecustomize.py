"""A wall clock that is not the machine's: $WALL_SHIFT_FILE holds by how many seconds, and may change at any time."""

import datetime
import os
import time
from pathlib import Path

_file = Path(os.environ["WALL_SHIFT_FILE"])
_time, _time_ns, _clock_gettime = time.time, time.time_ns, time.clock_gettime


def _shift() -> float:
    return float(_file.read_text() or 0)


def _gettime(clock: int) -> float:
    return _clock_gettime(clock) + (_shift() if clock == time.CLOCK_REALTIME else 0.0)


class _Shifted(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return super().now(tz) + datetime.timedelta(seconds=_shift())


datetime.datetime = _Shifted
time.time = lambda: _time() + _shift()
time.time_ns = lambda: _time_ns() + int(_shift() * 1e9)
time.clock_gettime = _gettime
# What this process takes for now, so that a test can see that it does.
_file.with_name("wall.seen").write_text(str(time.time()))

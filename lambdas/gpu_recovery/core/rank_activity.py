"""Activity of a rank as its node agent reports it: its text in a heartbeat, and its values.

The agent learns what is usual for the rank (`activity_history.py` of the agent), so a report has no series of samples.
A value that the agent does not know is None, never zero.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

VALUE_MAX = 10_000_000
"""Upper bound of a value, as in the history of a GPU."""


@frozen_dataclass()
class RankActivity:
    """What a rank does. While it is not quiet, only `quiet_s` is known, and is 0.

    quiet_s: seconds for which its GPUs have drawn far less power than usual, without a line of output.
    trained_s: seconds for which its process has trained before.
    pause_s: its longest quiet time that ended with work, in seconds; 0 for none.
    utilization: mean utilization of its GPUs in the quiet time, in percent.
    power_w, usual_power_w: mean power of its GPUs in watts, and the usual one.
    cores_per_gpu: processor time of its processes, in cores for each of its GPUs.
    fabric_mb_s, usual_fabric_mb_s: bytes of the RDMA adapters of its instance in megabytes per second.
    traffic_mb_s: the same of Ethernet adapters and disks.
    waits_for_io: 1 if a process of the rank has waited in the kernel for a disk or a file system, else 0.
    line_s: seconds since its last line of output.
    """

    quiet_s: float
    trained_s: float | None = None
    pause_s: float | None = None
    utilization: float | None = None
    power_w: float | None = None
    usual_power_w: float | None = None
    cores_per_gpu: float | None = None
    fabric_mb_s: float | None = None
    usual_fabric_mb_s: float | None = None
    traffic_mb_s: float | None = None
    waits_for_io: float | None = None
    line_s: float | None = None


VALUES_MAX = 12
"""Values of an activity, in the order of the fields of `RankActivity`."""


def activity_text(reported: Any) -> str:
    """Return the text that a heartbeat keeps; "" if the report says nothing of the activity.

    Args:
        reported: the list of values as an agent sent it. A value of another form counts as unknown. Further values, of
            a newer agent, are left out.
    """
    if not isinstance(reported, Sequence) or isinstance(reported, str) or not reported:
        return ""
    values = [_number(value) for value in reported[:VALUES_MAX]]
    return "" if values[0] is None else json.dumps(values, separators=(",", ":"))


def activity_of(texts: Mapping[str, str], log_id: int) -> RankActivity | None:
    """Return the activity of a rank by its running log; None if it is not known."""
    text = texts.get(str(log_id), "")
    try:
        values = json.loads(text) if text else None
    except ValueError:  # another release wrote it in another form
        return None
    if not isinstance(values, list) or not values or _number(values[0]) is None:
        return None
    return RankActivity(*(_number(value) for value in values[:VALUES_MAX]))  # type: ignore[arg-type]


def _number(value: Any) -> float | None:
    is_number = type(value) in (int, float) and math.isfinite(value) and 0 <= value <= VALUE_MAX
    return value if is_number else None

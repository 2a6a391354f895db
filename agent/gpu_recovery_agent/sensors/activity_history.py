"""History of a rank's activity: whether it trains as usual, and for how long it has been quiet. Pure.

A sample is quiet if the GPUs of the rank draw far less power than usual, its network adapters move far fewer bytes than
usual, and the rank has written no line. What is usual is learned from the samples that were not quiet, of this process
or of an earlier process. No sample is quiet until enough working samples exist. During a first compilation the GPU is
idle, so the low power counts as usual. A quiet time that ends with work is a pause, such as a checkpoint or an
evaluation. The longest pause is kept.

The server judges the whole gang by the result (`core/hang_signals.py`). The values are in the order of `FIELDS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

FIELDS = (
    "quiet_s",
    "trained_s",
    "pause_s",
    "utilization",
    "power_w",
    "usual_power_w",
    "cores_per_gpu",
    "fabric_mb_s",
    "usual_fabric_mb_s",
    "traffic_mb_s",
    "waits_for_io",
    "line_s",
)
"""Values of a quiet rank in a report, in their order. A rank that is not quiet has only the first, which is 0."""
USUAL_SAMPLES, USUAL_SAMPLES_MIN, USUAL_PART = 40, 20, 0.8
"""Newest working samples that tell what is usual, the fewest of them, and the part of them that is not above it."""
QUIET_POWER, QUIET_FABRIC = 0.4, 0.25
"""Shares of the usual power and of the usual bytes of the fabric below which a sample is quiet.

On an H200 a training drew 692 W, and an endless kernel 127 W (`tests/recorded_gpu`). A collective that waits draws more
than that kernel, because it fills more of the GPU. A program that generates text may draw less than half of its power
in training.
"""
RECALLED_AFTER = 4
"""Working samples in a row after which a process counts as training, so that what was usual before is usual again."""
TRAINED_POWER = 0.7
"""Share of the usual power from which a sample counts as training."""
FABRIC_MB_S_MIN = 1.0
"""Megabytes per second of the fabric below which its usual bytes say nothing."""
WINDOW_SAMPLES = 6
"""Newest samples of a quiet time whose means are reported: 90 s at the usual interval.

The first sample of a quiet time begins with work, so it counts only until there is a second.
"""
GAP_S = 60.0
"""Longest sample, in seconds. A longer one spans a gap in the readings, and what was in it is unknown."""
SECONDS_MAX = 10_000_000
"""Upper bound of a reported number of seconds."""
Values = list[float | None]


class Sample(NamedTuple):
    """What a rank did in a period. None is unknown, never zero.

    seconds: length of the period.
    utilization: mean utilization of its GPUs in percent, at the end of the period.
    power_w: mean power of its GPUs in watts.
    cores_per_gpu: processor time of its processes for each of its GPUs, as a number of cores.
    fabric_mb_s: bytes that the RDMA adapters of the instance sent and received, in megabytes per second.
    traffic_mb_s: the same of its Ethernet adapters and its disks.
    waits_for_io: whether a process of the rank waits in the kernel for a disk or a file system.
    line: whether the rank has written a line.
    """

    seconds: float
    utilization: float | None = None
    power_w: float | None = None
    cores_per_gpu: float | None = None
    fabric_mb_s: float | None = None
    traffic_mb_s: float | None = None
    waits_for_io: bool | None = None
    line: bool | None = None


class ActivityHistory:
    """The history of one process of a rank.

    Args:
        pause_s: the longest pause in seconds of earlier processes of the job.
        former: the history of another process of the job on this instance, most often the one before. What was usual
            there is usual again once this process has drawn the power of a training for `RECALLED_AFTER` samples. Until
            then the process may load or compile.
    """

    def __init__(self, pause_s: float = 0.0, former: ActivityHistory | None = None) -> None:
        self.pause_s = pause_s
        self._former_power, self._former_fabric = ((), ()) if former is None else former._learned()
        self._working = 0
        self._power: deque[float] = deque(maxlen=USUAL_SAMPLES)
        self._fabric: deque[float] = deque(maxlen=USUAL_SAMPLES)
        self._window: deque[Sample] = deque(maxlen=WINDOW_SAMPLES)
        self._quiet_s = self._trained_s = self._trained_w = 0.0
        self._line_s: float | None = None
        self._is_known = False

    def add(self, sample: Sample) -> None:
        """Add the next sample. A sample without power, or across a gap, ends a quiet time, and makes no pause of it."""
        if sample.line is not None:
            self._line_s = 0.0 if sample.line or self._line_s is None else self._line_s + sample.seconds
        self._is_known = sample.power_w is not None and 0.0 < sample.seconds <= GAP_S
        if not self._is_known or sample.power_w is None:
            self._quiet_s = 0.0
            self._window.clear()
            return
        self._recall(sample.power_w)
        usual_w = _usual(self._power)
        if usual_w is not None and self._is_quiet(sample, sample.power_w, usual_w):
            if self._window and self._window[0].seconds == self._quiet_s:  # the first sample of the quiet time
                self._window.clear()
            self._quiet_s += sample.seconds
            self._window.append(sample)
            return
        if self._quiet_s:
            self.pause_s = max(self.pause_s, self._quiet_s)
            self._quiet_s = 0.0
            self._window.clear()
        self._power.append(sample.power_w)
        if sample.fabric_mb_s is not None:
            self._fabric.append(sample.fabric_mb_s)
        if usual_w is not None:
            self._count_training(sample.seconds, sample.power_w, usual_w)

    def values(self) -> Values | None:
        """Return the values for a report in the order of `FIELDS`; None while nothing is known."""
        usual_w = _usual(self._power)
        if not self._is_known or usual_w is None:
            return None
        if not self._quiet_s:
            return [0]
        window = list(self._window)
        io_waits = [sample.waits_for_io for sample in window]
        return [
            _whole(self._quiet_s),
            _whole(self._trained_s),
            _whole(self.pause_s),
            _rounded(_mean([sample.utilization for sample in window]), 0),
            _rounded(_mean([sample.power_w for sample in window]), 0),
            _rounded(usual_w, 0),
            _rounded(_mean([sample.cores_per_gpu for sample in window]), 2),
            _rounded(_mean([sample.fabric_mb_s for sample in window]), 1),
            _rounded(_usual(self._fabric), 1),
            _rounded(_mean([sample.traffic_mb_s for sample in window]), 1),
            None if None in io_waits else int(any(io_waits)),
            None if self._line_s is None else _whole(self._line_s),
        ]

    def _learned(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the samples of power and fabric that tell what is usual, of this process or of those before."""
        if len(self._power) < USUAL_SAMPLES_MIN:
            return self._former_power, self._former_fabric
        return tuple(self._power), tuple(self._fabric)

    def _recall(self, power_w: float) -> None:
        """Take over what was usual for the process before, as soon as this process trains."""
        usual_w = _usual(self._former_power)
        if usual_w is None:
            return
        self._working = self._working + 1 if power_w >= TRAINED_POWER * usual_w else 0
        if self._working >= RECALLED_AFTER:
            self._power.extend(self._former_power)
            self._fabric.extend(self._former_fabric)
            self._former_power = self._former_fabric = ()

    def _count_training(self, seconds: float, power_w: float, usual_w: float) -> None:
        """Count a sample as training. If the usual power has risen, what counted before was a compilation."""
        if TRAINED_POWER * usual_w > self._trained_w:
            self._trained_s, self._trained_w = 0.0, usual_w
        if power_w >= TRAINED_POWER * usual_w:
            self._trained_s += seconds

    def _is_quiet(self, sample: Sample, power_w: float, usual_w: float) -> bool:
        if sample.line or power_w >= QUIET_POWER * usual_w:
            return False
        usual_mb_s = _usual(self._fabric)
        if sample.fabric_mb_s is None or usual_mb_s is None or usual_mb_s < FABRIC_MB_S_MIN:
            return True
        return sample.fabric_mb_s < QUIET_FABRIC * usual_mb_s


def _usual(values: Collection[float]) -> float | None:
    """Return what is usual; None before there are enough samples."""
    if len(values) < USUAL_SAMPLES_MIN:
        return None
    return sorted(values)[int(USUAL_PART * (len(values) - 1))]


def _mean(values: list[float | None]) -> float | None:
    """Return the mean; None if a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _rounded(value: float | None, digits: int) -> float | None:
    if value is None:
        return None
    return round(value, digits) if digits else round(value)


def _whole(seconds: float) -> int:
    return min(int(seconds), SECONDS_MAX)

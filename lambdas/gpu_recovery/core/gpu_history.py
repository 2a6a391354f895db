"""GPU history: the gauges of an inventory as a stored text, and samples thinned for a chart.

A sample has five gauges for each GPU, so the text of 8 GPUs has about 200 bytes and that of 32 GPUs less than 1 kB: one
write unit of DynamoDB.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

GAUGES = ("utilisation", "temperature", "memory_temperature", "power_w", "memory_used_mib")
"""Gauges of a GPU in their stored order: percent, degrees Celsius twice, watts, MiB."""
GPUS_MAX = 32
"""GPUs of a sample at most."""
VALUE_MAX = 10_000_000
"""Upper bound of a stored value. A larger one is no reading of a GPU."""
KEPT = timedelta(days=7)
"""Time after which a sample expires."""
ATTRIBUTE = "gpus"
"""Attribute of an item that holds the text of a sample."""
_PER_WATT, _PER_MIB = 1_000, 1_048_576
Values = tuple[int | None, ...]
"""The gauges of one GPU in the order of GAUGES; None for a gauge that was not read."""


@frozen_dataclass()
class Sample:
    """The gauges of all GPUs of an instance at one time."""

    at: datetime
    gpus: tuple[Values, ...]


def stream_of(instance_id: str) -> str:
    """Return the stream of the event history that holds the samples of an instance."""
    return f"gauge#{instance_id}"


def sample_text(inventory: Mapping[str, Any]) -> str | None:
    """Return the text of a sample; None if the inventory has no gauge.

    Args:
        inventory: the inventory as an agent sent it. Fields of an unexpected type count as not read.
    """
    gpus = inventory.get("gpus")
    if not isinstance(gpus, list):
        return None
    values = [_values(gpu) for gpu in gpus[:GPUS_MAX] if isinstance(gpu, Mapping)]
    if not any(value is not None for gpu in values for value in gpu):
        return None
    return json.dumps(values, separators=(",", ":"))


def sample_in(at: datetime, text: str) -> Sample:
    """Return the sample that a stored text holds. Raises ValueError if it holds none."""
    gpus = json.loads(text)
    if not isinstance(gpus, list):
        raise ValueError("a sample is a list of GPUs")
    return Sample(at, tuple(_stored(gpu) for gpu in gpus))


def _values(gpu: Mapping[str, Any]) -> Values:
    memory = gpu.get("memory")
    used = memory.get("used") if isinstance(memory, Mapping) else None
    return (
        _whole(gpu.get("utilization")),
        _whole(gpu.get("temperature")),
        _whole(gpu.get("memory_temperature")),
        _whole(gpu.get("power_mw"), _PER_WATT),
        _whole(used, _PER_MIB),
    )


def _whole(value: Any, per: int = 1) -> int | None:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value / per <= VALUE_MAX:
        return None
    whole: int = round(value / per)
    return whole


def _stored(gpu: Any) -> Values:
    if not isinstance(gpu, list) or len(gpu) < len(GAUGES):
        raise ValueError("a GPU of a sample has a value for each gauge")
    return tuple(value if type(value) is int else None for value in gpu[: len(GAUGES)])


@frozen_dataclass()
class Bucket:
    """A time span of a chart: the least and the largest value of each gauge of each GPU in it."""

    at: datetime
    least: tuple[Values, ...]
    most: tuple[Values, ...]


def thinned(samples: Iterable[Sample], since: datetime, until: datetime, points: int) -> list[Bucket]:
    """Return at most `points` buckets of equal length with the samples from `since` until `until`.

    A bucket without a sample is left out, so a chart has a gap there. The time of a bucket is that of its first sample.
    """
    length = (until - since) / points
    by_number: dict[int, list[Sample]] = {}
    for sample in samples:
        if since <= sample.at < until:
            by_number.setdefault(min(points - 1, int((sample.at - since) / length)), []).append(sample)
    return [_bucket(by_number[number]) for number in sorted(by_number)]


def _bucket(samples: Sequence[Sample]) -> Bucket:
    count = max(len(sample.gpus) for sample in samples)
    least, most = [], []
    for gpu in range(count):
        rows = [sample.gpus[gpu] for sample in samples if gpu < len(sample.gpus)]
        columns = [[row[gauge] for row in rows] for gauge in range(len(GAUGES))]
        known = [[value for value in column if value is not None] for column in columns]
        least.append(tuple(min(values, default=None) for values in known))
        most.append(tuple(max(values, default=None) for values in known))
    return Bucket(min(sample.at for sample in samples), tuple(least), tuple(most))

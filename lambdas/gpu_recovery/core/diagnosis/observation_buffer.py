"""Observation buffer: the stored observations of one attempt on one instance, bounded in number and bytes.

If the buffer is full, the oldest observation of the most frequent type is dropped. So the frequent health reports of
one worker do not displace a single event that was never acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from gpu_recovery.core.diagnosis.observation_codec import size
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

BUFFER_MAX, BUFFER_BYTES_MAX = 128, 65_536
"""Upper bounds of the observations, and of their bytes as JSON, for one attempt on one instance."""


@frozen_dataclass()
class ObservationBuffer:
    """Observations of one attempt from one instance, the oldest first.

    lost: approximate number of observations that were dropped or never arrived.
    sizes: bytes of each observation that was measured, by report id. A buffer that was read from DynamoDB has none.
    """

    reports: tuple[Observation, ...] = ()
    lost: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)


def added(before: ObservationBuffer, received: Iterable[Observation], lost: int) -> ObservationBuffer | None:
    """Buffer with the new observations, or None if none of them is new.

    An observation is skipped if its report id is in the buffer, so a repeated heartbeat changes nothing.

    Args:
        received: observations of the newest heartbeat.
        lost: number of observations that the sender dropped.
    """
    known = {report.report_id for report in before.reports}
    new = {report.report_id: report for report in received if report.report_id not in known}
    if not new:
        return None
    every = sorted((*before.reports, *new.values()), key=lambda report: (report.at_s, report.report_id))
    sizes = {report.report_id: before.sizes.get(report.report_id) or size(report) for report in every}
    kept = bounded(every, sizes)
    return ObservationBuffer(kept, before.lost + lost + len(every) - len(kept), sizes)


def bounded(reports: list[Observation], sizes: Mapping[str, int]) -> tuple[Observation, ...]:
    """Observations that fit into the bounds.

    Args:
        reports: sorted, the oldest first.
        sizes: bytes of each observation, by report id.
    """
    kept = list(reports)
    bytes_left = sum(sizes[report.report_id] for report in kept)
    count = Counter(type(report).__name__ for report in kept)
    while len(kept) > BUFFER_MAX or bytes_left > BUFFER_BYTES_MAX:
        most_frequent = max(count, key=lambda name: (count[name], name))
        index = next(index for index, report in enumerate(kept) if type(report).__name__ == most_frequent)
        bytes_left -= sizes[kept[index].report_id]
        count[most_frequent] -= 1
        del kept[index]
    return tuple(kept)

"""Of what the trainings on one instance tell for a diagnosis, the part that is kept: bounded in number and in bytes.

The oldest goes first, but of the kind that there is most of: a chatty worker's health must not push out the one event
that was never acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.observation_codec import size
from gpu_recovery.core.diagnosis.observations import Observation

KEPT_MAX, KEPT_BYTES_MAX = 128, 65_536
"""For one attempt on one instance."""


@dataclass(frozen=True, slots=True)
class ObservationBuffer:
    """The reports of one attempt from one instance, the oldest first; `lost`: about how many more there were."""

    reports: tuple[Observation, ...] = ()
    lost: int = 0


def added(before: ObservationBuffer, found: Iterable[Observation], lost: int) -> ObservationBuffer | None:
    """What is kept after `found`, of which `lost` others did not come. None if nothing of it is new.

    A report that is kept already, by its id, is not kept twice: a heartbeat that is repeated changes nothing.
    """
    known = {one.report_id for one in before.reports}
    new = {one.report_id: one for one in found if one.report_id not in known}
    if not new:
        return None
    every = sorted((*before.reports, *new.values()), key=lambda one: (one.at_s, one.report_id))
    kept = bounded(every)
    return ObservationBuffer(kept, before.lost + lost + len(every) - len(kept))


def bounded(every: list[Observation]) -> tuple[Observation, ...]:
    """As many of the reports, which are in order, as may be kept."""
    kept = list(every)
    bytes_of = {one.report_id: size(one) for one in kept}
    left = sum(bytes_of.values())
    kinds = Counter(type(one).__name__ for one in kept)
    while len(kept) > KEPT_MAX or left > KEPT_BYTES_MAX:
        most = max(kinds, key=lambda name: (kinds[name], name))
        place = next(n for n, one in enumerate(kept) if type(one).__name__ == most)
        left -= bytes_of[kept[place].report_id]
        kinds[most] -= 1
        del kept[place]
    return tuple(kept)

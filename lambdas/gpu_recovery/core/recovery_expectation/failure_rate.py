"""Failure rate of a fleet: its own incidents, blended with a published rate by a gamma distribution.

The published rate counts as `PRIOR_INCIDENTS` incidents. A fleet with few incidents so has about the published rate,
and a fleet with many has its own rate. The mean is `(PRIOR_INCIDENTS + n) / (prior GPU-days + GPU-days)`.
"""

from __future__ import annotations

import math
from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.recovery_expectation.published_times import (
    RATE_GPUS,
    RATE_PER_1000_INSTANCE_DAYS,
    RATE_SOURCE,
)

PRIOR_INCIDENTS = 3.0
"""Incidents that the published rate counts as."""
OWN_INCIDENTS_MIN = 10
"""Incidents from which a rate is called that of the fleet."""
Z_90 = 1.6449
"""Quantile of the normal distribution for a range with 90 %."""


class RateSource(StrEnum):
    """Whose failure rate was used."""

    FLEET = "fleet"  # that of this fleet, from enough incidents
    BLENDED = "blended"  # the published rate and too few figures of this fleet
    PUBLISHED = "published"  # the published rate alone: this fleet has no figures
    UNREAD = "unread"  # the published rate alone: the figures of this fleet could not be read


@frozen_dataclass()
class FailureRate:
    """Failures per GPU-day, blended.

    incidents: incidents of the fleet that were counted.
    gpu_days:  GPU-days in which jobs held instances meanwhile.
    days:      days that were counted.
    missing:   why the fleet has no figures, if `gpu_days` is 0.
    """

    incidents: int = 0
    gpu_days: float = 0.0
    days: int = 0
    missing: str = "this fleet has no figures yet"

    @property
    def _shape(self) -> float:
        return PRIOR_INCIDENTS + self.incidents

    @property
    def _exposure(self) -> float:
        published = RATE_PER_1000_INSTANCE_DAYS / 1_000 / RATE_GPUS
        return PRIOR_INCIDENTS / published + self.gpu_days

    @property
    def per_gpu_day(self) -> float:
        """Mean of failures per GPU-day."""
        return self._shape / self._exposure

    @property
    def range_per_gpu_day(self) -> tuple[float, float]:
        """The 5 % and the 95 % quantile of failures per GPU-day, by the approximation of Wilson and Hilferty."""
        shape, middle, spread = self._shape, 1.0 - 1.0 / (9.0 * self._shape), math.sqrt(1.0 / (9.0 * self._shape))
        low, high = (shape * max(0.0, middle + z * spread) ** 3 / self._exposure for z in (-Z_90, Z_90))
        return low, high

    def per_1000_instance_days(self, gpus_per_node: int) -> float:
        """Return the mean for 1,000 instances a day, with so many GPUs each."""
        return self.per_gpu_day * gpus_per_node * 1_000

    @property
    def own_share(self) -> float:
        """Share of the fleet's own GPU-days in the mean."""
        return self.gpu_days / self._exposure

    @property
    def source(self) -> RateSource:
        """Whose rate it is. A rate does not know that figures could not be read."""
        if not self.gpu_days:
            return RateSource.PUBLISHED
        return RateSource.FLEET if self.incidents >= OWN_INCIDENTS_MIN else RateSource.BLENDED

    def sentence(self, gpus_per_node: int) -> str:
        """Return whose rate was used, with the figures. Instance-days are those of instances with so many GPUs."""
        published = f"the published rate of {RATE_PER_1000_INSTANCE_DAYS:g} per 1,000 instance-days ({RATE_SOURCE})"
        if self.source is RateSource.PUBLISHED:
            return f"{published}: {self.missing}"
        own = (
            f"{self.incidents} incident(s) in {self.gpu_days / gpus_per_node:.1f} instance-days "
            f"({self.gpu_days:.0f} GPU-days) of this fleet in {self.days} days"
        )
        weight = round(100 * (1.0 - self.own_share))
        if self.source is RateSource.BLENDED:
            return f"{published} with {weight} % of the weight, blended with {own}: too few for a rate of its own"
        return f"{own}, blended with {published}, which has {weight} % of the weight"

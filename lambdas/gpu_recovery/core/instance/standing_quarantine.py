"""The quarantine of an instance that only an operator ends, as its record holds it."""

from __future__ import annotations

from datetime import datetime

from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass()
class Quarantine:
    """A quarantine that only an operator ends. It outlasts the registration of the instance with ECS.

    Attributes:
        reason: why the instance was quarantined, as a sentence.
        by: the operator who asked for the quarantine; "" if no operator did.
    """

    since: datetime
    reason: str
    by: str = ""


OF_EARLIER_RELEASE = "an operator, as recorded by an earlier release"
"""`Quarantine.by` of a record without the field. It may be an operator's quarantine, so it is treated as such."""

"""Notices between train and rollout, rows 41-46: here only what explains an out-of-memory error away."""

from __future__ import annotations

from ..case import Case
from ..reports import Delivery, EventReport, StageReport
from ..rule import Rule

_OWNERS_BEFORE = "rollout"


def oom_is_misleading(case: Case) -> tuple[str, ...]:
    """The ids of the reports that explain an out-of-memory error away (row 46): a notice that was not acknowledged, or
    somebody else's process on the GPU during a stage; () if none does."""
    lost = [one.report_id for one in case.all(EventReport) if one.state is not Delivery.ACKNOWLEDGED]
    held = [
        one.report_id
        for one in case.all(StageReport)
        if one.stage == _OWNERS_BEFORE
        and any(
            who.owner not in ("", _OWNERS_BEFORE) and who.memory_mb > case.thresholds.leak_mb
            for who in one.occupants or ()
        )
    ]
    return tuple(sorted({*lost, *held}))


RULES: tuple[Rule, ...] = ()

"""Limits and defaults of the core change only on purpose."""

from __future__ import annotations

import json

from tests.core.defaults import TABLE, found


def test_limits_and_defaults_are_those_of_the_table() -> None:
    """Users rely on them, and documents state them; `tests/core/defaults.py` says how to change the table."""
    recorded = json.loads(TABLE.read_text(encoding="utf-8"))
    now = found()
    changed = {
        name: (recorded.get(name), now.get(name)) for name in {*recorded, *now} if recorded.get(name) != now.get(name)
    }
    assert not changed


def test_the_table_has_the_thresholds_of_every_policy() -> None:
    """The walk reaches packages of packages, constants, and dataclasses."""
    names = set(found())
    assert {
        "gpu_recovery.core.policy.RecoveryPolicy.reboots_max",
        "gpu_recovery.core.diagnosis.thresholds.Thresholds.stalled_s",
        "gpu_recovery.core.queue.run_time_estimates.SLOTS",
    } <= names

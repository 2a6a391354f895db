"""Each signature against its own wordings: kind, role, and what levels and conditional sentences change."""

from __future__ import annotations

import json

from tests.core.logs.wordings import ROWS, SETTINGS, TABLE, readings

RECORDED = [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def test_every_wording_is_read_as_recorded() -> None:
    """A signature that is gone, or that has another flag or place, changes the reading of its wordings."""
    changed = {
        row["wording"]: (expected, found)
        for row in RECORDED
        if (found := readings(row["wording"])) != (expected := {name: row[name] for name in SETTINGS})
    }
    assert not changed


def test_every_signature_has_a_recorded_wording() -> None:
    """A new signature comes with rows in the table."""
    missing = [
        row.pattern.pattern for row in ROWS if not any(row.pattern.search(recorded["wording"]) for recorded in RECORDED)
    ]
    assert not missing


def test_the_table_has_readings_of_every_role() -> None:
    """Roots, confirmations, cascades and advice; in a sentence about a possibility nearly all are advice or nothing."""
    roles = {row["alone"][1] for row in RECORDED if row["alone"]}
    assert {"root", "cascade", "confirmation"} <= roles
    assert len([row for row in RECORDED if row["conditional"] != row["alone"]]) > len(RECORDED) / 2

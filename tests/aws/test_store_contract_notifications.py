"""What every store promises about marks of notifications: one is valid until its end, and never shortened."""

from __future__ import annotations

from gpu_recovery.ports.store import Store

from tests.aws.records import JOB, NOW, OTHER_JOB, later


def test_an_incident_counts_as_notified_until_its_mark_ends(store: Store) -> None:
    """DynamoDB may delete the mark days late."""
    assert not store.is_notified(JOB, NOW)
    store.mark_notified(JOB, later(60))
    assert store.is_notified(JOB, NOW) and store.is_notified(JOB, later(59))
    assert not store.is_notified(JOB, later(60)) and not store.is_notified(OTHER_JOB, NOW)


def test_a_mark_is_prolonged_and_never_shortened(store: Store) -> None:
    """Two functions may write it in either order."""
    for seconds in (60, 120, 30):
        store.mark_notified(JOB, later(seconds))
    assert store.is_notified(JOB, later(119)) and not store.is_notified(JOB, later(120))

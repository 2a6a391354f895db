"""What ECS says of an instance's health checks, trap by trap."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.health_events import notifications_of
from gpu_recovery.core.events import HealthReported
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.ecs_events.health import InstanceHealthEvent, SkippedNotification

from tests.aws.health_events import check, health_change, passed_over, warning
from tests.aws.records import NOW, A, later


def test_each_health_check_of_an_event_is_a_word_of_its_own() -> None:
    """With the XID where a GPU is impaired; ordered by the status change, which may be later than the update."""
    gpu, agent = notifications_of(
        health_change(check(statusReason="XID_79"), check("AGENT_CONNECTIVITY", "OK", lastStatusChange=None)), NOW
    )
    said = later(-60)
    assert gpu == InstanceHealthEvent(
        A,
        HealthReported(
            at=said,
            kind=HealthKind.ACCELERATED_COMPUTE,
            status=HealthStatus.IMPAIRED,
            since=later(-119.5),
            sentence="XID_79",
            xid=79,
            updated_at=later(-180),
        ),
    )
    connected = HealthReported(
        at=said,
        kind=HealthKind.AGENT_CONNECTIVITY,
        status=HealthStatus.OK,
        since=later(-180),
        updated_at=later(-180),
    )
    assert agent == InstanceHealthEvent(A, connected)


@pytest.mark.parametrize("kind", ["CONTAINER_RUNTIME", "ACCELERATED_COMPUTE", "DAEMON", "AGENT_CONNECTIVITY"])
@pytest.mark.parametrize("status", ["OK", "IMPAIRED", "INSUFFICIENT_DATA", "INITIALIZING"])
def test_every_check_and_status_that_ecs_has_is_known(kind: str, status: str) -> None:
    """In the core's words, which are ECS's."""
    found = warning(health_change(check(kind, status, lastStatusChange=later(-300).isoformat())))
    assert (found.kind, found.status) == (HealthKind(kind), HealthStatus(status))


def test_an_agent_that_is_disconnected_for_a_moment_is_no_news() -> None:
    """It disconnects several times an hour; the resync finds a disconnection that lasts."""
    flap = check("AGENT_CONNECTIVITY", lastStatusChange=later(-299).isoformat())
    assert "only a lasting disconnection is reported" in passed_over(health_change(flap))


@pytest.mark.parametrize(
    ("reason", "xid"),
    [
        ("XID_79", 79),
        ("GPU 3: XID_154 after XID_79", 154),
        ("Agent disconnected since 08:58", None),
        (None, None),
        ("XID_", None),
        ("XID_99999999999", None),
    ],
)
def test_the_xid_is_in_the_reason(reason: str | None, xid: int | None) -> None:
    """The first of them, if there is one."""
    assert warning(health_change(check(statusReason=reason))).xid == xid


@pytest.mark.parametrize(
    ("kind", "status"), [("QUANTUM", "OK"), ("DAEMON", "BORED"), ("", ""), ("daemon", "OK"), ("DAEMON", "")]
)
def test_a_check_that_nobody_has_described_costs_the_others_nothing(kind: str, status: str) -> None:
    """It is passed over with a sentence that names it."""
    strange, known = notifications_of(health_change(check(kind, status), check()), NOW)
    assert isinstance(strange, SkippedNotification) and repr(kind) in strange.sentence and A in strange.sentence
    assert isinstance(known, InstanceHealthEvent)


@pytest.mark.parametrize("change", ["9999-01-01T00:00:00Z", "2026-11-21T09:00:01Z"])
def test_a_status_cannot_have_changed_in_the_future(change: str) -> None:
    """Taken at its word, it would outdate everything that the watcher says afterwards."""
    assert warning(health_change(check(lastStatusChange=change))).since == NOW


def test_a_check_without_times_is_ordered_by_its_event() -> None:
    """Or by the clock, where that has none either."""
    event = health_change(check(lastStatusChange=None, lastUpdated="soon"))
    assert warning(event).since == later(-60)
    assert warning({**event, "time": None}).since == NOW


@pytest.mark.parametrize("checks", [[], None])
def test_an_event_without_checks_says_nothing(checks: Any) -> None:
    """Its overall status names no watcher."""
    assert notifications_of(health_change(healthChecks=checks), NOW) == ()


@pytest.mark.parametrize("value", [None, "", " ", 7, "i-\ud800"])
def test_the_health_of_no_instance_is_unreadable(value: Any) -> None:
    """An id must be there, and be one."""
    with pytest.raises(EventUnreadable, match=r"detail\.ec2InstanceId"):
        notifications_of(health_change(check(), ec2InstanceId=value), NOW)

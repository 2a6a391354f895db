"""What watchers of machines say, in events as others published them and as AWS documents them, trap by trap."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.health_events import is_watchers, words_of
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus
from gpu_recovery.ecs_events.health import MachineMoved, PassedOver, Warned, Word

from tests.aws.records import NOW, A, B, later

EVENTS = Path(__file__).parents[1] / "events"
KINDS = ("ec2_rebalance", "ec2_spot", "ec2_state", "health_", "cloudwatch_alarm")
PUBLISHED = sorted(path.stem for path in EVENTS.glob("*.json") if path.name.startswith(KINDS))
OTHERS = sorted({path.stem for path in EVENTS.glob("*.json")} - set(PUBLISHED))


def published(name: str) -> dict[str, Any]:
    """An event as somebody published it."""
    loaded: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return loaded


def the(event: dict[str, Any], now: datetime = NOW) -> Word:
    """The one thing that the event says."""
    (word,) = words_of(event, now)
    return word


def warning(event: dict[str, Any]) -> Any:
    """The core's event in an event that warns one instance."""
    word = the(event)
    assert isinstance(word, Warned)
    return word.event


def passed_over(event: dict[str, Any]) -> str:
    """Why nothing follows from the event."""
    word = the(event)
    assert isinstance(word, PassedOver)
    return word.sentence


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


# -- whose events ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_event_of_a_watcher_is_understood(name: str) -> None:
    """None raises; the times that come out of them are aware and not in the future."""
    event = published(name)
    assert is_watchers(event)
    for word in words_of(event, NOW):
        if isinstance(word, Warned):
            assert word.instance_id.startswith("i-")
            assert word.event.at <= NOW


@pytest.mark.parametrize("name", [name for name in OTHERS if not name.startswith("detail_")])
def test_other_events_are_not_ours_to_read(name: str) -> None:
    """Tasks, container instances, services, Auto Scaling."""
    assert not is_watchers(published(name))


@pytest.mark.parametrize("kind", [None, "", ["EC2 Instance State-change Notification"], {"a": 1}, 7, "EC2 " * 4096])
def test_a_detail_type_that_is_none_is_not_ours(kind: Any) -> None:
    """Over-long, absent, or no text at all."""
    assert not is_watchers({"detail-type": kind})
    assert not is_watchers({})


@pytest.mark.parametrize("event", [None, [], "text", 7])
def test_what_is_no_object_is_unreadable(event: Any) -> None:
    """Whatever got into the queue."""
    with pytest.raises(EventUnreadable):
        is_watchers(event)


@pytest.mark.parametrize("detail", [None, [], "text", 7])
@pytest.mark.parametrize("name", ["ec2_state_change_running_ruler", "health_odcr_underutilization"])
def test_an_event_without_a_detail_is_unreadable(name: str, detail: Any) -> None:
    """The error says what is missing."""
    with pytest.raises(EventUnreadable, match="detail"):
        words_of({**published(name), "detail": detail}, NOW)


# -- EC2 changes a state -----------------------------------------------------------------------------------------------

ID = "i-1234567890abcdef0"


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("ec2_state_change_running_ruler", MachineMoved("i-000000aaaaaa00000", "running")),
        ("ec2_state_change_stopped_doc", MachineMoved(ID, "stopped")),  # a blank before the id, no version
        ("ec2_state_change_terminated_doc", MachineMoved(ID, "terminated")),  # a blank before the id
        ("ec2_state_change_terminated_powertools", MachineMoved(ID, "terminated")),  # instance_id; the ARN has it
        ("ec2_state_change_uppercase_RUNNING_pipes", MachineMoved("i-0123456789", "running")),
    ],
)
def test_a_change_of_state_names_the_instance(name: str, word: Word) -> None:
    """Whatever is odd about its id, and in small letters."""
    assert the(published(name)) == word


@pytest.mark.parametrize("name", ["ec2_state_change_pending_nth", "ec2_state_change_pending_no_version"])
def test_a_pending_machine_is_passed_over(name: str) -> None:
    """It runs or it does not: either will be said."""
    assert "i-abcd1111 is pending" in passed_over(published(name))


def test_a_state_of_tomorrow_is_a_reason_to_look() -> None:
    """Nothing is concluded from the word itself."""
    event = published("ec2_state_change_running_ruler")
    event["detail"]["state"] = "hibernating"
    assert the(event) == MachineMoved("i-000000aaaaaa00000", "hibernating")


@pytest.mark.parametrize("name", ["ec2_state_change_stopped_doc", "ec2_spot_interruption_terminate_karpenter"])
@pytest.mark.parametrize("value", [None, "", " ", "i-", "host-1", "i-XYZ", "cr-01234567890abcdef", f"{ID}; drop"])
def test_an_event_of_ec2_that_names_no_instance_is_unreadable(name: str, value: str | None) -> None:
    """Nobody would ever learn what it was about; the dead letters keep it."""
    event = {**published(name), "resources": []}
    event["detail"]["instance-id"] = value
    with pytest.raises(EventUnreadable, match=r"detail\.instance-id"):
        words_of(event, NOW)


def test_a_change_to_no_state_is_unreadable() -> None:
    """It is all that it says."""
    event = published("ec2_state_change_stopped_doc")
    del event["detail"]["state"]
    with pytest.raises(EventUnreadable, match=r"detail\.state: is missing"):
        words_of(event, NOW)


# -- interruptions and recommendations ---------------------------------------------------------------------------------


def test_a_spot_interruption_is_two_minutes_away() -> None:
    """From the time of the event; the ARN, which has a zone for its region, is not needed."""
    (word,) = words_of(published("ec2_spot_interruption_terminate_karpenter"), NOW)
    assert word == Warned(
        "i-0123456789",
        DepartureAnnounced(
            at=at(2022, 8, 11, 14),
            kind=DepartureKind.INTERRUPTION,
            source="INTERRUPTION",
            leaves_at=at(2022, 8, 11, 14, 2),
            sentence="EC2 interrupts the Spot instance at 14:02:00 UTC",
        ),
    )


@pytest.mark.parametrize("time", ["yyyy-mm-ddThh:mm:ssZ", None, 7, "", "0000-00-00"])
def test_an_interruption_without_a_time_is_two_minutes_from_now(time: Any) -> None:
    """The documented sample has a placeholder."""
    event = {**published("ec2_spot_interruption_doc_placeholder_action"), "time": time}
    announced = warning(event)
    assert (announced.at, announced.leaves_at) == (NOW, later(120))


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "2026-11-21T09:00:30Z"])
def test_nothing_has_happened_later_than_now(time: str) -> None:
    """Two clocks differ; and two minutes after the last second of the calendar there is no time."""
    assert warning({**published("ec2_spot_interruption_terminate_nth"), "time": time}).leaves_at == later(120)


def test_a_capacity_reservation_that_ends_is_an_interruption() -> None:
    """The same detail under another name."""
    event = published("ec2_spot_interruption_terminate_karpenter")
    event["detail-type"] = "EC2 Capacity Reservation Instance Interruption Warning"
    announced = warning(event)
    assert announced.kind is DepartureKind.INTERRUPTION
    assert announced.sentence == "EC2 interrupts its capacity reservation at 14:02:00 UTC"


def test_a_rebalance_recommendation_is_no_more_than_a_likelihood() -> None:
    """It names the time from which the machine is worth avoiding."""
    announced = warning(published("ec2_rebalance_recommendation_nth"))
    assert (announced.kind, announced.leaves_at) == (DepartureKind.REBALANCE, at(2020, 10, 26, 14, 14, 14))
    assert warning(published("ec2_rebalance_recommendation_doc")).leaves_at == NOW


# -- ECS's health checks -----------------------------------------------------------------------------------------------


def health_change(*checks: dict[str, Any], **detail: Any) -> dict[str, Any]:
    """An event with these checks, as ECS documents it: it has no version."""
    return {
        "version": "0",
        "id": "1",
        "detail-type": "ECS Container Instance Health Change",
        "source": "aws.ecs",
        "time": "2026-11-21T08:59:00Z",
        "resources": [],
        "detail": {
            "clusterArn": "c",
            "containerInstanceArn": "ci",
            "capacityProviderName": None,
            "ec2InstanceId": A,
            "overallStatus": "IMPAIRED",
            "healthChecks": list(checks),
            **detail,
        },
    }


def check(kind: str = "ACCELERATED_COMPUTE", status: str = "IMPAIRED", **more: Any) -> dict[str, Any]:
    """One health check."""
    times = {"lastStatusChange": "2026-11-21T08:58:00.5Z", "lastUpdated": "2026-11-21T08:57:00Z"}
    return {"type": kind, "status": status, "statusReason": None, **times, **more}


def test_each_health_check_of_an_event_is_a_word_of_its_own() -> None:
    """With the XID where a GPU is impaired; ordered by the status change, which may be later than the update."""
    gpu, agent = words_of(
        health_change(check(statusReason="XID_79"), check("AGENT_CONNECTIVITY", "OK", lastStatusChange=None)), NOW
    )
    said = later(-60)
    assert gpu == Warned(
        A,
        HealthReported(
            at=said,
            kind=HealthKind.ACCELERATED_COMPUTE,
            status=HealthStatus.IMPAIRED,
            since=later(-119.5),
            sentence="XID_79",
            xid=79,
        ),
    )
    assert agent == Warned(
        A, HealthReported(at=said, kind=HealthKind.AGENT_CONNECTIVITY, status=HealthStatus.OK, since=later(-180))
    )


@pytest.mark.parametrize("kind", ["CONTAINER_RUNTIME", "ACCELERATED_COMPUTE", "DAEMON", "AGENT_CONNECTIVITY"])
@pytest.mark.parametrize("status", ["OK", "IMPAIRED", "INSUFFICIENT_DATA", "INITIALIZING"])
def test_every_check_and_status_that_ecs_has_is_known(kind: str, status: str) -> None:
    """In the core's words, which are ECS's."""
    found = warning(health_change(check(kind, status)))
    assert (found.kind, found.status) == (HealthKind(kind), HealthStatus(status))


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
    strange, known = words_of(health_change(check(kind, status), check()), NOW)
    assert isinstance(strange, PassedOver) and repr(kind) in strange.sentence and A in strange.sentence
    assert isinstance(known, Warned)


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
    assert words_of(health_change(healthChecks=checks), NOW) == ()


@pytest.mark.parametrize("value", [None, "", " ", 7, "i-\ud800"])
def test_the_health_of_no_instance_is_unreadable(value: Any) -> None:
    """An id must be there, and be one."""
    with pytest.raises(EventUnreadable, match=r"detail\.ec2InstanceId"):
        words_of(health_change(check(), ec2InstanceId=value), NOW)


# -- AWS Health --------------------------------------------------------------------------------------------------------

RETIREMENT = "health_ec2_persistent_instance_retirement_real"


def health(code: str = "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", *entities: Any, **detail: Any) -> dict[str, Any]:
    """An event of AWS Health about these entities."""
    event = published(RETIREMENT)
    named = [{"entityValue": one} if isinstance(one, str) else one for one in entities or (A,)]
    event["detail"] |= {"eventArn": "arn:1", "eventTypeCode": code, "affectedEntities": named} | detail
    return event


def test_a_retirement_as_it_was_recorded() -> None:
    """Its times are those of e-mail; the ARN tells it from other plans."""
    (word,) = words_of(published(RETIREMENT), NOW)
    code = "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED"
    arn = f"arn:aws:health:us-east-1::event/EC2/{code}/{code}3d776ac7-512d-4a3b-8ea4-73c33993a906"
    assert word == Warned(
        "i-00ddbf07ce6372082",
        DepartureAnnounced(
            at=at(2018, 11, 1, 22),
            kind=DepartureKind.RETIREMENT,
            source=arn,
            leaves_at=at(2018, 11, 1, 22),
            sentence=f"EC2 takes its host away from 2018-11-01 22:00 UTC on ({code})",
        ),
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_RETIREMENT_EXPEDITED", DepartureKind.RETIREMENT),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_EXPEDITED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_STOP_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_TERMINATION_SCHEDULED", DepartureKind.RETIREMENT),
        ("AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_INSTANCE_REBOOT_FLEXIBLE_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_INSTANCE_POWER_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_INSTANCE_NETWORK_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
        ("AWS_EC2_DEDICATED_HOST_NETWORK_MAINTENANCE_SCHEDULED", DepartureKind.MAINTENANCE),
    ],
)
def test_every_plan_that_aws_makes_with_a_machine_has_its_kind(code: str, kind: DepartureKind) -> None:
    """A retirement is not cured by a reboot, maintenance passes."""
    announced = warning(health(code))
    assert announced.kind is kind
    assert code in announced.sentence


@pytest.mark.parametrize(
    "name",
    ["health_ec2_instance_store_degraded", "health_elb_api_issue_no_resources", "health_ec2_test_alert_no_entities"],
)
def test_an_event_that_plans_nothing_with_a_machine_is_passed_over(name: str) -> None:
    """An issue, another service, a test."""
    assert "plans nothing with a machine" in passed_over(published(name))


@pytest.mark.parametrize("service", ["RDS", "ec2", "", None])
def test_the_plans_of_other_services_are_none_of_ours(service: str | None) -> None:
    """Whatever their entities are called."""
    assert "plans nothing with a machine" in passed_over(health(service=service))


def test_the_subject_may_be_no_instance() -> None:
    """Hosts and capacity reservations among the entities leave the instance among them alone."""
    words = words_of(health("AWS_EC2_INSTANCE_STOP_SCHEDULED", "cr-01234567890abcdef", f" {A} ", "h-1", {}), NOW)
    assert [type(word) for word in words] == [PassedOver, Warned, PassedOver, PassedOver]
    assert words[1] == Warned(A, warning(health("AWS_EC2_INSTANCE_STOP_SCHEDULED")))


@pytest.mark.parametrize("entities", [None, []])
def test_a_plan_for_nobody_says_nothing(entities: Any) -> None:
    """Some events come without their entities."""
    assert words_of(health(affectedEntities=entities), NOW) == ()


def test_every_page_of_a_long_event_has_instances_of_its_own() -> None:
    """The same ARN, so the same plan; each page tells those that are on it."""
    pages = [
        health("AWS_EC2_INSTANCE_STOP_SCHEDULED", one, page=str(n), totalPages="2") for n, one in enumerate((A, B))
    ]
    told = [the(page) for page in pages]
    assert [word.instance_id for word in told if isinstance(word, Warned)] == [A, B]
    assert {word.event.source for word in told if isinstance(word, Warned)} == {"arn:1"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "called_off"),
    [
        ({"statusCode": "open"}, False),
        ({"statusCode": "upcoming"}, False),
        ({}, False),
        ({"statusCode": "closed"}, True),
        ({"affectedEntities": [{"entityValue": A, "status": "RESOLVED"}]}, True),
        ({"affectedEntities": [{"entityValue": A, "status": "IMPAIRED"}]}, False),
    ],
)
def test_a_closed_event_calls_its_plan_off(changes: dict[str, Any], called_off: bool) -> None:
    """For all, or for the one whose part in it is resolved."""
    assert warning(health(**changes)).called_off is called_off


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thu, 1 Nov 2018 22:00:00 GMT", at(2018, 11, 1, 22)),
        ("2018-11-01T22:00:00Z", at(2018, 11, 1, 22)),
        ("Thu, 1 Nov 2018 22:00:00 +0200", at(2018, 11, 1, 20)),
        ("Thu, 1 Nov 2018 22:00:00", at(2018, 11, 1, 22)),
        ("tomorrow", NOW),
        ("", NOW),
        (None, NOW),
        ("0001-01-01T00:00:00Z", NOW),
        ("9999-12-31T00:00:00Z", NOW),
        ("Fri, 31 Dec 9999 23:59:59 -1200", NOW),
        ("Sat, 99 Jun 2016 99:99:99 GMT", NOW),
    ],
)
def test_the_time_of_a_plan_has_two_forms(text: str | None, expected: datetime) -> None:
    """Anything else, or a time at the end of the calendar, counts as not given: what follows reckons with it."""
    announced = warning({**health(startTime=text), "time": "9999-01-01T00:00:00Z"})
    assert announced.leaves_at == expected


def test_a_plan_without_a_name_is_unreadable() -> None:
    """The ARN tells it from others: without it, nothing could ever call it off."""
    with pytest.raises(EventUnreadable, match=r"detail\.eventArn: is missing"):
        words_of(health(eventArn=" "), NOW)


# -- CloudWatch --------------------------------------------------------------------------------------------------------


def alarm(*names: str, value: Any = "ALARM", **metric: Any) -> dict[str, Any]:
    """An alarm on these metrics of an instance, in the shape of the published one."""
    event = published("cloudwatch_alarm_servercputoohigh")
    (shape,) = event["detail"]["configuration"]["metrics"]
    found = [copy.deepcopy(shape) for _ in names]
    for one, name in zip(found, names, strict=True):
        one["metricStat"]["metric"] |= {"name": name, "dimensions": {"InstanceId": A}} | metric
    event["detail"]["configuration"]["metrics"] = found
    event["detail"]["state"]["value"] = value
    return event


SINCE = at(2019, 10, 2, 17, 4, 40) + timedelta(milliseconds=989)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("StatusCheckFailed_System", HealthKind.SYSTEM_STATUS),
        ("StatusCheckFailed_Instance", HealthKind.INSTANCE_STATUS),
        ("StatusCheckFailed", HealthKind.INSTANCE_STATUS),
    ],
)
def test_an_alarm_on_a_status_check_is_a_word_about_the_instance(name: str, kind: HealthKind) -> None:
    """Since the alarm came to be in its state."""
    assert the(alarm(name)) == Warned(
        A,
        HealthReported(
            at=at(2019, 10, 2, 17, 4, 40),
            kind=kind,
            status=HealthStatus.IMPAIRED,
            since=SINCE,
            sentence=f"the alarm 'ServerCpuTooHigh' on {name} is ALARM",
        ),
    )


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("ALARM", HealthStatus.IMPAIRED),
        ("OK", HealthStatus.OK),
        ("INSUFFICIENT_DATA", HealthStatus.INSUFFICIENT_DATA),
    ],
)
def test_the_state_of_the_alarm_is_the_status(value: str, status: HealthStatus) -> None:
    """Too little data is neither well nor impaired."""
    assert warning(alarm("StatusCheckFailed_System", value=value)).status is status


@pytest.mark.parametrize(
    "event",
    [
        *(published(name) for name in PUBLISHED if name.startswith("cloudwatch_alarm")),
        alarm("CPUUtilization"),
        alarm("StatusCheckFailed_System", namespace="Mine"),
        alarm("StatusCheckFailed_System", dimensions={}),
        alarm("StatusCheckFailed_System", dimensions=None),
        alarm("StatusCheckFailed_System", dimensions={"InstanceId": "mi-1"}),
        alarm("StatusCheckFailed_System", value="DREAMING"),
        alarm("StatusCheckFailed_System", value=None),
        alarm(),
    ],
)
def test_an_alarm_on_anything_else_is_passed_over(event: dict[str, Any]) -> None:
    """Other metrics, groups, sums, alarms on alarms, states of tomorrow."""
    assert "about no status check of an instance" in passed_over(event)


def test_a_metric_that_only_feeds_a_sum_names_no_machine() -> None:
    """The alarm is on the sum: it does not say whose check failed."""
    event = alarm("StatusCheckFailed_System", "StatusCheckFailed_System")
    for one in event["detail"]["configuration"]["metrics"]:
        one["returnData"] = False
    assert "about no status check" in passed_over(event)


@pytest.mark.parametrize("timestamp", [None, "placeholder", "9999-12-31T00:00:00.000+0000"])
def test_an_alarm_without_a_time_is_ordered_by_its_event(timestamp: str | None) -> None:
    """Or by the clock, if it says a time that is still to come."""
    event = alarm("StatusCheckFailed_System")
    event["detail"]["state"]["timestamp"] = timestamp
    assert warning(event).since == (NOW if str(timestamp).startswith("9999") else at(2019, 10, 2, 17, 4, 40))

"""Events that an account principal can cause, forward or replay: a reason to ask EC2 or ECS, and no evidence."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.instance.record import HealthReport, InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from tests.aws.described_instances import ec2_status
from tests.aws.ecs_events import check_event, instance_event, ours, rank_event
from tests.aws.health_events import alarm, check, health, health_change
from tests.aws.records import JOB, A, claim, instance, later, launched, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang, published

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
MACHINES = "ecs_instance_monitor"
NOW_TEXT, HOURS_AGO = "2026-11-21T09:00:00Z", "2026-11-21T06:00:00Z"
BUSY = plan().instances[0]
LONG = later(-600)
STRANGER = "999999999999"


def rung(metric: str = "StatusCheckFailed_System", instance_id: str = A, value: str = "ALARM") -> dict[str, Any]:
    """An alarm of this minute on a status check of the instance, as a rule of ours delivers it."""
    event = alarm(metric, value=value, dimensions={"InstanceId": instance_id})
    event["detail"]["state"]["timestamp"] = "2026-11-21T09:00:00.000+0000"
    return {**ours(event), "time": NOW_TEXT}


def shows(functions: Functions, **status: Any) -> None:
    """What DescribeInstanceStatus answers about an instance that it is asked about."""
    functions.aws.answers["DescribeInstanceStatus"] = lambda asked: {
        "InstanceStatuses": [ec2_status(one, **status) for one in asked["InstanceIds"]]
    }


def at_work(functions: Functions) -> None:
    """A running job of two ranks, and the record of its first instance."""
    gang(functions)
    functions.store.save_instance(instance(BUSY, claims={JOB: claim()}))


# -- alarms ------------------------------------------------------------------------------------------------------------

NOT_ILL: dict[str, dict[str, Any]] = {
    "ok": {},
    "initializing": {"system": "initializing", "instance": "initializing"},
    "insufficient-data": {"system": "insufficient-data", "instance": "insufficient-data"},
    "not applicable": {"system": "not-applicable", "instance": "not-applicable"},
    "an unknown status": {"system": "dreaming", "instance": "dreaming"},
    "impaired for a minute": {"system": "impaired", "instance": "impaired", "since": later(-60)},
}


@pytest.mark.parametrize("what", NOT_ILL)
@pytest.mark.parametrize("metric", ["StatusCheckFailed", "StatusCheckFailed_System", "StatusCheckFailed_Instance"])
def test_an_alarm_that_ec2_does_not_confirm_costs_one_read(functions: Functions, metric: str, what: str) -> None:
    """On an idle instance: nothing is written, drained or rebooted, and the log says why."""
    functions.store.save_instance(instance())
    before = functions.kept()
    shows(functions, **NOT_ILL[what])
    functions.call(MACHINES, rung(metric))
    assert functions.aws.operations() == Counter(GetItem=1, DescribeInstanceStatus=1)
    assert functions.kept() == before
    (line,) = functions.logged("signal_passed_over")
    assert line["reason"] == f"EC2 shows nothing new of {A} (the alarm 'ServerCpuTooHigh' is ALARM)"


@pytest.mark.parametrize("what", NOT_ILL)
@pytest.mark.parametrize("metric", ["StatusCheckFailed_System", "StatusCheckFailed_Instance"])
def test_an_alarm_that_ec2_does_not_confirm_stops_no_job(functions: Functions, metric: str, what: str) -> None:
    """No StopTask, no drain, no reboot: SetAlarmState is an ordinary right of developers."""
    at_work(functions)
    before = functions.kept()
    shows(functions, **NOT_ILL[what])
    functions.call(MACHINES, rung(metric, BUSY))
    assert functions.aws.operations() == Counter(GetItem=1, DescribeInstanceStatus=1)
    assert functions.kept() == before and functions.job().status is JobStatus.RUNNING


def test_an_alarm_about_an_instance_that_ec2_does_not_know_is_passed_over(functions: Functions) -> None:
    """Not found is not ill."""
    functions.store.save_instance(instance())
    functions.call(MACHINES, rung())
    assert functions.instance().status is InstanceStatus.AVAILABLE
    (line,) = functions.logged("signal_passed_over")
    assert line["reason"] == f"an EC2 event names {A}, which EC2 does not know"


@pytest.mark.parametrize("value", ["ALARM", "OK", "INSUFFICIENT_DATA"])
def test_an_instance_that_ec2_shows_impaired_is_rebooted_whatever_the_alarm_says(
    functions: Functions, value: str
) -> None:
    """The state of the alarm is not read: EC2's answer counts."""
    functions.store.save_instance(instance())
    shows(functions, instance="impaired", since=LONG)
    functions.call(MACHINES, rung("StatusCheckFailed_Instance", value=value))
    assert functions.instance().status is InstanceStatus.REBOOTING
    assert [asked["InstanceIds"] for asked in functions.aws.asked("RebootInstances")] == [[A]]
    assert [asked["status"] for asked in functions.aws.asked("UpdateContainerInstancesState")] == ["DRAINING"]


def test_the_job_on_an_instance_that_ec2_shows_impaired_leaves_it(functions: Functions) -> None:
    """The alarm is heard before the reconciler asks: the gang stops, and its instance is drained for the repair."""
    at_work(functions)
    shows(functions, instance="impaired", since=LONG)
    functions.call(MACHINES, rung("StatusCheckFailed_Instance", BUSY))
    assert functions.job().status is JobStatus.STOPPING
    assert sorted(asked["task"] for asked in functions.aws.asked("StopTask")) == list(launched().task_ids)
    assert functions.instance(BUSY).status is InstanceStatus.QUARANTINED  # held until the ranks have ended
    assert functions.instance(BUSY).health[HealthKind.INSTANCE_STATUS].status is HealthStatus.IMPAIRED


def test_ec2_decides_which_check_has_failed(functions: Functions) -> None:
    """An alarm on the instance check, and EC2 shows the system check impaired: the host is at fault."""
    functions.store.save_instance(instance())
    shows(functions, system="impaired", since=LONG)
    functions.call(MACHINES, rung("StatusCheckFailed_Instance"))
    assert functions.instance().status is InstanceStatus.QUARANTINED  # replacing is switched off
    assert set(functions.instance().health) == {HealthKind.SYSTEM_STATUS}


# -- events of others --------------------------------------------------------------------------------------------------

EVENTS = {
    "alarm": (MACHINES, rung(instance_id=BUSY)),
    "spot": (MACHINES, ours(published("ec2_spot_interruption_terminate_nth"))),
    "state": (MACHINES, ours(published("ec2_state_change_stopped_doc"))),
    "plan": (MACHINES, ours(health("AWS_EC2_INSTANCE_STOP_SCHEDULED", BUSY))),
    "health": (MACHINES, health_change(check(), ec2InstanceId=BUSY)),
    "registration": (MACHINES, instance_event(BUSY, 9, status="INACTIVE")),
    "rank": ("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=1)),
    "check": ("dcgm_task_monitor", check_event(BUSY, 1, 1)),
}
ORIGINS = {
    "account": (STRANGER, f"it is of account '{STRANGER}', not 123456789012"),
    "region": ("eu-west-1", "it is of region 'eu-west-1', not us-east-1"),
    "source": ("my.app", "its source 'my.app' is not "),
}


@pytest.mark.parametrize("field", ORIGINS)
@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_another_origin_is_refused_unread(functions: Functions, name: str, field: str) -> None:
    """Another account may forward its events to our bus: no read, no error, and one line in the log."""
    at_work(functions)
    shows(functions, system="impaired", instance="impaired", since=LONG)
    handler, event = EVENTS[name]
    value, reason = ORIGINS[field]
    functions.call(handler, event | {field: value})
    assert functions.aws.calls == []
    (line,) = functions.logged("event_refused")
    assert line["reason"].startswith(reason) and line["level"] == "WARNING"


# -- events that come late ---------------------------------------------------------------------------------------------


def old(name: str) -> dict[str, Any]:
    """An event of hours ago about the instance, as a redrive or the replay of an archive delivers it."""
    event = published(name)
    return {**ours(event), "detail": event["detail"] | {"instance-id": A}, "resources": [], "time": HOURS_AGO}


LATE = {
    "spot": old("ec2_spot_interruption_terminate_nth"),
    "rebalance": old("ec2_rebalance_recommendation_nth"),
    "plan": {**ours(health("AWS_EC2_INSTANCE_STOP_SCHEDULED", startTime="2026-11-21T12:00:00Z")), "time": HOURS_AGO},
}


@pytest.mark.parametrize("name", LATE)
def test_an_announcement_that_comes_hours_late_is_compared_with_ec2(functions: Functions, name: str) -> None:
    """EC2 shows no plan: one read, and the instance stays in use."""
    functions.store.save_instance(instance())
    before = functions.kept()
    shows(functions)
    functions.call(MACHINES, LATE[name])
    assert functions.aws.operations() == Counter(GetItem=1, DescribeInstanceStatus=1)
    assert functions.kept() == before


def test_a_plan_that_comes_late_and_still_stands_is_taken_from_ec2(functions: Functions) -> None:
    """With the time that EC2 shows now."""
    functions.store.save_instance(instance())
    planned = {"Code": "instance-stop", "InstanceEventId": "e-1", "NotBefore": later(7 * 3600)}
    shows(functions, events=(planned,))
    functions.call(MACHINES, LATE["plan"])
    departure = functions.instance().departure
    assert departure is not None and departure.leaves_at == later(7 * 3600)


def describes(functions: Functions, *checks: dict[str, Any]) -> None:
    """What DescribeContainerInstances says of the ECS health checks."""
    usual = functions.aws._DescribeContainerInstances

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        assert asked["include"] == ["CONTAINER_INSTANCE_HEALTH"]
        found = usual(asked)
        for entry in found["containerInstances"]:
            entry["healthStatus"] = {"overallStatus": "IMPAIRED", "details": list(checks)}
        return found

    functions.aws.answers["DescribeContainerInstances"] = answer


def test_reports_of_ecs_that_come_hours_late_are_compared_with_ecs_once(functions: Functions) -> None:
    """ECS shows the checks as well: no check of the GPUs begins, and nothing is written."""
    functions.store.save_instance(instance())
    before = functions.kept()
    describes(functions, check(status="OK"), check("DAEMON", "INSUFFICIENT_DATA"))
    functions.call(MACHINES, {**health_change(check(), check("DAEMON")), "time": HOURS_AGO})
    assert functions.aws.operations() == Counter(GetItem=1, DescribeContainerInstances=1)
    assert functions.kept() == before


def test_an_impairment_that_is_reported_late_and_lasts_is_checked(functions: Functions) -> None:
    """The report is hours old and ECS still shows it: the GPUs are examined, by what ECS says now."""
    functions.store.save_instance(instance())
    describes(functions, check(statusReason="XID_79"))
    functions.call(MACHINES, {**health_change(check()), "time": HOURS_AGO})
    assert functions.instance().status is InstanceStatus.CHECKING
    assert "XID_79" in functions.instance().health[HealthKind.ACCELERATED_COMPUTE].sentence


def test_an_impairment_that_was_mended_is_not_read_again_from_ecs(functions: Functions) -> None:
    """ECS still shows the report that the repair has answered: it is no news, by its own time."""
    answered = HealthReport(HealthStatus.INSUFFICIENT_DATA, later(-119.5))
    functions.store.save_instance(instance(health={HealthKind.ACCELERATED_COMPUTE: answered}))
    describes(functions, check())
    functions.call(MACHINES, {**health_change(check()), "time": HOURS_AGO})
    assert functions.aws.operations() == Counter(GetItem=1, DescribeContainerInstances=1)
    (line,) = functions.logged("signal_passed_over")
    assert line["reason"] == f"ECS shows nothing new of the health of {A}"


# -- reports that never come -------------------------------------------------------------------------------------------


def test_an_impairment_whose_event_was_lost_is_found_by_the_reconciler(functions: Functions) -> None:
    """The poll of the cluster carries the ECS health checks; the next cycle finds nothing new."""
    functions.store.save_instance(instance())
    shows(functions)
    functions.aws.answers["ListContainerInstances"] = lambda asked: {
        "containerInstanceArns": [f"ci-{A}"] if asked["status"] == "ACTIVE" else []
    }
    long_ago = later(-300).isoformat()
    agent = check("AGENT_CONNECTIVITY", lastStatusChange=long_ago)
    describes(functions, agent, check("DAEMON", "OK"), check("CONTAINER_RUNTIME", "INITIALIZING"))
    functions.call("reconciler", {})
    assert {kind: report.status for kind, report in functions.instance().health.items()} == {
        HealthKind.AGENT_CONNECTIVITY: HealthStatus.IMPAIRED
    }
    revision = functions.instance().revision
    functions.call("reconciler", {})
    assert functions.instance().revision == revision

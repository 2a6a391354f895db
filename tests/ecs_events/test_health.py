"""Words about machines from outside, through the function: to the instance they are about, and to no other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.instance.record_parts import Quarantine

from tests.aws.described_instances import ec2_status
from tests.aws.ecs_events import ours
from tests.aws.health_events import alarm, check, health, health_change
from tests.aws.records import NOW, A, instance, later
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import published

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
MACHINES = "ecs_instance_monitor"


def about(name: str, instance_id: str = A, **detail: Any) -> dict[str, Any]:
    """A published EC2 event, about this instance and of this minute."""
    event = published(name)
    told = {**event["detail"], "instance-id": instance_id, **detail}
    return this_minute({**event, "detail": told, "resources": []})


def moved(state: str) -> dict[str, Any]:
    """EC2 says that the instance came to be in this state."""
    return about("ec2_state_change_stopped_doc", state=state)


def shown(functions: Functions, *states: str) -> None:
    """What EC2 shows of the instance when it is asked, time after time; nothing once it has forgotten it."""
    left = list(states)

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        state = left.pop(0) if len(left) > 1 else left[0]
        return {"InstanceStatuses": [ec2_status(state=state)] if state else []}

    functions.aws.answers["DescribeInstanceStatus"] = answer


def this_minute(event: dict[str, Any]) -> dict[str, Any]:
    """The event, of the tests' present."""
    return {**ours(event), "time": "2026-11-21T09:00:00Z"}


EVENTS = {
    "state": moved("stopped"),
    "spot": about("ec2_spot_interruption_terminate_nth"),
    "rebalance": about("ec2_rebalance_recommendation_nth"),
    "health": health_change(check()),
    "plan": this_minute(health("AWS_EC2_INSTANCE_STOP_SCHEDULED")),
    "alarm": this_minute(alarm("StatusCheckFailed_System")),
}


@pytest.mark.parametrize("name", EVENTS)
def test_a_machine_that_is_not_ours_costs_one_read(functions: Functions, name: str) -> None:
    """Most machines of an account are in no cluster of ours: nobody is asked about them and nothing is written."""
    functions.call(MACHINES, EVENTS[name])
    assert functions.aws.operations() == Counter(GetItem=1)
    (line,) = functions.logged("signal_passed_over")
    assert line["reason"] == f"there is no record of {A}"


@pytest.mark.parametrize("name", [name for name in EVENTS if name != "state"])
def test_a_word_that_comes_twice_is_taken_once(functions: Functions, name: str) -> None:
    """Best effort is at least once, too."""
    functions.store.save_instance(instance())
    impaired = ec2_status(system="impaired", since=later(-600))
    functions.aws.answers["DescribeInstanceStatus"] = lambda asked: {"InstanceStatuses": [impaired]}
    functions.call(MACHINES, EVENTS[name])
    after = functions.instance()
    assert after.health or after.departure
    functions.call(MACHINES, EVENTS[name])
    assert functions.instance() == after


def test_what_ecs_says_of_its_health_checks_is_kept(functions: Functions) -> None:
    """One event, several watchers; what nobody has described is passed over and logged."""
    functions.store.save_instance(instance())
    checks = (check("DAEMON", "INSUFFICIENT_DATA"), check("QUANTUM"), check("CONTAINER_RUNTIME", "INITIALIZING"))
    functions.call(MACHINES, health_change(*checks))
    known = functions.instance().health
    assert {kind: word.status for kind, word in known.items()} == {
        HealthKind.DAEMON: HealthStatus.INSUFFICIENT_DATA,
        HealthKind.CONTAINER_RUNTIME: HealthStatus.INITIALIZING,
    }
    (line,) = functions.logged("signal_passed_over")
    assert "QUANTUM" in line["reason"]


def test_an_error_of_a_users_program_takes_no_instance_out_of_use(functions: Functions) -> None:
    """A segfault is XID 31, and ECS may call the GPU impaired for ever: it stays in use, and no mail is sent."""
    functions.store.save_instance(instance())
    functions.call(MACHINES, health_change(check(statusReason="XID_31")))
    found = functions.instance()
    assert found.health[HealthKind.ACCELERATED_COMPUTE].status is HealthStatus.IMPAIRED
    assert is_usable(found)
    assert functions.aws.count("sns") == functions.aws.count("ecs") == 0


def test_a_lost_gpu_is_checked_although_a_harmless_error_had_changed_the_status_before(functions: Functions) -> None:
    """IMPAIRED stays IMPAIRED, so ECS repeats the time of the first change. The update and the error are new."""
    functions.store.save_instance(instance())
    functions.call(MACHINES, health_change(check(statusReason="XID_31")))
    functions.call(MACHINES, health_change(check(statusReason="XID_79", lastUpdated="2026-11-21T08:59:00Z")))
    assert functions.instance().status is InstanceStatus.CHECKING
    functions.call(MACHINES, health_change(check(statusReason="XID_31")))
    assert functions.instance().health[HealthKind.ACCELERATED_COMPUTE].sentence == "XID_79"


def test_an_interruption_is_known_before_it_takes_place(functions: Functions) -> None:
    """Nothing new is placed on the machine."""
    functions.store.save_instance(instance())
    functions.call(MACHINES, EVENTS["spot"])
    departure = functions.instance().departure
    assert departure is not None
    assert (departure.kind, departure.leaves_at) == (DepartureKind.INTERRUPTION, later(120))
    assert functions.instance().avoid_reason


# -- a change of state is a reason to look -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "stopping", "stopped", "shutting-down", "terminated", "RUNNING"])
def test_what_counts_is_what_ec2_shows(functions: Functions, state: str) -> None:
    """Whatever the event says: by then the machine may be in another state."""
    functions.store.save_instance(instance())
    shown(functions, "running")
    functions.call(MACHINES, moved(state))
    assert functions.instance().status is InstanceStatus.AVAILABLE
    shown(functions, "stopped")
    functions.call(MACHINES, moved(state))
    assert functions.instance().status is InstanceStatus.GONE


def test_words_in_any_order_come_to_the_same_end(functions: Functions) -> None:
    """The look after each shows the machine as it is: it has been terminated."""
    functions.store.save_instance(instance())
    shown(functions, "terminated")
    for state in ("terminated", "running", "shutting-down", "terminated", "stopping"):
        functions.call(MACHINES, moved(state))
        assert functions.instance().status is InstanceStatus.GONE


@pytest.mark.parametrize(
    ("state", "status"), [("terminated", InstanceStatus.GONE), ("stopped", InstanceStatus.AVAILABLE)]
)
def test_a_machine_that_ec2_has_forgotten_was_terminated_if_ec2_said_so(
    functions: Functions, state: str, status: InstanceStatus
) -> None:
    """It forgets no other, so any other word is about a machine that it does not know yet."""
    functions.store.save_instance(instance())
    shown(functions, "")
    functions.call(MACHINES, moved(state))
    assert functions.instance().status is status


@pytest.mark.parametrize(
    ("by", "state", "stands"), [("", "stopped", False), ("ada", "stopped", True), ("ada", "terminated", False)]
)
def test_a_stop_that_is_heard_after_the_end_of_the_registration_ends_the_quarantine(
    functions: Functions, by: str, state: str, stands: bool
) -> None:
    """Unless an operator asked for it. EC2 is asked after ECS has reported the registration INACTIVE."""
    mark = Quarantine(later(-600), "it must be replaced", by)
    functions.store.save_instance(instance(status=InstanceStatus.GONE, status_at=later(-60), quarantine=mark))
    shown(functions, state)
    functions.call(MACHINES, moved(state))
    record = functions.instance()
    assert record.status is InstanceStatus.GONE and record.quarantine == (mark if stands else None)


def test_a_pending_machine_is_not_looked_at(functions: Functions) -> None:
    """It will be said what becomes of it."""
    functions.store.save_instance(instance())
    functions.call(MACHINES, moved("pending"))
    assert functions.aws.operations() == Counter()


# -- failures ----------------------------------------------------------------------------------------------------------


def test_an_event_that_names_nobody_is_raised(functions: Functions) -> None:
    """Lambda keeps it among the dead letters, where a person finds it."""
    with pytest.raises(EventUnreadable, match="instance-id"):
        functions.call(MACHINES, about("ec2_state_change_stopped_doc", ""))
    assert functions.aws.calls == []


def test_a_look_that_is_refused_is_raised(functions: Functions) -> None:
    """Lambda asks again; the record stays as it was."""
    functions.store.save_instance(instance())

    def refuse(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}, "DescribeInstanceStatus")

    functions.aws.answers["DescribeInstanceStatus"] = refuse
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        functions.call(MACHINES, moved("stopped"))
    assert functions.instance().status is InstanceStatus.AVAILABLE
    assert functions.instance().status_at == NOW


@pytest.mark.parametrize("event", [None, [], "text"])
def test_what_is_no_event_at_all_is_raised(functions: Functions, event: Any) -> None:
    """Whatever got into the function."""
    with pytest.raises(EventUnreadable):
        functions.call(MACHINES, event)


def test_a_wedged_mps_daemon_is_told_and_nothing_else(functions: Functions) -> None:
    """By the event: the instance stays in use, ECS is asked for nothing, and one message goes out."""
    functions.store.save_instance(instance())
    wedged = check(statusReason="mps control daemon probe timed out after 3s (daemon wedged?): signal: killed")
    functions.call(MACHINES, health_change(wedged))
    found = functions.instance()
    assert found.status is InstanceStatus.AVAILABLE and is_usable(found)
    assert functions.aws.count("ecs") == 0 and functions.aws.count("sns") == 1


def test_of_two_checks_of_one_type_in_an_event_the_gpu_is_checked(functions: Functions) -> None:
    """The daemon's report in the same event is logged and passed over."""
    functions.store.save_instance(instance())
    daemon = check(statusReason="mps control daemon probe failed (exit 1)", lastUpdated="2026-11-21T08:59:00Z")
    functions.call(MACHINES, health_change(daemon, check(statusReason="XID_79")))
    assert functions.instance().health[HealthKind.ACCELERATED_COMPUTE].sentence == "XID_79"
    (line,) = functions.logged("signal_passed_over")
    assert "graver" in line["reason"]

"""What is asked of EC2 and Auto Scaling, and what their answers mean: noes are read, lost answers are told apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber
from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus, MachineState
from gpu_recovery.ports.errors import OutcomeUnknown, TryAgainSoon
from gpu_recovery.ports.values import Machine, MachineStatus, Refusal

from tests.aws.environment import CREDENTIALS
from tests.aws.records import NOW, A, B, later

GROUP = "gpus"
BY_NAME = {"reboot": "reboot_instances", "stop": "stop_instances", "start": "start_instances"}
TERMINATE = "terminate_instance_in_auto_scaling_group"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Ec2:
    """The wrapper whose calls are all stubbed."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return Ec2(("team", "healed"), lambda: NOW)


@pytest.fixture
def told(ec2: Ec2) -> Iterator[Stubber]:
    """EC2, answering what a test tells it, in order."""
    with Stubber(ec2.client) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def groups(ec2: Ec2) -> Iterator[Stubber]:
    """Auto Scaling, answering what a test tells it, in order."""
    with Stubber(ec2.groups) as stub:
        yield stub
        stub.assert_no_pending_responses()


def test_no_client_is_made_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most events need neither of the two, and each costs a cold start its time."""
    made: list[str] = []
    monkeypatch.setattr(boto3, "client", lambda service, config: made.append(service))
    wrapper = Ec2(("team", "healed"), lambda: NOW)
    assert made == []
    assert wrapper.machines(()) == wrapper.machine_statuses(()) == {}
    assert made == []


# -- machines ----------------------------------------------------------------------------------------------------------


def shown(instance_id: str = A, state: str = "running", tags: dict[str, str] | None = None, **more: Any) -> Any:
    """An instance as DescribeInstances shows it."""
    pairs = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    return {
        "InstanceId": instance_id,
        "State": {"Code": 16, "Name": state},
        "Tags": pairs,
        "RootDeviceType": "ebs",
    } | more


def reserved(*instances: Any) -> dict[str, Any]:
    """The answer of DescribeInstances."""
    return {"Reservations": [{"Instances": [one]} for one in instances]}


def machine(ec2: Ec2, told: Stubber, one: Any) -> Machine:
    """What is made of one instance."""
    told.add_response("describe_instances", reserved(one))
    return ec2.machines((A,))[A]


def test_machines_are_asked_for_by_filter(ec2: Ec2, told: Stubber) -> None:
    """Every page, two hundred ids at a time: one that EC2 has forgotten would make a question by id fail."""
    ids = [f"i-{n}" for n in range(201)]

    def asked(some: list[str], **more: str) -> dict[str, Any]:
        return {"Filters": [{"Name": "instance-id", "Values": some}], **more}

    told.add_response("describe_instances", reserved(shown("i-1")) | {"NextToken": "more"}, asked(ids[:200]))
    told.add_response("describe_instances", reserved(shown("i-2")), asked(ids[:200], NextToken="more"))
    told.add_response("describe_instances", reserved(shown("i-200", "stopped")), asked(ids[200:]))
    assert {name: one.state for name, one in ec2.machines(ids).items()} == {
        "i-1": MachineState.RUNNING,
        "i-2": MachineState.RUNNING,
        "i-200": MachineState.STOPPED,
    }


@pytest.mark.parametrize("state", MachineState)
def test_every_state_of_a_machine_is_read(ec2: Ec2, told: Stubber, state: MachineState) -> None:
    """In EC2's own words."""
    assert machine(ec2, told, shown(state=state.value)).state is state


def test_a_state_that_nobody_has_described_is_an_error(ec2: Ec2, told: Stubber) -> None:
    """Left out, the machine would count as forgotten by EC2, and so as gone."""
    told.add_response("describe_instances", reserved(shown(state="hibernated")))
    with pytest.raises(EventUnreadable, match="hibernated"):
        ec2.machines((A,))


@pytest.mark.parametrize(
    ("tags", "handed_over"),
    [({"team": "healed"}, True), ({"team": "ill"}, False), ({}, False), ({"gpu-recovery:managed": "true"}, False)],
)
def test_a_machine_is_ours_by_its_tag_alone(ec2: Ec2, told: Stubber, tags: dict[str, str], handed_over: bool) -> None:
    """The deployment's tag with the deployment's value."""
    assert machine(ec2, told, shown(tags=tags)).handed_over is handed_over


@pytest.mark.parametrize(
    ("value", "kept_back"), [("true", True), ("until monday", True), ("", True), ("false", False), (" False ", False)]
)
def test_a_machine_under_maintenance_is_kept_back(ec2: Ec2, told: Stubber, value: str, kept_back: bool) -> None:
    """By the tag, whatever its value says, unless it says `false`."""
    tags = {"team": "healed", "gpu-recovery:maintenance": value}
    assert machine(ec2, told, shown(tags=tags)) == Machine(
        MachineState.RUNNING, handed_over=True, kept_back=kept_back, restartable=True
    )


def test_the_group_of_a_machine_is_in_its_tags(ec2: Ec2, told: Stubber) -> None:
    """Auto Scaling puts it there."""
    assert machine(ec2, told, shown(tags={"aws:autoscaling:groupName": GROUP})).group == GROUP
    assert machine(ec2, told, shown()).group == ""


@pytest.mark.parametrize(
    ("more", "restartable"),
    [
        ({}, True),
        ({"RootDeviceType": "instance-store"}, False),
        ({"InstanceLifecycle": "spot"}, False),
        ({"InstanceLifecycle": "capacity-block"}, False),
        ({"InstanceLifecycle": "a lifecycle of tomorrow"}, False),
    ],
)
def test_only_an_on_demand_machine_with_its_root_on_ebs_may_be_stopped_and_started(
    ec2: Ec2, told: Stubber, more: dict[str, str], restartable: bool
) -> None:
    """Of any other, stopping loses the disk or the capacity."""
    assert machine(ec2, told, shown(**more)).restartable is restartable


# -- status checks and scheduled events --------------------------------------------------------------------------------


def status(instance_id: str = A, system: Any = None, own: Any = None, events: Any = (), state: str = "running") -> Any:
    """An item of DescribeInstanceStatus."""
    well = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    return {
        "InstanceId": instance_id,
        "InstanceState": {"Code": 16, "Name": state},
        "SystemStatus": system or well,
        "InstanceStatus": own or well,
        "Events": list(events),
    }


def seen(ec2: Ec2, told: Stubber, one: Any) -> MachineStatus:
    """What is made of one item."""
    told.add_response("describe_instance_status", {"InstanceStatuses": [one]})
    return ec2.machine_statuses((A,))[A]


def reported(kind: HealthKind, status: HealthStatus, sentence: str = "") -> HealthReported:
    """A status check, looked at now."""
    return HealthReported(at=NOW, kind=kind, status=status, since=NOW, sentence=sentence)


SYSTEM, OWN = HealthKind.SYSTEM_STATUS, HealthKind.INSTANCE_STATUS


def test_both_status_checks_are_read(ec2: Ec2, told: Stubber) -> None:
    """An impaired one says since when, in words: a look says what is so now, and the latest look holds.

    Ordered by the time since when it is impaired, it would lose against a look in between that still found it well.
    """
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": later(-390)}
    assert seen(ec2, told, status(system={"Status": "impaired", "Details": [failed]})).health == (
        reported(SYSTEM, HealthStatus.IMPAIRED, "reachability since 2026-11-21 08:53 UTC"),
        reported(OWN, HealthStatus.OK),
    )


def test_a_status_check_that_has_only_just_failed_says_nothing(ec2: Ec2, told: Stubber) -> None:
    """Under load EC2's check fails for a minute now and then: that is no word about the machine."""
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": later(-299)}
    shown = seen(ec2, told, status(system={"Status": "impaired", "Details": [failed]}))
    assert shown.health == (reported(OWN, HealthStatus.OK),)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("ok", HealthStatus.OK),
        ("impaired", HealthStatus.IMPAIRED),
        ("initializing", HealthStatus.INITIALIZING),
        ("insufficient-data", HealthStatus.INSUFFICIENT_DATA),
    ],
)
def test_every_status_has_its_word(ec2: Ec2, told: Stubber, word: str, expected: HealthStatus) -> None:
    """With or without details."""
    assert seen(ec2, told, status(own={"Status": word})).health[1] == reported(OWN, expected)


@pytest.mark.parametrize("word", ["not-applicable", "a status of tomorrow"])
def test_a_status_that_says_nothing_is_none(ec2: Ec2, told: Stubber, word: str) -> None:
    """A machine that is off has none."""
    off = {"Status": word}
    assert seen(ec2, told, status(system=off, own=off, state="stopped")) == MachineStatus(MachineState.STOPPED)


def planned(code: str, description: str = "", **more: Any) -> dict[str, Any]:
    """A scheduled event."""
    return {"InstanceEventId": "instance-event-1", "Code": code, "Description": description} | more


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("instance-retirement", DepartureKind.RETIREMENT),
        ("instance-stop", DepartureKind.RETIREMENT),
        ("instance-reboot", DepartureKind.MAINTENANCE),
        ("system-reboot", DepartureKind.MAINTENANCE),
        ("system-maintenance", DepartureKind.MAINTENANCE),
    ],
)
def test_a_scheduled_event_is_a_departure(ec2: Ec2, told: Stubber, code: str, kind: DepartureKind) -> None:
    """No reboot cures the host of a machine that is to be retired or stopped."""
    event = planned(code, "Degraded hardware", NotBefore=later(3600))
    assert seen(ec2, told, status(events=[event])).departures == (
        DepartureAnnounced(
            at=NOW,
            kind=kind,
            source="instance-event-1",
            leaves_at=later(3600),
            sentence=f"EC2 has scheduled {code} for 2026-11-21 10:00 UTC: Degraded hardware",
        ),
    )


@pytest.mark.parametrize(
    ("description", "called_off"),
    [("[Completed] Degraded", True), ("[Canceled] Degraded", True), ("Degraded [Completed]", False), ("", False)],
)
def test_an_event_that_is_over_is_called_off(ec2: Ec2, told: Stubber, description: str, called_off: bool) -> None:
    """EC2 shows it for a week after its end."""
    (found,) = seen(ec2, told, status(events=[planned("instance-stop", description)])).departures
    assert found.called_off is called_off


def test_an_event_without_id_time_or_known_code_does_no_harm(ec2: Ec2, told: Stubber) -> None:
    """The code stands for the id, the look for the time; a code of tomorrow is left out."""
    bare = [{"Code": "instance-stop"}, {"Code": "instance-holiday"}]
    (found,) = seen(ec2, told, status(events=bare)).departures
    assert (found.source, found.leaves_at) == ("instance-stop", NOW)


def asked(*instance_ids: str) -> dict[str, Any]:
    """DescribeInstanceStatus has no filter for ids."""
    return {"InstanceIds": list(instance_ids), "IncludeAllInstances": True}


def test_statuses_are_asked_for_a_hundred_at_a_time(ec2: Ec2, told: Stubber) -> None:
    """Of machines that are off, too; more ids EC2 does not take."""
    ids = [f"i-{n}" for n in range(101)]
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-1")]}, asked(*ids[:100]))
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-100")]}, asked("i-100"))
    assert set(ec2.machine_statuses(ids)) == {"i-1", "i-100"}


def test_an_instance_that_ec2_has_forgotten_costs_the_others_nothing(ec2: Ec2, told: Stubber) -> None:
    """The question fails as a whole, so it is halved until the stranger stands alone."""
    ids = ("i-1", "i-2", "i-3")
    told.add_client_error("describe_instance_status", "InvalidInstanceID.NotFound", expected_params=asked(*ids))
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-1")]}, asked("i-1"))
    told.add_client_error("describe_instance_status", "InvalidInstanceID.NotFound", expected_params=asked("i-2", "i-3"))
    told.add_client_error("describe_instance_status", "InvalidInstanceID.NotFound", expected_params=asked("i-2"))
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-3")]}, asked("i-3"))
    assert set(ec2.machine_statuses(ids)) == {"i-1", "i-3"}


def test_any_other_error_of_the_status_is_raised(ec2: Ec2, told: Stubber) -> None:
    """No answer is not the answer that there is no such instance."""
    told.add_client_error("describe_instance_status", "UnauthorizedOperation")
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.machine_statuses((A, B))


# -- the reboot, which has no token ------------------------------------------------------------------------------------


def silenced(client: Any, operation: str, error: Exception) -> list[str]:
    """Let every HTTP request of `operation` fail with `error`; the list of those that were made."""
    made: list[str] = []

    def fail(request: Any, **_: Any) -> None:
        made.append(request.url)
        raise error

    client.meta.events.register(f"before-send.*.{operation}", fail)
    return made


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        EndpointConnectionError(endpoint_url="https://ec2"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_reboot_that_is_not_answered_is_unknown_and_not_asked_for_again(
    ec2: Ec2, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One HTTP request, while a call that may be repeated makes five."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    made = silenced(ec2.once, "RebootInstances", error)
    with pytest.raises(OutcomeUnknown):
        ec2.reboot(A)
    assert len(made) == 1
    repeated = silenced(ec2.client, "StopInstances", error)
    with pytest.raises(type(error)):
        ec2.replace(A, "")
    assert len(repeated) == 5


def test_a_reboot_names_its_instance(ec2: Ec2) -> None:
    """Nothing else is asked of EC2."""
    with Stubber(ec2.once) as once:
        once.add_response("reboot_instances", {}, {"InstanceIds": [A]})
        assert ec2.reboot(A) is None
        once.assert_no_pending_responses()


def order(ec2: Ec2, verb: str) -> Refusal | None:
    """The order, and EC2's no."""
    return {"reboot": lambda: ec2.reboot(A), "stop": lambda: ec2.replace(A, ""), "start": lambda: ec2.start(A)}[verb]()


def refused(ec2: Ec2, verb: str, code: str, status: int = 400) -> Refusal | None:
    """What becomes of an order that EC2 answers with an error and this HTTP status."""
    with Stubber(ec2.once if verb == "reboot" else ec2.client) as stub:
        stub.add_client_error(BY_NAME[verb], code, "not this one", http_status_code=status)
        return order(ec2, verb)


@pytest.mark.parametrize("verb", BY_NAME)
@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidInstanceID.NotFound", "UnsupportedOperation"])
def test_what_ec2_refuses_is_a_lasting_no(ec2: Ec2, verb: str, code: str) -> None:
    """It is neither done nor unknown, and asking again does not help."""
    assert refused(ec2, verb, code) == Refusal(f"EC2 will not {verb} it: {code}: not this one", lasting=True)


@pytest.mark.parametrize("verb", BY_NAME)
@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling"])
def test_an_order_given_too_often_is_told_apart(ec2: Ec2, verb: str, code: str) -> None:
    """It was refused unread, so it may be given again."""
    with pytest.raises(TryAgainSoon, match=code):
        refused(ec2, verb, code)


@pytest.mark.parametrize(("verb", "error"), [("reboot", OutcomeUnknown), ("stop", ClientError), ("start", ClientError)])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("Unavailable", 400),
        ("InternalError", 400),
        ("RequestExpired", 400),
        ("InternalServerError", 500),
        ("NeverHeardOf", 502),
        ("500", 500),
    ],
)
def test_an_order_to_an_ec2_in_trouble_may_have_been_heard(
    ec2: Ec2, verb: str, error: type[Exception], code: str, status: int
) -> None:
    """A stop or a start may be asked for again; whether a reboot was heard is found out at the machine."""
    with pytest.raises(error, match=code):
        refused(ec2, verb, code, status)


# -- replacing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_a_machine_is_stopped_and_started_by_name(ec2: Ec2, told: Stubber, verb: str) -> None:
    """One outside a group gets another host that way; asked again, EC2 says the same."""
    for _ in range(2):
        told.add_response(BY_NAME[verb], {}, {"InstanceIds": [A]})
        assert order(ec2, verb) is None


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "IncorrectInstanceState"])
def test_a_start_for_which_there_is_no_host_may_be_asked_for_again(ec2: Ec2, code: str) -> None:
    """GPUs are scarce, which EC2 says with a server's error; the same no to a stop is for good."""
    start, scarce, stop = refused(ec2, "start", code), refused(ec2, "start", code, 500), refused(ec2, "stop", code)
    assert start is not None and not start.lasting and scarce == start
    assert stop is not None and stop.lasting


TERMINATION = {"InstanceId": A, "ShouldDecrementDesiredCapacity": False}


def test_a_machine_of_a_group_is_terminated_in_it(ec2: Ec2, groups: Stubber) -> None:
    """The group keeps its size, and so launches another."""
    groups.add_response(TERMINATE, {}, TERMINATION)
    assert ec2.replace(A, GROUP) is None


@pytest.mark.parametrize(
    ("shown_states", "is_refused"),
    [(["shutting-down"], False), (["terminated"], False), ([], False), (["running"], True), (["stopped"], True)],
)
def test_a_group_that_no_longer_has_the_machine_is_asked_by_a_fresh_look(
    ec2: Ec2, told: Stubber, groups: Stubber, shown_states: list[str], is_refused: bool
) -> None:
    """A repeated order finds it gone, which is what was wanted; one that was never in the group is a no."""
    groups.add_client_error(TERMINATE, "ValidationError", "No managed instance found")
    told.add_response("describe_instances", reserved(*(shown(state=state) for state in shown_states)))
    refusal = ec2.replace(A, GROUP)
    said = "EC2 will not replace it: ValidationError: No managed instance found"
    assert refusal == (Refusal(said, lasting=True) if is_refused else None)


@pytest.mark.parametrize("code", ["ScalingActivityInProgress", "ResourceContention"])
def test_a_group_that_is_busy_is_raised(ec2: Ec2, groups: Stubber, code: str) -> None:
    """It says nothing about the machine; the order stays and is tried again."""
    groups.add_client_error(TERMINATE, code)
    with pytest.raises(ClientError, match=code):
        ec2.replace(A, GROUP)

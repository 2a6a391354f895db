"""What is asked of EC2, and what its answers mean: states, tags, status checks and scheduled events of instances."""

from __future__ import annotations

from threading import Barrier
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus

from tests.aws.described_instances import reserved, shown
from tests.aws.records import NOW, A, B, later

GROUP = "gpus"


def test_no_client_is_made_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most events need neither of the two, and each costs a cold start its time."""
    made: list[str] = []
    monkeypatch.setattr(boto3, "client", lambda service, config: made.append(service))
    wrapper = Ec2(("team", "healed"), lambda: NOW)
    assert made == []
    assert wrapper.describe(()) == wrapper.describe_status(()) == {}
    assert made == []


# -- machines ----------------------------------------------------------------------------------------------------------


def machine(ec2: Ec2, told: Stubber, one: Any) -> Ec2Instance:
    """What is made of one instance."""
    told.add_response("describe_instances", reserved(one))
    return ec2.describe((A,))[A]


def test_machines_are_asked_for_by_filter(ec2: Ec2, told: Stubber) -> None:
    """Every page, two hundred ids at a time: one that EC2 has forgotten would make a question by id fail."""
    ids = [f"i-{n}" for n in range(201)]

    def asked(some: list[str], **more: str) -> dict[str, Any]:
        return {"Filters": [{"Name": "instance-id", "Values": some}], **more}

    told.add_response("describe_instances", reserved(shown("i-1")) | {"NextToken": "more"}, asked(ids[:200]))
    told.add_response("describe_instances", reserved(shown("i-2")), asked(ids[:200], NextToken="more"))
    told.add_response("describe_instances", reserved(shown("i-200", "stopped")), asked(ids[200:]))
    assert {name: one.state for name, one in ec2.describe(ids).items()} == {
        "i-1": Ec2InstanceState.RUNNING,
        "i-2": Ec2InstanceState.RUNNING,
        "i-200": Ec2InstanceState.STOPPED,
    }


def test_the_instances_of_a_large_gang_are_described_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of eleven calls waits until all eleven are under way. In sequence, the first would break the barrier."""
    together = Barrier(11)

    class Client:
        def get_paginator(self, operation: str) -> Client:
            assert operation == "describe_instances"
            return self

        def paginate(self, Filters: Any) -> Any:
            together.wait(timeout=60)
            return [reserved(*(shown(name) for name in Filters[0]["Values"]))]

    wrapper, ids = Ec2(("team", "healed"), lambda: NOW), [f"i-{n}" for n in range(2_048)]
    monkeypatch.setitem(vars(wrapper), "client", Client())
    assert list(wrapper.describe(ids)) == ids


@pytest.mark.parametrize("state", Ec2InstanceState)
def test_every_state_of_a_machine_is_read(ec2: Ec2, told: Stubber, state: Ec2InstanceState) -> None:
    """In EC2's own words."""
    assert machine(ec2, told, shown(state=state.value)).state is state


def test_a_state_that_nobody_has_described_is_an_error(ec2: Ec2, told: Stubber) -> None:
    """Left out, the machine would count as forgotten by EC2, and so as gone."""
    told.add_response("describe_instances", reserved(shown(state="hibernated")))
    with pytest.raises(EventUnreadable, match="hibernated"):
        ec2.describe((A,))


@pytest.mark.parametrize(
    ("tags", "handed_over"),
    [({"team": "healed"}, True), ({"team": "ill"}, False), ({}, False), ({"gpu-recovery:managed": "true"}, False)],
)
def test_a_machine_is_ours_by_its_tag_alone(ec2: Ec2, told: Stubber, tags: dict[str, str], handed_over: bool) -> None:
    """The deployment's tag with the deployment's value."""
    assert machine(ec2, told, shown(tags=tags)).managed is handed_over


@pytest.mark.parametrize(
    ("value", "kept_back"), [("true", True), ("until monday", True), ("", True), ("false", False), (" False ", False)]
)
def test_a_machine_under_maintenance_is_kept_back(ec2: Ec2, told: Stubber, value: str, kept_back: bool) -> None:
    """By the tag, whatever its value says, unless it says `false`."""
    tags = {"team": "healed", "gpu-recovery:maintenance": value}
    assert machine(ec2, told, shown(tags=tags)) == Ec2Instance(
        Ec2InstanceState.RUNNING, managed=True, in_maintenance=kept_back, restartable=True
    )


def test_the_reservation_of_a_machine_is_read(ec2: Ec2, told: Stubber) -> None:
    """A Capacity Block names none of its instances when it ends, so each instance says in which it runs."""
    block = "cr-0123456789abcdef0"
    assert machine(ec2, told, shown(CapacityReservationId=block)).reservation == block
    assert machine(ec2, told, shown()).reservation == ""


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


def seen(ec2: Ec2, told: Stubber, one: Any) -> Ec2InstanceStatus:
    """What is made of one item."""
    told.add_response("describe_instance_status", {"InstanceStatuses": [one]})
    return ec2.describe_status((A,))[A]


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
    assert seen(ec2, told, status(system=off, own=off, state="stopped")) == Ec2InstanceStatus(Ec2InstanceState.STOPPED)


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
    assert seen(ec2, told, status(events=[event])).interruptions == (
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
    (found,) = seen(ec2, told, status(events=[planned("instance-stop", description)])).interruptions
    assert found.called_off is called_off


def test_an_event_without_id_time_or_known_code_does_no_harm(ec2: Ec2, told: Stubber) -> None:
    """The code stands for the id, the look for the time; a code of tomorrow is left out."""
    bare = [{"Code": "instance-stop"}, {"Code": "instance-holiday"}]
    (found,) = seen(ec2, told, status(events=bare)).interruptions
    assert (found.source, found.leaves_at) == ("instance-stop", NOW)


def asked(*instance_ids: str) -> dict[str, Any]:
    """DescribeInstanceStatus has no filter for ids."""
    return {"InstanceIds": list(instance_ids), "IncludeAllInstances": True}


def test_statuses_are_asked_for_a_hundred_at_a_time(ec2: Ec2, told: Stubber) -> None:
    """Of machines that are off, too; more ids EC2 does not take."""
    ids = [f"i-{n}" for n in range(101)]
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-1")]}, asked(*ids[:100]))
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-100")]}, asked("i-100"))
    assert set(ec2.describe_status(ids)) == {"i-1", "i-100"}


def test_an_instance_that_ec2_has_forgotten_costs_the_others_nothing(ec2: Ec2, told: Stubber) -> None:
    """The question fails as a whole, so it is halved until the stranger stands alone."""
    ids = ("i-1", "i-2", "i-3")
    told.add_client_error("describe_instance_status", "InvalidInstanceID.NotFound", expected_params=asked(*ids))
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-1")]}, asked("i-1"))
    told.add_client_error("describe_instance_status", "InvalidInstanceID.NotFound", expected_params=asked("i-2", "i-3"))
    told.add_client_error("describe_instance_status", "InvalidInstanceID.NotFound", expected_params=asked("i-2"))
    told.add_response("describe_instance_status", {"InstanceStatuses": [status("i-3")]}, asked("i-3"))
    assert set(ec2.describe_status(ids)) == {"i-1", "i-3"}


def test_any_other_error_of_the_status_is_raised(ec2: Ec2, told: Stubber) -> None:
    """No answer is not the answer that there is no such instance."""
    told.add_client_error("describe_instance_status", "UnauthorizedOperation")
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.describe_status((A, B))

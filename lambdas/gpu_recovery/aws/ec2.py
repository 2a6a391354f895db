"""Calls to EC2 and Auto Scaling: instance state, status checks, scheduled events, reboot and replacement.

The state comes from EC2 and is independent of ECS's view of the instance. Describe calls use a filter where EC2 has
a filter for instance ids. A call with ids fails as a whole if EC2 no longer knows one id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from gpu_recovery.aws.clients import NO_RETRIES, client, is_no_answer
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.parallel_calls import ParallelCalls
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.ports.errors import OutcomeUnknown
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus, Refusal

FILTER_VALUES_MAX = 200
"""Upper bound of instance ids in the filter of one DescribeInstances call."""
STATUS_IDS_MAX = 100
"""Upper bound of instance ids in one DescribeInstanceStatus call."""
MAINTENANCE_TAG = "gpu-recovery:maintenance"
"""Tag by which an operator excludes an instance from repairs for a while. The value `false` counts as no tag."""
GROUP_TAG = "aws:autoscaling:groupName"
GONE = (Ec2InstanceState.SHUTTING_DOWN, Ec2InstanceState.TERMINATED)

IMPAIRED_AT_LEAST = timedelta(minutes=5)
"""Time that a failed status check must last to count as impaired. Under load a check of EC2 may fail for a minute."""
TEMPORARY_REFUSALS = (
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "IncorrectInstanceState",
)
"""Temporary refusals of StartInstances: EC2 has no free host of that type, or the instance is still stopping."""

HEALTH = {
    "ok": HealthStatus.OK,
    "impaired": HealthStatus.IMPAIRED,
    "insufficient-data": HealthStatus.INSUFFICIENT_DATA,
    "initializing": HealthStatus.INITIALIZING,
}
"""Results of a status check by EC2's names. `not-applicable` is left out, because then the instance does not run."""
CHECKS = {"SystemStatus": HealthKind.SYSTEM_STATUS, "InstanceStatus": HealthKind.INSTANCE_STATUS}
SCHEDULED = {
    "instance-retirement": DepartureKind.RETIREMENT,
    "instance-stop": DepartureKind.RETIREMENT,
    "instance-reboot": DepartureKind.MAINTENANCE,
    "system-reboot": DepartureKind.MAINTENANCE,
    "system-maintenance": DepartureKind.MAINTENANCE,
}
"""EC2's scheduled events by code. `instance-stop` counts as a retirement, because EC2 gives up the instance's host."""
OVER = ("[Completed]", "[Canceled]")
"""Beginnings of the description of a scheduled event that has ended. EC2 lists such an event for a week."""


class Ec2(ParallelCalls):
    """EC2 and Auto Scaling of the account. Each client is created at its first use.

    managed_tag: (key, value) of the opt-in tag by which owners permit reboots and replacement of an instance.
    clock:       gives the present time, which replaces times that EC2 leaves out.
    """

    def __init__(self, managed_tag: tuple[str, str], clock: Callable[[], datetime]) -> None:
        self.managed_tag, self.clock = managed_tag, clock

    @cached_property
    def once(self) -> Any:
        """The EC2 client without retries, for RebootInstances."""
        return client("ec2", NO_RETRIES)

    @cached_property
    def client(self) -> Any:
        """The EC2 client with retries."""
        return client("ec2")

    @cached_property
    def groups(self) -> Any:
        """The Auto Scaling client."""
        return client("autoscaling")

    # -- reads ---------------------------------------------------------------------------------------------------------

    def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        """Return the EC2 state of these instances by id. Instances that EC2 no longer knows are left out.

        The calls run in parallel: the launch of a large gang waits for all of them.
        """
        if not instance_ids:
            return {}
        paginator = self.client.get_paginator("describe_instances")

        def ask(ids: list[str]) -> list[Mapping[str, Any]]:
            pages = paginator.paginate(Filters=[{"Name": "instance-id", "Values": ids}])
            return [entry for page in pages for group in page["Reservations"] for entry in group["Instances"]]

        answers = self.each(ask, _chunks(instance_ids, FILTER_VALUES_MAX))
        return {str(entry["InstanceId"]): self._ec2_instance(entry) for entries in answers for entry in entries}

    def _ec2_instance(self, entry: Mapping[str, Any]) -> Ec2Instance:
        tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", [])}
        key, value = self.managed_tag
        return Ec2Instance(
            state=_state(entry["State"]),
            managed=tags.get(key) == value,
            in_maintenance=tags.get(MAINTENANCE_TAG, "false").strip().lower() != "false",
            group=tags.get(GROUP_TAG, ""),
            # EC2 names a lifecycle (Spot, Capacity Block) only if the instance is not on demand.
            restartable=not entry.get("InstanceLifecycle") and entry.get("RootDeviceType") == "ebs",
            reservation=entry.get("CapacityReservationId", ""),
            private_ip=entry.get("PrivateIpAddress", ""),
        )

    def describe_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        """Return the status checks and scheduled events of these instances by id, unknown instances left out."""
        entries = [entry for ids in _chunks(instance_ids, STATUS_IDS_MAX) for entry in self._statuses(ids)]
        return {str(entry["InstanceId"]): status_of(entry, self.clock()) for entry in entries}

    def _statuses(self, instance_ids: list[str]) -> Iterator[Mapping[str, Any]]:
        """Yield the entries of DescribeInstanceStatus for the ids that EC2 knows.

        The call has no filter for ids and fails if EC2 does not know an id. So a failed call is repeated for each half
        of the ids, down to a single id.
        """
        paginator = self.client.get_paginator("describe_instance_status")
        try:
            # All pages are read before the first entry is yielded: a failed call must yield no entry.
            pages = list(paginator.paginate(InstanceIds=instance_ids, IncludeAllInstances=True))
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
                raise
            half = len(instance_ids) // 2
            for ids in (instance_ids[:half], instance_ids[half:]) if half else ():
                yield from self._statuses(ids)
            return
        for page in pages:
            yield from page["InstanceStatuses"]

    # -- repairs -------------------------------------------------------------------------------------------------------

    def reboot(self, instance_id: str) -> Refusal | None:
        """Call RebootInstances once. Return a Refusal if EC2 definitely refuses.

        Raises:
            OutcomeUnknown: no definite answer arrived, so the instance may or may not reboot.
        """
        try:
            return _refusal("reboot", lambda: self.once.reboot_instances(InstanceIds=[instance_id]))
        except (ClientError, ConnectionError, HTTPClientError) as error:
            raise OutcomeUnknown(f"RebootInstances of {instance_id} was not answered: {error}") from error

    def tag(self, instance_id: str, key: str, value: str) -> Refusal | None:
        """Call CreateTags once. Return a Refusal if EC2 definitely refuses.

        Raises:
            OutcomeUnknown: no definite answer arrived.
        """
        tags = [{"Key": key, "Value": value}]
        try:
            return _refusal("tag", lambda: self.once.create_tags(Resources=[instance_id], Tags=tags))
        except (ClientError, ConnectionError, HTTPClientError) as error:
            raise OutcomeUnknown(f"CreateTags of {instance_id} was not answered: {error}") from error

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        """Terminate the instance in its Auto Scaling group, which launches another, or stop the instance. Repeatable.

        Args:
            instance_id: the instance.
            group: the name of its Auto Scaling group; "" to stop the instance.

        Returns:
            A Refusal if AWS definitely refuses; None otherwise, or if the instance is already gone.
        """
        if not group:
            return _refusal("stop", lambda: self.client.stop_instances(InstanceIds=[instance_id]))
        refusal = _refusal(
            "replace",
            lambda: self.groups.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
            ),
        )
        # If the call is repeated after the group has released the instance, the group does not know the instance.
        return None if refusal is not None and self._is_gone(instance_id) else refusal

    def _is_gone(self, instance_id: str) -> bool:
        instance = self.describe((instance_id,)).get(instance_id)
        return instance is None or instance.state in GONE

    def start(self, instance_id: str) -> Refusal | None:
        """Start the stopped instance. Return a Refusal if EC2 definitely refuses. Repeatable."""
        return _refusal("start", lambda: self.client.start_instances(InstanceIds=[instance_id]), TEMPORARY_REFUSALS)


def _refusal(verb: str, call: Callable[[], Any], temporary: Collection[str] = ()) -> Refusal | None:
    """Make the call. Return None if it succeeds, or EC2's definite refusal.

    Errors that are no refusal (`clients.is_no_answer`) are raised.

    Args:
        verb: what the call does, for the reason of the refusal.
        call: the call.
        temporary: error codes of refusals that do not last.
    """
    try:
        call()
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        # The temporary codes are tested first, because EC2 reports missing capacity with HTTP 500.
        if code not in temporary and is_no_answer(error):
            raise
        return Refusal(f"EC2 will not {verb} it: {code}: {message}", lasting=code not in temporary)
    return None


def _chunks(instance_ids: Sequence[str], most: int) -> Iterator[list[str]]:
    for start in range(0, len(instance_ids), most):
        yield list(instance_ids[start : start + most])


def _state(state: Mapping[str, Any]) -> Ec2InstanceState:
    try:
        return Ec2InstanceState(state["Name"])
    except ValueError as error:
        raise EventUnreadable("State.Name", f"must be a state of an EC2 instance, not {state['Name']!r}") from error


def status_of(entry: Mapping[str, Any], now: datetime) -> Ec2InstanceStatus:
    """Parse one entry of DescribeInstanceStatus: the state, both status checks and the scheduled events.

    Args:
        entry: the entry.
        now: when EC2 was asked.

    Raises:
        EventUnreadable: EC2 named a state that does not exist.
    """
    health = [_health(kind, entry.get(key, {}), now) for key, kind in CHECKS.items()]
    interruptions = [_interruption(event, now) for event in entry.get("Events", []) if event.get("Code") in SCHEDULED]
    return Ec2InstanceStatus(
        _state(entry["InstanceState"]), tuple(report for report in health if report), tuple(interruptions)
    )


def _health(kind: HealthKind, check: Mapping[str, Any], now: datetime) -> HealthReported | None:
    """Return the result of a status check; None if the check does not apply or has failed for too short a time."""
    status = HEALTH.get(check.get("Status", ""))
    if status is None:
        return None
    failed = [detail for detail in check.get("Details", []) if "ImpairedSince" in detail]
    since = min((detail["ImpairedSince"] for detail in failed), default=None)
    if status is HealthStatus.IMPAIRED and since is not None and now - since < IMPAIRED_AT_LEAST:
        return None
    sentence = ", ".join(
        f"{detail.get('Name', 'status')} since {_minute(detail['ImpairedSince'])}" for detail in failed
    )
    # `since` is the present time and not ImpairedSince. ImpairedSince may be before an earlier poll that found the
    # instance healthy, and that poll would then count as newer.
    return HealthReported(at=now, kind=kind, status=status, since=now, sentence=sentence)


def _interruption(scheduled: Mapping[str, Any], now: datetime) -> DepartureAnnounced:
    code, description = scheduled["Code"], scheduled.get("Description", "")
    leaves_at = scheduled.get("NotBefore") or now
    sentence = f"EC2 has scheduled {code} for {_minute(leaves_at)}"
    return DepartureAnnounced(
        at=now,
        kind=SCHEDULED[code],
        source=scheduled.get("InstanceEventId") or code,
        leaves_at=leaves_at,
        sentence=f"{sentence}: {description}" if description else sentence,
        called_off=description.startswith(OVER),
    )


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"

"""Orders to EC2 and Auto Scaling, and questions to EC2: how the machines themselves are, whatever ECS thinks of them.

Questions go by filter where EC2 has one, for a question by id fails as a whole when EC2 has forgotten one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from gpu_recovery.aws.clients import NO_RETRIES, client
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import DepartureKind, Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.ports.errors import OutcomeUnknown
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus, Refusal

FILTER_VALUES_MAX = 200
STATUS_IDS_MAX = 100
MAINTENANCE_TAG = "gpu-recovery:maintenance"
"""The tag by which a person keeps a machine from us for a while; `false` is as good as none."""
GROUP_TAG = "aws:autoscaling:groupName"
GONE = (Ec2InstanceState.SHUTTING_DOWN, Ec2InstanceState.TERMINATED)

IMPAIRED_AT_LEAST = timedelta(minutes=5)
"""A status check of EC2 may fail for a minute under load: only what lasts is a word about the machine."""
IN_TROUBLE = (
    "Unavailable",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "ResourceContention",
    "ScalingActivityInProgress",
    "RequestExpired",
)
"""Noes that say nothing about the instance, and not even whether the order was heard, as any that has HTTP 5xx."""
SERVER_ERROR = 500
NOT_NOW = (
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "IncorrectInstanceState",
)
"""Noes to StartInstances that pass: EC2 has no host of that kind to spare, or the machine has not stopped yet."""

HEALTH = {
    "ok": HealthStatus.OK,
    "impaired": HealthStatus.IMPAIRED,
    "insufficient-data": HealthStatus.INSUFFICIENT_DATA,
    "initializing": HealthStatus.INITIALIZING,
}
"""EC2's words for a status check; `not-applicable` is none, for the machine is off."""
CHECKS = {"SystemStatus": HealthKind.SYSTEM_STATUS, "InstanceStatus": HealthKind.INSTANCE_STATUS}
SCHEDULED = {
    "instance-retirement": DepartureKind.RETIREMENT,
    "instance-stop": DepartureKind.RETIREMENT,
    "instance-reboot": DepartureKind.MAINTENANCE,
    "system-reboot": DepartureKind.MAINTENANCE,
    "system-maintenance": DepartureKind.MAINTENANCE,
}
"""EC2's scheduled events. A machine that is to be stopped has a host that is given up."""
OVER = ("[Completed]", "[Canceled]")
"""How the description of a scheduled event begins that is described for a week after its end."""


class Ec2:
    """The account's EC2 and Auto Scaling. Clients are made when they are first needed.

    managed_tag: (key, value) of the tag by which its owners hand a machine over to us.
    clock:       stands in for times that EC2 leaves out.
    """

    def __init__(self, managed_tag: tuple[str, str], clock: Callable[[], datetime]) -> None:
        self.managed_tag, self.clock = managed_tag, clock

    @cached_property
    def once(self) -> Any:
        return client("ec2", NO_RETRIES)

    @cached_property
    def client(self) -> Any:
        return client("ec2")

    @cached_property
    def groups(self) -> Any:
        return client("autoscaling")

    # -- questions -----------------------------------------------------------------------------------------------------

    def private_ip(self, instance_id: str) -> str:
        """Where the other ranks find the master."""
        answer = self.client.describe_instances(InstanceIds=[instance_id])
        return str(answer["Reservations"][0]["Instances"][0]["PrivateIpAddress"])

    def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        found: dict[str, Ec2Instance] = {}
        for some in _chunks(instance_ids, FILTER_VALUES_MAX):
            pages = self.client.get_paginator("describe_instances").paginate(
                Filters=[{"Name": "instance-id", "Values": some}]
            )
            shown = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
            found |= {str(one["InstanceId"]): self._ec2_instance(one) for one in shown}
        return found

    def _ec2_instance(self, shown: Mapping[str, Any]) -> Ec2Instance:
        tags = {tag["Key"]: tag["Value"] for tag in shown.get("Tags", [])}
        key, value = self.managed_tag
        return Ec2Instance(
            state=_state(shown["State"]),
            managed=tags.get(key) == value,
            in_maintenance=tags.get(MAINTENANCE_TAG, "false").strip().lower() != "false",
            group=tags.get(GROUP_TAG, ""),
            # EC2 names a lifecycle (Spot, Capacity Block) only where the machine is not simply on demand.
            restartable=not shown.get("InstanceLifecycle") and shown.get("RootDeviceType") == "ebs",
        )

    def describe_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        shown = [one for some in _chunks(instance_ids, STATUS_IDS_MAX) for one in self._statuses(some)]
        return {str(one["InstanceId"]): status_of(one, self.clock()) for one in shown}

    def _statuses(self, instance_ids: list[str]) -> Iterator[Mapping[str, Any]]:
        """What EC2 shows of the ids that it knows. It has no filter for ids here, so those it has forgotten are found
        by halving the question."""
        pages = self.client.get_paginator("describe_instance_status")
        try:
            # All of it at once, so that a question that fails halfway has given no half of an answer.
            shown = list(pages.paginate(InstanceIds=instance_ids, IncludeAllInstances=True))
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"):
                raise
            half = len(instance_ids) // 2
            for some in (instance_ids[:half], instance_ids[half:]) if half else ():
                yield from self._statuses(some)
            return
        for page in shown:
            yield from page["InstanceStatuses"]

    # -- orders --------------------------------------------------------------------------------------------------------

    def reboot(self, instance_id: str) -> Refusal | None:
        try:
            return _refusal("reboot", lambda: self.once.reboot_instances(InstanceIds=[instance_id]))
        except (ClientError, ConnectionError, HTTPClientError) as error:
            raise OutcomeUnknown(f"RebootInstances of {instance_id} was not answered: {error}") from error

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        if not group:
            return _refusal("stop", lambda: self.client.stop_instances(InstanceIds=[instance_id]))
        refusal = _refusal(
            "replace",
            lambda: self.groups.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=False
            ),
        )
        # Asked again, a group that has let the machine go says that it does not know it.
        return None if refusal is not None and self._is_gone(instance_id) else refusal

    def _is_gone(self, instance_id: str) -> bool:
        machine = self.describe((instance_id,)).get(instance_id)
        return machine is None or machine.state in GONE

    def start(self, instance_id: str) -> Refusal | None:
        return _refusal("start", lambda: self.client.start_instances(InstanceIds=[instance_id]), NOT_NOW)


def _refusal(verb: str, ask: Callable[[], Any], passing: Collection[str] = ()) -> Refusal | None:
    """None if `ask` is heard, else EC2's definite no, lasting unless its code is in `passing`.

    What says nothing about the instance is raised.
    """
    try:
        ask()
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        # What passes comes first: EC2 says that it has no host to spare with HTTP 500.
        if code not in passing and (code in IN_TROUBLE or _http_status(error) >= SERVER_ERROR):
            raise
        return Refusal(f"EC2 will not {verb} it: {code}: {message}", lasting=code not in passing)
    return None


def _http_status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _chunks(instance_ids: Sequence[str], most: int) -> Iterator[list[str]]:
    for start in range(0, len(instance_ids), most):
        yield list(instance_ids[start : start + most])


def _state(shown: Mapping[str, Any]) -> Ec2InstanceState:
    try:
        return Ec2InstanceState(shown["Name"])
    except ValueError as error:
        raise EventUnreadable("State.Name", f"must be a state of an EC2 instance, not {shown['Name']!r}") from error


def status_of(shown: Mapping[str, Any], now: datetime) -> Ec2InstanceStatus:
    """Both status checks and the scheduled events of an item of DescribeInstanceStatus, as seen `now`."""
    health = [_health(kind, shown.get(key, {}), now) for key, kind in CHECKS.items()]
    departures = [_interruption(one, now) for one in shown.get("Events", []) if one.get("Code") in SCHEDULED]
    return Ec2InstanceStatus(_state(shown["InstanceState"]), tuple(one for one in health if one), tuple(departures))


def _health(kind: HealthKind, shown: Mapping[str, Any], now: datetime) -> HealthReported | None:
    status = HEALTH.get(shown.get("Status", ""))
    if status is None:
        return None
    failed = [detail for detail in shown.get("Details", []) if "ImpairedSince" in detail]
    since = min((detail["ImpairedSince"] for detail in failed), default=None)
    if status is HealthStatus.IMPAIRED and since is not None and now - since < IMPAIRED_AT_LEAST:
        return None
    sentence = ", ".join(f"{one.get('Name', 'status')} since {_minute(one['ImpairedSince'])}" for one in failed)
    # Not since it was impaired: that may be before a look that still found it well, and would lose against it.
    return HealthReported(at=now, kind=kind, status=status, since=now, sentence=sentence)


def _interruption(shown: Mapping[str, Any], now: datetime) -> DepartureAnnounced:
    code, description = shown["Code"], shown.get("Description", "")
    leaves_at = shown.get("NotBefore") or now
    sentence = f"EC2 has scheduled {code} for {_minute(leaves_at)}"
    return DepartureAnnounced(
        at=now,
        kind=SCHEDULED[code],
        source=shown.get("InstanceEventId") or code,
        leaves_at=leaves_at,
        sentence=f"{sentence}: {description}" if description else sentence,
        called_off=description.startswith(OVER),
    )


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"

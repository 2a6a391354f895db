"""Answers of DescribeInstances and entries of DescribeInstanceStatus, for tests."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.aws.records import A


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


def ec2_status(
    instance_id: str = A,
    *,
    state: str = "running",
    system: str = "ok",
    instance: str = "ok",
    since: datetime | None = None,
    events: tuple[dict[str, Any], ...] = (),
) -> dict[str, Any]:
    """An instance as DescribeInstanceStatus shows it; a check that is impaired has been so `since`."""
    failed = {"Name": "reachability", "Status": "failed"} | ({"ImpairedSince": since} if since else {})

    def check(status: str) -> dict[str, Any]:
        return {"Status": status, "Details": [failed] if status == "impaired" else []}

    return {
        "InstanceId": instance_id,
        "InstanceState": {"Code": 16, "Name": state},
        "SystemStatus": check(system),
        "InstanceStatus": check(instance),
        "Events": list(events),
    }

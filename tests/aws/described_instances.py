"""Answers of DescribeInstances, for tests."""

from __future__ import annotations

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

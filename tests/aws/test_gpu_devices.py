"""The sharing modes of GPUs in a description of ECS, also where the installed SDK does not know them yet."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from gpu_recovery.aws.ecs_events import instance_fact
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.health_signals import HealthKind
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.mps_daemon import BY_SHARING_MODE, names_mps_daemon
from gpu_recovery.ecs_events.undelivered_events import undelivered_reports

from tests.aws.health_events import check
from tests.aws.records import NOW
from tests.core.build import available, tell

GPU_DEVICE = {
    "GpuSharingMode": {"type": "string", "enum": ["IDLE", "NVIDIA_MPS", "DEDICATED"]},
    "GpuDevices": {"type": "list", "member": {"shape": "GpuDevice"}},
    "GpuDevice": {
        "type": "structure",
        "members": {
            "gpuId": {"shape": "String"},
            "sharingMode": {"shape": "GpuSharingMode"},
            "totalMemoryInMiB": {"shape": "BoxedInteger"},
            "remainingMemoryInMiB": {"shape": "BoxedInteger"},
            "containerCount": {"shape": "BoxedInteger"},
        },
    },
}
"""The shapes of the ECS API reference, as in the model of botocore 1.44.8."""


def device(number: int, mode: str = "IDLE", containers: int | None = None) -> dict[str, Any]:
    count = {"IDLE": 0, "DEDICATED": 1}.get(mode, 2) if containers is None else containers
    return {"gpuId": f"GPU-{number}", "sharingMode": mode, "containerCount": count, "totalMemoryInMiB": 81_559}


def described(*devices: dict[str, Any], free: int = 4, **more: Any) -> dict[str, Any]:
    """A container instance with four GPUs, as DescribeContainerInstances returns it."""
    ids = [f"GPU-{number}" for number in range(4)]
    return {
        "containerInstanceArn": "arn:aws:ecs:us-east-1:1:container-instance/c/ci-1",
        "ec2InstanceId": "i-0123456789abcdef0",
        "status": "ACTIVE",
        "agentConnected": True,
        "version": 4,
        "registeredResources": [{"name": "GPU", "type": "STRINGSET", "stringSetValue": ids}],
        "remainingResources": [{"name": "GPU", "type": "STRINGSET", "stringSetValue": ids[:free]}],
        **({"gpuDevices": list(devices)} if devices else {}),
        **more,
    }


def parsed(answer: dict[str, Any], *, knows_gpu_devices: bool) -> dict[str, Any]:
    """The container instance as botocore's parser gives it, with a model with or without GPU devices."""
    model = copy.deepcopy(Loader().load_service_model("ecs", "service-2"))
    members = model["shapes"]["ContainerInstance"]["members"]
    members.pop("gpuDevices", None)
    if knows_gpu_devices:
        members["gpuDevices"] = {"shape": "GpuDevices"}
        model["shapes"] |= GPU_DEVICE
    shape = ServiceModel(model, "ecs").operation_model("DescribeContainerInstances").output_shape
    body = json.dumps({"containerInstances": [answer], "failures": []}).encode()
    response = {"status_code": 200, "headers": {}, "body": body}
    (instance,) = create_parser("json").parse(response, shape)["containerInstances"]
    found: dict[str, Any] = instance
    return found


def observed(answer: dict[str, Any], now: datetime = NOW) -> InstanceObserved:
    return instance_fact(answer, now)[1]


@pytest.mark.parametrize(
    ("modes", "free", "seen"),
    [
        (("IDLE", "IDLE", "IDLE", "IDLE"), 4, (4, 0)),
        (("NVIDIA_MPS", "IDLE", "IDLE", "IDLE"), 4, (3, 1)),
        (("NVIDIA_MPS", "IDLE", "IDLE", "IDLE"), 3, (3, 1)),
        (("NVIDIA_MPS", "DEDICATED", "DEDICATED", "IDLE"), 1, (1, 1)),
        (("TIME_SLICED", "IDLE", "IDLE", "IDLE"), 4, (3, 0)),
        (("DEDICATED", "DEDICATED", "IDLE", "IDLE"), 1, (1, 0)),
    ],
)
def test_a_shared_gpu_is_not_free(modes: tuple[str, ...], free: int, seen: tuple[int, int]) -> None:
    """Through botocore's own parser with the newer model; a mode that nobody knows is taken."""
    devices = [device(number, mode) for number, mode in enumerate(modes)]
    found = observed(parsed(described(*devices, free=free), knows_gpu_devices=True))
    assert (found.gpus_free, found.gpus_shared) == seen


def test_an_sdk_without_the_field_drops_it() -> None:
    """Then the GPUs count as before, by the remaining resources."""
    answer = parsed(described(device(0, "NVIDIA_MPS")), knows_gpu_devices=False)
    assert "gpuDevices" not in answer
    assert (observed(answer).gpus_free, observed(answer).gpus_shared) == (4, None)


def test_the_newer_shape_here_is_that_of_the_installed_sdk_if_the_sdk_has_it() -> None:
    """The test's shape may not drift from botocore's."""
    installed = Loader().load_service_model("ecs", "service-2")["shapes"]
    if "GpuDevice" not in installed:
        assert "gpuDevices" not in installed["ContainerInstance"]["members"]
        return
    assert installed["ContainerInstance"]["members"]["gpuDevices"]["shape"] == "GpuDevices"
    names = {name: member["shape"] for name, member in installed["GpuDevice"]["members"].items()}
    assert names == {name: member["shape"] for name, member in GPU_DEVICE["GpuDevice"]["members"].items()}
    assert installed["GpuSharingMode"]["enum"] == GPU_DEVICE["GpuSharingMode"]["enum"]


def test_a_gpu_with_containers_is_not_idle_whatever_its_mode_says() -> None:
    """The two fields are of one moment only by documentation."""
    assert observed(described(device(0, "IDLE", containers=1), device(1), device(2), device(3))).gpus_free == 3


@pytest.mark.parametrize("devices", [[], None])
def test_an_instance_without_sharing_has_no_devices(devices: Any) -> None:
    """The field is present only for container instances that support GPU sharing."""
    assert observed(described(gpuDevices=devices)).gpus_shared is None


def test_malformed_devices_are_named() -> None:
    """As every other field of a description."""
    with pytest.raises(EventUnreadable, match="gpuDevices"):
        observed(described(gpuDevices=[7]))


@pytest.mark.parametrize(("mode", "of_mps"), [("NVIDIA_MPS", True), ("DEDICATED", False)])
def test_an_impaired_gpu_without_a_reason_is_judged_by_the_sharing_modes(mode: str, of_mps: bool) -> None:
    """Of the same description."""
    health = {"overallStatus": "IMPAIRED", "details": [check()]}
    (report,) = observed(described(device(0, mode), healthStatus=health)).health
    assert (report.sentence == BY_SHARING_MODE) is of_mps is names_mps_daemon(report.sentence)


def test_of_two_checks_of_one_type_the_gpu_decides() -> None:
    """The agent has two checks of this type since 1.107.0; in either order."""
    both = [check(statusReason="mps control daemon probe failed"), check(statusReason="XID_79"), check(status="OK")]
    for details in (both, both[::-1]):
        (report,) = observed(described(healthStatus={"details": details})).health
        assert (report.kind, report.xid) == (HealthKind.ACCELERATED_COMPUTE, 79)


def test_a_poll_of_ecs_delivers_a_gpu_that_fails_after_the_daemon() -> None:
    """Both are IMPAIRED; the same daemon again is no news."""
    record = available()
    wedged = described(healthStatus={"details": [check(statusReason="mps control daemon probe failed")]})
    (told,) = undelivered_reports(record, observed(wedged).health)
    record = tell(record, told).record
    assert record.status is InstanceStatus.AVAILABLE and not list(undelivered_reports(record, observed(wedged).health))
    newer = check(statusReason="XID_79", lastUpdated="2026-11-21T08:59:30Z")
    (lost,) = undelivered_reports(record, observed(described(healthStatus={"details": [newer]})).health)
    assert tell(record, lost).record.status is InstanceStatus.CHECKING

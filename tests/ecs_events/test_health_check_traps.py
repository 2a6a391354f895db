"""A check that never began, through the function: with either stop code, beside a document of its own or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.policy import PRESETS, Preset

from tests.aws.ecs_events import check_event
from tests.aws.health_events import check, health_change
from tests.aws.records import JOB, later, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import checking

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ADAPTIVE = PRESETS[Preset.ADAPTIVE]
GPUS_GONE = "CannotStartContainerError: nvidia-container-cli: device error: GPU-1: unknown device"


@pytest.mark.parametrize("stop_code", ["TaskFailedToStart", "EssentialContainerExited"])
@pytest.mark.parametrize(
    ("reason", "status", "outcome"),
    [
        (GPUS_GONE, InstanceStatus.REBOOTING, "REBOOT"),
        ("CannotStartContainerError: no such file", InstanceStatus.AVAILABLE, "INCONCLUSIVE"),
    ],
)
def test_a_check_that_never_began_is_judged_by_the_hosts_own_words(
    functions: Functions, stop_code: str, reason: str, status: InstanceStatus, outcome: str
) -> None:
    """Agents differ in the stop code that they give it; the container's reason is the same."""
    checking(functions, "HEALTHY")
    functions.aws.documents.clear()
    machine = plan().instances[0]
    event = check_event(machine, 1, None)
    event["detail"] |= {"stopCode": stop_code, "stoppedReason": "Task failed to start"}
    event["detail"]["containers"][0]["reason"] = reason
    functions.call("dcgm_task_monitor", event)
    found = functions.instance(machine)
    assert found.status is status and reason in found.reason
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.checked[0].outcome == outcome


def test_a_check_that_was_stopped_while_it_waited_to_start_blames_nobody(functions: Functions) -> None:
    """Its own deadline, or a person: there is no exit code either."""
    checking(functions, "HEALTHY")
    machine = plan().instances[0]
    event = check_event(machine, 1, None)
    event["detail"] |= {"stopCode": "UserInitiated", "stoppedReason": "gpu-recovery: it took too long"}
    functions.call("dcgm_task_monitor", event)
    assert functions.aws.asked("RebootInstances") == []
    assert functions.instance(machine).status is not InstanceStatus.REBOOTING


UNTOLD: dict[str, tuple[int | None, dict[str, Any]]] = {
    "stopped for its time": (None, {"stopCode": "UserInitiated", "stoppedReason": "gpu-recovery: it took too long"}),
    "killed at its stop": (137, {"stopCode": "UserInitiated"}),
    "could not tell": (44, {}),
    "a reboot without its document": (1, {}),
    "misconfigured": (43, {}),
}
"""Ends of a check that leave no document: exit code, and what ECS says."""


def no_document(functions: Functions) -> None:
    """The bucket has no document of the check."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": {"HTTPStatusCode": 404}}, "GetObject")

    functions.aws.answers["GetObject"] = answer


def impaired(functions: Functions, machine: str) -> None:
    """ECS reports an XID on the instance while its check runs."""
    change = health_change(
        check(statusReason="XID_79", lastStatusChange="2026-11-21T09:01:00Z", lastUpdated="2026-11-21T09:01:00Z"),
        ec2InstanceId=machine,
    )
    functions.call("ecs_instance_monitor", change | {"time": "2026-11-21T09:01:00Z"})
    assert "XID_79" in {report.sentence for report in functions.instance(machine).health.values()}.pop()


@pytest.mark.parametrize("end", UNTOLD)
@pytest.mark.parametrize("evidence", [False, True])
def test_a_check_without_a_document_returns_no_instance_with_evidence_against_it(
    functions: Functions, end: str, evidence: bool
) -> None:
    """The XID of the incident decides in place of the check. Without evidence the instance is in use again."""
    checking(functions, "HEALTHY")
    no_document(functions)
    machine = plan().instances[0]
    if evidence:
        impaired(functions, machine)
    exit_code, told = UNTOLD[end]
    event = check_event(machine, 1, exit_code)
    event["detail"] |= told
    functions.now = later(120)
    functions.call("dcgm_task_monitor", event)
    expected = InstanceStatus.REBOOTING if evidence else InstanceStatus.AVAILABLE
    assert functions.instance(machine).status is expected


@pytest.mark.parametrize("evidence", [False, True])
def test_a_check_whose_end_never_arrives_returns_no_instance(functions: Functions, evidence: bool) -> None:
    """At its deadline an operator decides: a check that began and never ended is evidence in itself."""
    checking(functions, "HEALTHY")
    no_document(functions)
    machine = plan().instances[0]
    functions.store.save_instance(replace(functions.instance(machine), deadline_at=later(ADAPTIVE.check_timeout_s)))
    if evidence:
        impaired(functions, machine)
    functions.now = later(ADAPTIVE.check_timeout_s + 1)
    functions.call("reconciler", {})
    assert functions.instance(machine).status is InstanceStatus.QUARANTINED

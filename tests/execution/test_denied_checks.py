"""Health checks that ECS refuses to start: operators read why, and what mends a missing permission."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.policy import PRESETS, Preset

from tests.aws.ecs_events import rank_event
from tests.aws.environment import FUNCTION
from tests.aws.records import JOB, A, claim, instance, later, plan
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
POLICY = PRESETS[Preset.ADAPTIVE]
FAMILY = FUNCTION["DCGM_HEALTH_CHECK_TASK"]
ROLE = "arn:aws:iam::123456789012:role/health-check"
DENIED = (
    "User: arn:aws:sts::123456789012:assumed-role/reconciler/gpu-recovery-reconciler is not authorized to perform: "
    f"iam:PassRole on resource: {ROLE} because no identity-based policy allows the iam:PassRole action"
)
NO_GPUS = {"tasks": [], "failures": [{"arn": "a", "reason": "RESOURCE:GPU"}]}
MACHINE = plan().instances[0]
COMPARE = "Compare the roles of the functions with docs/permissions.md"


def released(functions: Functions) -> None:
    """An operator releases a quarantined instance, whose check is requested at once."""
    functions.store.save_instance(instance(A, status=InstanceStatus.QUARANTINED))
    assert Api(functions).post(f"/instances/{A}/release").status == 200
    functions.wake()
    assert functions.instance(A).status is InstanceStatus.VERIFYING


def failed_gang(functions: Functions) -> None:
    """A gang has failed, and each of its instances is to be checked."""
    gang(functions)
    for name in plan().instances:
        functions.store.save_instance(instance(name, claims={JOB: claim()}))
    for rank in (0, 1):
        functions.call("ecs_task_handler", rank_event(JOB, 1, rank, "STOPPED", exit_code=139))
    assert functions.instance(MACHINE).status is InstanceStatus.CHECKING


def mail_at(functions: Functions, seconds: float, instance_id: str) -> dict[str, Any]:
    """Run the reconciler at this time. Return the message to operators about the instance."""
    functions.now = later(seconds)
    functions.call("reconciler", {})
    (mail,) = [asked for asked in functions.aws.asked("Publish") if instance_id in asked["Subject"]]
    return mail


def test_operators_read_that_the_check_after_a_repair_was_denied(functions: Functions) -> None:
    """The instance is not at fault, so nobody is asked to replace it; no setting names the role of the check."""
    functions.aws.denied[FAMILY] = DENIED
    released(functions)
    mail = mail_at(functions, POLICY.verify_timeout_s + 1, A)
    record = functions.instance(A)
    assert record.status is InstanceStatus.QUARANTINED
    assert "ECS never started the check after its repair" in record.reason and ROLE in record.reason
    assert "iam:PassRole" in mail["Message"] and COMPARE in mail["Message"]
    assert "Replace the instance" not in mail["Message"] and "training_role_arns" not in mail["Message"]


def test_operators_read_that_the_check_of_a_failed_gang_was_denied(functions: Functions) -> None:
    """Nobody is sent to look for tasks that hold the GPUs."""
    functions.aws.denied[FAMILY] = DENIED
    failed_gang(functions)
    mail = mail_at(functions, POLICY.check_timeout_s + 1, MACHINE)
    assert functions.instance(MACHINE).status is InstanceStatus.AVAILABLE
    assert "never started its health check" in mail["Message"] and ROLE in mail["Message"]
    assert COMPARE in mail["Message"] and "who holds its GPUs" not in mail["Message"]


def test_operators_read_that_a_check_found_no_gpus(functions: Functions) -> None:
    """Other tasks hold them."""
    functions.aws.answers["RunTask"] = lambda asked: NO_GPUS
    failed_gang(functions)
    mail = mail_at(functions, POLICY.check_timeout_s + 1, MACHINE)
    assert f"within {POLICY.check_timeout_s} s: RESOURCE:GPU" in mail["Message"]
    assert "Find the tasks that hold its GPUs" in mail["Message"]


def test_a_check_that_started_after_a_refusal_and_never_ends_was_not_refused(functions: Functions) -> None:
    """The permission was granted. The check itself gives no answer, which is evidence against the instance."""
    functions.aws.denied[FAMILY] = DENIED
    released(functions)
    del functions.aws.denied[FAMILY]
    functions.now = later(60)
    functions.call("reconciler", {})
    assert len(functions.aws.asked("RunTask")) == 1
    mail = mail_at(functions, POLICY.verify_timeout_s + 1, A)
    assert "the check after its repair gave no answer" in functions.instance(A).reason
    assert "Replace the instance" in mail["Message"] and ROLE not in mail["Message"]


def test_a_long_answer_of_aws_is_cut_in_the_record(functions: Functions) -> None:
    """Encoded authorization messages have thousands of characters."""
    functions.aws.denied[FAMILY] = DENIED + "." * 5_000
    released(functions)
    run = functions.instance(A).check
    assert run is not None and run.refusal is not None and len(run.refusal.reason) == 500


def test_a_check_that_an_operator_ends_is_stopped_because_it_is_not_needed(functions: Functions) -> None:
    """The reason of the stop is what ECS shows of the task."""
    released(functions)
    assert Api(functions).post(f"/instances/{A}/quarantine").status == 200
    functions.wake()
    (asked,) = functions.aws.asked("StopTask")
    assert asked["reason"] == f"gpu-recovery: check/{A}/1 is no longer needed"

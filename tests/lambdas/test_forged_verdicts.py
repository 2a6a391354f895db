"""Verdict documents that the health check of another instance wrote: every check may write documents under any key."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus

from tests.aws.ecs_events import rank_event, task_event
from tests.aws.records import JOB, claim, instance, later, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
VICTIM, ATTACKER = plan().instances
BOOT, FALSE_BOOT = "0c5d2f6e-1111-4222-8333-944455556666", "ffffffff-1111-4222-8333-944455556666"


def checks(functions: Functions) -> dict[str, dict[str, str]]:
    """The environments of the health checks that a failed attempt starts, by instance."""
    gang(functions)
    for instance_id in plan().instances:
        record = functions.store.save_instance(instance(instance_id, claims={JOB: claim()}))
        functions.store.remember_registration(record)
    started: dict[str, dict[str, str]] = {}
    for rank in (0, 1):
        functions.call("ecs_task_handler", rank_event(JOB, 1, rank, "STOPPED", exit_code=139))
        for asked in functions.aws.asked("RunTask"):
            (override,) = asked["overrides"]["containerOverrides"]
            told = {pair["name"]: pair["value"] for pair in override["environment"]}
            started[told["INSTANCE_ID"]] = told
    return started


def document(told: dict[str, str], outcome: str, boot_id: str) -> dict[str, Any]:
    """The verdict document of the check with this environment."""
    return {"check_id": told["CHECK_ID"], "outcome": outcome, "summary": "as written", "boot_id": boot_id}


def forged_keys(own: dict[str, str], told: dict[str, str]) -> set[str]:
    """The keys that root on the attacker's instance derives for the other check from the key of its own check."""
    return {f"verdicts/{told['CHECK_ID']}.json", own["VERDICT_KEY"].replace(own["CHECK_ID"], told["CHECK_ID"])}


def end(functions: Functions, told: dict[str, str], exit_code: int, reader: str) -> None:
    """Deliver the end of the check: ECS sends the event, or the event is lost and the reconciler asks ECS."""
    check_id = told["CHECK_ID"]
    event = task_event(
        check_id.replace("/", "-"), check_id, "STOPPED", told, exit_code=exit_code, container="health-check"
    )
    if reader == "reconciler":
        functions.aws.answers["DescribeTasks"] = lambda asked: {
            "tasks": [event["detail"]] if asked["tasks"] == [check_id.replace("/", "-")] else [],
            "failures": [],
        }
        functions.now = later(400)
    functions.call(reader, event if reader == "dcgm_task_monitor" else {})


@pytest.mark.parametrize("reader", ["dcgm_task_monitor", "reconciler"])
@pytest.mark.parametrize(
    ("written", "exit_code", "forged", "status"),
    [
        ("REBOOT", 1, "HEALTHY", InstanceStatus.REBOOTING),
        ("REPLACE", 42, "HEALTHY", InstanceStatus.QUARANTINED),
        ("HEALTHY", 0, "REBOOT", InstanceStatus.AVAILABLE),
        ("HEALTHY", 0, "HEALTHY", InstanceStatus.AVAILABLE),
    ],
)
def test_the_check_of_another_instance_cannot_write_the_verdict(
    functions: Functions, reader: str, written: str, exit_code: int, forged: str, status: InstanceStatus
) -> None:
    """Neither the outcome nor the boot of a forged document counts, though it was written last and names the check."""
    started = checks(functions)
    told = started[VICTIM]
    functions.aws.documents[told["VERDICT_KEY"]] = document(told, written, BOOT)
    for key in forged_keys(started[ATTACKER], told):
        functions.aws.documents[key] = document(told, forged, FALSE_BOOT)
    end(functions, told, exit_code, reader)
    record = functions.instance(VICTIM)
    assert record.status is status and "as written" in record.reason
    assert record.boot_id == BOOT
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.checked[0].outcome is CheckOutcome(written)


def test_a_forged_document_does_not_stand_in_for_a_missing_one(functions: Functions) -> None:
    """A broken image exits with 1 and writes nothing: blame needs the document of the check itself."""
    started = checks(functions)
    told = started[VICTIM]
    for key in forged_keys(started[ATTACKER], told):
        functions.aws.documents[key] = document(told, "REBOOT", FALSE_BOOT)
    end(functions, told, 1, "dcgm_task_monitor")
    assert functions.aws.asked("RebootInstances") == []
    assert functions.instance(VICTIM).boot_id != FALSE_BOOT


def test_a_copy_of_an_own_document_is_no_verdict_of_another_check(functions: Functions) -> None:
    """A document counts for the check that it names, even under the right key."""
    started = checks(functions)
    told = started[VICTIM]
    functions.aws.documents[told["VERDICT_KEY"]] = document(started[ATTACKER], "HEALTHY", FALSE_BOOT)
    end(functions, told, 1, "dcgm_task_monitor")
    assert functions.aws.asked("RebootInstances") == []
    assert functions.instance(VICTIM).boot_id != FALSE_BOOT


def test_no_two_checks_share_the_secret_of_a_key(functions: Functions) -> None:
    """Each key ends with a name of 128 bits that is not the launch signature, which evidence of a launch needs."""
    started = checks(functions)
    names = [told["VERDICT_KEY"].removeprefix(f"verdicts/{told['CHECK_ID']}/") for told in started.values()]
    assert len(set(names)) == 2 and all(len(name) == len(f"{'0' * 32}.json") for name in names)
    assert all(told["GPU_RECOVERY_LAUNCH_SIGNATURE"] not in told["VERDICT_KEY"] for told in started.values())

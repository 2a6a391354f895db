"""A check that never began, through the function: with either stop code, beside a document of its own or none."""

from __future__ import annotations

import pytest
from gpu_recovery.core.instance.record import InstanceStatus

from tests.aws.ecs_events import check_event
from tests.aws.records import JOB, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import checking

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
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

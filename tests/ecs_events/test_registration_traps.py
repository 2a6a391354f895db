"""An instance that registers again: after a reboot under another ARN, twice at once, and with fewer GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus, Reboot
from gpu_recovery.core.job.record import JobStatus

from tests.aws.ecs_events import ARN, instance_event
from tests.aws.environment import CLUSTER
from tests.aws.records import JOB, NOW, A, claim, instance, later, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
MACHINES = "ecs_instance_monitor"
ANEW = f"{ARN}:container-instance/{CLUSTER}/ci-anew"


def old_agent(functions: Functions, connected: bool) -> None:
    """What ECS says of the first registration when it is asked."""

    def describe(asked: dict[str, Any]) -> dict[str, Any]:
        found = [
            {
                "containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/{one}",
                "ec2InstanceId": A,
                "status": "ACTIVE",
                "agentConnected": connected,
                "version": 12,
            }
            for one in asked["containerInstances"]
        ]
        return {"containerInstances": found, "failures": []}

    functions.aws.answers["DescribeContainerInstances"] = describe


def rebooting(functions: Functions, **changes: Any) -> None:
    """An instance whose reboot was asked for a minute ago."""
    reboot = Reboot(later(-60), "b-1", JOB, 1, deadline_at=later(1740))
    functions.store.save_instance(instance(status=InstanceStatus.REBOOTING, reboot=reboot, epoch=1, **changes))


def deregistered(functions: Functions) -> list[tuple[str, bool]]:
    """The registrations that were taken away, and whether by force."""
    return [(one["containerInstance"], one["force"]) for one in functions.aws.asked("DeregisterContainerInstance")]


def test_a_machine_back_under_another_arn_is_looked_at_and_its_old_registration_taken_away(
    functions: Functions,
) -> None:
    """An agent that lost its data directory: the old registration stays ACTIVE, and its tasks RUNNING, for ever."""
    rebooting(functions)
    old_agent(functions, connected=False)
    functions.call(MACHINES, instance_event(A, 1, containerInstanceArn=ANEW))
    found = functions.instance()
    assert (found.status, found.container_instance_id) == (InstanceStatus.VERIFYING, "ci-anew")
    assert found.past_registrations == (f"ci-{A}",)
    assert deregistered(functions) == [(f"ci-{A}", True)]
    (check,) = functions.aws.asked("RunTask")
    assert check["startedBy"] == f"check/{A}/1"


def test_a_registration_whose_agent_works_is_not_taken_away(functions: Functions) -> None:
    """Whatever it is, somebody's tasks may run under it: force would end them for ECS and leave them on the GPUs."""
    rebooting(functions)
    old_agent(functions, connected=True)
    functions.call(MACHINES, instance_event(A, 1, containerInstanceArn=ANEW))
    assert functions.instance().container_instance_id == "ci-anew"
    assert deregistered(functions) == []


def test_the_dead_half_of_a_double_registration_is_not_the_machine(functions: Functions) -> None:
    """ECS goes on telling of it, with higher versions than those of the new one."""
    functions.store.save_instance(instance(claims={JOB: claim()}))
    for version in (4, 40):
        stale = instance_event(A, version, containerInstanceArn=ANEW, agentConnected=False)
        functions.call(MACHINES, stale)
    found = functions.instance()
    assert (found.container_instance_id, found.past_registrations) == (f"ci-{A}", ())
    assert (found.ecs_version, found.agent_connected, set(found.claims)) == (3, True, {JOB})


def test_the_last_words_of_the_old_registration_end_no_rank_on_the_new_one(functions: Functions) -> None:
    """INACTIVE, of the registration that was taken away by us: the machine works on."""
    gang(functions)
    machine = plan().instances[0]
    functions.store.save_instance(
        instance(machine, claims={JOB: claim()}, container_instance_id="ci-anew", past_registrations=("ci-old",))
    )
    old = f"{ARN}:container-instance/{CLUSTER}/ci-old"
    functions.call(MACHINES, instance_event(machine, 99, containerInstanceArn=old, status="INACTIVE"))
    assert functions.instance(machine).status is InstanceStatus.AVAILABLE
    assert functions.job().status is JobStatus.RUNNING


@pytest.mark.parametrize("left", [7, 0])
def test_a_machine_that_lost_gpus_in_the_reboot_is_checked_against_what_it_had(functions: Functions, left: int) -> None:
    """It registers what it still sees; the check is told how many it must find."""
    rebooting(functions)
    old_agent(functions, connected=False)
    gpus = [{"name": "GPU", "type": "STRINGSET", "stringSetValue": [f"GPU-{n}" for n in range(left)]}]
    functions.call(MACHINES, instance_event(A, 1, containerInstanceArn=ANEW, registeredResources=gpus))
    (check,) = functions.aws.asked("RunTask")
    override = check["overrides"]["containerOverrides"][0]
    assert {"name": "EXPECTED_GPUS", "value": "8"} in override["environment"]
    assert override["resourceRequirements"] == [{"type": "GPU", "value": str(left) if left else "ALL"}]
    assert (functions.instance().gpus, functions.instance().gpus_most) == (left, 8)


def test_a_reconnect_before_the_machine_went_down_is_no_return(functions: Functions) -> None:
    """Within the minute in which EC2 has only queued the request, the agent may speak as often as it likes."""
    rebooting(functions)
    for version in range(4, 8):
        functions.call(MACHINES, instance_event(A, version))
    assert functions.instance().status is InstanceStatus.REBOOTING
    assert functions.aws.asked("RunTask") == [] and functions.now == NOW

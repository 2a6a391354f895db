"""The traps of ECS's events, one test each, through the functions: what a plainer reading gets wrong.

Task and container-instance events only; Spot, EC2, AWS Health and alarms have tests of their own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.instance_index import MARK
from gpu_recovery.core.instance.record import InstanceStatus, Reboot
from gpu_recovery.core.job.record import CloseCause, JobStatus, StopPurpose
from gpu_recovery.core.task import OUR_STOP, EndingKind

from tests.aws.described_instances import reserved, shown
from tests.aws.ecs_events import ARN, check_event, instance_event, ours, rank_event
from tests.aws.environment import CLUSTER
from tests.aws.records import JOB, NOW, A, claim, instance, later, launched, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import as_rank, checking, gang, published

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
TASKS = "ecs_task_handler"
MACHINES = "ecs_instance_monitor"
MANAGED = {"gpu-recovery:managed": "true"}
FORCED = "Container instance deregistration forced by user"
"""Reason with which ECS ends the tasks of an instance that was deregistered by force."""


def end_of(functions: Functions, detail: dict[str, Any], rank: int = 0, main: str = "") -> EndingKind | None:
    """What the job's record makes of a rank that ended as `detail` says: how it failed, None if it did not."""
    gang(functions)
    functions.call(TASKS, as_rank(detail, rank, main))
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.stopped == {rank}
    return progress.failure.ending.kind if progress.failure else None


def shortest(detail: dict[str, Any]) -> str:
    """In the recorded GPU tasks the sidecar is called like the main container, with -timeout at its end."""
    return min((one["name"] for one in detail["containers"]), key=len)


# -- exit codes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("detail_gpu_task_terminationnotice_no_exitcodes", EndingKind.INTERRUPTED),
        ("detail_gpu_task_taskfailedtostart_no_exitcodes", EndingKind.NEVER_STARTED),
        ("detail_gpu_task_userinitiated_no_exitcodes", EndingKind.STOPPED_BY_PERSON),
    ],
)
def test_trap_1_an_end_without_exit_code_and_without_start(functions: Functions, name: str, kind: EndingKind) -> None:
    """exitCode and startedAt are absent where a task never ran: the stop code alone says what happened."""
    detail = published(name)
    assert "startedAt" not in detail and all("exitCode" not in one for one in detail["containers"])
    assert end_of(functions, detail, main=shortest(detail)) is kind
    assert functions.job().status is JobStatus.STOPPING


def test_trap_2_a_task_without_containers_ends(functions: Functions) -> None:
    """`containers: []` with RESOURCE:GPU is an end too: its job must not wait for a container for ever."""
    detail = published("detail_taskfailedtostart_resource_gpu_empty_containers")["detail"]
    assert end_of(functions, detail) is EndingKind.SHORT_OF_RESOURCES
    assert functions.job().status is JobStatus.STOPPING


def test_trap_3_failed_to_start_with_exit_code_zero_is_a_success(functions: Functions) -> None:
    """A task so fast that ECS never saw it run is told as TaskFailedToStart, though its program ended well."""
    detail = published("detail_gpu_task_fast_success_taskfailedtostart_exit0")
    assert end_of(functions, detail, main=shortest(detail)) is None
    functions.call(TASKS, as_rank(detail, 1, shortest(detail)))
    assert functions.job().status is JobStatus.SUCCEEDED


@pytest.mark.parametrize("launch_type", ["EC2", "FARGATE"])
def test_trap_4_a_persons_stop_with_exit_code_zero_is_no_success(functions: Functions, launch_type: str) -> None:
    """Who stops a rank cancels its job, however politely the program leaves."""
    detail = published("ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs")["detail"] | {"launchType": launch_type}
    assert detail["containers"][0]["exitCode"] == 0
    assert end_of(functions, detail) is EndingKind.STOPPED_BY_PERSON
    functions.call(TASKS, as_rank(detail, 1))
    assert functions.job().status is JobStatus.CANCELED


def test_trap_5_a_kill_in_a_scale_in_is_no_fault(functions: Functions) -> None:
    """Exit code 137 is also what SIGKILL after stopTimeout leaves when a service scales in: no GPU is to blame."""
    reason = "Scaling activity initiated by (deployment ecs-svc/9223370556150183303)"
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=137, stop_code="ServiceSchedulerInitiated", reason=reason)
    assert end_of(functions, event["detail"]) is EndingKind.STOPPED_BY_PERSON


@pytest.mark.parametrize("exit_code", [0, 137, 143, None])
def test_trap_5_our_own_stop_is_nobodys_failure(functions: Functions, exit_code: int | None) -> None:
    """ECS tells our StopTask as UserInitiated; taken for a person's it would cancel the job that it is to save."""
    gang(functions)
    functions.call(TASKS, rank_event(JOB, 1, 1, "STOPPED", exit_code=139))
    ours = rank_event(JOB, 1, 0, "STOPPED", exit_code=exit_code, stop_code="UserInitiated", reason=f"{OUR_STOP}x")
    functions.call(TASKS, ours)
    assert functions.job().status is JobStatus.DIAGNOSING
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.failure is not None and progress.failure.rank == 1


def test_trap_6_a_sidecars_143_beside_zero_is_a_success(functions: Functions) -> None:
    """The main container decides; whoever is ended with it has not failed."""
    detail = published("detail_gpu_task_success_sidecar_143")
    assert {one["exitCode"] for one in detail["containers"]} == {0, 143}
    assert end_of(functions, detail, main=shortest(detail)) is None


# -- what is not an end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_code", ["SpotInterruption", "TerminationNotice"])
def test_trap_7_a_running_task_with_a_stop_code_has_not_stopped(functions: Functions, stop_code: str) -> None:
    """It is the two-minute warning: the rank works on, and only its STOPPED event ends it."""
    gang(functions, status=JobStatus.SUBMITTED)
    for rank in (0, 1):
        warned = rank_event(JOB, 1, rank, "RUNNING")
        warned["detail"] |= {"stopCode": stop_code, "stoppedReason": "Your Spot Task was interrupted."}
        functions.call(TASKS, warned)
    assert functions.job().status is JobStatus.RUNNING
    assert functions.aws.count("ecs") == 0
    functions.call(TASKS, rank_event(JOB, 1, 0, "STOPPED", stop_code=stop_code, reason="interrupted"))
    assert functions.job().status is JobStatus.STOPPING
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.failure is not None
    assert progress.failure.ending.kind is EndingKind.INTERRUPTED


def test_trap_8_a_running_task_may_hold_a_stopped_container(functions: Functions) -> None:
    """What the task says of itself counts: this one runs, though its container has left with 0."""
    gang(functions, status=JobStatus.SUBMITTED)
    detail = published("ecs_task_running_ec2_service_2016")["detail"]
    assert detail["containers"][0] | {"exitCode": 0, "lastStatus": "STOPPED"} == detail["containers"][0]
    functions.call(TASKS, as_rank(detail, 0))
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and (progress.running, progress.stopped) == ({0}, frozenset())


@pytest.mark.parametrize("status", ["STOPPING", "DEACTIVATING", "DEPROVISIONING", "DELETED", "A_STATUS_OF_TOMORROW"])
def test_trap_8_a_task_on_its_way_has_not_stopped(functions: Functions, status: str) -> None:
    """DEPROVISIONING already carries the exit code and the stop code, and still holds its GPUs."""
    gang(functions)
    before = functions.kept()
    on_its_way = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    on_its_way["detail"]["lastStatus"] = status
    functions.call(TASKS, on_its_way)
    assert functions.kept() == before and functions.aws.calls == []


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arn", [f"{ARN}:task/0a1b", f"arn:aws-cn:ecs:cn-north-1:123456789012:task/{CLUSTER}/0a1b"])
def test_trap_9_short_and_long_arns_are_the_same_rank(functions: Functions, arn: str) -> None:
    """Old accounts leave the cluster out of every ARN."""
    gang(functions)
    functions.store.record_tasks(replace(launched(), task_ids=("0a1b", f"{JOB}-1-1")), (0, 1))
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    short = {name: event["detail"][name].replace(f"/{CLUSTER}/", "/") for name in ("containerInstanceArn",)}
    event["detail"] |= {"taskArn": arn, **short}
    functions.call(TASKS, event)
    assert functions.job().status is JobStatus.STOPPING


def test_trap_9_a_short_arn_names_the_same_registration(functions: Functions) -> None:
    """An instance that speaks once with the long and once with the short ARN has not registered anew."""
    functions.call(MACHINES, instance_event(A, 1))
    short = f"{ARN}:container-instance/ci-{A}"
    functions.call(MACHINES, instance_event(A, 2, containerInstanceArn=short))
    found = functions.instance()
    assert (found.ecs_version, found.past_registrations) == (2, ())


@pytest.mark.parametrize("name", ["source", "account", "region"])
def test_trap_10_an_event_that_does_not_say_where_it_is_from_is_raised(functions: Functions, name: str) -> None:
    """EventBridge always does, so the event is no event of EventBridge; the dead letters keep it."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    del event[name]
    with pytest.raises(EventUnreadable, match=f"^{name}: is missing"):
        functions.call(TASKS, event)
    assert functions.aws.calls == []


@pytest.mark.parametrize("name", ["version", "id", "detail-type", "time", "resources"])
def test_trap_10_no_other_part_of_the_envelope_is_needed(functions: Functions, name: str) -> None:
    """Published events lack each of them."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    del event[name]
    functions.call(TASKS, event)
    assert functions.job().status is JobStatus.STOPPING


def test_trap_10_the_smallest_detail_is_enough(functions: Functions) -> None:
    """No group, launch type, cluster, desired status, version or times: our name and the end remain."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    needed = ("taskArn", "startedBy", "lastStatus", "overrides", "containers")
    functions.call(TASKS, ours({"detail": {name: event["detail"][name] for name in needed}}))
    assert functions.job().status is JobStatus.STOPPING


def test_trap_10_a_task_without_started_by_is_nobodys(functions: Functions) -> None:
    """It cannot be matched, so it is left alone without a call; the job's next look finds the rank's end."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    del event["detail"]["startedBy"]
    before = functions.kept()
    functions.call(TASKS, event)
    assert functions.kept() == before


def test_trap_11_two_documents_with_one_id_are_two_events(functions: Functions) -> None:
    """Nothing is taken for a repetition because of its id: both ranks' ends count."""
    gang(functions)
    ends = [rank_event(JOB, 1, rank, "STOPPED", exit_code=0) for rank in (0, 1)]
    assert ends[0]["id"] == ends[1]["id"]
    for event in ends:
        functions.call(TASKS, event)
    assert functions.job().status is JobStatus.SUCCEEDED


def test_trap_11_one_document_with_two_ids_is_one_event(functions: Functions) -> None:
    """The same end delivered again under another id moves nothing."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    functions.call(TASKS, event)
    before = functions.kept()
    functions.call(TASKS, event | {"id": "another"})
    assert functions.kept() == before and functions.aws.operations() == {"GetItem": 1, "UpdateItem": 1}


@pytest.mark.parametrize("resources", [[], ["resourceArn"], [f"{ARN}:task/{CLUSTER}/of-somebody-else"], None])
def test_trap_12_resources_name_nobody(functions: Functions, resources: Any) -> None:
    """They may be empty, a placeholder or another task's: the detail says whose event it is."""
    gang(functions)
    functions.call(TASKS, rank_event(JOB, 1, 0, "STOPPED", exit_code=1) | {"resources": resources})
    assert functions.job().status is JobStatus.STOPPING


def test_trap_12_an_override_may_name_a_container_that_did_not_run(functions: Functions) -> None:
    """With one container there is no doubt whose exit code it is; with two, nobody's is taken for the main one's."""
    one = rank_event(JOB, 1, 0, "STOPPED", exit_code=0)["detail"]
    one["containers"][0]["name"] = "renamed"
    assert end_of(functions, one, main="main") is None
    two = rank_event(JOB, 1, 1, "STOPPED", exit_code=0)["detail"]
    two["containers"] = [{"name": "renamed", "exitCode": 0}, {"name": "sidecar", "exitCode": 0}]
    functions.call(TASKS, as_rank(two, 1, "main"))
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.failure is not None
    assert progress.failure.ending.kind is EndingKind.CRASHED


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_trap_13_a_detail_type_of_any_length_is_no_matter(functions: Functions) -> None:
    """Somebody published one three times over; the rule has chosen already, and the function reads the detail."""
    event = published("ecs_container_instance_odd_detail_type")
    functions.call(MACHINES, ours(event) | {"detail-type": event["detail-type"] * 400})
    assert functions.instance("i-f3a8506b").status is InstanceStatus.AVAILABLE


def test_trap_13_fields_of_tomorrow_are_passed_over(functions: Functions) -> None:
    """At every depth, of every kind."""
    unknown = {"aFieldOfTomorrow": {"deep": [[[None, 1.5, {"": []}]]]}}
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    event["detail"] |= unknown
    event["detail"]["containers"][0] |= unknown
    event["detail"]["overrides"] |= unknown | {"inferenceAcceleratorOverrides": []}
    functions.call(TASKS, event | unknown)
    assert functions.job().status is JobStatus.STOPPING
    functions.call(MACHINES, instance_event(A, 1, **unknown))
    assert functions.instance().gpus == 8


@pytest.mark.parametrize("stop_code", ["InfrastructureHealth", "AStopCodeOfTomorrow"])
@pytest.mark.parametrize("exit_code", [1, 137, None])
def test_trap_15_an_unknown_stop_code_is_the_infrastructures(
    functions: Functions, stop_code: str, exit_code: int | None
) -> None:
    """AWS adds codes without notice: the host is looked at, nothing raises."""
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=exit_code, stop_code=stop_code, reason="unhealthy")
    assert end_of(functions, event["detail"]) is EndingKind.HOST_FAULT
    assert functions.job().status is JobStatus.STOPPING


@pytest.mark.parametrize(
    "reason",
    [
        "Task failed ELB health checks in (target-group arn:aws:elasticloadbalancing:us-east-1:1:targetgroup/x)",
        "Host EC2 (instance i-0123456789abcdef0) terminated.",
        "Host EC2 (instance i-0123456789abcdef0) stopped.",
        "ECS is performing maintenance on the underlying infrastructure hosting the task",
        "",
        "ResourceInitializationError: unable to pull secrets",
        "CannotPullContainerError: pull access denied",
    ],
)
def test_stopped_reasons_are_words_and_decide_nothing_alone(functions: Functions, reason: str) -> None:
    """The texts change from release to release: without an exit code, the end is a crash that names its reason."""
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=None, stop_code="EssentialContainerExited", reason=reason)
    assert end_of(functions, event["detail"]) is EndingKind.CRASHED
    assert (reason or "no reason given") in functions.job().reason


@pytest.mark.parametrize("what", ["GPU", "CPU", "MEMORY"])
def test_refusals_for_want_of_resources_are_no_failure_of_the_program(functions: Functions, what: str) -> None:
    """TaskFailedToStart with RESOURCE: the machine was full, the job did nothing wrong."""
    event = rank_event(
        JOB, 1, 0, "STOPPED", stop_code="TaskFailedToStart", reason=f"TaskFailedToStart: RESOURCE:{what}"
    )
    assert end_of(functions, event["detail"]) is EndingKind.SHORT_OF_RESOURCES


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [("06Z", 0), ("06.3Z", 300_000), ("06.71Z", 710_000), ("06.984Z", 984_000), ("06.123456789Z", 123_456)],
)
def test_times_have_fractions_of_every_width(functions: Functions, text: str, microsecond: int) -> None:
    """The moment of the failure is ECS's, to the digit that it gives."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    event["detail"]["stoppedAt"] = f"2026-11-21T08:59:{text}"
    functions.call(TASKS, event)
    failure = functions.job().failure
    assert failure is not None and failure.at == datetime(2026, 11, 21, 8, 59, 6, microsecond, tzinfo=UTC)


def test_tags_are_never_asked_for(functions: Functions) -> None:
    """Events have none and StopTask deletes them: a rank is known by what it was started as."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=1)
    assert "tags" not in event["detail"]
    functions.call(TASKS, event)
    assert functions.job().status is JobStatus.STOPPING
    asked = [json.dumps(parameters) for service, _, parameters in functions.aws.calls if service == "ecs"]
    assert asked and not any("TAGS" in parameters for parameters in asked)


def test_an_end_before_its_start_stays_the_end(functions: Functions) -> None:
    """Delivery has no order: STOPPED dominates a RUNNING that comes late."""
    gang(functions, status=JobStatus.SUBMITTED)
    functions.call(TASKS, rank_event(JOB, 1, 0, "STOPPED", exit_code=1))
    before = functions.kept()
    functions.call(TASKS, rank_event(JOB, 1, 0, "RUNNING"))
    assert functions.kept() == before


@pytest.mark.parametrize("rank", ["", "7", "-1", "1.0", "\u0663", "9" * 400, "one"])
def test_a_rank_that_the_gang_does_not_have_completes_no_set(functions: Functions, rank: str) -> None:
    """A number outside the gang, counted, would end a job whose real ranks still run."""
    gang(functions)
    event = rank_event(JOB, 1, 0, "STOPPED", exit_code=0)
    for pair in event["detail"]["overrides"]["containerOverrides"][0]["environment"]:
        pair["value"] = rank if pair["name"] == "RANK" else pair["value"]
    before = functions.kept()
    functions.call(TASKS, event)
    assert {name: item for name, item in functions.kept().items() if not name.startswith("#notified#")} == before


@pytest.mark.parametrize("exit_code", [226, 205, 203, 235, 124, 137, 255, None])
def test_a_check_that_ends_with_another_code_could_not_tell(functions: Functions, exit_code: int | None) -> None:
    """dcgmi never exits with 1: its own codes, were they to leave the container, must not leave the check for ever."""
    checking(functions, "INCONCLUSIVE")
    machine = plan().instances[0]
    functions.call("dcgm_task_monitor", check_event(machine, 1, exit_code))
    assert functions.instance(machine).status is not InstanceStatus.CHECKING
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.checked[0].outcome == "INCONCLUSIVE"
    assert functions.aws.count("ec2") == 0


# -- container instances -----------------------------------------------------------------------------------------------


def test_active_again_and_again_is_no_news(functions: Functions) -> None:
    """Every placement and stop emits such an event: within one version nothing is written."""
    functions.call(MACHINES, instance_event(A, 5))
    before = functions.kept()
    for version in (5, 4, 1, 0):
        functions.call(MACHINES, instance_event(A, version, agentConnected=False))
    assert functions.kept() == before


def test_versions_out_of_order_leave_the_newest(functions: Functions) -> None:
    """The agent's coming and going arrives in any order."""
    for version, connected in ((7, True), (9, False), (8, True)):
        functions.call(MACHINES, instance_event(A, version, agentConnected=connected))
    found = functions.instance()
    assert (found.ecs_version, found.agent_connected) == (9, False)


def test_an_agent_that_disconnects_is_no_failure(functions: Functions) -> None:
    """It does so several times an hour: the instance stays, and so does the claim of the job on it."""
    functions.store.save_instance(instance(claims={JOB: claim()}))
    functions.call(MACHINES, instance_event(A, 4, agentConnected=False))
    found = functions.instance()
    assert (found.status, set(found.claims)) == (InstanceStatus.AVAILABLE, {JOB})
    assert functions.aws.count("ecs") == functions.aws.count("sns") == 0


@pytest.mark.parametrize("status", ["REGISTERING", "A_STATUS_OF_TOMORROW"])
def test_an_unknown_status_ends_no_rank(functions: Functions, status: str) -> None:
    """Only a registration that is over frees an instance's GPUs; what is merely unknown keeps jobs away."""
    functions.store.save_instance(instance(claims={JOB: claim()}))
    functions.call(MACHINES, instance_event(A, 4, status=status))
    found = functions.instance()
    assert (found.status, found.ecs_status, set(found.claims)) == (InstanceStatus.AVAILABLE, status, {JOB})


@pytest.mark.parametrize("status", ["INACTIVE", "DEREGISTERING", "REGISTRATION_FAILED"])
@pytest.mark.parametrize(
    ("state", "then", "ended"),
    [
        ("running", InstanceStatus.REBOOTING, set()),
        ("shutting-down", InstanceStatus.AVAILABLE, set()),
        ("terminated", InstanceStatus.GONE, {0}),
        ("stopped", InstanceStatus.GONE, {0}),
    ],
)
def test_a_registration_that_is_over_ends_no_rank_unless_ec2_shows_the_instance_off(
    functions: Functions, status: str, state: str, then: InstanceStatus, ended: set[int]
) -> None:
    """A forced deregistration leaves its containers running (API reference): EC2 decides what ends them."""
    gang(functions)
    machine = plan().instances[0]
    functions.store.save_instance(instance(machine, claims={JOB: claim()}))
    functions.aws.answers["DescribeInstances"] = lambda asked: reserved(shown(machine, state, MANAGED))
    gone = rank_event(JOB, 1, 0, "STOPPED", stop_code="UserInitiated", reason=FORCED)["detail"]
    functions.aws.answers["DescribeTasks"] = lambda asked: {"tasks": [gone], "failures": []}
    functions.call(MACHINES, instance_event(machine, 4, status=status, agentConnected=False))
    assert functions.instance(machine).status is then
    assert len(functions.aws.asked("RebootInstances")) == (then is InstanceStatus.REBOOTING)
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.stopped == ended


def test_the_stop_of_an_orphaned_task_is_no_end_of_its_rank(functions: Functions) -> None:
    """ECS ends the tasks of a deregistered instance with a reason of their own: the job leaves, uncounted."""
    gang(functions)
    machine = plan().instances[0]
    functions.store.save_instance(instance(machine, claims={JOB: claim()}))
    gone = rank_event(JOB, 1, 0, "STOPPED", stop_code="UserInitiated", reason=FORCED)
    functions.call(TASKS, gone)
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.stopped == set()
    job = functions.job()
    assert (job.status, job.stop_purpose, job.stop_cause) == (
        JobStatus.STOPPING,
        StopPurpose.RELAUNCH,
        CloseCause.INTERRUPTED,
    )


def test_active_proves_no_reboot(functions: Functions) -> None:
    """The stop of the failed task itself emits ACTIVE while the reboot is pending."""
    reboot = Reboot(NOW, "b-1", JOB, 1, deadline_at=later(1800))
    functions.store.save_instance(instance(status=InstanceStatus.REBOOTING, reboot=reboot, epoch=1))
    for version in range(4, 9):
        functions.call(MACHINES, instance_event(A, version))
    assert functions.instance().status is InstanceStatus.REBOOTING


def test_an_instance_id_with_blanks_is_the_same_instance(functions: Functions) -> None:
    """A documented sample has one in front; a second record would be claimed beside the first."""
    functions.call(MACHINES, instance_event(A, 1))
    functions.call(MACHINES, instance_event(f" {A} ", 2, containerInstanceArn=f"{ARN}:container-instance/ci-{A}"))
    assert functions.instance().ecs_version == 2
    assert set(functions.kept()) - {"#changed-instances"} == {A, f"ci-{A}", MARK}


def test_an_old_registration_that_speaks_late_is_not_the_instance(functions: Functions) -> None:
    """An instance that registered under a second ARN is not undone by the first one's last words."""
    functions.call(MACHINES, instance_event(A, 40))
    anew = f"{ARN}:container-instance/{CLUSTER}/ci-anew"
    functions.call(MACHINES, instance_event(A, 1, containerInstanceArn=anew))
    before = functions.kept()
    functions.call(MACHINES, instance_event(A, 41, status="INACTIVE", agentConnected=False))
    assert functions.kept() == before
    assert functions.instance().container_instance_id == "ci-anew"

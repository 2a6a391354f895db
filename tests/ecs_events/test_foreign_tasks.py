"""Whose event it is: by the task id of the plan or of the check; until the id is recorded by evidence, or later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.aws.rank_parts import PART_RANKS
from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.identifiers import attempt_id, check_id
from gpu_recovery.core.instance.record import CheckRun, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.launch_signature import launch_signature
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.ecs_events import ARN, check_event, rank_event, task_event
from tests.aws.environment import CLUSTER, FUNCTION
from tests.aws.records import JOB, instance, job, later, launched, pending, plan, spec
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import checking, gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
TASKS, CHECKS = "ecs_task_handler", "dcgm_task_monitor"
MACHINE = plan().instances[0]
SIGNATURE = "GPU_RECOVERY_LAUNCH_SIGNATURE"


def told(functions: Functions, name: str, event: dict[str, Any]) -> int:
    """How many messages to operators an event leads to. No task is stopped."""
    functions.call(name, event)
    assert functions.aws.count("ecs") == 0
    return len(functions.aws.asked("Publish"))


def in_launch(functions: Functions, **changes: Any) -> None:
    """A gang whose tasks were started, by a launcher that has not recorded them, on instances that have registered."""
    functions.store.create_job(job(status=JobStatus.SUBMITTING, attempt=1, instances=plan().instances), "")
    functions.store.begin_attempt(replace(plan(), signed=True, **changes))
    for instance_id in plan().instances:
        record = functions.store.save_instance(instance(instance_id))
        functions.store.remember_registration(record)


def starting(functions: Functions, rank: int = 0, **changes: Any) -> dict[str, Any]:
    """The start of a task as our launcher requests it, with `changes` in its detail or its environment."""
    name = attempt_id(JOB, 1)
    signature = launch_signature(functions.store.launch_key(), name, rank)
    environment = {"JOB_ID": JOB, "RANK": str(rank), SIGNATURE: signature}
    environment |= {key: value for key, value in changes.items() if key.isupper()}
    event = task_event(f"{JOB}-1-{rank}", name, "RUNNING", environment)
    instance_id = plan(world=rank + 1).instances[rank]
    event["detail"]["containerInstanceArn"] = f"{ARN}:container-instance/{CLUSTER}/ci-{instance_id}"
    event["detail"] |= {key: value for key, value in changes.items() if not key.isupper()}
    return event


def running(functions: Functions) -> frozenset[int]:
    """The ranks that count as started."""
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None
    return progress.running


# -- ranks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", [0, 139])
def test_a_task_that_the_launch_did_not_record_is_no_rank(functions: Functions, exit_code: int) -> None:
    """Whatever its events say, they change nothing but the mark that operators were told of the attempt."""
    gang(functions)
    before = functions.kept()
    messages = 0
    for status in ("RUNNING", "RUNNING", "STOPPED", "STOPPED"):
        for rank in (0, 1):
            event = rank_event(JOB, 1, rank, status, exit_code=exit_code)
            event["detail"]["taskArn"] += "-copy"
            messages += told(functions, TASKS, event)
    assert messages == 1
    assert {key: item for key, item in functions.kept().items() if not key.startswith("#notified#")} == before


def copy_of(functions: Functions, number: int) -> dict[str, Any]:
    """The start of somebody's task with the names of a rank."""
    event = rank_event(JOB, 1, 0, "RUNNING")
    event["detail"]["taskArn"] += f"-copy-{number}"
    return event


def test_a_hundred_foreign_tasks_of_an_attempt_are_one_message_and_one_item(functions: Functions) -> None:
    """Anybody with ecs:RunTask may start as many as they like; the item has an expiry."""
    gang(functions)
    before = set(functions.kept())
    assert [told(functions, TASKS, copy_of(functions, number)) for number in range(100)] == [1, *[0] * 99]
    (mark,) = set(functions.kept()) - before
    assert "expires_s" in functions.kept()[mark]


def test_the_message_names_the_first_task_and_says_that_others_may_follow(functions: Functions) -> None:
    """Operators must not take the silence after it for the end of the matter."""
    gang(functions)
    functions.call(TASKS, copy_of(functions, 7))
    (mail,) = functions.aws.asked("Publish")
    assert f"{JOB}-1-0-copy-7" in mail["Message"]
    assert "Other tasks with the same name" in mail["Message"]


def test_foreign_tasks_that_go_on_are_told_of_again_half_a_day_later(functions: Functions) -> None:
    """The mark ends."""
    gang(functions)
    assert told(functions, TASKS, copy_of(functions, 1)) == 1
    functions.now = later(11 * 3_600)
    assert told(functions, TASKS, copy_of(functions, 2)) == 0
    functions.now = later(13 * 3_600)
    assert told(functions, TASKS, copy_of(functions, 3)) == 1


def test_a_task_without_a_rank_that_names_our_attempt_is_told_of(functions: Functions) -> None:
    """It cannot be ours; it is no error that would be retried and end as a dead letter."""
    gang(functions)
    assert told(functions, TASKS, task_event("t", attempt_id(JOB, 1), "RUNNING", {"JOB_ID": JOB})) == 1
    (mail,) = functions.aws.asked("Publish")
    assert "the launch records of the attempt, and the launch signature of the task" in mail["Message"]


def test_the_plan_says_where_a_rank_failed(functions: Functions) -> None:
    """The variable INSTANCE_ID is what the caller of RunTask wrote."""
    gang(functions)
    event = rank_event(JOB, 1, 1, "STOPPED", exit_code=139)
    for pair in event["detail"]["overrides"]["containerOverrides"][0]["environment"]:
        pair["value"] = "i-0fff" if pair["name"] == "INSTANCE_ID" else pair["value"]
    functions.call(TASKS, event)
    failure = functions.job().failure
    assert failure is not None and failure.instance_id == plan().instances[1]


def test_a_rank_that_starts_before_its_launch_is_recorded_counts(functions: Functions) -> None:
    """A gang of thousands is launched for a minute: its first ranks run long before the launcher writes."""
    in_launch(functions)
    functions.call(TASKS, starting(functions, 1))
    assert running(functions) == {1}


@pytest.mark.parametrize(
    "changes",
    [
        {SIGNATURE: ""},
        {SIGNATURE: "0" * 32},
        {"containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/ci-{plan().instances[1]}"},
        {"containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/ci-i-0eee"},
        {"containerInstanceArn": ""},
        {"taskDefinitionArn": f"{ARN}:task-definition/somebody-elses-web:1"},
        {"taskDefinitionArn": f"{ARN}:task-definition/gpu-training-of-others:1"},
    ],
)
def test_without_evidence_an_event_waits_for_the_record_of_the_launch(
    functions: Functions, changes: dict[str, str]
) -> None:
    """Signature, instance and family: if one is missing, the event is delivered again, and nobody is accused."""
    in_launch(functions)
    event = starting(functions, **changes)
    unrecorded = f"the launch of {JOB}--a01 has not recorded its tasks yet; the event of task {JOB}-1-0 is tried again"
    with pytest.raises(TryAgainSoon, match=unrecorded):
        functions.call(TASKS, event)
    assert running(functions) == frozenset() and functions.aws.asked("Publish") == []
    functions.store.record_tasks(launched(), (0, 1))
    functions.call(TASKS, event)
    assert running(functions) == {0}


def test_the_signature_of_another_rank_shows_nothing(functions: Functions) -> None:
    """It is seen by everybody who may describe the tasks that run already."""
    in_launch(functions)
    event = starting(functions, 1, **{SIGNATURE: launch_signature(functions.store.launch_key(), f"{JOB}--a01", 0)})
    with pytest.raises(TryAgainSoon):
        functions.call(TASKS, event)
    assert running(functions) == frozenset()


def test_a_copy_of_a_task_that_is_recorded_is_refused_whatever_it_carries(functions: Functions) -> None:
    """Signature, instance and family can be copied from the task that runs; its id cannot."""
    in_launch(functions, task_ids=launched().task_ids)
    event = starting(functions)
    event["detail"]["taskArn"] += "-copy"
    assert told(functions, TASKS, event) == 1
    assert running(functions) == frozenset()


def test_a_launch_that_an_older_release_began_has_no_signatures(functions: Functions) -> None:
    """Instance and family show its tasks until they are recorded; a signature would show that it is another's."""
    in_launch(functions)
    functions.store.jobs.update(f"{JOB}#a01#plan", "SET signed = :no", "attribute_exists(job_id)", {}, {":no": False})
    with pytest.raises(TryAgainSoon):
        functions.call(TASKS, starting(functions))
    functions.call(TASKS, starting(functions, **{SIGNATURE: ""}))
    assert running(functions) == {0}


def launching(functions: Functions) -> None:
    """The record as a launcher leaves it while it starts tasks, or if it was killed: with its command."""
    order = commands.LaunchAttempt(1, plan().instances, plan().epochs, 0)
    functions.store.save_job(replace(functions.job(), commands=(pending(JOB, 0, order),)))


@pytest.mark.parametrize(
    ("status", "attempt", "task_ids"),
    [
        (JobStatus.QUEUED, 1, ("", "")),
        (JobStatus.PENDING_RESOURCES, 1, ("", "")),
        (JobStatus.SUBMITTING, 2, ("", "")),
        (JobStatus.RUNNING, 2, ("", "")),
        (JobStatus.FAILED, 1, ("", "")),
        (JobStatus.CANCELED, 1, ("", "")),
        (JobStatus.STOPPING, 1, ("", f"{JOB}-1-1")),
    ],
)
def test_a_task_that_names_a_rank_which_ecs_refused_is_told_of_and_is_no_error(
    functions: Functions, status: JobStatus, attempt: int, task_ids: tuple[str, ...]
) -> None:
    """No id of that rank will be recorded, so each of its events would be retried and end as a dead letter."""
    in_launch(functions, task_ids=task_ids)
    functions.store.save_job(replace(functions.job(), status=status, attempt=attempt))
    before = functions.job()
    assert told(functions, TASKS, starting(functions, **{SIGNATURE: ""})) == 1
    assert running(functions) == frozenset() and functions.job() == before


def test_after_a_launch_that_iam_denied_a_task_of_that_attempt_is_told_of(functions: Functions) -> None:
    """Everybody may read the name of the attempt, and start a task with it."""
    functions.store.save_instance(instance(MACHINE))
    functions.store.create_job(job(spec=spec(nnodes=1)), "")
    functions.aws.denied[functions.job().spec.task_definition] = "User: u is not authorized to perform: ecs:RunTask"
    functions.call("scheduler", {"Records": [{"body": "{}"}]})
    assert (functions.job().status, functions.job().attempt) == (JobStatus.PENDING_RESOURCES, 1)
    assert told(functions, TASKS, rank_event(JOB, 1, 0, "RUNNING")) == 1
    assert told(functions, TASKS, rank_event(JOB, 1, 0, "STOPPED", exit_code=0)) == 0
    assert functions.job().status is JobStatus.PENDING_RESOURCES


@pytest.mark.parametrize("status", [JobStatus.SUBMITTING, JobStatus.STOPPING])
@pytest.mark.parametrize("task_ids", [("", ""), ("", f"{JOB}-1-1")], ids=["nothing", "a part"])
def test_while_a_launch_may_still_record_its_tasks_nobody_is_accused(
    functions: Functions, status: JobStatus, task_ids: tuple[str, ...]
) -> None:
    """The launcher works, or was killed and its command is retried; the poll may have recorded a part."""
    in_launch(functions, task_ids=task_ids)
    functions.store.save_job(replace(functions.job(), status=status))
    launching(functions)
    with pytest.raises(TryAgainSoon):
        functions.call(TASKS, starting(functions, **{SIGNATURE: ""}))
    assert functions.aws.asked("Publish") == []


def test_a_rank_that_was_never_recorded_counts_even_after_its_launch(functions: Functions) -> None:
    """The launcher was killed, and the job was stopped: the evidence of its tasks is complete."""
    in_launch(functions, task_ids=("", f"{JOB}-1-1"))
    functions.store.save_job(replace(functions.job(), status=JobStatus.STOPPING))
    functions.call(TASKS, starting(functions))
    assert running(functions) == {0}


LARGE = PART_RANKS + 6
"""Ranks of a gang whose plan has two items."""


def large_gang(functions: Functions, there: Plan) -> None:
    """A running gang whose plan is in parts."""
    changes = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True, "instances": there.instances}
    functions.store.create_job(job(spec=spec(nnodes=LARGE), **changes), "")
    functions.store.begin_attempt(there)


@pytest.mark.parametrize("rank", [0, PART_RANKS - 1, PART_RANKS, LARGE - 1])
def test_a_rank_of_a_large_gang_counts_by_its_recorded_task_id(functions: Functions, rank: int) -> None:
    """One read of the item with the rank and one write, as in a small gang."""
    large_gang(functions, launched(world=LARGE))
    functions.call(TASKS, rank_event(JOB, 1, rank, "RUNNING"))
    assert functions.aws.operations("dynamodb") == {"GetItem": 1, "UpdateItem": 1}
    assert running(functions) == {rank}


@pytest.mark.parametrize(
    ("rank", "name"),
    [
        (str(PART_RANKS), "copy"),
        (str(LARGE), f"{JOB}-1-{LARGE}"),
        (str(4 * PART_RANKS), f"{JOB}-1-{4 * PART_RANKS}"),
        ("999999999", "beyond"),
        ("", "none"),
    ],
)
def test_a_foreign_task_of_a_large_gang_is_told_of(functions: Functions, rank: str, name: str) -> None:
    """Whether its rank is that of another task, is none of the gang, or is missing."""
    large_gang(functions, launched(world=LARGE))
    before = functions.kept()
    for status in ("RUNNING", "STOPPED"):
        event = task_event(name, attempt_id(JOB, 1), status, {"JOB_ID": JOB, "RANK": rank}, exit_code=1)
        assert told(functions, TASKS, event) == (status == "RUNNING")
    assert {key: item for key, item in functions.kept().items() if not key.startswith("#notified#")} == before


def test_a_rank_of_a_large_gang_that_starts_before_its_launch_is_recorded_counts(functions: Functions) -> None:
    """Its item has no task id, so its evidence is compared with the whole plan."""
    large_gang(functions, replace(plan(world=LARGE), signed=True))
    functions.store.remember_registration(functions.store.save_instance(instance(plan(world=LARGE).instances[-1])))
    functions.call(TASKS, starting(functions, LARGE - 1))
    assert running(functions) == {LARGE - 1}


# -- health checks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", [0, 1, 42])
def test_a_task_that_the_start_of_a_check_did_not_record_is_no_check(functions: Functions, exit_code: int) -> None:
    """Even beside a document that agrees with its exit code: the check's own task may have written it."""
    checking(functions, {0: "HEALTHY", 1: "REBOOT", 42: "REPLACE"}[exit_code])
    event = check_event(MACHINE, 1, exit_code)
    before = functions.instance(MACHINE)
    event["detail"]["taskArn"] += "-copy"
    assert [told(functions, CHECKS, event) for _ in range(2)] == [1, 0]
    event["detail"]["taskArn"] += "-2"
    assert told(functions, CHECKS, event) == 0
    assert functions.instance(MACHINE) == before
    functions.call(CHECKS, check_event(MACHINE, 1, exit_code))
    assert functions.instance(MACHINE).status is not InstanceStatus.CHECKING


def unrecorded(functions: Functions, **changes: Any) -> dict[str, Any]:
    """The end of a check whose task is not recorded, with `changes` in its detail or its environment."""
    checking(functions, "HEALTHY")
    run = CheckRun(check_id(MACHINE, 1), JOB, 1, signed=True)
    record = functions.store.save_instance(replace(functions.instance(MACHINE), check=run))
    functions.store.remember_registration(record)
    signature = launch_signature(functions.store.launch_key(), run.check_id)
    event = check_event(MACHINE, 1, 0)
    detail = event["detail"]
    pairs = detail["overrides"]["containerOverrides"][0]["environment"]
    pairs.append({"name": SIGNATURE, "value": changes.pop(SIGNATURE, signature)})
    detail["containerInstanceArn"] = f"{ARN}:container-instance/{CLUSTER}/ci-{MACHINE}"
    detail["taskDefinitionArn"] = f"{ARN}:task-definition/{FUNCTION['DCGM_HEALTH_CHECK_TASK']}:7"
    detail |= changes
    return event


def test_a_check_that_ends_before_its_task_is_recorded_counts(functions: Functions) -> None:
    """The function that started it was killed, and never wrote which task it was."""
    functions.call(CHECKS, unrecorded(functions))
    assert functions.instance(MACHINE).status is InstanceStatus.AVAILABLE


@pytest.mark.parametrize(
    "changes",
    [
        {SIGNATURE: ""},
        {"containerInstanceArn": f"{ARN}:container-instance/{CLUSTER}/ci-{plan().instances[1]}"},
        {"taskDefinitionArn": f"{ARN}:task-definition/gpu-health-check-of-others:1"},
    ],
)
def test_without_evidence_the_end_of_a_check_waits(functions: Functions, changes: dict[str, str]) -> None:
    """It is delivered again; by then the task is recorded."""
    event = unrecorded(functions, **changes)
    with pytest.raises(TryAgainSoon, match=f"the launch of {check_id(MACHINE, 1)} has not recorded its tasks yet"):
        functions.call(CHECKS, event)
    assert functions.instance(MACHINE).status is InstanceStatus.CHECKING and functions.aws.asked("Publish") == []


@pytest.mark.parametrize(("status", "exit_code"), [("RUNNING", None), ("STOPPED", 42)])
def test_a_copy_of_a_check_neither_replaces_nor_delays_its_verdict(
    functions: Functions, status: str, exit_code: int | None
) -> None:
    """The signature can be copied from the task that runs, so the oldest task with evidence is ours."""
    own = unrecorded(functions)["detail"]
    copy = {**own, "taskArn": f"{own['taskArn']}-copy", "lastStatus": status, "createdAt": later(5).isoformat()}
    copy["containers"] = [{**own["containers"][0], "lastStatus": status, "exitCode": exit_code}]
    run = functions.instance(MACHINE).check
    assert run is not None
    functions.aws.tasks[run.check_id] = [task["taskArn"].rsplit("/", 1)[-1] for task in (copy, own)]
    functions.aws.answers["DescribeTasks"] = lambda asked: {"tasks": [copy, own], "failures": []}
    functions.store.save_instance(replace(functions.instance(MACHINE), look_at=later(0)))
    functions.call("reconciler", {})
    assert functions.instance(MACHINE).status is InstanceStatus.AVAILABLE
    assert functions.instance(MACHINE).reason == "HEALTHY: GPU 3"


def test_an_older_task_without_the_signature_is_no_check(functions: Functions) -> None:
    """The name of a check can be guessed before its start, so a stranger may be the oldest task with this name."""
    own = unrecorded(functions)["detail"]
    stranger = {**own, "taskArn": f"{own['taskArn']}-before", "createdAt": later(-5).isoformat()}
    stranger["containers"] = [{**own["containers"][0], "exitCode": 42}]
    (override,) = own["overrides"]["containerOverrides"]
    unsigned = [pair for pair in override["environment"] if pair["name"] != SIGNATURE]
    stranger["overrides"] = {"containerOverrides": [{**override, "environment": unsigned}]}
    run = functions.instance(MACHINE).check
    assert run is not None
    functions.aws.tasks[run.check_id] = [task["taskArn"].rsplit("/", 1)[-1] for task in (stranger, own)]
    functions.aws.answers["DescribeTasks"] = lambda asked: {"tasks": [stranger, own], "failures": []}
    functions.store.save_instance(replace(functions.instance(MACHINE), look_at=later(0)))
    functions.call("reconciler", {})
    assert functions.instance(MACHINE).status is InstanceStatus.AVAILABLE
    assert functions.instance(MACHINE).reason == "HEALTHY: GPU 3"


def test_only_the_task_of_a_superseded_check_can_still_blame(functions: Functions) -> None:
    """The record keeps its id beside that of the check that replaced it."""
    checking(functions, "REBOOT")
    run = functions.instance(MACHINE).check
    assert run is not None
    later = CheckRun(check_id(MACHINE, 2), JOB, 1, superseded=run.check_id, superseded_task_id=run.task_id, signed=True)
    functions.store.save_instance(replace(functions.instance(MACHINE), check=later, checks=2))
    stranger = check_event(MACHINE, 1, 1)
    stranger["detail"]["taskArn"] += "-copy"
    assert told(functions, CHECKS, stranger) == 1
    assert functions.instance(MACHINE).status is InstanceStatus.CHECKING
    functions.call(CHECKS, check_event(MACHINE, 1, 1))
    assert functions.instance(MACHINE).status is not InstanceStatus.CHECKING


def test_the_end_of_a_check_that_nobody_awaits_costs_one_read(functions: Functions) -> None:
    """Delivered twice, or of another program: no document is read and nobody is told."""
    gang(functions)
    functions.store.save_instance(instance(MACHINE, checks=1))
    functions.call(CHECKS, check_event(MACHINE, 1, 0))
    assert functions.aws.operations() == {"GetItem": 1}


@pytest.mark.parametrize(("status", "exit_code"), [("RUNNING", None), ("STOPPED", 139), ("STOPPED", 0)])
def test_a_rank_beyond_the_width_of_its_attempt_is_no_rank(
    functions: Functions, status: str, exit_code: int | None
) -> None:
    """An elastic job of three instances runs on two: a task with the names and the signature of rank 2 changes nothing.

    Counted as a rank, its start would complete a gang of which one rank does not run, and its end would stop the gang.
    """
    elastic = job(status=JobStatus.SUBMITTED, attempt=1, instances=plan().instances, spec=spec(nnodes=3, nnodes_min=1))
    functions.store.create_job(elastic, "")
    functions.store.begin_attempt(replace(plan(), signed=True))
    functions.store.save_instance(instance(plan(world=3).instances[2]))
    functions.call(TASKS, starting(functions, 0))
    before, ranks = functions.job(), running(functions)
    event = starting(functions, 2)
    event["detail"]["lastStatus"] = status
    if exit_code is not None:
        event["detail"]["containers"][0]["exitCode"] = exit_code
    assert told(functions, TASKS, event) == 1
    assert functions.job() == before and running(functions) == ranks
    progress = functions.store.load_progress(JOB, 1)
    assert progress is not None and progress.stopped == frozenset() and progress.failure is None

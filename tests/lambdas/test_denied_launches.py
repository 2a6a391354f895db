"""Launches that AWS denies for lack of a permission: the queue holds, operators hear once, and the queue goes on."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority

from tests.aws.ecs_events import rank_event
from tests.aws.records import A, B, instance, job, later, spec
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Context, Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ROLE = "arn:aws:iam::123456789012:role/training-task"
USER = "User: arn:aws:sts::123456789012:assumed-role/scheduler/gpu-recovery-scheduler is not authorized to perform: "
NO_POLICY = "because no identity-based policy allows the {} action"
PASS_ROLE = f"{USER}iam:PassRole on resource: {ROLE} {NO_POLICY.format('iam:PassRole')}"
DEFINITION = "arn:aws:ecs:us-east-1:123456789012:task-definition/"
RUN_ONE = f"{USER}ecs:RunTask on resource: {DEFINITION}gpu-training:3 {NO_POLICY.format('ecs:RunTask')}"
FORBIDDEN = (
    f"{USER}ecs:RunTask on resource: {DEFINITION}gpu-training:3 with an explicit deny in an identity-based policy"
)
RUN_ALL = f"{USER}ecs:RunTask"
TRUST = (
    f"ECS was unable to assume the role '{ROLE}' that was provided for this task. Please verify that the role being "
    "passed has the proper trust relationship and permissions and that your IAM user has permissions to pass this role."
)
DENIED, OTHER = "gpu-training:3", "gpu-evaluation:1"
LAUNCHED = (JobStatus.SUBMITTED, JobStatus.SUBMITTING)


class Queue:
    """A queue of jobs of one instance each, the scheduler, and what operators are sent."""

    def __init__(self, functions: Functions) -> None:
        self.functions, self.mails = functions, list[dict[str, Any]]()
        self.jobs = 0
        functions.aws.answers["Publish"] = self._publish

    def _publish(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.mails.append(asked)
        return {"MessageId": "m"}

    def submit(self, count: int, definition: str = DENIED, **changes: Any) -> list[str]:
        """Store queued jobs of a task definition, in the order of the queue."""
        names = [f"sft-{self.jobs + number:04}" for number in range(count)]
        for name in names:
            wanted = replace(spec(nnodes=1, gpus_per_node=8, task_definition=definition), **changes)
            self.functions.store.create_job(job(name, spec=wanted, queued_at=later(self.jobs)), "")
            self.jobs += 1
        return names

    def pass_at(self, seconds: float) -> int:
        """Run whole passes at this time until a pass launches nothing. Return the number of launches."""
        self.functions.now = later(seconds)
        launched = 0
        while True:
            self.functions.call("scheduler", {"Records": [{"body": "{}"}]})
            requests = self.functions.aws.asked("RunTask")
            launched += len(requests)
            if not requests:
                return launched

    def one_pass_at(self, seconds: float) -> int:
        """Run one pass at this time. Return the number of launches."""
        self.functions.now = later(seconds)
        self.functions.call("scheduler", {"Records": [{"body": "{}"}]})
        return len(self.functions.aws.asked("RunTask"))

    def tell(self, name: str, attempt: int, status: str, **ended: Any) -> None:
        """Deliver the ECS event of rank 0."""
        self.functions.call("ecs_task_handler", rank_event(name, attempt, 0, status, at=self.functions.now, **ended))

    def statuses(self, names: list[str]) -> list[JobStatus]:
        return [self.functions.job(name).status for name in names]


@pytest.fixture
def queue(functions: Functions) -> Queue:
    """Two free instances, and a deployment that may not pass the role of one task definition."""
    for name in (A, B):
        functions.store.save_instance(instance(name))
    functions.aws.denied[DENIED] = PASS_ROLE
    return Queue(functions)


def test_a_denied_role_holds_the_jobs_of_its_task_definition_and_fails_none(queue: Queue) -> None:
    """Twenty jobs used to fail one after the other. The jobs of the first pass are denied; the others wait untried."""
    names = queue.submit(20)
    assert queue.pass_at(100) == 2
    assert set(queue.statuses(names)) == {JobStatus.PENDING_RESOURCES}
    first, last = queue.functions.job(names[0]), queue.functions.job(names[-1])
    assert (first.attempt, first.attempts_counted, first.attempts_uncounted) == (1, 0, {"PERMISSION": 1})
    assert ROLE in first.reason and "training_role_arns" in first.reason and first.short_of == "permission"
    assert (last.attempt, last.short_of) == (0, "permission") and ROLE in last.reason
    assert queue.functions.instance(A).claims == {} and queue.functions.instance(B).claims == {}


def test_operators_are_told_of_a_denied_role_once_with_what_mends_it(queue: Queue) -> None:
    """Not for each job, and not for each further try."""
    queue.submit(20)
    for seconds in (100, 161, 290, 600, 1800, 3600):
        queue.pass_at(seconds)
    (mail,) = queue.mails
    assert ROLE in mail["Message"]
    assert "not authorized to perform: iam:PassRole" in mail["Message"] and "SEV2" in mail["Subject"]
    assert "None fails" not in mail["Message"] and "longer than queue_timeout_s (604800 s) fails" in mail["Message"]


@pytest.mark.parametrize(
    ("denied", "value", "setting"),
    [(PASS_ROLE, ROLE, "training_role_arns"), (RUN_ONE, "gpu-training", "training_task_families")],
)
def test_operators_add_to_a_list_and_keep_their_other_settings(
    queue: Queue, denied: str, value: str, setting: str
) -> None:
    """A command with this setting alone would return the cluster, the e-mails and the profile to their defaults."""
    queue.functions.aws.denied[DENIED] = denied
    (name,) = queue.submit(1)
    queue.pass_at(0)
    (mail,) = queue.mails
    text = " ".join(mail["Message"].split())
    added = f"Add {value} to the list {setting} in the settings file of the deployment, and run make deploy NAME="
    assert f'add it to "gpu-recovery:{setting}" in cdk.json, and deploy again with every -c option' in text
    assert added in text and added in queue.functions.job(name).reason
    assert "Without an option, its setting returns to the value in cdk.json or to the default." in text
    assert f"If one of these options is gpu-recovery:{setting}, extend the list in that option instead" in text
    assert "make deploy CONTEXT=<every -c option of the last deployment>" in text
    assert text.count("make deploy") == 2 and "-c gpu-recovery" not in text


@pytest.mark.parametrize("policy", ["service control policy", "permissions boundary", "session policy"])
def test_operators_look_for_the_policy_that_does_not_allow_the_action(queue: Queue, policy: str) -> None:
    """The setting grants by a policy of the function's role, which such a policy limits. No deployment helps."""
    denied = f"{USER}iam:PassRole on resource: {ROLE} because no {policy} allows the iam:PassRole action"
    queue.functions.aws.denied[DENIED] = denied
    queue.submit(1)
    queue.pass_at(0)
    (mail,) = queue.mails
    assert "Find the policy that denies or does not allow iam:PassRole" in mail["Message"]
    assert "training_role_arns" not in mail["Message"]


def test_operators_are_told_again_after_a_day_and_after_the_permission_was_there(queue: Queue) -> None:
    """A reminder if it is still missing; at once if it was granted and is missing again."""
    queue.submit(6)
    queue.pass_at(100)
    queue.pass_at(86_600)
    assert len(queue.mails) == 2
    del queue.functions.aws.denied[DENIED]
    assert queue.pass_at(90_000) == 2
    queue.functions.aws.denied[DENIED] = PASS_ROLE
    queue.functions.store.save_instance(instance("i-0cccccccccccccccc"))
    queue.pass_at(90_100)
    assert len(queue.mails) == 3


def test_jobs_of_other_task_definitions_start_while_a_role_is_denied(queue: Queue) -> None:
    """They stand behind the held jobs in the queue, and are not blocked by them."""
    held = queue.submit(3)
    queue.pass_at(100)
    others = queue.submit(2, OTHER)
    assert queue.pass_at(110) == 2
    assert set(queue.statuses(others)) == {JobStatus.SUBMITTED} and not {*queue.statuses(held)} & {*LAUNCHED}


@pytest.mark.parametrize(("message", "starts"), [(RUN_ONE, True), (FORBIDDEN, True), (RUN_ALL, False)])
def test_a_denied_run_task_holds_what_its_message_names(queue: Queue, message: str, starts: bool) -> None:
    """One task definition, also if a policy forbids only that, or every launch if none is named."""
    queue.functions.aws.denied[DENIED] = message
    queue.submit(1)
    queue.pass_at(100)
    others = queue.submit(1, OTHER)
    assert queue.pass_at(110) == starts
    assert (queue.statuses(others) == [JobStatus.SUBMITTED]) == starts


def test_a_hold_tries_one_launch_at_a_time_at_growing_intervals(queue: Queue) -> None:
    """The two jobs that were denied together are not both tried again: 60 s, then 120 s, then 240 s later."""
    queue.submit(8)
    queue.pass_at(0)
    launches = {seconds: queue.pass_at(seconds) for seconds in range(10, 600, 10)}
    assert {seconds: count for seconds, count in launches.items() if count} == {60: 1, 180: 1, 420: 1}
    assert len(queue.mails) == 1


def test_the_first_launch_that_succeeds_ends_the_hold(queue: Queue) -> None:
    """After the mending nobody has to do anything: the next try starts, and then every job that fits."""
    names = queue.submit(3)
    queue.functions.store.save_instance(instance("i-0cccccccccccccccc"))
    queue.pass_at(0)
    del queue.functions.aws.denied[DENIED]
    assert queue.pass_at(30) == 0
    assert queue.pass_at(61) == 3
    assert set(queue.statuses(names)) == {JobStatus.SUBMITTED}
    assert all(queue.functions.job(name).attempts_counted == 0 for name in names)


def test_a_denied_job_that_is_canceled_does_not_delay_the_next_try(queue: Queue) -> None:
    """The next job is tried alone, denied, and pauses in its place; operators are not told again."""
    names = queue.submit(4)
    queue.pass_at(0)
    api = Api(queue.functions)
    for name in names[:2]:
        assert api.post(f"/jobs/{name}/cancel").status == 202
    assert queue.pass_at(20) == 1
    assert set(queue.statuses(names[2:])) == {JobStatus.PENDING_RESOURCES} and len(queue.mails) == 1


def test_a_permission_that_was_granted_after_the_denied_job_was_canceled_is_noticed(queue: Queue) -> None:
    """The user submits the job again, and the launch succeeds. Operators hear of the next loss at once."""
    (first,) = queue.submit(1)
    queue.pass_at(0)
    assert Api(queue.functions).post(f"/jobs/{first}/cancel").status == 202
    del queue.functions.aws.denied[DENIED]
    queue.submit(1)
    assert queue.pass_at(20) == 1
    fleet = queue.functions.store.load_fleet()
    assert (fleet.permissions, fleet.denied_launches) == ({}, {})
    queue.functions.aws.denied[DENIED] = PASS_ROLE
    queue.submit(1)
    assert queue.pass_at(100) == 1
    assert len(queue.mails) == 2
    assert queue.functions.store.load_fleet().denied_launches[DENIED].pause_s == 60


def test_a_denied_launch_that_is_repeated_after_a_crash_still_tells_operators(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function dies after the fleet record names the attempt and before the job is saved."""
    (name,) = queue.submit(1)
    store = type(queue.functions.store)
    save = store.save_fleet

    def dies(self: Any, fleet: Any) -> Any:
        save(self, fleet)
        raise KeyboardInterrupt

    with monkeypatch.context() as once, pytest.raises(KeyboardInterrupt):
        once.setattr(store, "save_fleet", dies)
        queue.pass_at(0)
    assert not queue.mails
    queue.functions.now = later(400)
    queue.functions.call("reconciler", {})
    assert len(queue.mails) == 1 and queue.functions.job(name).status is JobStatus.PENDING_RESOURCES


def test_the_queue_and_the_job_say_which_permission_is_missing(queue: Queue) -> None:
    """The denied job while it pauses, and a job behind it, in the words of the API."""
    names = queue.submit(3)
    queue.pass_at(0)
    api = Api(queue.functions)
    waiting = {each["job_id"]: each for each in api.get("/queue").body["waiting"]}
    for name in names:
        assert waiting[name]["short_of"] == "permission" and ROLE in waiting[name]["sentence"]
        shown = api.get(f"/jobs/{name}").body
        assert (shown["status"], shown["short_of"]) == ("PENDING_RESOURCES", "permission") and ROLE in shown["reason"]


def test_a_hold_of_every_launch_tries_the_job_that_was_denied_least(queue: Queue) -> None:
    """AWS denies only the first job of the queue. It would be tried first for ever, and no other job would start."""
    queue.functions.aws.denied[DENIED] = RUN_ALL
    denied = queue.submit(1)
    assert queue.pass_at(100) == 1
    others = queue.submit(2, OTHER)
    assert queue.pass_at(110) == 0
    assert queue.one_pass_at(161) == 1
    assert queue.statuses([*denied, *others]) == [
        JobStatus.PENDING_RESOURCES,
        JobStatus.SUBMITTED,
        JobStatus.PENDING_RESOURCES,
    ]


def test_a_job_that_was_never_denied_ends_the_hold_too(queue: Queue) -> None:
    """A user suspends the denied job. The first launch of another job wakes the pass in which all others start."""
    (denied,) = queue.submit(1)
    queue.pass_at(0)
    assert Api(queue.functions).post(f"/jobs/{denied}/suspend").status == 202
    del queue.functions.aws.denied[DENIED]
    queue.functions.store.save_instance(instance("i-0cccccccccccccccc"))
    others = queue.submit(3)
    assert queue.one_pass_at(10) == 1
    assert queue.functions.aws.asked("SendMessage")
    assert queue.one_pass_at(11) == 2
    assert queue.statuses(others) == [JobStatus.SUBMITTED] * 3


def test_the_end_of_the_job_that_ended_the_hold_does_not_bring_it_back(queue: Queue) -> None:
    """Its queue entry is gone, and a job that was denied before the permission was granted is still in the queue."""
    first, suspended = queue.submit(2)
    queue.pass_at(0)
    assert Api(queue.functions).post(f"/jobs/{suspended}/suspend").status == 202
    del queue.functions.aws.denied[DENIED]
    assert queue.one_pass_at(61) == 1
    queue.tell(first, 2, "RUNNING")
    queue.tell(first, 2, "STOPPED", exit_code=0)
    assert queue.statuses([first]) == [JobStatus.SUCCEEDED]
    queue.submit(2)
    assert queue.one_pass_at(70) == 2


@pytest.mark.parametrize(("nnodes", "status"), [(1, JobStatus.DIAGNOSING), (2, JobStatus.STOPPING)])
def test_a_rank_that_fails_before_its_launch_is_reported_proves_the_permission(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, nnodes: int, status: JobStatus
) -> None:
    """The gang is stopped or has ended, and its record no longer counts as denied. Other jobs start meanwhile."""
    (first,) = queue.submit(1, nnodes=nnodes)
    queue.pass_at(0)
    del queue.functions.aws.denied[DENIED]
    store = type(queue.functions.store)
    record_tasks = store.record_tasks

    def fails_at_once(self: Any, plan: Any, ranks: Any) -> None:
        record_tasks(self, plan, ranks)
        event = rank_event(first, 2, 0, "STOPPED", exit_code=139, at=queue.functions.now)
        import_module("ecs_task_handler").handler(event, Context("ecs_task_handler"))

    with monkeypatch.context() as once:
        once.setattr(store, "record_tasks", fails_at_once)
        queue.one_pass_at(61)
    failed = queue.functions.job(first)
    assert failed.status is status and failed.denied is not None and failed.denied.over
    for name in ("i-0cccccccccccccccc", "i-0dddddddddddddddd"):
        queue.functions.store.save_instance(instance(name))
    queue.submit(2)
    assert queue.one_pass_at(70) == 2


def test_a_refusal_for_lack_of_gpus_proves_the_permission(queue: Queue) -> None:
    """ECS looked for a place, so it authorized the launch. The hold and the memory of its notification end."""
    names = queue.submit(1)
    queue.pass_at(0)
    del queue.functions.aws.denied[DENIED]
    refusal = {"tasks": [], "failures": [{"arn": "a", "reason": "RESOURCE:GPU"}]}
    queue.functions.aws.answers["RunTask"] = lambda asked: refusal
    assert queue.one_pass_at(61) == 1
    denied, fleet = queue.functions.job(names[0]).denied, queue.functions.store.load_fleet()
    assert denied is not None and denied.over
    assert (fleet.permissions, fleet.denied_launches) == ({}, {})
    del queue.functions.aws.answers["RunTask"]
    queue.submit(2)
    assert queue.one_pass_at(70) == 2


def test_a_denied_launch_of_a_job_that_is_being_stopped_proves_no_permission(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user suspends the job while ECS is asked. The refusal arrives afterwards."""
    (first,) = queue.submit(1)
    queue.pass_at(0)
    store = type(queue.functions.store)
    record_tasks = store.record_tasks

    def is_suspended(self: Any, plan: Any, ranks: Any) -> None:
        record_tasks(self, plan, ranks)
        assert Api(queue.functions).post(f"/jobs/{first}/suspend").status == 202

    with monkeypatch.context() as once:
        once.setattr(store, "record_tasks", is_suspended)
        queue.one_pass_at(61)
    suspended = queue.functions.job(first)
    assert (suspended.attempt, suspended.held) == (2, True)
    assert suspended.denied is not None and not suspended.denied.over
    assert list(queue.functions.store.load_fleet().denied_launches) == [DENIED]


def test_an_instance_that_was_taken_proves_no_permission(queue: Queue) -> None:
    """The launch was given up before ECS was asked, so the hold stands."""
    (first,) = queue.submit(1)
    queue.pass_at(0)
    store = type(queue.functions.store)
    with pytest.MonkeyPatch.context() as once:
        once.setattr(store, "claim_instance", lambda *_: False)
        assert queue.one_pass_at(61) == 0
    job_after, fleet = queue.functions.job(first), queue.functions.store.load_fleet()
    assert job_after.attempt == 2 and job_after.denied is not None and not job_after.denied.over
    assert list(fleet.denied_launches) == [DENIED]


def test_a_denied_gang_costs_one_denied_call_for_each_further_try(queue: Queue) -> None:
    """Rank 0 is asked for first. After the permission was granted every rank starts."""
    names = queue.submit(1, nnodes=2)
    assert [queue.pass_at(seconds) for seconds in (0, 61)] == [2, 1]
    del queue.functions.aws.denied[DENIED]
    assert queue.pass_at(200) == 2
    assert queue.statuses(names) == [JobStatus.SUBMITTED]
    assert len(queue.functions.aws.tasks[f"{names[0]}--a03"]) == 2


def test_jobs_are_suspended_for_a_denied_job_after_a_day_without_a_denied_launch(queue: Queue) -> None:
    """A job of low priority took its place meanwhile. Without preemption it would wait for the end of a job.

    The pause of the denied job ends long before. No job is suspended then for a launch that AWS would deny.
    """
    low = queue.submit(2, OTHER, priority=Priority.LOW, user="bob")
    assert queue.pass_at(0) == 2
    for name in low:
        queue.tell(name, 1, "RUNNING")
    queue.functions.store.save_instance(instance("i-0cccccccccccccccc"))
    (denied,) = queue.submit(1, priority=Priority.HIGH)
    assert queue.pass_at(100) == 1
    queue.submit(1, OTHER, priority=Priority.LOW, user="bob")
    assert queue.pass_at(101) == 1
    for seconds in (161, 1_001, 86_499):
        queue.one_pass_at(seconds)
        assert queue.statuses(low) == [JobStatus.RUNNING] * 2
    queue.one_pass_at(86_501)
    assert sorted(queue.statuses(low)) == [JobStatus.RUNNING, JobStatus.SUSPENDING]
    assert queue.statuses([denied]) == [JobStatus.PENDING_RESOURCES]


def test_a_role_that_ecs_cannot_assume_fails_its_job_and_holds_no_other(queue: Queue) -> None:
    """The trust policy of the role is the user's. No permission of the deployment is missing, so no operator hears."""
    del queue.functions.aws.denied[DENIED]

    def refuses(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "ClientException", "Message": TRUST}}, "RunTask")

    queue.functions.aws.answers["RunTask"] = refuses
    (name,) = queue.submit(1)
    queue.pass_at(0)
    failed = queue.functions.job(name)
    assert failed.status is JobStatus.FAILED and failed.denied is None
    assert f"ECS cannot assume {ROLE}: its trust policy must allow ecs-tasks.amazonaws.com" in failed.reason
    assert not [mail for mail in queue.mails if "launches are held" in mail["Subject"]]
    assert queue.functions.store.load_fleet() == Fleet()

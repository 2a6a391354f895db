"""Launches that AWS denies for lack of a permission: the queue holds, operators hear once, and the queue goes on."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import A, B, instance, job, later, spec
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ROLE = "arn:aws:iam::123456789012:role/training-task"
USER = "User: arn:aws:sts::123456789012:assumed-role/scheduler/gpu-recovery-scheduler is not authorized to perform: "
NO_POLICY = "because no identity-based policy allows the {} action"
PASS_ROLE = f"{USER}iam:PassRole on resource: {ROLE} {NO_POLICY.format('iam:PassRole')}"
DEFINITION = "arn:aws:ecs:us-east-1:123456789012:task-definition/"
RUN_ONE = f"{USER}ecs:RunTask on resource: {DEFINITION}gpu-training:3 {NO_POLICY.format('ecs:RunTask')}"
RUN_ALL = f"{USER}ecs:RunTask on resource: {DEFINITION}gpu-training:3 with an explicit deny in a service control policy"
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

    def submit(self, count: int, definition: str = DENIED) -> list[str]:
        """Store queued jobs of a task definition, in the order of the queue."""
        names = [f"sft-{self.jobs + number:04}" for number in range(count)]
        for name in names:
            wanted = spec(nnodes=1, gpus_per_node=8, task_definition=definition)
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
    assert ROLE in mail["Message"] and "gpu-recovery:training_role_arns" in mail["Message"]
    assert "make deploy CONTEXT='-c gpu-recovery:training_role_arns=" in mail["Message"]
    assert "not authorized to perform: iam:PassRole" in mail["Message"] and "SEV2" in mail["Subject"]


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


@pytest.mark.parametrize(("message", "starts"), [(RUN_ONE, True), (RUN_ALL, False), (f"{USER}ecs:RunTask", False)])
def test_a_denied_run_task_holds_what_its_message_names(queue: Queue, message: str, starts: bool) -> None:
    """One task definition that no policy allows, or every launch if none is named or a policy forbids the action."""
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


def test_a_denied_job_that_is_canceled_leaves_no_hold_behind(queue: Queue) -> None:
    """The next job is tried, denied, and holds the queue in its place; operators are not told again."""
    names = queue.submit(4)
    queue.pass_at(0)
    api = Api(queue.functions)
    for name in names[:2]:
        assert api.post(f"/jobs/{name}/cancel").status == 202
    assert queue.pass_at(20) == 2
    assert set(queue.statuses(names[2:])) == {JobStatus.PENDING_RESOURCES} and len(queue.mails) == 1


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

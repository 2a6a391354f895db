"""Jobs on Ray through the whole loop, over both stores: orders that are handed over, carried out, lost and repeated.

What Ray itself answers is shown by tests/ray_runner; here it is a table of drivers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.diagnosis.taxonomy import Cause
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.ray.driver import DriverState, DriverStatus
from gpu_recovery.core.ray.submission import DriverSubmission
from gpu_recovery.core.redaction import FORMS, SecretForm
from gpu_recovery.core.task import FailureKind, failure_kind_of
from gpu_recovery.execution import RayMissing
from gpu_recovery.execution import ray as ray_execution
from gpu_recovery.execution.context import HOPS_MAX
from gpu_recovery.execution.ray import DirectRayCommands, QueuedRayCommands
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import Refusal
from gpu_recovery.reconciler.reconcile import process_due_job, reconcile
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler.ray_pool import run_ray_pass

from tests.core.build import ADAPTIVE, NOW
from tests.recovery.heartbeat_world import Aws, Quiet
from tests.tiers import sampled

S = JobStatus
SPEC = JobSpec("ppo", 1, 8, backend=Backend.RAY, entrypoint="python train.py", user="ada")
VERL = "ValueError: Total available GPUs 0 is less than total desired GPUs 8"


@dataclass
class Pool:
    """`RayPool` as a table of drivers; `down`: it does not answer; `log`: what each has written."""

    drivers: dict[str, DriverStatus] = field(default_factory=dict)
    free: dict[str, float] = field(default_factory=lambda: {"node": 8.0})
    refusal: Refusal | None = None
    down: bool = False
    log: str = VERL + "\n" + "and what follows\n" * 40
    submits: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)

    def _answers(self) -> None:
        if self.down:
            raise TryAgainSoon("it does not answer")

    def submit(self, order: DriverSubmission) -> Refusal | None:
        self._answers()
        self.submits.append(order.submission_id)
        if self.refusal is None:
            self.drivers.setdefault(order.submission_id, DriverStatus(DriverState.PENDING))
        return self.refusal

    def status(self, submission_id: str) -> DriverStatus:
        self._answers()
        return self.drivers.get(submission_id, DriverStatus(DriverState.GONE))

    def logs(self, submission_id: str, tail: int) -> str:
        self._answers()
        return self.log

    def stop(self, submission_id: str) -> None:
        self._answers()
        self.stops.append(submission_id)
        if submission_id in self.drivers:
            self.drivers[submission_id] = DriverStatus(DriverState.STOPPED)

    def free_gpus_per_node(self) -> Mapping[str, float]:
        self._answers()
        return self.free

    def total_gpus(self) -> float:
        self._answers()
        return 8.0


@dataclass
class Scene:
    """One job on Ray; `woken` is the queue to the function that reaches the cluster."""

    store: Store
    pool: Pool = field(default_factory=Pool)
    now: datetime = NOW
    woken: list[tuple[str, str]] = field(default_factory=list)
    aws: Aws = field(default_factory=Aws)
    name: str = "ppo-1"

    def wake(self, job_id: str, key: str, hops: int = 1) -> None:
        """A message."""
        self.woken.append((job_id, key))

    def loop(self, ray: Any) -> Recovery:
        """The loop of a function for which `ray` answers."""
        actions: Any = self.aws
        return Recovery(
            store=self.store, actions=actions, policy=ADAPTIVE, clock=lambda: self.now, decision_log=Quiet(), ray=ray
        )

    @property
    def afar(self) -> Recovery:
        """Any function but one."""
        return self.loop(QueuedRayCommands(self))

    @property
    def on_the_spot(self) -> Recovery:
        """The one."""
        return self.loop(DirectRayCommands(self.pool, self))

    def submit(self, spec: JobSpec = SPEC) -> None:
        """As the API does."""
        assert self.afar.create_job(_fresh(self, spec), "")

    def deliver(self) -> None:
        """What the handler does with the messages that there are."""
        named = {job_id for job_id, _ in self.woken}
        self.woken.clear()
        for job_id in sorted(named - {""}):
            process_due_job(self.on_the_spot, job_id)
        run_ray_pass(self.on_the_spot, self.pool)

    def passes(self, seconds: float) -> None:
        """Time, and the reconciler."""
        self.now += timedelta(seconds=seconds)
        reconcile(self.afar, resyncs=())

    def driver(self, state: DriverState, attempt: int = 1, **said: Any) -> None:
        """What Ray will say of a driver."""
        self.pool.drivers[f"{self.name}--a{attempt:02d}"] = DriverStatus(state, **said)

    @property
    def job(self) -> Job:
        """The record as it is kept."""
        found = self.store.load_job(self.name)
        assert found is not None
        return found


def _fresh(scene: Scene, spec: JobSpec) -> Any:
    return state_machine.created(scene.name, spec, ADAPTIVE, scene.now)


@pytest.fixture
def scene(store: Store) -> Scene:
    """A job that is queued, and the message that says so."""
    found = Scene(store)
    found.submit()
    return found


def _running(scene: Scene) -> Scene:
    scene.deliver()
    scene.driver(DriverState.RUNNING)
    scene.passes(ADAPTIVE.poll_interval_s)
    scene.deliver()
    assert scene.job.status is S.RUNNING
    return scene


def test_a_submitted_job_goes_as_soon_as_the_function_is_woken(scene: Scene) -> None:
    """The message comes with the first decision; nothing waits for the next minute."""
    assert [job_id for job_id, _ in scene.woken] == [""]
    scene.deliver()
    assert scene.job.status is S.SUBMITTED and scene.pool.submits == ["ppo-1--a01"]
    assert scene.job.commands == ()


def test_a_look_fetches_what_ray_says(scene: Scene) -> None:
    """The reconciler finds the look due and hands the question over."""
    _running(scene)
    scene.driver(DriverState.SUCCEEDED, exit_code=0)
    scene.passes(ADAPTIVE.poll_interval_s)
    scene.deliver()
    assert scene.job.status is S.SUCCEEDED


def test_an_order_that_was_handed_over_stays_until_it_is_carried_out(scene: Scene) -> None:
    """Whoever cannot reach the cluster leaves it in the record, due at once, and only wakes the one who can."""
    _running(scene).woken.clear()
    scene.afar.handle("ppo-1", events.CancelRequested(at=scene.now, attempt=1, by="ada"))
    assert scene.pool.stops == []
    assert [one.acting_until for one in scene.job.commands] == [scene.now]
    assert {job_id for job_id, _ in scene.woken} == {"ppo-1"}
    scene.deliver()
    assert scene.pool.stops == ["ppo-1--a01"]
    assert scene.job.status is S.CANCELED and scene.job.commands == ()


def test_a_lost_message_is_sent_again_under_another_name(scene: Scene) -> None:
    """A queue that forgets duplicates for five minutes must not take the second for the first."""
    _running(scene).woken.clear()
    scene.afar.handle("ppo-1", events.CancelRequested(at=scene.now, attempt=1, by="ada"))
    (first,) = [key for job_id, key in scene.woken if job_id]
    scene.woken.clear()
    scene.passes(60)
    (second,) = [key for job_id, key in scene.woken if job_id]
    assert first != second
    scene.deliver()
    assert scene.job.status is S.CANCELED


def test_too_few_gpus_in_the_log_put_it_in_line_for_a_minute(scene: Scene) -> None:
    """The message says nothing of it; the next attempt has another name."""
    _running(scene)
    scene.driver(DriverState.FAILED, exit_code=1, error_type="JOB_ENTRYPOINT_COMMAND_ERROR", message="and what follows")
    scene.passes(ADAPTIVE.poll_interval_s)
    scene.deliver()
    assert scene.job.status is S.PENDING_RESOURCES
    scene.now += timedelta(seconds=59)
    scene.deliver()
    assert scene.pool.submits == ["ppo-1--a01"]
    scene.now += timedelta(seconds=1)
    scene.deliver()
    assert scene.pool.submits == ["ppo-1--a01", "ppo-1--a02"]


def test_each_attempt_keeps_its_submission_and_its_end(scene: Scene) -> None:
    """Seed 004, section 4.2: exit code, kind of failure and message of the first are there when the second runs."""
    _running(scene)
    scene.driver(DriverState.FAILED, exit_code=1, error_type="JOB_ENTRYPOINT_COMMAND_ERROR", message=VERL)
    scene.passes(ADAPTIVE.poll_interval_s)
    scene.deliver()
    scene.now += timedelta(seconds=60)
    scene.deliver()
    assert scene.job.attempt == 2
    plans = [scene.store.load_plan("ppo-1", attempt) for attempt in (1, 2)]
    assert [plan and plan.task_ids for plan in plans] == [("ppo-1--a01",), ("ppo-1--a02",)]
    first, second = (scene.store.load_progress("ppo-1", attempt) for attempt in (1, 2))
    assert first is not None and first.failure is not None and first.running == first.stopped == frozenset({0})
    assert first.failure.ending.exit_code == 1
    assert failure_kind_of(first.failure.ending) is FailureKind.INSUFFICIENT_RESOURCES
    assert second is not None and second.failure is None and not second.stopped


LONG = ["epoch 1"] * 30
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "train.py", line 3, in <module>',
    "    import flash_attn",
    "ModuleNotFoundError: No module named 'flash_attn'",
    *["shutting down"] * 30,
]


def _fails(scene: Scene, last_line: str = "shutting down") -> None:
    message = f"Job entrypoint command failed with exit code 1, last available logs:\n{last_line}"
    scene.driver(DriverState.FAILED, exit_code=1, error_type="JOB_ENTRYPOINT_COMMAND_ERROR", message=message)
    scene.passes(ADAPTIVE.poll_interval_s)
    scene.deliver()


def test_a_driver_that_failed_is_diagnosed_by_its_log(scene: Scene) -> None:
    """Ray's own message holds the last ten lines; the line that says why stands far above them."""
    scene.pool.log = "\n".join([*LONG, *TRACEBACK])
    _fails(_running(scene))
    ended = scene.job
    assert ended.status is S.FAILED and TRACEBACK[3] in ended.reason
    assert ended.diagnosed is not None
    assert (ended.diagnosed.cause, ended.diagnosed.instances) == (Cause.CONFIGURATION, ())
    (mail,) = scene.aws.said
    assert TRACEBACK[3] in mail.body


def test_a_diagnosis_that_is_not_sure_adds_nothing_to_rays_word(scene: Scene) -> None:
    """It is kept, for whoever asks."""
    scene.pool.log = "KeyError: 17"
    _fails(_running(scene))
    ended = scene.job
    assert ended.diagnosed is not None and not ended.diagnosed.decided
    assert ended.reason == "the driver of attempt 1 exited with code 1 (shutting down)"


def test_a_log_that_says_nothing_leaves_rays_word(scene: Scene) -> None:
    """The last line of its message."""
    scene.pool.log = "\n".join(LONG)
    _fails(_running(scene))
    assert scene.job.status is S.FAILED and "exited with code 1 (shutting down)" in scene.job.reason


@pytest.mark.parametrize("form", sampled(FORMS, fast=5, default=len(FORMS)), ids=lambda form: form.name)
def test_no_form_of_a_secret_in_rays_word_goes_into_a_mail_or_a_table(scene: Scene, form: SecretForm) -> None:
    """Ray's message ends with the last lines of the log, and names addresses that a runtime_env was fetched from."""
    before, secret = form.example.partition("»")[0].split("«")
    scene.pool.log = "\n".join(LONG)
    _fails(_running(scene), form.example.replace("«", "").replace("»", ""))
    progress = scene.store.load_progress("ppo-1", 1)
    assert progress is not None and progress.failure is not None
    (mail,) = scene.aws.said
    for told in (scene.job.reason, progress.failure.ending.sentence, mail.body):
        assert f"({before}***" in told and secret not in told


def test_a_diagnosis_that_fails_keeps_no_end_from_being_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised, once; the job has its end all the same."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a rule")

    monkeypatch.setattr(ray_execution, "diagnose_attempt", broken)
    scene.pool.log = "\n".join(TRACEBACK)
    _running(scene)
    with pytest.raises(ZeroDivisionError):
        _fails(scene)
    scene.passes(ADAPTIVE.command_lease_s + ADAPTIVE.poll_interval_s)
    scene.deliver()
    assert scene.job.status is S.FAILED


def test_a_driver_that_was_told_to_stop_is_not_diagnosed(scene: Scene) -> None:
    """How it dies then says nothing."""
    scene.pool.log = "\n".join(TRACEBACK)
    _running(scene)
    scene.afar.handle("ppo-1", events.CancelRequested(at=scene.now, attempt=1, by="ada"))
    scene.pool.stop = lambda name: scene.driver(  # type: ignore[method-assign]
        DriverState.FAILED, exit_code=1, error_type="JOB_ENTRYPOINT_COMMAND_ERROR"
    )
    scene.deliver()
    assert scene.job.status is S.CANCELED and scene.job.conclusion is None


def test_an_end_that_was_entered_and_never_told_is_told_by_the_reconciler(scene: Scene) -> None:
    """Whoever entered it died before the job heard of it; nobody need ask Ray again."""
    _running(scene)
    scene.store.add_stopped("ppo-1", 1, 0, None)
    scene.passes(ADAPTIVE.poll_interval_s)
    assert scene.job.status is S.SUCCEEDED


def test_a_job_waits_for_gpus_without_being_told_so_again(scene: Scene) -> None:
    """Its record is not written each minute."""
    scene.pool.free = {"node": 7.0}
    scene.deliver()
    waiting = scene.job
    assert (waiting.status, waiting.reason) == (S.PENDING_RESOURCES, "needs 8 GPUs of the Ray cluster; 7 are free")
    scene.now += timedelta(seconds=60)
    scene.deliver()
    assert scene.job == waiting
    scene.pool.free = {"node": 8.0}
    scene.deliver()
    assert scene.job.status is S.SUBMITTED


def test_a_cluster_that_does_not_answer_is_asked_later(scene: Scene) -> None:
    """Its orders stay; a pass over a pool that nobody can count gives nothing and says why."""
    _running(scene)
    scene.afar.handle("ppo-1", events.CancelRequested(at=scene.now, attempt=1, by="ada"))
    scene.pool.down = True
    process_due_job(scene.on_the_spot, "ppo-1")
    assert scene.job.status is S.STOPPING and len(scene.job.commands) == 1
    scene.pool.down = False
    scene.passes(60)
    scene.deliver()
    assert scene.job.status is S.CANCELED


def test_a_pass_over_a_pool_that_does_not_answer_raises(scene: Scene) -> None:
    """The function fails, and its alarm rings: nobody is let go meanwhile."""
    scene.pool.down = True
    with pytest.raises(TryAgainSoon):
        run_ray_pass(scene.on_the_spot, scene.pool)
    assert scene.job.status is S.QUEUED


def test_a_launch_that_is_not_wanted_any_more_is_not_carried_out(scene: Scene) -> None:
    """It was canceled before the order could be carried out: nothing is submitted."""
    scene.pool.down = True
    record = scene.job
    placed = events.JobPlaced(at=scene.now, attempt=0, version=record.version, instances=(), epochs=())
    scene.on_the_spot.handle("ppo-1", placed)
    assert scene.job.status is S.SUBMITTING
    scene.afar.handle("ppo-1", events.CancelRequested(at=scene.now, attempt=1, by="ada"))
    scene.pool.down = False
    scene.passes(60)
    scene.deliver()
    assert scene.job.status is S.CANCELED and scene.pool.submits == []


@pytest.mark.parametrize(("hops", "messages"), [(HOPS_MAX - 1, 1), (HOPS_MAX, 0)])
def test_the_function_wakes_itself_a_few_times_in_a_row_and_not_for_ever(
    scene: Scene, hops: int, messages: int
) -> None:
    """A job that fails at once wakes the function for the next job; after the last message the tick goes on."""
    scene.pool.refusal = Refusal("no such resource", lasting=True)
    scene.woken.clear()
    run_ray_pass(replace(scene.on_the_spot, hops=hops), scene.pool)
    assert scene.job.status is S.FAILED
    assert len(scene.woken) == messages


def test_a_refused_order_fails_the_job(scene: Scene) -> None:
    """With Ray's own words, but for a secret that they repeat."""
    scene.pool.refusal = Refusal("no such resource at https://me:hunter2@h", lasting=True)
    scene.deliver()
    assert scene.job.status is S.FAILED and "no such resource at https://me:***@h" in scene.job.reason


def test_two_jobs_are_not_let_go_for_the_same_gpus(scene: Scene) -> None:
    """The first one's driver has not taken them yet, so Ray still shows them free."""
    scene.name = "ppo-2"
    scene.submit(replace(SPEC, gpus_per_node=4))
    scene.deliver()
    scene.deliver()
    assert scene.pool.submits == ["ppo-1--a01"]
    assert scene.job.status is S.PENDING_RESOURCES


def test_a_job_on_ray_without_a_cluster_is_an_error_that_somebody_sees(store: Store) -> None:
    """The setting was taken away while the job was there: its orders are not dropped in silence."""
    scene = Scene(store)
    made = _fresh(scene, SPEC)
    assert store.create_job(made.record, "")
    placed = events.JobPlaced(at=NOW, attempt=0, version=made.record.version, instances=(), epochs=())
    with pytest.raises(RayMissing, match="ppo-1"):
        scene.loop(None).handle("ppo-1", placed)

"""Up to when work was kept: the event `Recovery Succeeded` compared with the account of the training itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon

from simulator.faults.schedule import FunctionSleeps
from simulator.world import World
from tests.simulator import incidents

REPORT_S, SET_UP_S, STEP_S, CHECKPOINT_S = 10, 30, 1, 600


@dataclass
class CheckpointedTraining:
    """A training of one step a second that saves a checkpoint every 600 s and goes on from the last checkpoint.

    Each process on the instance of rank 0 reports its step, as `gpu_recovery_client.diagnosis.progress` does.

    saved: the steps of the checkpoints, and when each step was first reached, in seconds since 1970.
    resumed_from: when the work was done from which each attempt went on.
    """

    world: World
    job_id: str
    processes: int = 1
    saved: dict[float, float] = field(default_factory=dict)
    resumed_from: dict[int, float] = field(default_factory=dict)

    def begin(self) -> None:
        """Train in the present attempt, after the set-up of its processes."""
        self.world.timeline.after(SET_UP_S, self._first_step, self.world.job(self.job_id).attempt)

    def _first_step(self, attempt: int) -> None:
        step = max(self.saved, default=0.0)
        self.resumed_from[attempt] = self.saved.get(step, self._now())
        self._train(attempt, step, self._now())

    def _now(self) -> float:
        return self.world.timeline.now.timestamp()

    def _train(self, attempt: int, step: float, saved_at: float) -> None:
        job = self.world.job(self.job_id)
        if job.status is not JobStatus.RUNNING or job.attempt != attempt:
            return
        if self._now() - saved_at >= CHECKPOINT_S:
            self.saved[step], saved_at = self._now(), self._now()
        reports = [
            ProgressReport(
                report_id=f"{attempt}/{local}/{self._now():.0f}",
                at_s=self._now(),
                instance_id=job.instances[0],
                rank=local,
                value=step,
                unchanged_s=0.0,
            )
            for local in range(self.processes)
        ]
        self.world.store.add_observations(self.job_id, attempt, job.instances[0], tuple(reports))
        self.world.timeline.after(REPORT_S, self._train, attempt, step + REPORT_S / STEP_S, saved_at)


def trained(processes: int = 1) -> tuple[World, CheckpointedTraining]:
    """A job that has trained for 25 minutes, and has saved two checkpoints."""
    world, job_id = incidents.running(instances=4, train_s=None)
    training = CheckpointedTraining(world, job_id, processes)
    training.begin()
    world.let_pass(1_500)
    return world, training


def fails(world: World, training: CheckpointedTraining) -> None:
    """The attempt crashes, and the next attempt trains."""
    attempt = world.job(training.job_id).attempt
    world.exit(training.job_id, 1, 139)
    world.until(lambda: world.job(training.job_id).attempt == attempt + 1, "it was not relaunched", 3_600)
    world.until_status(training.job_id, JobStatus.RUNNING)
    training.begin()


def recoveries(world: World) -> list[dict[str, Any]]:
    """The data of each event `Recovery Succeeded`."""
    return [event.data for event in world.actions.published if event.detail_type == "Recovery Succeeded"]


def kept_s(recovery: dict[str, Any]) -> float | None:
    """The time up to which work was kept, in seconds since 1970."""
    text = recovery["kept_until"]
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC).timestamp()


def test_the_time_is_that_of_the_checkpoint_from_which_the_training_goes_on() -> None:
    """The training reports the step of its checkpoint at once."""
    world, training = trained()
    fails(world, training)
    world.let_pass(300)
    [recovery] = recoveries(world)
    assert kept_s(recovery) == pytest.approx(training.resumed_from[2], abs=1)


def test_an_attempt_that_failed_before_it_counted_as_recovered_does_not_hide_the_lost_work() -> None:
    """Two attempts in one incident went on from the same checkpoint: all work after it was done again."""
    world, training = trained()
    fails(world, training)
    world.let_pass(SET_UP_S + 20)
    fails(world, training)
    world.let_pass(300)
    [recovery] = recoveries(world)
    assert recovery["attempt"] == 3 and training.resumed_from[2] == training.resumed_from[3]
    assert kept_s(recovery) == pytest.approx(training.resumed_from[3], abs=1)


def test_an_attempt_after_a_reported_recovery_is_measured_by_that_attempt_alone() -> None:
    """What was lost before the first recovery was said with it."""
    world, training = trained()
    fails(world, training)
    world.let_pass(1_000)
    fails(world, training)
    world.let_pass(300)
    first, second = recoveries(world)
    assert kept_s(first) == pytest.approx(training.resumed_from[2], abs=1)
    assert kept_s(second) == pytest.approx(training.resumed_from[3], abs=1)


def test_the_time_is_unknown_if_the_first_reports_are_no_longer_stored() -> None:
    """Eight processes report from the instance, and the reconciler looks ten minutes late."""
    world, training = trained(processes=8)
    fails(world, training)
    FunctionSleeps(at_s=0, function="reconciler", for_s=600).strike(world)
    world.let_pass(900)
    [recovery] = recoveries(world)
    assert kept_s(recovery) is None


@pytest.mark.parametrize(
    "failure",
    [
        EndpointConnectionError(endpoint_url="https://dynamodb"),
        ClientError({"Error": {"Code": "InternalServerError"}}, "BatchGetItem"),
        ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchGetItem"),
        TryAgainSoon("dynamodb BatchGetItem: ThrottlingException"),
    ],
    ids=["no answer", "server error", "refused", "throttled"],
)
def test_a_failed_read_of_former_reports_delays_no_recovery(failure: Exception) -> None:
    """The recovery is reported at the same time as without the failure, and says that the figure is unknown."""
    ended: list[tuple[datetime, float | None]] = []
    for fails_to_read in (False, True):
        world, training = trained()
        fails(world, training)
        read = world.store.observations_of

        def observations_of(job_id: str, attempt: int, instance_ids: Any, read: Any = read) -> Any:
            if attempt == 1:
                raise failure
            return read(job_id, attempt, instance_ids)

        if fails_to_read:
            world.store.observations_of = observations_of  # type: ignore[method-assign]
        world.until(lambda world=world: bool(recoveries(world)), "no recovery", 400)  # type: ignore[misc]
        [recovery] = recoveries(world)
        ended.append((world.timeline.now, kept_s(recovery)))
        assert ("its former progress could not be read" in recovery["reason"]) is fails_to_read
        assert not world.failures
    assert ended[0][0] == ended[1][0] and ended[0][1] is not None and ended[1][1] is None

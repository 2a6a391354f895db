"""The ETTR of the roll-ups is that of the simulator's own account: what the trainer did, and not what events say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.aws.notification_requests import event_entry
from gpu_recovery.core.commands import PublishEvent
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.event_history.recorded_event import RecordedEvent, event_of, text_of
from gpu_recovery.core.event_history.roll_up import FLEET, Figures, Standing, roll_up

from sandbox.cluster.model.records import Task
from simulator.cloud.workloads import environment
from simulator.goodput import production
from simulator.goodput.accounting import ettr, trained
from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import PolicyRun
from simulator.goodput.trainer import Trainer
from simulator.world import World
from tests.simulator.goodput.test_lower_bound import CONDITIONS, FACTS, failure, of

REPORTS_EVERY_S = 30.0
"""Seconds between two progress reports of rank 0."""
QUICK_START = replace(CONDITIONS, stall_s=0.0, rejoin_s=20.0, rejoin_per_gpu_s=0.0)
"""The trainer writes checkpoints in the background. Its set-up, which the figures count as running, is short."""


class ReportingTrainer(Trainer):
    """A trainer whose rank 0 reports the seconds of work that it has done, and goes on from its last checkpoint.

    Attributes:
        reports: whether it reports progress.
        events: the events on the bus.
    """

    reports = True
    latest: ReportingTrainer
    events: list[RecordedEvent]

    def __init__(self, world: World, *given: Any) -> None:
        super().__init__(world, *given)
        type(self).latest, self.events = self, []
        self._saved_s, self._begun_at, self._stopped_s = 0.0, world.timeline.now, 0.0
        world.actions.on_event = self._sent

    def _sent(self, event: PublishEvent, cause: str) -> None:
        entry = event_entry(event, cause, "gpu-recovery")
        self.events.append(event_of(text_of(entry["DetailType"], json.loads(entry["Detail"]), "2026-11-21T09:00:00Z")))

    def _start_training(self, attempt: str | None) -> None:
        super()._start_training(attempt)
        if self._attempt == attempt and self.broken is None:
            self._begun_at = self.fleet.timeline.now
            self._report(attempt)

    def _stop_training(self, *given: Any) -> None:
        super()._stop_training(*given)
        self._stopped_s = self._saved_s + self._in_stretch(broken=False)
        self._saved_s += self._in_stretch(broken=True)

    def _in_stretch(self, *, broken: bool) -> float:
        seconds = (self.fleet.timeline.now - self._begun_at).total_seconds()
        return trained(seconds, self.trace.conditions, broken=broken).kept

    def _report(self, attempt: str | None) -> None:
        ranks = [task for task in self.fleet.cluster.tasks.running_of(attempt) if environment(task)["RANK"] == "0"]
        if not ranks or not self.reports:
            return
        is_training = self.broken is None and self._attempt == attempt
        value = self._saved_s + self._in_stretch(broken=False) if is_training else self._stopped_s
        self._save(ranks[0], value)
        self.fleet.timeline.after(REPORTS_EVERY_S, self._report, attempt)

    def _save(self, task: Task, value: float) -> None:
        now_s = self.fleet.timeline.now.timestamp()
        report = ProgressReport(
            report_id=f"{task.instance_id}/{now_s}", at_s=now_s, instance_id=task.instance_id, rank=0, value=value
        )
        variables = environment(task)
        self.world.store.add_observations(variables["JOB_ID"], int(variables["ATTEMPT"]), task.instance_id, (report,))


def course(*failures: Failure, hours: float) -> FailureTrace:
    """A run of four instances with these failures."""
    profile = replace(FACTS.profile("small").resized(4), days=hours / 24)
    numbered = of(*(replace(one, place=1) for one in failures))
    return replace(numbered, profile=profile, conditions=QUICK_START)


def figures(trace: FailureTrace) -> tuple[Figures, PolicyRun]:
    """The figures of the roll-up from the first step of the training on, and the simulator's own run."""
    run = production.adaptive(2, 1).run(trace)
    trainer = ReportingTrainer.latest
    began: datetime = trainer.began or datetime.max
    end = began + timedelta(seconds=trace.profile.seconds)
    _, standing = roll_up(Standing(), trainer.events, trainer.fleet.timeline.start, began)
    return roll_up(standing, trainer.events, began, end)[0][FLEET], run


FAILURES = (
    failure(5_123.0),
    failure(15_777.0, cure=Cure.RESTART, shows=Shows.EXIT, verdict=None),
    failure(27_456.0, shows=Shows.HANG),
)


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> type[ReportingTrainer]:
    """The trainer of this test, in place of the one that reports nothing."""
    monkeypatch.setattr(production, "Trainer", ReportingTrainer)
    monkeypatch.setattr(ReportingTrainer, "reports", True)
    return ReportingTrainer


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_s", [300.0, 3_600.0])
def test_the_ettr_is_that_of_the_simulators_account(checkpoint_s: float) -> None:
    """Within one percent, over half a day with a GPU fault, a crash and a hang."""
    trace = course(*FAILURES, hours=12)
    trace = replace(trace, conditions=replace(QUICK_START, checkpoint_s=checkpoint_s))
    found, run = figures(trace)
    assert len(run.episodes) >= 3
    expected = ettr(run, trace.profile.seconds, trace.conditions)
    assert found.ettr == pytest.approx(expected, rel=0.01) and found.ettr_share == 1.0


@pytest.mark.slow
def test_a_program_that_reports_no_progress_has_no_ettr(trainer: type[ReportingTrainer]) -> None:
    """Its work was lost all the same, and the share of the running says nothing of that."""
    trainer.reports = False
    found, run = figures(course(FAILURES[0], hours=3))
    assert len(run.episodes) == 1
    assert (found.ettr, found.ettr_share) == (None, 0.0) and found.running_share is not None

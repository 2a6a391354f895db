"""The figures of the summary are those of the simulator's own account: what the trainer and the instances did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gpu_recovery.aws.notification_requests import event_entry
from gpu_recovery.core.commands import PublishEvent
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.event_history.recorded_event import event_of, text_of
from gpu_recovery.core.event_history.roll_up import FLEET, Figures, Standing, roll_up
from gpu_recovery.event_recorder.recorder import record
from gpu_recovery.event_recorder.roller import is_due, mark_late, roll_up_days
from gpu_recovery.job_api.routes.summary import read_summary

from sandbox.cluster.model.records import Task
from simulator.cloud.task_environment import environment
from simulator.goodput import production
from simulator.goodput.accounting import ettr, trained
from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.goodput.policy import PolicyRun
from simulator.goodput.trainer import Trainer
from simulator.memory_store.event_history import MemoryEventHistory
from simulator.world import World
from tests.simulator.goodput.test_own_way import CONDITIONS, FACTS, failure, of

REPORTS_EVERY_S = 30.0
"""Seconds between two progress reports of rank 0."""
LOOKS_EVERY_S = 5.0
"""Seconds between two looks of the account at all instances."""
QUICK_START = replace(CONDITIONS, stall_s=0.0, rejoin_s=20.0, rejoin_per_gpu_s=0.0)
"""The trainer writes checkpoints in the background. Its set-up, which the figures count as running, is short."""


class ReportingTrainer(Trainer):
    """A trainer whose rank 0 reports the seconds of work that it has done, and goes on from its last checkpoint.

    Attributes:
        reports: whether it reports progress.
        present_s, out_of_use_s: seconds of all instances, and those in which they were checked or down.
        events: the events on the bus.
    """

    reports = True
    latest: ReportingTrainer
    events: list[tuple[str, dict[str, Any]]]

    def __init__(self, world: World, *given: Any) -> None:
        super().__init__(world, *given)
        self.placed_at = self.started_at = world.timeline.now
        type(self).latest, self.events = self, []
        self._saved_s, self._begun_at, self._stopped_s = 0.0, world.timeline.now, 0.0
        self.present_s, self.out_of_use_s = 0.0, 0.0
        world.actions.on_event = self._sent
        world.timeline.after(LOOKS_EVERY_S, self._look)

    def _sent(self, event: PublishEvent, cause: str) -> None:
        entry = event_entry(event, cause, "gpu-recovery")
        self.events.append((entry["DetailType"], json.loads(entry["Detail"])))

    def _look(self) -> None:
        """Count the instances that are checked, or down, from the beginning on."""
        self.fleet.timeline.after(LOOKS_EVERY_S, self._look)
        tasks = [task for task in self.fleet.cluster.tasks.values() if task.is_live and "CHECK_ID" in environment(task)]
        checked = {task.instance_id for task in tasks}
        instances = self.fleet.cluster.instances.values()
        self.present_s += len(instances) * LOOKS_EVERY_S
        self.out_of_use_s += LOOKS_EVERY_S * sum(
            one.instance_id in checked or self.fleet.is_down(one) for one in instances
        )

    def _start_training(self, attempt: str | None) -> None:
        if self.began is None:
            gang = self.fleet.cluster.tasks.running_of(attempt)
            self.placed_at = min(task.created_at for task in gang)
            self.started_at = max(task.process_started_at or task.created_at for task in gang)
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


@dataclass(frozen=True)
class Half:
    """Half a day of one job: the simulator's own run, and the trainer that saw it."""

    trace: FailureTrace
    run: PolicyRun
    trainer: ReportingTrainer

    @property
    def began(self) -> datetime:
        """The first step of the training."""
        return self.trainer.began or datetime.max

    def figures(self) -> Figures:
        """The figures of the roll-up from the first step of the training on."""
        end = self.began + timedelta(seconds=self.trace.profile.seconds)
        events = [event_of(text_of(*sent, "2026-11-21T09:00:00Z")) for sent in self.trainer.events]
        _, standing = roll_up(Standing(), events, self.trainer.fleet.timeline.start, self.began)
        return roll_up(standing, events, self.began, end)[0][FLEET]


def played(trace: FailureTrace) -> Half:
    """The run of a course."""
    run = production.adaptive(2, 1).run(trace)
    return Half(trace, run, ReportingTrainer.latest)


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
    half = played(replace(trace, conditions=replace(QUICK_START, checkpoint_s=checkpoint_s)))
    found = half.figures()
    assert len(half.run.episodes) >= 3
    assert found.ettr == pytest.approx(ettr(half.run, trace.profile.seconds, half.trace.conditions), rel=0.01)
    assert found.ettr_share == 1.0


@pytest.mark.slow
def test_a_program_that_reports_no_progress_has_no_ettr(trainer: type[ReportingTrainer]) -> None:
    """Its work was lost all the same, and the share of the running says nothing of that."""
    trainer.reports = False
    half = played(course(FAILURES[0], hours=3))
    assert len(half.run.episodes) == 1
    found = half.figures()
    assert (found.ettr, found.ettr_share) == (None, 0.0) and found.running_share is not None


# -- the summary of the API --------------------------------------------------------------------------------------------


def summary(half: Half) -> Mapping[str, Any]:
    """The summary of the API at the end of the run, from what the event recorder has written of its events."""
    history, end = MemoryEventHistory(), half.began + timedelta(seconds=half.trace.profile.seconds)
    for detail_type, detail in half.trainer.events:
        at = datetime.fromisoformat(detail["data"]["at"])
        mark_late(history, record(history, detail_type, detail, detail["data"]["at"]), at)
        if is_due(history, at):
            roll_up_days(history, at)
    dependencies: Any = SimpleNamespace(history=history, recovery=SimpleNamespace(clock=lambda: end))
    request: Any = SimpleNamespace(number=lambda *given: 1, choice=lambda *given: "day")
    answer: Mapping[str, Any] = json.loads(read_summary(dependencies, request).text)
    return cast(Mapping[str, Any], answer["total"])


@pytest.mark.slow
def test_the_summary_is_the_simulators_account() -> None:
    """Within one percent: the account is made of what processes and instances did, and not of statuses or events."""
    half = played(course(*FAILURES, hours=12))
    told, run, gpus = summary(half), half.run, 32 / 3_600
    end_s, began = half.trace.profile.seconds, half.began
    starts = [(half.trainer.started_at - began).total_seconds(), *(episode.started_at for episode in run.episodes)]
    stops = [*(episode.detected_at for episode in run.episodes), end_s]
    running = gpus * sum(stop - start for start, stop in zip(starts, stops, strict=True))
    waited_s = sum(episode.placed_at - episode.checked_at for episode in run.episodes)
    held = gpus * (end_s - (half.trainer.placed_at - began).total_seconds() - waited_s)
    recoveries = sorted(episode.started_at - episode.detected_at for episode in run.episodes)
    available = 1 - half.trainer.out_of_use_s / half.trainer.present_s
    expected = {
        "gpu_h_running": running,
        "gpu_h_held": held,
        "running_share": running / held,
        "recovery_s_p50": recoveries[(len(recoveries) - 1) // 2],
        "recovery_s_longest": recoveries[-1],
        "fleet_available": available,
        "mttf_gpu_h": running / told["incidents"],
    }
    assert {name: told[name] for name in expected} == pytest.approx(expected, rel=0.01)
    assert (told["recoveries"], told["jobs_failed"], told["jobs_succeeded"]) == (len(run.episodes), 0, 0)

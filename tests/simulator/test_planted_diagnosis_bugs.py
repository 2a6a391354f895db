"""The seeds that diagnose can fail: they find these bugs where a diagnosis is acted on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.job import diagnosing, state_machine
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import Ignore, Transition

from simulator.trials import campaign
from simulator.trials.diagnosis import AT, EVERY

pytestmark = pytest.mark.slow

Bug = Callable[[pytest.MonkeyPatch], None]
FOUND_WITHIN, FAULTS_LEFT_MAX = 60, 8


def _without(patch: pytest.MonkeyPatch, order: type) -> None:
    """Whatever a diagnosis decides, it gives no order of that kind."""
    decide = diagnosing.diagnosed

    def careless(*given: Any) -> Any:
        step = decide(*given)
        if isinstance(step, Ignore):
            return step
        return replace(step, commands=tuple(one for one in step.commands if not isinstance(one, order)))

    patch.setitem(
        state_machine.TRANSITIONS, (JobStatus.DIAGNOSING, events.Diagnosed), Transition.to(careless, *JobStatus)
    )


def keeps_its_instances(patch: pytest.MonkeyPatch) -> None:
    """No check takes the claims off machines that were spared one, and nobody else does."""
    _without(patch, commands.ReleaseInstances)


def tells_nobody(patch: pytest.MonkeyPatch) -> None:
    """A job that a diagnosis ends is FAILED, and that is all."""
    _without(patch, commands.NotifyOperator)


@pytest.mark.parametrize(
    ("bug", "broken"),
    [
        (tells_nobody, ("I7",)),
        pytest.param(keeps_its_instances, ("I1", "liveness"), marks=pytest.mark.full),
    ],
)
def test_seeds_find_a_bug_of_what_a_diagnosis_orders(
    bug: Bug, broken: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon, and with few faults left of it."""
    bug(monkeypatch)
    seeds = range(AT, AT + EVERY * FOUND_WITHIN, EVERY)
    failing = next((seed for seed in seeds if campaign.play_seed(seed)[1].violations), None)
    assert failing is not None
    first = campaign.first_failure(failing)
    assert first["violations"][0].startswith(broken)
    assert first["faults_left"] <= FAULTS_LEFT_MAX

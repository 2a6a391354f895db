"""`python -m simulator explore`: what it prints, and its exit code."""

from __future__ import annotations

import argparse
import json

import pytest
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import Step

from simulator.explore import cli

pytestmark = pytest.mark.slow


def explore(*arguments: str) -> int:
    """The exit code of the verb."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    return cli.run(parser.parse_args(arguments))


def test_the_report_has_every_number_and_every_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """For people: states, depth, bounds, rows, and that nothing broke."""
    assert explore("--incident", "crash", "--faults", "1", "--kinds", "drop") == 0
    told = capsys.readouterr().out
    for said in ("incident crash", "at most 1 fault(s)", "states ", "transitions ", "depth ", "rows taken", "bound: "):
        assert said in told
    assert "no invariant broke, and from every state a final one can be reached" in told


def test_the_report_for_machines_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Its sums are those of its walks."""
    assert explore("--incident", "crash", "--faults", "1", "--kinds", "drop", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    (walk,) = told["walks"]
    assert told["violations"] == [] and told["every_state_can_end"] is True
    assert told["states"] == walk["states"] == sum(walk["states_by_faults"]) > 100
    assert told["transitions"] == walk["transitions"] > walk["states"]
    assert walk["faults_taken"]["drop"] > 10 and walk["violation"] is None
    assert len(told["bounds"]) > 5 and len(walk["bounds"]) == 4


def test_what_breaks_is_told_with_its_actions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, the sentence, the actions, the journal's lines."""
    kept = state_machine.apply_step

    def forget_to_look(record: object, step: Step, *given: object) -> object:
        decision = kept(record, step, *given)  # type: ignore[arg-type]
        if decision.record.status is JobStatus.RUNNING:
            return state_machine.replace(decision, record=state_machine.replace(decision.record, look_at=None))
        return decision

    monkeypatch.setattr(state_machine, "apply_step", forget_to_look)
    assert explore("--incident", "crash", "--faults", "0") == 1
    told = capsys.readouterr().out
    assert "BROKEN  I2" in told and "the scheduler passes" in told and "QUEUED -> SUBMITTING" in told
    assert "1 violation(s)" in told


@pytest.mark.parametrize("arguments", [["--faults", "-1"], ["--kinds", "flood"], ["--incident", "fire"]])
def test_what_cannot_be_asked_for_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and what may be asked for."""
    with pytest.raises(SystemExit) as refused:
        explore(*arguments)
    assert refused.value.code == 2
    assert arguments[0] in capsys.readouterr().err

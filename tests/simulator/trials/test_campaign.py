"""Seeds of faults: the product survives them, one integer says everything of a run, and planted bugs do not survive."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simulator.__main__ import main
from simulator.faults.injector import ScriptedFaults
from simulator.trials import campaign
from simulator.trials.trial import play
from tests.simulator.planted_bugs import (
    act_before_save,
    free_on_suspicion,
    no_fence,
    no_version_check,
    reconnect_is_reboot,
)
from tests.tiers import sampled, scaled, seeds

PIECE, PIECES = 10, 1_000
"""Seeds of one test, and how many such tests the tier `full` has."""


@pytest.mark.slow
@pytest.mark.parametrize("piece", seeds(PIECES, fast=1, default=2))
def test_no_seed_breaks_anything(piece: int) -> None:
    """Invariants after every step, and every job ends once faults have stopped."""
    found = campaign.tally(range(piece * PIECE, (piece + 1) * PIECE))
    assert found.seeds == PIECE and found.violations == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", sampled([3, 7, 19, 77], fast=1, default=1))
def test_a_seed_is_a_run_to_the_letter(seed: int) -> None:
    """Two runs of one integer: the same words, the same effects, the same faults."""
    (_, one), (_, other) = campaign.play_seed(seed), campaign.play_seed(seed)
    assert one.world.transcript.text() == other.world.transcript.text()
    assert [(step.invocation, step.name) for step in one.world.invocations.steps] == [
        (step.invocation, step.name) for step in other.world.invocations.steps
    ]
    assert one.struck == other.struck


@pytest.mark.parametrize("seed", sampled(range(0, 60, 5), fast=1, default=2))
def test_what_was_drawn_on_the_way_can_be_given_beforehand(seed: int) -> None:
    """Only so can a failing run be cut down."""
    scenario, drawn = campaign.play_seed(seed)
    given = play(drawn.as_scenario(scenario))
    assert given.world.transcript.text() == drawn.world.transcript.text()


@pytest.mark.slow
def test_two_workers_count_what_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tally does not depend on who ran which seed. Each seed is a piece, so that both workers have one."""
    monkeypatch.setattr(campaign, "AT_ONCE", 1)
    played = range(scaled(fast=2, default=2, full=120))
    assert campaign.campaign(played, 2) == campaign.campaign(played, 1)


@pytest.mark.full
def test_seeds_are_hard_on_the_product() -> None:
    """Half of the transitions of both tables are taken within 150 seeds, and jobs end in each way there is."""
    found = campaign.tally(range(150))
    assert campaign.coverage(found.rows)["percent"] >= 50
    assert set(found.ended) == {"SUCCEEDED", "FAILED", "CANCELED"}


def test_coverage_names_what_was_not_taken() -> None:
    """All of it, if nothing was."""
    nothing = campaign.coverage([])
    assert nothing["taken"] == 0 and len(nothing["missing"]) == nothing["rows"]
    every = campaign.coverage(campaign.every_row())
    assert (every["percent"], every["missing"]) == (100.0, [])


# -- planted -----------------------------------------------------------------------------------------------------------


PLANTED: dict[Callable[[pytest.MonkeyPatch], None], tuple[str, ...]] = {
    act_before_save: ("I1", "I2", "I4", "I7", "I9"),
    no_fence: ("I11",),
    free_on_suspicion: ("I1", "I4"),
    reconnect_is_reboot: ("I6",),
    no_version_check: ("I11",),
}
RARE = {reconnect_is_reboot, no_fence}
"""Bugs that few seeds show. That a reconnect counts as a reboot takes a check that lies, a reboot that is ignored, and
the same machine. A missing fence takes an event that is late by a whole attempt."""
FOUND_WITHIN, RARE_FOUND_WITHIN, FAULTS_LEFT_MAX, TRANSCRIPT_LINES_MAX = 60, 2_000, 6, 150


def assert_cut_down(first: dict[str, Any], bug: Callable[[pytest.MonkeyPatch], None]) -> None:
    """The failure is that of the bug, and is cut down to a few faults and a page of transcript."""
    assert first["violations"][0].startswith(PLANTED[bug])
    assert first["faults_left"] <= FAULTS_LEFT_MAX
    assert len(first["transcript"].splitlines()) <= TRANSCRIPT_LINES_MAX


@pytest.mark.parametrize("bug", sampled(PLANTED, default=1), ids=lambda bug: bug.__name__)
def test_seeds_find_a_planted_bug(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first failing seed comes soon, and is cut down. `test_planted_diagnosis_bugs.py` has another bug."""
    bug(monkeypatch)
    played = range(RARE_FOUND_WITHIN if bug in RARE else FOUND_WITHIN)
    failing = next((seed for seed in played if campaign.play_seed(seed)[1].violations), None)
    assert failing is not None
    assert_cut_down(campaign.first_failure(failing), bug)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_prints_what_it_found(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, and in words."""
    assert main(["run", "--seeds", "0..5", "--workers", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["seeds"], found["violations"], found["first_failure"]) == (5, [], None)
    assert found["coverage"]["taken"] + len(found["coverage"]["missing"]) == found["coverage"]["rows"]
    assert main(["run", "--seeds", "2", "--workers", "1"]) == 0
    assert "violations: 0" in capsys.readouterr().out


@pytest.mark.slow
def test_a_failing_seed_ends_the_command_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And prints the scenario to keep."""
    act_before_save(monkeypatch)
    assert main(["run", "--seeds", "8..9", "--workers", "1", "--json"]) == 1
    first = json.loads(capsys.readouterr().out)["first_failure"]
    assert_cut_down(first, act_before_save)
    assert tomllib.loads(first["scenario"])["fault"]


def test_a_scenario_is_told_line_by_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """By its file or by its seed; a file that is none is usage."""
    path = tmp_path / "one.toml"
    path.write_text('[expect]\njobs = ["FAILED"]\n')
    assert main(["play", str(path)]) == 1
    assert "BROKEN  expected jobs" in capsys.readouterr().out
    assert main(["play", "12"]) == 0
    assert main(["play", str(tmp_path / "none.toml")]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["run", "--seeds", "9..3"])


def test_nothing_given_is_nothing_wrong() -> None:
    """The source of no faults strikes nothing."""
    nothing = ScriptedFaults(())
    assert nothing.of_event("instance", 1) is None

"""What is printed and drawn: complete, the same each time, and clear about what was wrong with the question."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_recovery.core.errors import SpecInvalid

from simulator.goodput import cli
from simulator.goodput.assumptions import Conditions, Mark
from simulator.goodput.assumptions_file import read
from simulator.goodput.baselines import BASELINES
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import PolicyRun
from simulator.goodput.production import Production
from simulator.goodput.report import overhead
from simulator.goodput.report_text import text
from simulator.goodput.runner import play

pytestmark = pytest.mark.slow

FACTS = read()
FIGURES = {
    "name",
    "ettr",
    "overhead",
    "overhead_but_for_relapses",
    "mttd_s",
    "mttr_s",
    "reboots",
    "false_reboots",
    "gpu_hours_lost",
    "notifications",
}


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    status = cli.run(parser.parse_args(["--models", *words]))
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.full
def test_a_tuned_run_says_so_and_trains_more(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody takes its figures for those of the table as it is."""
    found = {}
    for words in ((), ("--tuned",)):
        _, out, _ = _printed(capsys, "--profile", "llama3", "--json", *words)
        found[words] = json.loads(out)
    as_is, tuned = found.values()
    assert as_is["tuned"] == {} and set(tuned["tuned"]) == set(FACTS.tuned)
    floors = [report["policies"][-1]["ettr"] for report in (as_is, tuned)]
    assert floors[0] < 0.95 and floors[1] > 0.97
    _, out, _ = _printed(capsys, "--profile", "llama3", "--tuned")
    assert "tuned: hang_s 60, checkpoint_s 10" in out


def test_json_has_every_figure_of_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read it; its names are a surface."""
    status, out, _ = _printed(capsys, "--profile", "small", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["profile"]["name"] == "small"
    assert report["facts"] == FACTS.digest
    assert len(report["policies"]) == 4
    for one in report["policies"]:
        assert set(one) >= FIGURES
        assert 0 < one["ettr"] < 1
        assert set(one["mttr_s"]) == {"p50", "p90", "p99"}


def test_every_assumption_is_in_the_report_with_its_range(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader of the figures alone still sees what they stand on."""
    report = json.loads(_printed(capsys, "--json")[1])
    named = {one["name"] for one in report["assumptions"]}
    assert named == {fact.name for fact in FACTS.facts.values() if fact.mark is Mark.ASSUMPTION}
    swept = {one["condition"] for one in report["sensitivity"]["conditions"]}
    assert {f"conditions.{name}" for name in swept} >= {name for name in named if name.startswith("conditions.")}
    assert swept <= set(Conditions.__slots__)


def test_the_same_question_has_the_same_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """One integer reproduces it to the letter."""
    assert _printed(capsys, "--seed", "4") == _printed(capsys, "--seed", "4")


def test_text_for_people_names_the_policies_and_the_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody should have to read JSON to know what was simulated."""
    out = _printed(capsys, "--instances", "16")[1]
    for words in ("human only", "replace only", "reboot only", "ETTR", "16 instances", "Bounds", "simulated"):
        assert words in out


def test_the_product_itself_is_compared_with_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--models` its own runs are in the table, under the same failures and judged by the same account."""
    given = replace(FACTS.profile("small").resized(4), days=2.0, rate=1_000.0)
    monkeypatch.setattr(cli, "read", lambda path: replace(FACTS, profiles={"small": given}))
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.run(parser.parse_args(["--json", "--spares", "2"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["legs"] == 1 and not any("legs" in bound for bound in report["bounds"])
    assert [one["name"] for one in report["policies"]] == [
        "human only",
        "seed 001",
        "replace only",
        "reboot only",
        "adaptive",
        "adaptive, 2 spares",
        "floor, 2 spares",
    ]
    by_name = {one["name"]: one for one in report["policies"]}
    assert by_name["adaptive, 2 spares"]["ettr"] > by_name["seed 001"]["ettr"]
    assert by_name["adaptive, 2 spares"]["ettr"] <= by_name["floor, 2 spares"]["ettr"] + 0.005

    assert cli.run(parser.parse_args(["--json", "--spares", "2", "--product"])) == 0
    alone = json.loads(capsys.readouterr().out)
    assert alone["policies"] == [by_name["adaptive, 2 spares"], by_name["floor, 2 spares"]]


def test_a_report_says_that_it_is_of_legs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the figures and in the text; and a course that cannot be cut is refused, not gone through as a whole."""
    given = replace(FACTS.profile("small").resized(4), days=2.0, rate=2_000.0)
    monkeypatch.setattr(cli, "read", lambda path: replace(FACTS, profiles={"small": given}))
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.run(parser.parse_args(["--legs", "2", "--spares", "2", "--json"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["legs"] == 2 and "legs side by side" in report["bounds"][-1]
    assert "the product's own runs in 2 legs" in text(report)
    assert cli.run(parser.parse_args(["--legs", "9"])) == cli.FAILED
    assert capsys.readouterr().err == "--legs 9: 16 failures are too few for 9 legs\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--profile", "gpt"), "there is no profile 'gpt'"),
        (("--instances", "0"), "--instances must be at least 1"),
        (("--legs", "0"), "--legs must be at least 1"),
        (("--legs", "2"), "and 1 with --models"),
        (("--days", "0"), "--days must be more than 0"),
        (("--days", "400"), "at most 73"),
        (("--facts", "/nowhere.toml"), "nowhere.toml"),
    ],
)
def test_a_wrong_question_is_told_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    """Exit status 2, a sentence, and nothing on the output."""
    status, out, err = _printed(capsys, *words)
    assert (status, out) == (2, "")
    assert says in err


def test_charts_are_the_same_files_each_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """They are committed: a new one must mean a new figure, not another date."""
    from simulator.goodput.charts import draw  # noqa: PLC0415

    report = json.loads(_printed(capsys, "--json", "--charts", str(tmp_path / "made"))[1])
    assert report["by_size"]["instances"] == list(cli.SIZES)
    first, second = draw(report, tmp_path / "a"), draw(report, tmp_path / "b")
    assert [path.name for path in first] == [
        "ettr-by-size-small.png",
        "ettr-by-size-small.svg",
        "lost-by-cause-small.png",
        "lost-by-cause-small.svg",
    ]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_size > 10_000


def test_several_processes_find_what_one_finds() -> None:
    """They only share the work."""
    given = failure_trace(FACTS.profile("small"), FACTS.conditions, 1)
    pairs = [(one, given) for one in (*BASELINES, LowerBound(2, 1))]
    assert play(pairs, 2) == play(pairs, 1) == [one.run(given) for one, _ in pairs]


def test_a_job_that_the_product_refuses_is_said_to_be_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no figure for a run that cannot be."""

    def refuses(self: object, course: object) -> PolicyRun:
        raise SpecInvalid("nnodes", "must be between 1 and 2000")

    monkeypatch.setattr(Production, "run", refuses)
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.run(parser.parse_args(["--workers", "1"])) == 1
    assert "must be between 1 and 2000" in capsys.readouterr().err


def test_overhead_is_the_time_of_recoveries_over_their_floors() -> None:
    """The floor's own is 1, with what came back and without; a policy that waits on purpose has more."""
    given = failure_trace(FACTS.profile("llama3"), replace(FACTS.conditions, false_alarm=0.0), 1)
    floor = LowerBound(2, 4)
    run = floor.run(given)
    assert overhead(given, floor, run) == pytest.approx(1.0)
    slower = tuple(
        replace(one, training_at=one.training_at and one.training_at + 100.0) if one.is_relapse else one
        for one in run.episodes
    )
    waits = replace(run, episodes=slower)
    assert (overhead(given, floor, waits) or 0) > 1.01
    assert overhead(given, floor, waits, relapses=False) == pytest.approx(1.0)
    assert overhead(given, floor, PolicyRun(())) is None

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
from simulator.goodput.contenders import CONTENDERS, own_way
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.policy import PolicyRun
from simulator.goodput.production import Production
from simulator.goodput.report import over_own_way
from simulator.goodput.report_text import text
from simulator.goodput.runner import play

pytestmark = pytest.mark.slow

FACTS = read()
FIGURES = {
    "name",
    "ettr",
    "overhead",
    "overhead_but_for_relapses",
    "over_own_way",
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
    ways = [report["policies"][-2]["ettr"] for report in (as_is, tuned)]
    assert ways[0] < 0.95 and ways[1] > 0.97
    _, out, _ = _printed(capsys, "--profile", "llama3", "--tuned")
    assert "tuned: hang_s 60, checkpoint_s 60" in out


def test_checkpoints_in_memory_are_those_of_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """Like for like; the report says which conditions are changed."""
    plain, saved = (
        json.loads(_printed(capsys, "--instances", "128", "--json", "--workers", "1", *words)[1])
        for words in ((), ("--memory-checkpoints",))
    )
    assert set(saved["tuned"]) == {"checkpoint_s", "stall_s", "persist_s"}
    row = next(one for one in plain["sensitivity"]["checkpoint_s"] if one["checkpoints"] == "in memory")
    for policy in saved["policies"]:
        assert policy["ettr"] == pytest.approx(row["ettr"][policy["name"]])


def test_json_has_every_figure_of_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """Programs read it; its names are a surface."""
    status, out, _ = _printed(capsys, "--profile", "small", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["profile"]["name"] == "small"
    assert report["facts"] == FACTS.digest
    assert len(report["policies"]) == 2 * 8 + 1
    for one in report["policies"]:
        assert set(one) >= FIGURES
        assert 0 < one["ettr"] < 1 <= one["overhead"] + 1e-9
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
    given = replace(FACTS.profile("small").resized(4), days=1.0, rate=1_000.0)
    monkeypatch.setattr(cli, "read", lambda path: replace(FACTS, profiles={"small": given}))
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.run(parser.parse_args(["--json", "--spares", "2"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["legs"] == 1 and not any("legs" in bound for bound in report["bounds"])
    each = (
        "human only",
        "reboot only",
        "replace only",
        "EKS + JobSet",
        "HyperPod operator",
        "swap and leave out",
        "adaptive",
        "adaptive with agents",
        "own way at its best",
        "own way with agents",
    )
    assert [one["name"] for one in report["policies"]] == [
        "seed 001",
        *each,
        *(f"{name}, 2 spares" for name in each),
        "bound",
    ]
    by_name = {one["name"]: one for one in report["policies"]}
    assert by_name["adaptive, 2 spares"]["ettr"] > by_name["seed 001"]["ettr"]
    assert max(one["ettr"] for one in report["policies"]) == by_name["bound"]["ettr"]

    assert cli.run(parser.parse_args(["--json", "--spares", "2", "--product"])) == 0
    alone = json.loads(capsys.readouterr().out)
    names = ("adaptive, 2 spares", "adaptive with agents, 2 spares", "own way at its best, 2 spares", "bound")
    assert alone["policies"] == [by_name[name] for name in names]


def test_a_report_says_that_it_is_of_legs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the figures and in the text; and a course that cannot be cut is refused, not gone through as a whole."""
    given = replace(FACTS.profile("small").resized(4), days=2.0, rate=1_000.0)
    monkeypatch.setattr(cli, "read", lambda path: replace(FACTS, profiles={"small": given}))
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.run(parser.parse_args(["--legs", "2", "--spares", "2", "--product", "--json"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["legs"] == 2 and "legs side by side" in report["bounds"][-1]
    assert "the product's own runs in 2 legs" in text(report)
    assert cli.run(parser.parse_args(["--legs", "9"])) == cli.FAILED
    assert capsys.readouterr().err == "--legs 9: 8 failures are too few for 9 legs\n"


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
        (("--failures", "/nowhere.csv"), "nowhere.csv"),
        (("--convert", "/nowhere.json"), "nowhere.json"),
        (("--recorded-repairs",), "needs --failures and --models"),
    ],
)
def test_a_wrong_question_is_told_and_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    """Exit status 2, a sentence, and nothing on the output."""
    status, out, err = _printed(capsys, *words)
    assert (status, out) == (2, "")
    assert says in err


def test_charts_are_the_same_files_each_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are committed: a new one must mean a new figure, not another date."""
    from simulator.goodput.charts import draw  # noqa: PLC0415

    sizes = cli.SIZES[::4]
    monkeypatch.setattr(cli, "SIZES", sizes)
    report = json.loads(_printed(capsys, "--json", "--charts", str(tmp_path / "made"), "--workers", "1")[1])
    assert report["by_size"]["instances"] == list(sizes)
    first, second = sorted((tmp_path / "made").iterdir()), draw(report, tmp_path / "again")
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
    pairs = [(make(1), given) for make in (*BASELINES, *CONTENDERS)]
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


def test_the_ratio_to_the_own_way_is_one_for_the_own_way() -> None:
    """With what came back and without; a policy that waits on purpose has more."""
    given = failure_trace(FACTS.profile("llama3"), replace(FACTS.conditions, false_alarm=0.0), 1)
    way = own_way(2, 4)
    run = way.run(given)
    assert over_own_way(given, way, run) == pytest.approx(1.0)
    slower = tuple(
        replace(one, training_at=one.training_at and one.training_at + 100.0) if one.is_relapse else one
        for one in run.episodes
    )
    waits = replace(run, episodes=slower)
    assert (over_own_way(given, way, waits) or 0) > 1.01
    assert over_own_way(given, way, waits, relapses=False) == pytest.approx(1.0)
    assert over_own_way(given, way, PolicyRun(())) is None


# -- several seeds -----------------------------------------------------------------------------------------------------


def test_several_seeds_are_reported_as_mean_and_range(capsys: pytest.CaptureFixture[str]) -> None:
    """The form is that of one seed; each policy has its values by seed as well."""
    ones = [json.loads(_printed(capsys, "--seed", str(seed), "--json")[1]) for seed in (1, 2, 3)]
    _, out, _ = _printed(capsys, "--seeds", "1..3", "--json")
    several = json.loads(out)
    assert set(several) == {*ones[0], "seeds"} and several["seeds"] == [1, 2, 3]
    for place, policy in enumerate(several["policies"]):
        each = [one["policies"][place] for one in ones]
        assert policy["name"] == each[0]["name"]
        assert policy["ettr_by_seed"] == [one["ettr"] for one in each]
        assert policy["ettr"] == pytest.approx(sum(policy["ettr_by_seed"]) / 3)
        assert policy["range"]["ettr"] == [min(policy["ettr_by_seed"]), max(policy["ettr_by_seed"])]
        assert policy["mttr_s"]["p50"] == pytest.approx(sum(one["mttr_s"]["p50"] for one in each) / 3)
    effects = {row["condition"]: row for row in several["sensitivity"]["conditions"]}
    for name in ("hang_s", "told_share", "reboot_s"):
        ends = [row for one in ones for row in one["sensitivity"]["conditions"] if row["condition"] == name]
        assert effects[name]["high"] == ends[0]["high"]
        assert effects[name]["ettr_at_high"] == pytest.approx(sum(row["ettr_at_high"] for row in ends) / 3)
    words = text(several)
    assert "mean of seeds 1 to 3" in words and "min" in words


@pytest.mark.parametrize("given", ["", "5..1", "a..b", "1..", "1-5"])
def test_a_wrong_range_of_seeds_is_a_usage_error(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, by the parser."""
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    with pytest.raises(SystemExit) as error:
        parser.parse_args(["--seeds", given])
    assert error.value.code == 2 and "range" in capsys.readouterr().err


# -- replays -----------------------------------------------------------------------------------------------------------


def test_a_replay_draws_no_other_failures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In no sweep: the number of interruptions is that of the list, and what would redraw them is marked."""
    listed = tmp_path / "mine.csv"
    listed.write_text("at,node,cause\n9000,a,gpu\n40000,b,software\n170000,a,network\n")
    words = ("--failures", str(listed), "--instances", "4", "--seeds", "1..2")
    _, out, _ = _printed(capsys, *words, "--json")
    report = json.loads(out)
    assert report["profile"]["failures"] == 3 and report["profile"]["days"] == 2 and report["replay"]
    assert report["sensitivity"]["skipped"] == ["reboot_share", "by_size"]
    assert report["sensitivity"]["reboot_share"] == [] and report["by_size"]["instances"] == []
    rows = report["sensitivity"]["conditions"]
    drawn = [row for row in rows if row["condition"] in ("reboot_share", "hang_share", "lemon_share")]
    assert all(row["ettr_at_low"] == row["ettr_at_high"] for row in drawn)
    way = next(one for one in report["policies"] if one["name"] == "own way at its best, 4 spares")
    assert report["sensitivity"]["ladder"][0]["ettr"] == pytest.approx(way["ettr"])
    assert "left out in a replay" in _printed(capsys, *words)[1]


def test_recorded_repairs_keep_a_machine_away_as_long_as_the_list_says(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On a fleet without new machines a day is a day. With a spare nobody waits for it."""
    listed = tmp_path / "mine.json"
    incident = {"at": 9_000, "node": "a", "cause": "host", "until": 95_400}
    listed.write_text(json.dumps([incident]))
    words = ("--failures", str(listed), "--instances", "4", "--spares", "1", "--json")
    found = {}
    for more in ((), ("--recorded-repairs",)):
        report = json.loads(_printed(capsys, *words, *more)[1])
        found[more] = {one["name"]: one["mttr_s"]["p50"] for one in report["policies"]}
    plain, recorded = found.values()
    assert recorded["human only"] - plain["human only"] > 80_000
    assert recorded["human only, 1 spares"] == plain["human only, 1 spares"]


def test_a_list_of_more_nodes_than_the_job_has_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The message says how many are named."""
    listed = tmp_path / "mine.csv"
    listed.write_text("at,node,cause\n" + "".join(f"{n},n{n},gpu\n" for n in range(5)))
    status, _, err = _printed(capsys, "--failures", str(listed), "--instances", "4")
    assert status == 2 and "names 5 nodes, and the job has 4" in err


def test_the_product_replays_an_incident_list(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its own loop, under the recorded failures."""
    listed = tmp_path / "mine.csv"
    listed.write_text("at,node,cause,cure,shows,until\n9000,a,gpu,,,\n40000,b,software,restart,exit,\n")
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    words = ["--failures", str(listed), "--instances", "4", "--spares", "1", "--product", "--json", "--workers", "1"]
    assert cli.run(parser.parse_args(words)) == 0
    product = json.loads(capsys.readouterr().out)["policies"][0]
    assert (product["name"], product["interruptions"], product["people_called"]) == ("adaptive, 1 spares", 2, 0)

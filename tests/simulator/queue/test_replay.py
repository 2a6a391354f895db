"""Traces through the queue: the disciplines, and that ours decides as production does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_recovery.core.queue.run_time_estimates import LEAST
from hypothesis import given
from hypothesis import strategies as st

from simulator.__main__ import main
from simulator.queue.baselines import Conservative, Multifactor
from simulator.queue.disciplines import BestEffort, Easy, ProductionRules, StrictFifo
from simulator.queue.estimate_cases import CASES, DRAWN, ratios, with_estimates
from simulator.queue.job_index import SizeQueue
from simulator.queue.job_trace import Selection, TraceInvalid, TraceJob, read
from simulator.queue.replay import Discipline, RunTimeHistory, waits_of
from tests.simulator.queue.whole_passes import POLICY, WholePasses
from tests.tiers import scaled

EXCERPT = Path(__file__).parent / "philly_excerpt.csv"


def _jobs(*rows: tuple[float, float, float | None, int]) -> list[TraceJob]:
    """Jobs of (when it comes, how long it runs, the estimate, GPUs)."""
    return [TraceJob(number, *row) for number, row in enumerate(rows)]


LINE = _jobs((0, 100, 100, 3), (1, 100, 100, 4), (2, 50, 50, 1), (3, 500, 500, 1))
"""On four GPUs: three are busy until 100, the second job wants all, two small ones come behind it."""


@pytest.mark.parametrize(
    ("discipline", "waits"),
    [
        (StrictFifo(4), [0, 99, 198, 197]),
        (BestEffort(4), [0, 551, 0, 49]),
        (Easy(4), [0, 99, 0, 197]),
        (ProductionRules(4), [0, 99, 0, 197]),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_what_each_discipline_is(discipline: Discipline, waits: list[float]) -> None:
    """Strict order idles the fourth GPU; best effort starves the large job; backfill does neither."""
    assert waits_of(LINE, discipline) == waits


def test_without_estimates_nobody_passes_the_head() -> None:
    """Nobody knows who ends in time: on one pool of GPUs that is strict order."""
    jobs = [replace(job, estimate_s=None) for job in LINE]
    for discipline in (Easy(4), ProductionRules(4)):
        assert waits_of(jobs, discipline) == waits_of(jobs, StrictFifo(4))


def test_the_textbook_lends_out_what_ours_keeps() -> None:
    """The first ends after 10 s and not after 100: the head could start then, had the free GPU not been lent out."""
    jobs = _jobs((0, 10, 100, 2), (0, 200, 200, 1), (1, 5, 5, 3), (2, 300, 300, 1), (3, 1, 1, 1))
    assert waits_of(jobs, ProductionRules(4))[2] == 9
    late = _jobs((0, 10, 100, 1), (0, 200, 90, 2), (1, 5, 5, 2), (2, 300, 300, 1))
    assert waits_of(late, Easy(4))[2] > waits_of(late, ProductionRules(4))[2] == 9


ROWS = st.tuples(
    st.integers(0, 9),
    st.integers(1, 9),
    st.sampled_from([0.5, 1, 2, 5, None]),
    st.sampled_from([1, 1, 2, 3, 5]),
    st.sampled_from([None, 0.5, 1, 2]),
)
SHORT = replace(POLICY, backfill_median_s=4, backfill_estimates_gpu_s=20)
"""Jobs of a few seconds reach each bound of the run time."""


@given(st.lists(ROWS, min_size=1, max_size=14))
def test_ours_decides_as_place_does(rows: list[tuple[int, int, float | None, int, float | None]]) -> None:
    """Driven event by event, the production phases start the same jobs at the same times as whole passes."""
    plain = _jobs(
        *((at, runs_s, factor and runs_s * factor, size) for at, runs_s, factor, size, _ in sorted(rows, key=_at))
    )
    jobs = [
        job
        if kind is None
        else replace(
            job, median_s=_least(job.estimate_s, job.runs_s * kind), p90_s=_least(job.estimate_s, job.runs_s * kind * 2)
        )
        for job, (*_, kind) in zip(plain, sorted(rows, key=_at), strict=True)
    ]
    assert waits_of(jobs, ProductionRules(5, SHORT)) == waits_of(jobs, WholePasses(jobs, 5, SHORT))


def _least(limit_s: float | None, known_s: float) -> float:
    return known_s if limit_s is None else min(limit_s, known_s)


def _at(row: tuple[int, int, float | None, int, float | None]) -> int:
    return row[0]


@pytest.mark.slow
@pytest.mark.parametrize("estimates", [True, False])
def test_ours_decides_as_place_does_on_a_real_trace(estimates: bool) -> None:
    """The excerpt, on so few GPUs that there is a line."""
    jobs = read(EXCERPT, Selection(days=scaled(fast=1, default=1, full=60) / 2, estimates=estimates))
    ours = waits_of(jobs, ProductionRules(128))
    assert max(ours) > 0
    assert ours == waits_of(jobs, WholePasses(jobs, 128))


def test_by_history_the_jobs_of_a_kind_tell_how_long_the_next_one_runs() -> None:
    """As much as four have told: then a short one passes the head, and its user has said nothing."""
    kind = [(20.0 * n, 10, None, 1) for n in range(LEAST)]
    jobs = _jobs(*kind, (200, 100, None, 3), (201, 100, None, 4), (202, 10, None, 1), (203, 400, None, 1))
    others = [replace(job, whose="b") if job.runs_s > 10 else job for job in jobs]
    known = [replace(jobs[0], whose="b", runs_s=100, estimate_s=None, size=3) for _ in range(LEAST)]
    past = RunTimeHistory()
    for number, job in enumerate(known):
        past.ended(replace(job, number=number))
    waits = waits_of(others, ProductionRules(4), past)
    assert waits[-2:] == [0, 197]
    assert waits_of(others, ProductionRules(4))[-2:] != [0, 197]
    assert past.estimated(jobs[0]).p90_s == 10 and RunTimeHistory().estimated(jobs[0]).p90_s is None


def test_the_first_that_ends_in_time_is_found_whatever_came_and_went() -> None:
    """Against a plain walk along the line."""
    jobs = _jobs(*((n, 1, 7 * n % 11, 1) for n in range(13)))
    line, there = SizeQueue(jobs), list[TraceJob]()
    for turn in range(60):
        job = jobs[5 * turn % 13]
        (line.leave if job in there else line.join)(job)
        there = sorted({*there} ^ {job}, key=lambda one: one.number)
        for within in range(-1, 12):
            assert line.first(within) == next((one for one in there if (one.estimate_s or 0) <= within), None)


def test_a_trace_is_read_as_it_is(tmp_path: Path) -> None:
    """In order of arrival, without short jobs and late ones, estimates between the truth and five times that."""
    jobs = read(EXCERPT, Selection(days=1))
    assert [job.at for job in jobs] == sorted(job.at for job in jobs)
    assert all(job.estimate_s is not None and 1 <= job.estimate_s / job.runs_s <= 5 for job in jobs)
    assert len(read(EXCERPT, Selection(least_s=3_600))) < len(jobs)
    assert read(EXCERPT, Selection(seed=1)) != read(EXCERPT, Selection()) == read(EXCERPT, Selection())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no column"),
        ("timestamp,duration\n", "has no column num_gpus"),
        ("timestamp,duration,num_gpus\n", "no job"),
        ("timestamp,duration,num_gpus\n2017-10-13,x,1\n", "line 2"),
        ("timestamp,duration,num_gpus\n2017-10-13 00:00:00,1,1\n", "no job of 30 s or more"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """The sentence says where."""
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(TraceInvalid, match=told):
        read(file, Selection())


@pytest.mark.slow
def test_the_command_prints_the_figures_of_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    """For machines with --json, for people without; both name whose data it is."""
    assert main(["queue", "--trace", str(EXCERPT), "--gpus", "128", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["policies"]] == [
        "strict_fifo",
        "best_effort",
        "easy",
        "conservative",
        "multifactor",
        "ours",
        "ours_by_history",
    ]
    for one in found["policies"]:
        assert set(one) == {"name", "mean_wait_s", "p95_wait_s", "big_max_wait_s"}
    assert main(["queue", "--trace", str(EXCERPT), "--gpus", "128"]) == 0
    assert "Microsoft" in capsys.readouterr().out
    assert "Microsoft" in found["source"]


def test_conservative_backfill_delays_nobody_who_was_there_before() -> None:
    """The last job fits before the third, but would delay the second of the two that wait: each has its own time."""
    jobs = _jobs((0, 100, 100, 3), (1, 100, 100, 4), (2, 100, 100, 3), (3, 250, 250, 1), (4, 90, 90, 1))
    assert waits_of(jobs, Conservative(4)) == [0, 99, 198, 197, 0]
    assert waits_of(jobs, Conservative(4)) != waits_of(jobs, BestEffort(4))
    silent = [replace(job, estimate_s=None) for job in LINE]
    assert waits_of(silent, Conservative(4)) == waits_of(silent, StrictFifo(4))


def test_the_multifactor_priority_puts_the_owner_with_less_usage_first() -> None:
    """Both wait for all GPUs. The later job goes first, because its owner has used nothing."""
    rows = _jobs((0, 100, 100, 4), (1, 10, 10, 4), (2, 10, 10, 4))
    jobs = [replace(job, whose=owner) for job, owner in zip(rows, ("a", "a", "b"), strict=True)]
    assert waits_of(jobs, Multifactor(4)) == [0, 109, 98]
    assert waits_of(jobs, Easy(4)) == [0, 99, 108]


@pytest.mark.parametrize("case", CASES)
def test_each_case_of_estimates_is_what_its_name_says(case: str) -> None:
    """No estimate is below the run time, and the same seed gives the same estimates."""
    jobs = [replace(job, estimate_s=None) for job in read(EXCERPT, Selection(days=2))]
    estimated = with_estimates(jobs, case, 1)
    assert estimated == with_estimates(jobs, case, 1)
    assert all(job.estimate_s is None or job.estimate_s >= job.runs_s for job in estimated)
    silent = sum(job.estimate_s is None for job in estimated) / len(jobs)
    assert 0.3 < silent < 0.7 if case == "half_silent" else not silent
    assert (estimated != with_estimates(jobs, case, 2)) == (case in DRAWN)


def test_ratios_are_shares_of_strict_order() -> None:
    """The mean wait, and the longest of a job of 16 GPUs. The production rules know the history besides."""
    jobs = read(EXCERPT, Selection(days=3))
    strict, easy = waits_of(jobs, StrictFifo(96)), waits_of(jobs, Easy(96))
    found = ratios(jobs, 96, (Easy, ProductionRules))
    assert set(found) == {"easy", "ours"}
    assert found["easy"]["mean"] == round(sum(easy) / sum(strict), 3)
    big = [max(waits[job.number] for job in jobs if job.size >= 16) for waits in (easy, strict)]
    assert found["easy"]["big"] == round(big[0] / big[1], 2)


def test_the_command_refuses_what_it_cannot_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No such file, and a job that is larger than the cluster: usage errors, in a sentence."""
    assert main(["queue", "--trace", str(tmp_path / "none.csv")]) == 2
    assert main(["queue", "--trace", str(EXCERPT), "--gpus", "8"]) == 2
    assert "and there are 8" in capsys.readouterr().err

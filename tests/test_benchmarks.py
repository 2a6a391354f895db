"""The benchmarks run, at sizes that take no time; what they measure is nobody's business here."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    agent,
    cold_starts,
    console,
    decisions,
    diagnosis,
    fleet,
    goodput,
    hangs,
    heartbeats,
    log_kinds,
    observation_overhead,
    placement,
    quiet_hangs,
    results,
    simulation,
    simulator_speed,
    standby_restart,
    stragglers,
)
from console.fake.model import Size
from infra.functions import FUNCTIONS, ONE_PROCESSOR_MIB
from simulator.cloud.rank_course import COURSES, HANGS


def _flat(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    """The figures of all modules in one dictionary."""
    return {f"{name}.{what}": figure for name, row in figures.items() for what, figure in row.items()}


BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SMALL: dict[str, Callable[[], dict[str, Any]]] = {
    "agent": lambda: agent.agent_figures(0.2),
    "console": lambda: _flat(console.console_figures(Size(8, 16), visits=1, follow_s=0, heap_s=0, requests=1)),
    "decisions": lambda: decisions.decision_figures(3),
    "diagnosis": lambda: {"seconds": diagnosis.window_figures(16)["seconds"]},
    "log_kinds": lambda: {name: len(scores) for name, scores in log_kinds.log_kind_figures().items()},
    "hangs": lambda: hangs.course_figures(hangs.COURSES["even steps"], 100.0, jobs=1),
    "quiet_hangs": lambda: {
        "notice_s": quiet_hangs.notice_s(HANGS["all ranks sleep"], 1, COURSES["even steps"]),
        "recorded": quiet_hangs.recorded_notices(("training", "training", "training", "spinning kernel")),
    },
    "standby_restart": lambda: vars(standby_restart.restart(sys.executable, "json", stands_by=True)),
    "heartbeats": lambda: heartbeats.heartbeat_figures(3),
    "placement": lambda: placement.placement_figures(((4, 8), (8, 32)), rounds=1),
    "observation_overhead": lambda: observation_overhead.observation_figures(3),
    "fleet": lambda: _flat(fleet.fleet_figures(((8, 16),))["8 instances, 16 waiting jobs"]),
    "goodput": lambda: _flat(goodput.goodput_figures(range(1, 3), 9.0)["models"]["llama3 at 256 instances"]),
    "simulation": lambda: simulation.simulation_figures(seeds=2, gang=2, recoveries=1),
    "stragglers": lambda: dict(stragglers.count_windows("even calls, 0.5 %", 1, 4, 10)),
    "simulator_speed": lambda: _flat(simulator_speed.speed_figures(faults=0, gang=2, days=0.1)),
}

ELSEWHERE = {
    "cold_starts",
    "submission",
    "results",
    "intervals",
    "branch_coverage",
    "fleet_server",
    "fleet_operation",
    "queue_estimates",
    "goodput_page",
    "goodput_page_zh",
} | {
    "console_browser",
    "console_functions",
}
"""What needs a deployment of its own, what is a part of another benchmark, and what is none.

`diagnosis` measures the cases of `fault_cases/`. `scoreboard/` has its own tests, in `tests/test_scoreboard.py`.
"""


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")
def test_a_benchmark_runs_and_every_figure_is_a_number(name: str) -> None:
    """None has rotted since it was last measured."""
    figures = SMALL[name]()
    assert figures and all(isinstance(figure, int | float) for figure in figures.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", cold_starts.PROGRAMS)
def test_a_program_whose_cold_start_is_measured_runs(name: str) -> None:
    """In the environment of the benchmark, as it is measured."""
    assert cold_starts.run_s(cold_starts.PROGRAMS[name], cold_starts.ENVIRONMENT) > 0


def test_a_heartbeat_that_is_measured_is_one_that_changes_nothing() -> None:
    """One write each, as of an instance where all is well: otherwise something else is measured."""
    assert heartbeats.heartbeat_figures(4)["dynamodb_calls_each"] == 1.0


@pytest.mark.parametrize(("alarms", "mean"), [(0, 2.996), (1, 4.744), (3, 7.754), (10, 16.962)])
def test_the_bound_of_a_rate_is_that_of_a_poisson_distribution(alarms: int, mean: float) -> None:
    """Means from tables of exact limits (Garwood). Without an alarm it is the rule of three."""
    assert quiet_hangs.bound_per_1000(alarms, 1_000.0) == pytest.approx(mean, abs=0.001)
    assert quiet_hangs.bound_per_1000(alarms, 4_000.0) == pytest.approx(mean / 4, abs=0.001)


def test_the_courses_without_a_known_alarm_are_measured_long_enough() -> None:
    """For a bound below one false alarm per 1,000 job-days, if none comes."""
    others = [name for name in COURSES if name not in quiet_hangs.LOOK_LIKE_A_HANG]
    assert len(others) == len(COURSES) - len(quiet_hangs.LOOK_LIKE_A_HANG)
    assert quiet_hangs.bound_per_1000(0, len(others) * quiet_hangs.JOBS * quiet_hangs.JOB_DAYS) < 1.0


@pytest.mark.parametrize(
    ("course", "confirmed"),
    [
        ("checkpoints of rank 0, 2 to 6 minutes every 2 hours, the others in a barrier", False),
        ("waits of rank 0 for a remote service, 1 to 3 minutes every 2 hours, the others in a collective", True),
    ],
)
def test_the_pauses_that_the_agents_would_confirm_are_counted(
    monkeypatch: pytest.MonkeyPatch, course: str, confirmed: bool
) -> None:
    """In one day of a course. A pause is counted once."""
    monkeypatch.setattr(quiet_hangs, "JOB_DAYS", 1)
    assert (1 <= quiet_hangs.healthy_job(COURSES[course], 1).confirmed <= 13) is confirmed


def test_a_run_of_all_benchmarks_keeps_what_other_commands_measured() -> None:
    """Each name of the results is measured by `make bench`, or is kept."""
    measured = re.findall(r'^        "(\w+)": ', (BENCHMARKS / "__main__.py").read_text(), re.MULTILINE)
    assert set(results.read()) == {*measured, *results.OTHER_COMMANDS}
    assert not set(measured) & set(results.OTHER_COMMANDS)


def test_no_benchmark_is_left_out() -> None:
    """Each module beside the command itself is run here."""
    modules = {file.stem for file in BENCHMARKS.glob("*.py")} - {"__init__", "__main__"} - ELSEWHERE
    assert modules == set(SMALL)


FUNCTION_OF = {
    "reconciler round": "reconciler",
    "scheduler pass": "scheduler",
    "GET /instances": "job_api",
    "GET /queue": "job_api",
    "GET /jobs": "job_api",
}
"""The function that carries out each operation of the benchmark of the fleet."""
SPARE = 3
"""How many times more time and memory the function has than the operation was measured to need."""


@pytest.mark.parametrize("operation", FUNCTION_OF)
def test_a_function_has_thrice_what_an_operation_of_the_largest_fleet_was_measured_to_need(operation: str) -> None:
    """Of memory and of the processor that Lambda gives for it. And no answer of DynamoDB had a history in it."""
    largest = results.read()["fleet"]["10000 instances, 50000 waiting jobs"]
    assert set(largest) == set(FUNCTION_OF)
    row = next(row for row in FUNCTIONS if row.name == FUNCTION_OF[operation])
    figures = largest[operation]
    assert figures["histories"] == 0
    assert figures["peak_mib"] * SPARE <= row.memory_mib
    processors = min(1.0, row.memory_mib / ONE_PROCESSOR_MIB)
    assert figures["processor_s"] / processors * SPARE <= row.timeout_s


def test_calls_grow_with_the_pages_of_a_list_and_not_with_its_records() -> None:
    """From 100 to 10,000 instances the lists of the API and a pass of the scheduler make at most a few more calls."""
    measured = results.read()["fleet"]
    smallest, *_, largest = measured.values()
    for operation in ("scheduler pass", "GET /instances", "GET /queue", "GET /jobs"):
        assert largest[operation]["dynamodb_calls"] <= smallest[operation]["dynamodb_calls"] + 40
    # The heartbeats are read a hundred to a call, and ECS describes a hundred to a call.
    assert largest["reconciler round"]["dynamodb_calls"] <= 10_000 / 100 + 60

"""Replay of the records in `deployment`: those of a sandbox, where `tests/sandbox/test_heal.py` ran.

Its runs end within a second after their start, which no drawn failure of the simulator does. One job was adopted.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from simulator.goodput.accounting import stretches
from simulator.goodput.policy import Episode, PolicyRun
from simulator.replay.compare import renamed
from simulator.replay.course import courses_of
from simulator.replay.records import read_records
from simulator.replay.report import report
from simulator.replay.what_if import WhatIf, until, what_if, with_settings
from tests.simulator.replay.recorded_runs import ASSUMPTIONS

pytestmark = pytest.mark.slow
RECORDS = Path(__file__).parent / "deployment"
SHORTEST = "its shortest run did not last longer"


@cache
def replayed(**settings: Any) -> WhatIf:
    """The what-if with these settings changed. Tests share it unchanged."""
    return what_if(read_records(RECORDS), with_settings(settings), ASSUMPTIONS)


def test_the_control_decides_as_the_deployment_did() -> None:
    """A GPU fault, an error of the program, and a rank that was killed. What a user ended is listed with the reason."""
    told = report(replayed(retry_exits=True), ASSUMPTIONS)
    assert told["not_reproduced"] == []
    assert told["interruptions"] == {"recorded": 5, "replayed": 3, "reproduced": 3}
    assert {line["why"] for line in told["not_replayable"]} == {"a user ended or suspended the job"}
    assert told["control"]["reboots"] == 1 and told["control"]["checks"] == 7


@pytest.mark.parametrize(
    ("settings", "otherwise", "figure"),
    [
        ({"retry_exits": True}, ["broken"], ("checks", 11)),
        ({"observe_only": True}, ["heal", "broken", "by"], ("checks", 0)),
    ],
)
def test_another_policy_goes_otherwise_where_it_must(
    settings: dict[str, Any], otherwise: list[str], figure: tuple[str, int]
) -> None:
    """Retried exits concern the error of the program alone, and without any action nothing is checked."""
    told = report(replayed(**settings), ASSUMPTIONS)
    names = [line["incident"].partition("-")[0] for line in told["incidents"] if line["difference"]]
    assert names == otherwise
    name, value = figure
    assert told["new"][name] == value != told["control"][name]


def test_the_set_up_of_a_gang_takes_no_longer_than_its_shortest_run() -> None:
    """Otherwise the failure would be before the training. The report says so."""
    found = replayed(retry_exits=True)
    told = report(found, ASSUMPTIONS)
    for each in found.replayed:
        assert each.facts.trace.conditions.rejoin_s == 1.0 and all(one.at_s >= 0 for one in each.facts.trace.failures)
        assert {"incident": each.course.name, "assumption": "rejoin_s = 1 s", "source": SHORTEST} in told["assumptions"]


def test_a_rank_exits_with_the_recorded_code() -> None:
    """By default, an exit with code 1 is not retried, and the end by a signal is."""
    codes = {
        each.course.name.partition("-")[0]: [one.exit_code for one in each.facts.trace.failures]
        for each in replayed(retry_exits=True).replayed
    }
    assert codes == {"heal": [1], "broken": [1], "by": [137], "stuck": []}


def test_an_adopted_job_has_the_instances_that_its_records_name() -> None:
    """That of the first failure has its rank, and the other instances that were checked have the other ranks."""
    records = read_records(RECORDS)
    [course] = [each for each in courses_of(records.events, records.until) if each.name == "by-hand"]
    assert course.first == course.interruptions[0].gang == ("i-985110a373b441015", "i-160d50d889c4fe49f")


def test_instances_are_compared_by_their_first_rank() -> None:
    """The control starts with the same instances, in another order."""
    [heal] = [each for each in replayed(retry_exits=True).replayed if each.course.name.startswith("heal")]
    one, other = heal.course.first
    assert heal.control.course.first == (other, one)
    assert renamed(heal.course, heal.control.course) == {one: other, other: one}
    assert renamed(heal.course, heal.course) == {}
    assert renamed(heal.course, replace(heal.course, first=(one, "i-3"))) == {}


def test_what_happens_after_the_end_of_a_course_is_in_no_figure_of_time() -> None:
    """The replay of a job that is over goes on for an hour, and its last recovery ends there."""

    def episode(number: int, fault_s: float, training_s: float | None) -> Episode:
        return Episode(number, "gpu", fault_s, *[fault_s] * 6, training_s)

    run = PolicyRun((episode(0, 10.0, 40.0), episode(1, 90.0, 130.0), episode(2, 140.0, None)))
    cut = until(run, 100.0)
    assert [(one.failure, one.training_at) for one in cut.episodes] == [(0, 40.0), (1, None)]
    assert sum(length for length, _ in stretches(cut, 100.0)) == 10.0 + 50.0
    [heal] = [each for each in replayed(retry_exits=True).replayed if each.course.name.startswith("heal")]
    [recovery] = heal.control.run.episodes
    assert recovery.training_at is not None and recovery.training_at > heal.course.profile_s
    assert heal.account(heal.control).unrecovered == 1 and 0 <= heal.account(heal.control).ettr <= 1


def test_a_failed_job_that_nobody_submitted_again_is_not_submitted_in_the_control() -> None:
    """Here the records without the next job, which the user submitted at once."""
    records = read_records(RECORDS)
    alone = tuple(event for event in records.events if event.job_id.startswith("broken"))
    told = report(what_if(replace(records, events=alone), lambda same: same, ASSUMPTIONS), ASSUMPTIONS)
    assert told["interruptions"] == {"recorded": 1, "replayed": 1, "reproduced": 1}, told["not_reproduced"]


def test_an_interruption_of_the_control_after_the_recorded_end_is_not_compared() -> None:
    """Such as the return of a fault in the hour for which the replay goes on. One before the end is listed."""
    found = replayed(retry_exits=True)
    [heal] = [each for each in found.replayed if each.course.name.startswith("heal")]
    course = heal.control.course
    for later_s, listed in ((1.0, 1), (heal.course.profile_s + 600, 0)):
        first = course.interruptions[0]
        again = [replace(event, at=first.at + timedelta(seconds=later_s)) for event in first.events]
        more = replace(course, interruptions=[first, replace(first, number=1, events=again)])
        control = replace(heal.control, course=more)
        told = report(replace(found, replayed=(replace(heal, control=control),)), ASSUMPTIONS)
        assert [line["recorded"] for line in told["not_reproduced"]] == [None] * listed

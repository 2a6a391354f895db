"""What agents report about held ranks: ECS reports neither the end of their process nor the start of the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, RankExit, RunningRank
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.task import EndingKind, ending_of_process
from gpu_recovery.node_api.report_parser import ReportInvalid, parse_report

from simulator.memory_store.store import MemoryStore
from tests.aws.records import JOB
from tests.recovery.heartbeat_world import IDS, Died, Scene, dies_before

RANK = RunningRank(JOB, 1, 0, 0, holds=True)
HELD = replace(RANK, held=True)
EXIT = RankExit(JOB, 1, 0, 0, code=1, held=True)
HOLD = AgentCommand(f"hold/{JOB}--a01", AgentCommandKind.HOLD, JOB, 1, 5)
START = AgentCommand(f"start/{JOB}--a02", AgentCommandKind.START, JOB, 1, 0, (("ATTEMPT", "2"),), 2)
NEXT = RunningRank(JOB, 2, 0, 0, holds=True)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Two ranks that can be held, on two instances."""
    policy = replace(PRESETS[Preset.ADAPTIVE], restart_in_place=True)
    scene = Scene(MemoryStore(), IDS[:2], policy)
    for which in (0, 1):
        scene.beats(which, running=(replace(RANK, rank=which),))
    yield scene


def launches_again(scene: Scene) -> None:
    """Attempt 2 of the job, whose launch has sent the start commands."""
    ids = scene.ids
    scene.store.begin_attempt(Plan(JOB, 2, ids, (0, 0), 0, ("task-0", "task-1"), hold_s=300))
    job = scene.job
    scene.store.save_job(replace(job, attempt=2, status=JobStatus.SUBMITTED, held_attempt=1, version=job.version + 1))
    for rank, instance_id in enumerate(ids):
        scene.changes_instance(rank, claims={JOB: Claim(2, 8, 0, rank, 0)})
        scene.store.add_agent_command(instance_id, START)


def test_the_first_held_rank_stops_the_gang_and_the_other_gets_its_hold(scene: Scene) -> None:
    """Its own agent hears of no hold: that rank has ended already."""
    scene.passes(3)
    answer = scene.beats(0, running=(HELD,), exits=(EXIT,))
    assert (scene.job.status, scene.job.holding) == (JobStatus.STOPPING, True)
    assert scene.job.failure is not None and scene.job.failure.ending.exit_code == 1
    assert answer.commands == () and scene.aws.stopped == []
    assert [one.kind for one in scene.beats(1, running=(replace(RANK, rank=1),)).commands] == [AgentCommandKind.HOLD]
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and (progress.held, progress.stopped) == ({0}, frozenset())


def test_a_report_of_another_instance_holds_no_rank(scene: Scene) -> None:
    """A token is valid for its own instance only."""
    scene.passes(3)
    scene.beats(1, running=(replace(RANK, rank=1),), exits=(EXIT,))
    assert scene.job.status is JobStatus.RUNNING
    progress = scene.store.load_progress(JOB, 1)
    assert progress is not None and not progress.held


def test_a_function_that_dies_after_the_fact_is_made_up_for(scene: Scene) -> None:
    """The agent repeats its exit without an answer. The fact is known then, so the progress itself is read."""
    scene.passes(3)
    report = scene.report(0, running=(HELD,), exits=(EXIT,))
    with dies_before(scene.store, "save_job"), suppress(Died):
        scene.hearing.receive(report)
    assert scene.job.status is JobStatus.RUNNING
    scene.hearing.receive(report)
    assert scene.job.status is JobStatus.STOPPING


def test_a_hold_is_withdrawn_once_the_rank_is_held(scene: Scene) -> None:
    """It is carried out."""
    scene.store.add_agent_command(IDS[0], HOLD)
    assert scene.beats(0, running=(RANK,)).commands == (HOLD,)
    assert scene.beats(0, running=(HELD,)).commands == ()
    assert scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders == {}


def test_a_start_is_repeated_until_the_next_attempt_is_reported(scene: Scene) -> None:
    """Then the rank counts as running, once, and the command is withdrawn."""
    launches_again(scene)
    for _ in range(2):
        assert scene.beats(0, running=(HELD,)).commands == (START,)
    scene.passes(61)  # claims are remembered for a minute
    assert scene.beats(0, running=(NEXT,)).commands == ()
    progress = scene.store.load_progress(JOB, 2)
    assert progress is not None and progress.running == {0}
    assert scene.store.load_heartbeats(IDS[:1])[IDS[0]].orders == {}
    assert scene.job.status is JobStatus.SUBMITTED
    scene.beats(1, running=(replace(NEXT, rank=1),))
    assert scene.job.status is JobStatus.RUNNING


def test_a_start_that_is_lost_with_its_function_is_confirmed_by_the_next_report(scene: Scene) -> None:
    """The command stays until the fact is written."""
    launches_again(scene)
    scene.passes(61)
    with dies_before(scene.store, "add_running"), suppress(Died):
        scene.beats(0, running=(NEXT,))
    scene.beats(0, running=(NEXT,))
    progress = scene.store.load_progress(JOB, 2)
    assert progress is not None and progress.running == {0}


def test_only_a_rank_that_can_be_held_is_remembered_as_such(scene: Scene) -> None:
    """The stop reads it: ranks of older wrappers and agents are stopped in ECS."""
    beats = scene.store.load_heartbeats(IDS[:1])[IDS[0]]
    assert beats.holds == (str(scene.log(0)),)
    scene.beats(0, running=(HELD,))
    assert scene.store.load_heartbeats(IDS[:1])[IDS[0]].holds == ()
    scene.beats(0, running=(RunningRank(JOB, 1, 0, 0),))
    assert scene.store.load_heartbeats(IDS[:1])[IDS[0]].holds == ()


@pytest.mark.parametrize(
    ("code", "number", "is_asked", "kind", "status"),
    [
        (1, None, False, EndingKind.FAILED, 1),
        (134, None, False, EndingKind.CRASHED, 134),
        (None, 9, False, EndingKind.CRASHED, 137),
        (None, 15, True, EndingKind.STOPPED_BY_US, 143),
        (0, None, True, EndingKind.STOPPED_BY_US, 0),
    ],
)
def test_the_end_of_a_process_means_what_it_means_in_ecs(
    code: int | None, number: int | None, is_asked: bool, kind: EndingKind, status: int
) -> None:
    """The same exit leads to the same recovery, whoever reports it."""
    ending = ending_of_process(code, number, is_asked)
    assert (ending.kind, ending.exit_code) == (kind, status)


def body(**fields: Any) -> dict[str, Any]:
    rank = {"job": JOB, "attempt": 1, "rank": 0, "pid": 1, "ticks": 1}
    return {
        "boot_id": "6f1c3c1e-0000-4000-8000-000000000000",
        "uptime_s": 1,
        "sequence": 1,
        "running": [{**rank, **fields}],
        "exits": [{"job": JOB, "attempt": 1, "rank": 0, "code": 1, **({"held": True} if fields else {})}],
    }


def test_a_report_without_the_new_fields_is_that_of_an_older_agent() -> None:
    """Its ranks cannot be held; a wrong value is refused."""
    old, new = parse_report(IDS[0], body()), parse_report(IDS[0], body(holds=True, held=True))
    assert old.running is not None and new.running is not None
    assert [(rank.holds, rank.held) for rank in (*old.running, *new.running)] == [(False, False), (True, True)]
    assert (old.exits[0].held, new.exits[0].held) == (False, True)
    with pytest.raises(ReportInvalid):
        parse_report(IDS[0], body(held="yes"))


def test_the_commands_of_older_records_have_no_environment() -> None:
    """Stored commands of an earlier release are read and carried out."""
    assert commands.StopAttempt(1) == commands.StopAttempt(1, hold=False)
    assert AgentCommand("stop/x", AgentCommandKind.STOP, JOB, 1, 5).environment == ()

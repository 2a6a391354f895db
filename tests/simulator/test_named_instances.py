"""An instance that a log names and that passes its check: suspected, used last, and repaired when it fails again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.job.record import JobStatus

from simulator.cloud.log_output import LogStory
from tests.simulator.test_gang_check import ADAPTIVE, HIDDEN, SEEN, Site, site

ENOUGH_ATTEMPTS = replace(ADAPTIVE, attempts_max=100)


def fails_with_a_log(gang: Site, rank: int, story: LogStory = LogStory.GPU) -> str:
    """End a rank whose log says `story`, and return its instance once the gang runs again."""
    instance = gang.instance_of(rank)
    gang.world.log_output.next[instance] = story
    gang.exits(rank)
    gang.settles()
    return instance


def lasts(gang: Site) -> None:
    """Let the gang have a stable run, and poll it."""
    gang.world.let_pass(ENOUGH_ATTEMPTS.stable_run_s + 2 * ENOUGH_ATTEMPTS.poll_interval_s)


def suspected(gang: Site) -> set[str]:
    """The instances that the job suspects."""
    return {one.instance_id for one in gang.world.job(gang.job_id).suspicions if one.stands}


def test_a_named_instance_stays_left_out_after_a_stable_run_without_it() -> None:
    """Before, it was the next spare that was taken, and ended the gang again."""
    gang = site(spares=2, policy=ENOUGH_ATTEMPTS)
    named = fails_with_a_log(gang, 1)
    assert gang.checks() == [named] and suspected(gang) == {named}
    lasts(gang)
    second = fails_with_a_log(gang, 2)
    here = set(gang.world.job(gang.job_id).instances)
    assert not here & {named, second} and not gang.world.fleet.boots


def test_where_nothing_else_is_free_a_suspect_works_and_a_stable_run_with_it_proves_it() -> None:
    """No job waits for ever because of a suspicion, and no suspicion lasts for ever."""
    gang = site(spares=1, policy=ENOUGH_ATTEMPTS)
    named = fails_with_a_log(gang, 1)
    lasts(gang)
    fails_with_a_log(gang, 2)
    assert named in gang.world.job(gang.job_id).instances and gang.instance_of(1) != named
    assert named in suspected(gang)
    lasts(gang)
    assert named not in suspected(gang)


def test_a_suspect_on_which_the_gang_fails_first_again_is_repaired() -> None:
    """A fault that no check finds, named by its log: one failure more, where it was one for each return before."""
    gang = site(spares=1, policy=ENOUGH_ATTEMPTS)
    sick = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(1))
    gang.world.log_output.next[sick.instance_id] = LogStory.GPU
    attempt = gang.world.job(gang.job_id).attempt
    gang.world.break_gpu(sick, HIDDEN)
    gang.until_attempt(attempt + 1)
    gang.settles()
    assert suspected(gang) == {sick.instance_id} and not gang.world.fleet.boots
    lasts(gang)
    other = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(2))
    gang.world.break_gpu(other, SEEN)  # only the suspect is left to take its place
    gang.until_attempt(attempt + 2)
    assert sick.instance_id in gang.world.job(gang.job_id).instances
    gang.world.until(lambda: sick.instance_id in gang.world.fleet.boots, "the suspect is not rebooted", 7_200)
    gang.settles()
    lasts(gang)
    job = gang.world.job(gang.job_id)
    assert gang.world.fleet.boots == {sick.instance_id: 1, other.instance_id: 1}
    assert (job.status, job.attempt) == (JobStatus.RUNNING, attempt + 3)


def test_a_program_whose_log_speaks_of_a_gpu_reboots_nothing() -> None:
    """Whoever has its rank is named, and passes. The suspicions contradict each other."""
    gang = site(spares=2, policy=ENOUGH_ATTEMPTS)
    instances = [fails_with_a_log(gang, 1) for _ in range(3)]
    lasts(gang)
    assert len(set(instances)) > 1 and not gang.world.fleet.boots
    assert not suspected(gang)


@pytest.mark.parametrize("story", [LogStory.CUDA, LogStory.CRASH, LogStory.KILLED, LogStory.NOTHING])
def test_a_failure_that_a_program_may_cause_makes_nobody_suspect(story: LogStory) -> None:
    """Only a cause that no program can have does."""
    gang = site(spares=2, policy=ENOUGH_ATTEMPTS)
    for rank in (1, 2):
        fails_with_a_log(gang, rank, story)
        lasts(gang)
    assert not suspected(gang) and not gang.world.fleet.boots

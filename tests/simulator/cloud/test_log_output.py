"""What programs of the virtual world write, what their ranks tell, and which seeds have such witnesses at all."""

from __future__ import annotations

import pytest
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import Preset

from simulator.cloud.log_output import LINES, STEPS, TRUTH, UNREADABLE_BECAUSE, LogStory
from simulator.cloud.workloads import HIDDEN, NO_LOG
from simulator.faults.operators import JobCanceled, ManagedTagRemoved, StartedAgain
from simulator.faults.training_reports import GangStalls, LogMisleads, RankReports
from simulator.trials import diagnosis
from simulator.trials.generator import scenario_of
from simulator.world import World
from tests.simulator.incidents import HAND_JOB, TRAIN_S, started_by_hand

SEEDS = range(200)
WITNESSES = (LogMisleads, RankReports, GangStalls, StartedAgain, ManagedTagRemoved)


def writing(habit: str = TRUTH, **given: bool) -> tuple[World, str, list[str]]:
    """A gang of two that runs, and the ids of its tasks."""
    world = World(instances=2, train_s=TRAIN_S, **given)
    job_id = world.submit()
    world.log_output.habits[job_id] = habit
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id, [world.rank(job_id, rank).task_id for rank in range(2)]


def read(world: World, job_id: str, task_id: str) -> tuple[str, ...] | str:
    """What the product reads of a task's log."""
    return world.actions.log_tail(world.job(job_id), task_id, 400)


@pytest.mark.parametrize(
    ("kind", "says"),
    [("xid79", LogStory.GPU), ("ecc", LogStory.ECC), (HIDDEN, LogStory.CUDA)],
    ids=["lost", "ecc", "hidden"],
)
def test_the_truth_of_a_gpu_that_fails_and_of_those_who_lose_their_peer(kind: str, says: LogStory) -> None:
    """The rank on it writes of the GPU, the other one of the rank that is gone."""
    world, job_id, (first, second) = writing()
    world.break_gpu(world.model_instance(0), kind)
    world.until_status(job_id, JobStatus.DIAGNOSING)
    assert read(world, job_id, first) == (*STEPS, *LINES[says])
    assert read(world, job_id, second) == (*STEPS, *LINES[LogStory.NETWORK])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, LogStory.PROGRAM),
        (134, LogStory.CRASH),
        (137, LogStory.KILLED),
        (139, LogStory.CRASH),
        (None, LogStory.NOTHING),
    ],
)
def test_the_truth_of_a_rank_that_ends_by_itself(code: int | None, says: LogStory) -> None:
    """By its exit code; who vanishes writes nothing."""
    world, job_id, (first, _) = writing()
    world.exit(job_id, 0, code)
    assert read(world, job_id, first) == (*STEPS, *LINES[says])


def test_a_gang_that_is_done_has_nothing_to_complain_of() -> None:
    """Whatever its habit would have it write."""
    world, job_id, tasks = writing(LogStory.GPU)
    world.until_end(job_id)
    assert [read(world, job_id, one) for one in tasks] == [STEPS, STEPS]


def test_a_habit_is_written_whatever_is_so() -> None:
    """Every time; and what nobody may read is a sentence."""
    for habit in (LogStory.GPU, LogStory.UNREADABLE):
        world, job_id, (first, _) = writing(habit)
        world.exit(job_id, 0, 1)
        expected = (*STEPS, *LINES[habit]) if habit in LINES else UNREADABLE_BECAUSE
        assert read(world, job_id, first) == expected


def test_a_lie_is_told_once_and_by_the_rank_on_that_machine() -> None:
    """The other one writes as its job does, the next one there, too."""
    world, job_id, (first, second) = writing()
    assert LogMisleads(says=LogStory.STORAGE, machines=(0,), at_s=0).strike(world)
    world.exit(job_id, 0, 139)
    world.until_status(job_id, JobStatus.RECOVERING)
    assert read(world, job_id, first) == (*STEPS, *LINES[LogStory.STORAGE])
    assert read(world, job_id, second) == (*STEPS, *LINES[LogStory.NETWORK])
    assert not world.log_output.next


def test_a_job_that_writes_nothing_has_no_log() -> None:
    """As long as nobody wants it to."""
    world, job_id, (first, _) = writing("")
    world.exit(job_id, 0, 1)
    assert read(world, job_id, first) == NO_LOG


@pytest.mark.parametrize("of", ["notice", "gpu"])
def test_what_a_rank_tells_is_heard_when_it_is_heard(of: str) -> None:
    """Of its attempt, and as old as it was when it was told."""
    world, job_id, _ = writing(diagnose=True)
    where = world.model_instance(1).instance_id
    told_s = world.timeline.now.timestamp()
    assert RankReports(of=of, machines=(1,), late_s=60, at_s=0).strike(world)
    assert not world.store.observations_of(job_id, 1, (where,))
    world.let_pass(61)
    (report,) = world.store.observations_of(job_id, 1, (where,))[where].reports
    assert report.rank == 1 and report.at_s <= told_s


def test_a_gang_that_stalls_does_not_end_until_it_is_stopped() -> None:
    """Whoever asks its ranks how far they are sees that they stand still."""
    world, job_id, _ = writing(diagnose=True)
    assert GangStalls(machines=(0,), at_s=0).strike(world)
    world.let_pass(TRAIN_S + 60)
    assert len(world.ranks(job_id)) == 2
    world.until_end(job_id)
    assert (world.job(job_id).status, world.job(job_id).attempt) == (JobStatus.SUCCEEDED, 2)


def test_nobody_tells_where_nobody_listens() -> None:
    """A gang that stalled there would never end."""
    world, _, _ = writing()
    assert not GangStalls(machines=(0,), at_s=0).strike(world)
    assert not RankReports(machines=(0,), at_s=0).strike(world)


def test_a_person_starts_a_gang_again_that_has_ended_and_no_other() -> None:
    """It is the next attempt of that job."""
    world = started_by_hand(Adoption.RECOVER, instances=2)
    assert not StartedAgain(at_s=0).strike(world)
    world.finish(HAND_JOB)
    world.until_end(HAND_JOB)
    world.let_pass(5)
    assert StartedAgain(at_s=0).strike(world)
    world.until_status(HAND_JOB, JobStatus.RUNNING)
    assert world.job(HAND_JOB).attempt == 2


@pytest.mark.parametrize("force", [False, True])
def test_only_by_force_is_a_failed_job_canceled(force: bool) -> None:
    """Of any other that has ended, nothing is left."""
    world, job_id, _ = writing()
    world.exit(job_id, 0, 1)
    world.until_end(job_id)
    assert world.job(job_id).status is JobStatus.FAILED
    assert JobCanceled(force=force, at_s=0).strike(world) is force


def test_a_machine_that_is_taken_back_is_not_rebooted() -> None:
    """Until its owners hand it over again."""
    world, *_ = writing()
    assert ManagedTagRemoved(machines=(0,), for_s=9_000, at_s=0).strike(world)
    assert not ManagedTagRemoved(machines=(0,), at_s=0).strike(world)
    world.break_gpu(world.model_instance(0))
    world.let_pass(3_600)
    assert not world.calls("RebootInstances")
    assert world.instance(world.model_instance(0)).needs_operator


def test_every_fourth_seed_has_witnesses_and_the_others_are_what_they_were() -> None:
    """`classic` looks into nothing, in these seeds either."""
    for seed in SEEDS:
        told = scenario_of(seed)
        cluster, has = told.cluster, seed % diagnosis.EVERY == diagnosis.AT
        looks = has and cluster.policy.get("preset") != Preset.CLASSIC
        assert (cluster.diagnose, cluster.lemons) == (looks, looks)
        assert all(bool(job.writes) == has for job in told.jobs)
        assert has or not any(isinstance(fault, WITNESSES) for fault in told.faults)


def test_a_crowd_in_which_nothing_goes_wrong_stays_one() -> None:
    """Its end is compared with that of an undisturbed run."""
    undisturbed = [seed for seed in range(600) if seed % 12 == 10 and not scenario_of(seed).faults]
    assert undisturbed

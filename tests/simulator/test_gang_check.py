"""The check of the whole gang: left out with the passive evidence of every agent, and never twice in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.gang_check import checked_gang
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import PRESETS, GangCheck, Preset, RecoveryPolicy
from gpu_recovery.core.recovery_expectation.published_times import RATE_PER_1000_INSTANCE_DAYS

from simulator.world import World
from tests.core.build import NOW

ADAPTIVE = replace(PRESETS[Preset.ADAPTIVE], attempts_max=10)
ALWAYS = replace(ADAPTIVE, gang_check=GangCheck.ALWAYS)
DEEP, SEEN, HIDDEN = "deep", "xid79", "hidden"
"""Kinds of fault: found by a check only, reported by the agent too, and found by neither."""


@dataclass
class Site:
    """A gang that runs, with agents that report the end of a rank at once."""

    world: World
    job_id: str

    def exits(self, rank: int = 1, code: int = 134) -> float:
        """End a rank, and return the seconds until the gang runs again."""
        attempt, since = self.world.job(self.job_id).attempt, self.world.timeline.now
        self.world.exit(self.job_id, rank, code)
        self.until_attempt(attempt + 1)
        return (self.world.timeline.now - since).total_seconds()

    def until_attempt(self, attempt: int) -> None:
        """Wait until this attempt runs."""

        def runs() -> bool:
            job = self.world.job(self.job_id)
            return (job.status, job.attempt) == (JobStatus.RUNNING, attempt)

        self.world.until(runs, f"attempt {attempt} does not run", 7_200)

    def checks(self) -> list[str]:
        """Instances of the health checks that ECS has started, in order."""
        tasks = sorted(self.world.cluster.tasks.values(), key=lambda task: task.created_at)
        started_by = [task.started_by or "" for task in tasks]
        return [text.split("/")[1] for text in started_by if text.startswith("check/")]

    def settles(self) -> None:
        """Wait until no check and no repair goes on."""
        self.world.until(self.is_settled, "checks or repairs go on", 7_200)

    def is_settled(self) -> bool:
        """Whether every instance is available."""
        records = map(self.world.instance, self.world.model_instances())
        return all(record.status is InstanceStatus.AVAILABLE for record in records)

    def rank_elsewhere(self, *instances: str, other_than: Sequence[int] = ()) -> int:
        """A rank that runs on none of these instances."""
        here = self.world.job(self.job_id).instances
        return next(rank for rank, name in enumerate(here) if name not in instances and rank not in other_than)

    def instance_of(self, rank: int) -> str:
        """Instance of a rank."""
        return self.world.job(self.job_id).instances[rank]

    def fails_elsewhere(self, times: int) -> list[int]:
        """Let the gang fail so often, each time first with another rank on another instance.

        Returns:
            After each failure the number of checks since the begin.
        """
        failed: list[str] = []
        ranks: list[int] = []
        counts = []
        for _ in range(times):
            ranks.append(self.rank_elsewhere(*failed, other_than=ranks))
            failed.append(self.instance_of(ranks[-1]))
            self.exits(ranks[-1])
            self.settles()
            counts.append(len(self.checks()))
        return counts


def site(nnodes: int = 4, spares: int = 1, policy: RecoveryPolicy = ADAPTIVE, **given: Any) -> Site:
    """A gang that has run for two minutes."""
    world = World(instances=nnodes + spares, policy=policy, train_s=None, diagnose=True, **{"agents": True, **given})
    if world.agents is not None:
        world.agents.reports_exits = True
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(120)
    return Site(world, job_id)


def test_a_crash_without_a_sign_of_a_fault_costs_no_check_of_the_gang() -> None:
    """One instance is checked, behind the back of the job; before, all of them, and the job waited."""
    with_evidence, always = site(), site(policy=ALWAYS)
    first = with_evidence.instance_of(1)
    took_s, took_before_s = with_evidence.exits(), always.exits()
    for each in (with_evidence, always):
        each.settles()
    assert first not in with_evidence.world.job(with_evidence.job_id).instances
    assert with_evidence.checks() == [first]
    assert (len(with_evidence.checks()), len(always.checks())) == (1, 4)
    assert took_s < 20
    assert took_before_s > took_s + 60


def test_without_a_spare_the_instance_stays_and_nothing_is_checked() -> None:
    """Its own agent shows no fault. The rank moves to another instance, so that a second failure tells them apart."""
    gang = site(spares=0)
    first, rank_before = gang.instance_of(1), 1
    assert gang.exits() < 20
    instances = gang.world.job(gang.job_id).instances
    assert first in instances and instances.index(first) != rank_before
    gang.world.let_pass(600)
    assert gang.checks() == []


@pytest.mark.parametrize("of", ["silent", "cut off", "no agents"])
def test_a_silent_agent_has_the_whole_gang_checked(of: str) -> None:
    """A quiet agent proves nothing."""
    gang = site(agents=of != "no agents")
    last, agents = gang.instance_of(3), gang.world.agents
    if agents is not None:
        (agents.ended if of == "silent" else agents.cut_off).add(last)
    gang.exits()
    assert len(gang.checks()) == 4


def test_an_instance_with_a_sign_of_a_fault_is_the_only_one_that_is_checked() -> None:
    """NVML shows it, the kernel log names no XID, and the gang failed first elsewhere. The job does not wait for it."""
    gang = site(spares=2)
    assert gang.world.agents is not None
    sick = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(2))
    # The rank on the sick instance is not hurt: the others feel it first.
    gang.world.training._is_hurt = lambda task: False  # type: ignore[method-assign]
    gang.world.break_gpu(sick, SEEN)
    gang.world.agents._agents[sick.instance_id].logged.add(sick.gpus[0])
    first = gang.instance_of(0)
    assert gang.exits(0) < 20
    job = gang.world.job(gang.job_id)
    assert sick.instance_id not in job.instances
    assert job.repairs == 1 and sick.instance_id in job.blamed
    gang.settles()
    assert set(gang.checks()) == {sick.instance_id, first}
    assert gang.world.fleet.boots[sick.instance_id] == 1


@pytest.mark.parametrize("spares", [0, 1])
def test_a_second_failure_soon_after_has_the_whole_gang_checked(spares: int) -> None:
    """And a third may go without again, because the check has found no fault."""
    gang = site(spares=spares)
    counts = gang.fails_elsewhere(3)
    assert counts == [spares, spares + 4, 2 * spares + 4]


def test_each_check_that_finds_nothing_doubles_the_failures_before_the_next() -> None:
    """A bug that comes back has no faulty instance. Before, every second failure took minutes of every GPU."""
    gang = site(nnodes=20, spares=0, policy=replace(ADAPTIVE, attempts_max=20))
    counts = [checks // 20 for checks in gang.fails_elsewhere(8)]
    assert counts == [0, 1, 1, 1, 2, 2, 2, 2]
    gang.world.let_pass(ADAPTIVE.stable_run_s + ADAPTIVE.poll_interval_s + 60)
    job = gang.world.job(gang.job_id)
    assert (job.unexplained, job.checks_without_fault) == (0, 0)


@pytest.mark.parametrize(
    ("results", "without_fault"),
    [
        ({"a": CheckOutcome.HEALTHY, "b": CheckOutcome.HEALTHY}, 2),
        ({"a": CheckOutcome.HEALTHY}, 1),
        ({"a": CheckOutcome.HEALTHY, "b": CheckOutcome.INCONCLUSIVE}, 1),
        ({"a": CheckOutcome.HEALTHY, "b": CheckOutcome.SUSPECTED}, 0),
        ({"a": CheckOutcome.REBOOT, "b": CheckOutcome.HEALTHY}, 0),
    ],
)
def test_only_a_check_that_every_instance_passes_makes_the_next_rarer(
    results: dict[str, CheckOutcome], without_fault: int
) -> None:
    """An instance without an answer may be the faulty one."""
    job = Job("sft-1", JobSpec("sft", 2, 8), NOW, NOW, instances=("a", "b"), unexplained=1, checks_without_fault=1)
    told = {name: Checked(outcome, "", repairing=False) for name, outcome in results.items()}
    assert checked_gang(job, told) == {"unchecked": 0, "unexplained": 0, "checks_without_fault": without_fault}


def test_a_stable_run_that_no_poll_saw_counts_all_the_same() -> None:
    """Its failure comes after half an hour, and before the next poll."""
    gang = site(spares=0, policy=replace(ADAPTIVE, attempts_max=20))
    gang.fails_elsewhere(2)
    before = gang.world.job(gang.job_id)
    assert (before.checks_without_fault, before.running_at is not None) == (1, True)
    ran_s = (gang.world.timeline.now - before.running_at).total_seconds()  # type: ignore[operator]
    gang.world.let_pass(ADAPTIVE.stable_run_s + 5 - ran_s)
    assert gang.world.job(gang.job_id).checks_without_fault == 1
    gang.exits(gang.rank_elsewhere(*(end.instance_id for end in before.first_ends)))
    after = gang.world.job(gang.job_id)
    assert (after.unexplained, after.checks_without_fault) == (1, 0)


@pytest.mark.parametrize(("by_chance", "counts"), [(0.09, [0, 1, 1, 1]), (0.11, [0, 0, 1, 1])])
def test_in_a_gang_that_often_fails_by_chance_the_third_failure_has_it_checked(
    by_chance: float, counts: list[int]
) -> None:
    """In a gang of 2,000 two failures within half an hour have most often two causes."""
    nnodes = 12
    stable_run_s = int(by_chance / (nnodes * RATE_PER_1000_INSTANCE_DAYS / 1_000 / 86_400))
    gang = site(nnodes=nnodes, spares=0, policy=replace(ADAPTIVE, attempts_max=20, stable_run_s=stable_run_s))
    found = [checks // nnodes for checks in gang.fails_elsewhere(len(counts))]
    assert found == counts


def test_a_failure_of_an_instance_with_a_fault_is_not_the_first_of_two() -> None:
    """The evidence names the instance, and it is repaired. So it says nothing about the failure that follows."""
    gang = site(nnodes=4, spares=3)
    sick = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(2))
    gang.world.break_gpu(sick, SEEN)
    gang.until_attempt(2)
    assert sick.instance_id not in gang.world.job(gang.job_id).instances
    gang.world.let_pass(60)
    first = gang.instance_of(0)
    assert gang.exits(0) < 20
    gang.settles()
    assert {*gang.checks()} <= {sick.instance_id, first}
    gang.exits(gang.rank_elsewhere(first, sick.instance_id, other_than=(0,)))
    gang.settles()
    assert {*gang.world.job(gang.job_id).instances} - {sick.instance_id} < {*gang.checks()}


def test_after_a_stable_run_a_failure_is_the_first_again() -> None:
    """Hours lie between the two. If the gang fails first on the same instance again, that instance is checked."""
    gang = site(spares=0)
    first = gang.instance_of(1)
    for expected in ([], [first]):
        gang.exits(gang.world.job(gang.job_id).instances.index(first))
        assert gang.checks() == expected
        gang.world.let_pass(ADAPTIVE.stable_run_s + ADAPTIVE.poll_interval_s + 60)
    assert gang.exits(gang.rank_elsewhere(first)) < 20
    assert gang.checks() == [first]


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize("rank", [0, 3])
def test_a_sick_instance_that_no_agent_sees_is_found_within_two_restarts(spares: int, rank: int) -> None:
    """The first failure goes on without a check. With a spare the instance is left out, without one the next failure
    has the gang checked.
    """
    gang = site(spares=spares)
    sick = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(rank))
    gang.world.break_gpu(sick, DEEP)

    def repaired() -> bool:
        return gang.world.fleet.boots[sick.instance_id] == 1 and gang.is_settled()

    gang.world.until(repaired, "the sick instance was not found", 7_200)
    job = gang.world.job(gang.job_id)
    restarts = 1 if spares else 2
    gang.until_attempt(1 + restarts)
    assert job.attempts_counted <= restarts
    assert len(gang.checks()) <= (2 if spares else 4 + 2)
    gang.world.let_pass(3_600)
    assert gang.world.job(gang.job_id).attempt == 1 + restarts


def test_a_sick_instance_that_neither_agents_nor_checks_see_is_found_as_before() -> None:
    """The rule for repeat offenders: first ends count, whether the gang was checked or not."""
    gang = site(nnodes=4, spares=0)
    sick = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(1))
    gang.world.break_gpu(sick, HIDDEN)
    gang.world.until(lambda: gang.world.fleet.boots[sick.instance_id] == 1, "it was not suspected", 7_200)
    assert gang.world.job(gang.job_id).attempts_counted == 2


def test_a_failure_that_only_a_fault_would_forgive_is_checked_as_before() -> None:
    """An exit with 1 ends the job unless a check finds a fault. So the check decides."""
    gang = site()
    gang.world.exit(gang.job_id, 1, 1)
    gang.world.until_end(gang.job_id)
    assert gang.world.job(gang.job_id).status is JobStatus.FAILED
    assert len(gang.checks()) == 4


def test_a_hang_without_a_named_rank_is_restarted_without_a_check_once() -> None:
    """Every rank ends at our stop, so no rank was first and no instance is left out."""
    gang = site(spares=0)
    assert gang.world.agents is not None
    gang.world.agents.step_s = 5.0
    gang.world.let_pass(300)
    gang.world.agents.stalled[gang.job_id] = gang.world.timeline.now
    gang.world.until_status(gang.job_id, JobStatus.STOPPING)
    gang.world.agents.stalled.clear()
    gang.until_attempt(2)
    assert gang.checks() == []


IN_PLACE = replace(ADAPTIVE, restart_in_place=True, pending_retry_s=1)


def calls(gang: Site) -> tuple[int, int]:
    """Numbers of tasks that were started for ranks, and of tasks that were stopped."""
    started = [step for step in gang.world.calls("RunTask") if "--a" in step.given["startedBy"]]
    return len(started), len(gang.world.calls("StopTask"))


def test_an_undecided_crash_stays_in_place() -> None:
    """The agents of all instances show no fault. Without a spare no task is started or stopped."""
    gang = site(spares=0, policy=IN_PLACE)
    assert gang.exits() < 20
    assert (calls(gang), gang.checks()) == ((4, 0), [])
    assert "restarted in place without a check of the gang" in history(gang)


def test_an_undecided_crash_moves_the_rank_that_failed_first_to_a_spare() -> None:
    """Its container ends once the spare is placed, and its instance is checked after that end."""
    gang = site(spares=1, policy=IN_PLACE)
    first = gang.instance_of(1)
    assert gang.exits() < 20
    assert calls(gang) == (5, 1)
    assert first not in gang.world.job(gang.job_id).instances
    gang.settles()
    assert gang.checks() == [first]
    record = gang.world.store.load_instance(first)
    assert record is not None and not record.claims


def test_an_instance_with_a_sign_is_swapped_out_of_an_undecided_crash() -> None:
    """The other ranks start again in their containers, and the sick instance is checked and repaired."""
    gang = site(spares=2, policy=IN_PLACE)
    assert gang.world.agents is not None
    sick = next(one for one in gang.world.model_instances() if one.instance_id == gang.instance_of(2))
    gang.world.training._is_hurt = lambda task: False  # type: ignore[method-assign]
    gang.world.break_gpu(sick, SEEN)
    gang.world.agents._agents[sick.instance_id].logged.add(sick.gpus[0])
    assert gang.exits(0) < 20
    assert sick.instance_id not in gang.world.job(gang.job_id).instances
    gang.settles()
    assert gang.world.fleet.boots[sick.instance_id] == 1


def test_a_silent_agent_ends_the_containers_of_an_undecided_crash() -> None:
    """Then the whole gang is checked, as without containers that wait."""
    gang = site(spares=0, policy=IN_PLACE)
    assert gang.world.agents is not None
    gang.world.agents.cut_off.add(gang.instance_of(3))
    gang.exits()
    assert len(gang.checks()) == 4


def test_a_second_undecided_crash_soon_after_ends_the_containers() -> None:
    """The repetition has the whole gang checked."""
    gang = site(spares=0, policy=IN_PLACE)
    first = gang.instance_of(1)
    gang.exits()
    assert gang.checks() == []
    gang.exits(gang.rank_elsewhere(first))
    assert len(gang.checks()) == 4


@pytest.mark.parametrize("policy", [ADAPTIVE, IN_PLACE], ids=["new tasks", "in place"])
def test_a_failure_that_follows_the_rank_has_no_gang_checked(policy: RecoveryPolicy) -> None:
    """The same rank fails first on two instances in turn. Each is checked alone after it was left. None is repaired."""
    gang = site(spares=3, policy=policy)
    failed: list[str] = []
    for _ in range(3):
        failed.append(gang.instance_of(1))
        gang.exits(1)
    assert len(set(failed)) == 2 and gang.world.job(gang.job_id).attempts_counted == 3
    gang.settles()
    assert sorted(gang.checks()) == sorted(failed) and not gang.world.fleet.boots


def test_a_first_end_counts_once_although_the_containers_ended_later() -> None:
    """Two reports of one attempt's end are no repetition. The instance was not first before."""
    gang = site(spares=0, policy=replace(IN_PLACE, gang_check=GangCheck.ALWAYS))
    gang.exits()
    assert [end.attempt for end in gang.world.job(gang.job_id).first_ends] == [1]
    assert "suspected" not in history(gang)


def history(gang: Site) -> str:
    """Reasons of the job's decisions."""
    return "\n".join(entry.reason for entry in gang.world.job(gang.job_id).history)

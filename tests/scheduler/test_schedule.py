"""A pass of the scheduler over either store: who is placed, who makes room, two at once, what a tick costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import Claim, InstanceStatus
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.run_time_estimates import LEAST, slot_of
from gpu_recovery.core.task import Ending, EndingKind, RankFailure, TaskFact
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import Ec2Instance
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler import schedule as schedule_module
from gpu_recovery.scheduler.schedule import PASS_INTERVAL_MAX, read, schedule

from tests.aws.records import NOW, instance, spec
from tests.recovery.heartbeat_world import IDS, Quiet

S = JobStatus


@dataclass
class Launching:
    """`ports.Actions` as far as launching and suspending ask."""

    launched: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    poked: list[str] = field(default_factory=list)

    def run_ranks(self, job: Job, plan: Plan, ranks: Sequence[int], master_ip: str, key: str) -> tuple[str, ...]:
        self.launched[job.job_id] = plan.instances
        return tuple(f"{job.job_id}-{rank}" for rank in ranks)

    def describe_ec2(self, instance_ids: Sequence[str]) -> dict[str, Ec2Instance]:
        return {name: Ec2Instance(Ec2InstanceState.RUNNING, private_ip="10.0.0.1") for name in instance_ids}

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        self.stopped += task_ids

    def stop_task(self, task_id: str, reason: str) -> bool:
        self.stopped.append(task_id)
        return True

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        return ()

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        return ()

    def poke_scheduler(self, key: str, hops: int = 1) -> None:
        self.poked.append(key)

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: None


class Cluster:
    """A scheduler, its store, `size` instances of eight GPUs, and a clock that the test turns."""

    def __init__(self, store: Store, size: int) -> None:
        self.store, self.actions, self.now = store, Launching(), NOW
        self.policy: RecoveryPolicy = PRESETS[Preset.ADAPTIVE]
        for instance_id in IDS[:size]:
            store.save_instance(instance(instance_id))

    @property
    def recovery(self) -> Recovery:
        return Recovery(self.store, self.actions, self.policy, lambda: self.now, Quiet())  # type: ignore[arg-type]

    def submit(self, job_id: str, nodes: int = 1, gpus: int = 8, **more: Any) -> None:
        asked = spec(nnodes=nodes, gpus_per_node=gpus, **more)
        self.recovery.create_job(state_machine.created(job_id, asked, self.policy, self.now), "")
        self.now += timedelta(seconds=1)

    def job(self, job_id: str) -> Job:
        found = self.store.load_job(job_id)
        assert found is not None
        return found

    def status(self, *job_ids: str) -> list[JobStatus]:
        return [self.job(one).status for one in job_ids]

    def runs(self, job_id: str) -> None:
        attempt = self.job(job_id).attempt
        self.recovery.handle(job_id, events.AllRanksRunning(at=self.now, attempt=attempt))

    def leaves(self, job_id: str) -> None:
        """Rank 0 leaves under its notice, and then the others."""
        record = self.job(job_id)
        gone = RankFailure(0, record.instances[0], self.now, Ending(EndingKind.STOPPED_BY_US, 0, "stopped"))
        about = {"at": self.now, "attempt": record.attempt, "failure": gone}
        self.recovery.handle(job_id, events.RankFailed(**about))
        self.recovery.handle(job_id, events.AllRanksStopped(**about))

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def schedule(self, *keys: str) -> int:
        return schedule(self.recovery, keys)


@pytest.fixture
def cluster(store: Store) -> Cluster:
    """Two instances."""
    return Cluster(store, 2)


# -- placing -----------------------------------------------------------------------------------------------------------


def test_small_jobs_share_an_instance_and_a_gang_has_its_own(cluster: Cluster) -> None:
    """Half an instance and half of it again; the whole ones stay whole."""
    cluster.submit("a", gpus=4)
    cluster.submit("b", gpus=4)
    cluster.submit("c", gpus=8)
    assert cluster.schedule() == 3
    launched = cluster.actions.launched
    assert launched["a"] == launched["b"] != launched["c"]
    assert sum(one.gpus for one in cluster.store.load_instances(IDS[:2])[launched["a"][0]].claims.values()) == 8


def test_a_higher_priority_goes_first_and_its_user_pays_for_it(cluster: Cluster) -> None:
    """Submitted last, placed first; the instances are counted at the priority asked for."""
    cluster.submit("low", 2, user="ana", priority=Priority.LOW)
    cluster.submit("high", 2, user="bob", priority=Priority.HIGH)
    assert cluster.schedule() == 1
    assert cluster.status("low", "high") == [S.PENDING_RESOURCES, S.SUBMITTED]
    assert cluster.store.quota_used(["ana/LOW/", "bob/HIGH/"]) == {"ana/LOW/": 0, "bob/HIGH/": 2}


def test_a_job_over_its_quota_waits_with_a_sentence_and_is_in_nobodys_way(cluster: Cluster) -> None:
    """The next user's job is placed in spite of it."""
    cluster.store.save_limits({"instances": {"ana/*/*": 1}}, 0)
    cluster.submit("one", user="ana")
    cluster.submit("two", user="ana")
    cluster.submit("other", user="bob")
    assert cluster.schedule() == 2
    assert cluster.status("one", "two", "other") == [S.SUBMITTED, S.PENDING_RESOURCES, S.SUBMITTED]
    assert "1 of the quota of 1 of ana/NORMAL/ are taken" in cluster.job("two").reason


def test_a_job_on_an_instance_that_has_moved_since_is_left_for_the_next_pass(cluster: Cluster) -> None:
    """The index showed the instance as free; read afresh it is not, so nothing is launched in vain."""
    cluster.submit("a", 1)
    listed = cluster.store.instances_in([InstanceStatus.AVAILABLE])
    cluster.store.claim_instance(IDS[0], "somebody", Claim(1, 8), None)
    cluster.store.claim_instance(IDS[1], "somebody", Claim(1, 8), None)
    cluster.store.instances_in = lambda *_: listed  # type: ignore[method-assign]
    assert cluster.schedule() == 0
    assert cluster.job("a").status is S.QUEUED and cluster.actions.launched == {}
    assert cluster.actions.poked[-1].startswith("#pass/")


def test_a_job_that_the_index_does_not_show_yet_is_placed_all_the_same(cluster: Cluster) -> None:
    """Whoever wakes the scheduler names itself: between a submission and its task no minute is lost."""
    cluster.submit("new")
    cluster.store.load_queue = lambda *_: ()  # type: ignore[method-assign]
    assert cluster.schedule("new/1") == 1


# -- making room -------------------------------------------------------------------------------------------------------


def preempted(cluster: Cluster) -> None:
    """`low` has run long enough to be asked, and `high` wants its place."""
    cluster.submit("low", 2, user="ana", priority=Priority.LOW)
    cluster.schedule()
    cluster.runs("low")
    cluster.passes(cluster.policy.preemption_protect_s + 60)
    cluster.submit("high", 2, user="bob", priority=Priority.HIGH)
    cluster.schedule()


def test_a_preemptor_waits_until_its_victim_has_gone(cluster: Cluster) -> None:
    """First the notice to rank 0, then the confirmed end of every rank, then the launch: never two on one GPU."""
    preempted(cluster)
    assert cluster.status("low", "high") == [S.SUSPENDING, S.PENDING_RESOURCES]
    assert cluster.actions.stopped == ["low-0"]
    assert cluster.schedule() == 0 and "high" not in cluster.actions.launched
    cluster.leaves("low")
    assert cluster.job("low").status is S.SUSPENDED
    assert cluster.schedule() == 1
    assert cluster.status("low", "high") == [S.SUSPENDED, S.SUBMITTED]


def test_what_was_vacated_for_one_is_given_to_nobody_else(cluster: Cluster) -> None:
    """Not even to who was first in line at a lower priority and would fit."""
    preempted(cluster)
    cluster.leaves("low")
    cluster.submit("thief", 1, user="eve", priority=Priority.LOW)
    later_on = read(cluster.recovery).snapshot
    assert {host.reserved_for for host in later_on.hosts} == {"high"}
    cluster.schedule()
    assert cluster.job("thief").status is not S.SUBMITTED


def test_a_host_whose_gpus_ecs_shows_late_costs_no_second_victim(cluster: Cluster) -> None:
    """The victim has left and its claim is gone; that ECS still counts its GPUs as taken makes nobody else leave."""
    cluster.submit("v1", 1, user="ana", priority=Priority.LOW)
    cluster.submit("v2", 1, user="ana", priority=Priority.LOW)
    cluster.schedule()
    for one in ("v1", "v2"):
        cluster.runs(one)
    cluster.passes(cluster.policy.preemption_protect_s + 60)
    cluster.submit("high", 1, user="bob", priority=Priority.HIGH)
    cluster.schedule()
    (victim,) = [one for one in ("v1", "v2") if cluster.job(one).status is S.SUSPENDING]
    (host,) = cluster.job(victim).instances
    cluster.leaves(victim)
    shown = cluster.store.load_instances([host])[host]
    cluster.store.save_instance(replace(shown, gpus_free=0))
    assert cluster.schedule() == 0
    assert [one for one in ("v1", "v2") if cluster.job(one).status is S.RUNNING] != []
    shown = cluster.store.load_instances([host])[host]
    cluster.store.save_instance(replace(shown, gpus_free=8))
    assert cluster.schedule() == 1 and cluster.job("high").instances == (host,)


def test_a_job_placed_in_vain_is_looked_at_with_the_next_tick(cluster: Cluster) -> None:
    """The index showed an older version of it: nobody's poke may ever come again, so the clock must not sleep."""
    cluster.submit("a")
    old = cluster.store.load_queue()
    cluster.store.save_job(replace(cluster.job("a"), version=cluster.job("a").version + 1))
    real, cluster.store.load_queue = cluster.store.load_queue, lambda *_: old  # type: ignore[method-assign]
    assert cluster.schedule() == 0 and cluster.actions.poked[-1].startswith("#pass/")
    cluster.store.load_queue = real  # type: ignore[method-assign]
    cluster.passes(60)
    assert cluster.schedule("#tick/1") == 1


def test_a_pass_that_dies_on_the_way_leaves_the_next_tick_something_to_do(cluster: Cluster) -> None:
    """Nobody waited when the last one ended; whoever was submitted since must not be slept over."""
    cluster.schedule()
    cluster.submit("a")
    instances, cluster.store.instances_in = cluster.store.instances_in, None  # type: ignore[method-assign, assignment]
    with pytest.raises(TypeError):
        cluster.schedule("a/1")
    cluster.store.instances_in = instances  # type: ignore[method-assign]
    cluster.passes(60)
    assert cluster.schedule("#tick/1") == 1


def test_a_recovering_gang_is_not_given_up_for_a_quota_that_it_never_had(cluster: Cluster) -> None:
    """A person's gang takes up no quota; it goes on all the same, and is counted from then on."""
    cluster.store.save_limits({"instances": {"*/*/*": 1}}, 0)
    cluster.submit("run", 2)
    gang = replace(cluster.job("run"), status=S.RECOVERING, attempt=1, instances=IDS[:2])
    cluster.store.save_job(gang)
    assert cluster.schedule() == 1
    assert cluster.store.quota_used(["ana/NORMAL/"]) == {"ana/NORMAL/": 2}


def test_words_that_cannot_be_sent_do_not_stall_the_line(cluster: Cluster) -> None:
    """The job has its place; what could not be said of it is kept in its record."""
    cluster.submit("a")

    def refuse(*_: Any) -> None:
        raise RuntimeError("the bus is away")

    cluster.actions.publish = refuse  # type: ignore[attr-defined]
    assert cluster.schedule() == 1 and cluster.job("a").status is S.SUBMITTED


def test_room_that_nobody_wants_any_more_is_everybodys(cluster: Cluster) -> None:
    """The preemptor is canceled while its victim leaves: the victim goes on."""
    preempted(cluster)
    cluster.recovery.handle("high", events.CancelRequested(at=cluster.now, attempt=0, by="bob"))
    cluster.leaves("low")
    assert cluster.schedule() == 1
    assert cluster.job("low").status is S.SUBMITTED and cluster.job("low").attempt == 2


def test_a_suspended_job_is_before_who_came_later(cluster: Cluster) -> None:
    """It has its old place in line when its preemptor is done."""
    preempted(cluster)
    cluster.leaves("low")
    cluster.schedule()
    cluster.submit("later", 2, user="eve", priority=Priority.LOW)
    cluster.runs("high")
    attempt = cluster.job("high").attempt
    cluster.recovery.handle("high", events.AllRanksStopped(at=cluster.now, attempt=attempt))
    assert cluster.schedule() == 1
    assert cluster.job("low").status is S.SUBMITTED and cluster.job("later").status is not S.SUBMITTED


def test_a_job_that_a_person_holds_is_not_placed(cluster: Cluster) -> None:
    """Room or not; resumed it is."""
    cluster.submit("a")
    held = events.SuspendRequested(at=cluster.now, attempt=0, by="ada")
    cluster.recovery.handle("a", held)
    assert cluster.schedule() == 0
    cluster.passes(1)
    cluster.recovery.handle("a", events.ResumeRequested(at=cluster.now, attempt=0, by="ada"))
    assert cluster.schedule() == 1


# -- two at once, and none ---------------------------------------------------------------------------------------------


def test_of_two_schedulers_the_one_that_began_later_decides(cluster: Cluster) -> None:
    """What the first had decided is refused, quota and all, and it is no error."""
    cluster.submit("a", 2)
    load, overtaken = cluster.store.load_instances, []

    def overtake(instance_ids: Sequence[str]) -> Any:
        if not overtaken:
            overtaken.append(True)
            overtaken.append(cluster.schedule())
        return load(instance_ids)

    cluster.store.load_instances = overtake  # type: ignore[method-assign]
    assert cluster.schedule() == 0
    assert overtaken == [True, 1]
    assert cluster.job("a").status is S.SUBMITTED and cluster.job("a").attempt == 1
    assert cluster.store.quota_used(["ana/NORMAL/"]) == {"ana/NORMAL/": 2}


def ticks(cluster: Cluster) -> int:
    """How many calls to the store a tick makes at this time."""
    counted: list[str] = []

    class Counted:
        def __getattr__(self, name: str) -> Any:
            counted.append(name)
            return getattr(cluster.store, name)

    recovery = replace(cluster.recovery, store=Counted())  # type: ignore[arg-type]
    schedule(recovery, (f"#tick/{cluster.now.isoformat()}",))
    return len(counted)


@pytest.mark.parametrize("queued", [0, 3, 30])
def test_an_idle_tick_is_one_read_however_many_wait(cluster: Cluster, queued: int) -> None:
    """The last pass has left word that only an event can change anything."""
    for number in range(queued):
        cluster.submit(f"big-{number}", 3)
    cluster.schedule()
    cluster.passes(60)
    assert ticks(cluster) == 1


def test_a_tick_that_is_due_looks_at_everything(cluster: Cluster) -> None:
    """A pause that is over, or five minutes in which somebody waited."""
    cluster.submit("big", 3)
    cluster.schedule()
    cluster.passes(PASS_INTERVAL_MAX.total_seconds() + 1)
    assert ticks(cluster) > 1
    cluster.passes(60)
    assert ticks(cluster) == 1


@pytest.mark.parametrize("key", ["", "/", "no-such-thing/0", "noise"])
def test_a_message_that_names_nobody_asks_for_a_whole_pass(cluster: Cluster, key: str) -> None:
    """Whatever was written into the queue: it blocks nobody, and nobody is overlooked for it."""
    cluster.submit("a")
    assert cluster.schedule(key) == 1


def test_a_job_that_cools_down_is_placed_when_its_pause_is_over(cluster: Cluster) -> None:
    """By the clock alone: nobody wakes the scheduler for it."""
    cluster.submit("a")
    until: datetime = cluster.now + timedelta(seconds=90)
    cluster.store.save_job(replace(cluster.job("a"), not_before=until))
    assert cluster.schedule() == 0
    cluster.passes(60)
    assert ticks(cluster) == 1
    cluster.passes(60)
    assert cluster.schedule("#tick/2") == 1


def test_whoever_waits_is_told_once(cluster: Cluster) -> None:
    """Ten passes that find the same write nothing."""
    cluster.submit("big", 3)
    cluster.schedule()
    before = cluster.job("big")
    assert before.status is S.PENDING_RESOURCES
    for _ in range(10):
        cluster.schedule()
    assert cluster.job("big") == before


# -- a long line -------------------------------------------------------------------------------------------------------


def drain(cluster: Cluster) -> int:
    """Passes until none asks for another; how many there were."""
    passes, key = 0, "first/1"
    while key:
        assert passes < 20, "the passes never come to an end"
        cluster.actions.poked.clear()
        cluster.schedule(key)
        passes += 1
        key = cluster.actions.poked[-1] if cluster.actions.poked else ""
    return passes


def test_a_long_line_is_told_of_in_passes_that_follow_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass tells a few, and each asks for the next until nobody is left who does not know what it waits for."""
    monkeypatch.setattr(schedule_module, "WAIT_EVENTS_MAX", 3)
    names = [f"big-{number}" for number in range(10)]
    for name in names:
        cluster.submit(name, 3)
    assert drain(cluster) == 4
    assert cluster.status(*names) == [S.PENDING_RESOURCES] * 10
    cluster.passes(60)
    assert ticks(cluster) == 1


def test_a_line_that_cannot_be_told_of_yet_does_not_keep_the_scheduler_spinning(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index lags and shows those who were told as they were before: the next tick tells the others."""
    monkeypatch.setattr(schedule_module, "WAIT_EVENTS_MAX", 3)
    names = [f"big-{number}" for number in range(6)]
    for name in names:
        cluster.submit(name, 3)
    old = cluster.store.load_queue()
    real, cluster.store.load_queue = cluster.store.load_queue, lambda *_: old  # type: ignore[method-assign]
    assert drain(cluster) == 2
    cluster.store.load_queue = real  # type: ignore[method-assign]
    cluster.passes(60)
    cluster.schedule("#tick/1")
    assert cluster.status(*names) == [S.PENDING_RESOURCES] * 6


# -- how long jobs of a kind run ---------------------------------------------------------------------------------------


def test_what_a_users_jobs_took_is_what_the_next_one_is_taken_to_take(cluster: Cluster) -> None:
    """From their ends through the store to backfill: without a history nobody passes the head."""

    def line() -> int:
        """One instance in use for an hour, a head that needs two, and another of the user's jobs behind it."""
        cluster.submit("holder", user="bob", max_runtime_s=3_600)
        assert cluster.schedule() == 1
        cluster.runs("holder")
        cluster.submit("head", 2, user="bob")
        cluster.submit("next", user="ana")
        return cluster.schedule()

    by_slot = {slot_of(f"done-{number}"): f"done-{number}" for number in range(60)}
    for number, name in enumerate(list(by_slot.values())[:LEAST]):
        cluster.submit(name, user="ana")
        assert cluster.schedule() == 1
        cluster.runs(name)
        cluster.passes(600 + number)
        cluster.recovery.handle(name, events.AllRanksStopped(at=cluster.now, attempt=1))
    assert sorted(cluster.store.load_run_times(["ana/sft/1x8"])["ana/sft/1x8"]) == [600, 601, 602, 603]
    assert line() == 1 and cluster.status("head", "next") == [S.PENDING_RESOURCES, S.SUBMITTED]


def test_without_a_history_nobody_passes_the_head(cluster: Cluster) -> None:
    """The same line as above, the first time that a user comes."""
    cluster.submit("holder", user="bob", max_runtime_s=3_600)
    cluster.schedule()
    cluster.runs("holder")
    cluster.submit("head", 2, user="bob")
    cluster.submit("next", user="ana")
    assert cluster.schedule() == 0


def test_a_pass_asks_for_a_bounded_number_of_kinds(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whoever has a place first, then those of the first in line, in one call."""
    monkeypatch.setattr(schedule_module, "KINDS_MAX", 2)
    for number in range(4):
        cluster.submit(f"job-{number}", 3, user=f"user-{number}")
    asked: list[list[str]] = []
    load = cluster.store.load_run_times

    def watched(kinds: Iterable[str]) -> Any:
        asked.append(list(kinds))
        return load(asked[-1])

    cluster.store.load_run_times = watched  # type: ignore[method-assign]
    cluster.schedule()
    assert asked == [["user-0/sft/3x8", "user-1/sft/3x8"]]

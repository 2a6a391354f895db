"""I9 and I10 as the simulator asks them: true of whatever the product may decide, and false of each wrong decision."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from gpu_recovery.core.health_signals import DepartureKind
from gpu_recovery.core.instance.record import Claim, Instance, Interruption
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.queue import place
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota_admission import QuotaAdmission
from gpu_recovery.core.queue.snapshot import Assignment, Placement
from gpu_recovery.core.state_machine import QuotaChange

from simulator.invariants import fairness, quotas
from simulator.invariants.records import InvariantBroken
from simulator.invariants.writes import WriteCheckedStore
from simulator.memory_store import table
from simulator.memory_store.store import MemoryStore
from simulator.world import World
from tests.core.build import ADAPTIVE, NOW, SPEC, available, later, queued
from tests.simulator import planted_queue_bugs
from tests.tiers import scaled

LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"instances": {"ada/*/*": 3}},
    {"max_running_jobs": 2},
    {"max_running_jobs_per_user": 1},
)
RECOVERY = World(instances=0, policy=ADAPTIVE).recovery


class Books:
    """A store with these records, and what `overtaken` needs of the product beside it."""

    def __init__(self, jobs: list[Job], instances: list[Instance], limits: dict[str, Any]) -> None:
        self.store = MemoryStore()
        for job in jobs:
            self.store.jobs.save(job.job_id, replace(job, revision=0))
            self.store.count(QuotaChange(job.quota_key, job.quota_nodes))
        for one in instances:
            self.store.machines.save(one.instance_id, replace(one, revision=0))
        if limits:
            self.store.save_limits(limits, 0)

    def overtaken(self, now: datetime = NOW) -> Iterator[str]:
        """What the invariant objects to."""
        return fairness.overtaken(replace(RECOVERY, clock=lambda: now), self.store)


def _job(name: str, at: int = 0, nodes: int = 1, gpus: int = 8, **fields: Any) -> Job:
    spec_of = {key: fields.pop(key) for key in ("user", "priority", "max_runtime_s") if key in fields}
    spec = replace(SPEC, nnodes=nodes, gpus_per_node=gpus, **spec_of)
    return replace(queued(job_id=name, spec=spec, now=later(at)), **fields)


def _suspended(name: str, at: int = 0, **fields: Any) -> Job:
    known = {"status": JobStatus.SUSPENDED, "attempt": 1, "suspended_at": NOW, "instances": ("i-0",)}
    return _job(name, at, **{**known, **fields})


WAITING = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.SUSPENDED, JobStatus.SUSPENDED)
WITH_A_PLACE = (JobStatus.RECOVERING, JobStatus.RUNNING, JobStatus.SUSPENDING)


def _any_job(draw: random.Random, name: str, hosts: list[str]) -> Job:
    """A job in a status that a pass looks at."""
    status = draw.choice(WAITING * 2 + WITH_A_PLACE)
    nodes = draw.randint(1, min(3, len(hosts)))
    told: dict[str, Any] = {"status": status}
    if status not in (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES):
        told |= {"attempt": 1, "instances": tuple(draw.sample(hosts, nodes))}
    if status is JobStatus.SUSPENDED:
        told |= {
            "held": draw.random() < 0.2,
            "suspended_at": later(-60),
            "suspended_for": draw.choice(("", "", "j0", "j1")),
            "suspensions": tuple(later(-at) for at in draw.choice(((), (), (60,), (60, 4_000), (4_000,)))),
            "not_before": draw.choice((None, None, later(60), later(-60))),
        }
    if status in WITH_A_PLACE:
        told |= {"quota_nodes": nodes, "running_at": later(-draw.randint(1, 2_000))}
    return _job(
        name,
        -draw.randint(100, 3_000),
        nodes,
        draw.choice((2, 4, 8, 8)),
        user=draw.choice(("ada", "ben")),
        priority=Priority(draw.choice((0, 10, 10, 20))),
        max_runtime_s=draw.choice((None, None, 300, 3_000)),
        ran_s=draw.choice((0, 0, 2_000)),
        **told,
    )


@cache
def _any_books(seed: int) -> Books:
    """Up to eight jobs, up to four instances, some of them in use, and limits or none. Tests only read them.

    Nobody asks how large the records are, and most of the time would be spent on that.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "_check", lambda record, *, new: None)
        return _drawn_books(seed)


def _drawn_books(seed: int) -> Books:
    draw = random.Random(seed)
    hosts = [f"i-{n}" for n in range(draw.randint(2, 4))]
    jobs = [_any_job(draw, f"j{number}", hosts) for number in range(draw.randint(3, 8))]
    claims: dict[str, dict[str, Claim]] = {name: {} for name in hosts}
    for job in jobs:
        for name in job.instances if job.status in (JobStatus.RUNNING, JobStatus.SUSPENDING) else ():
            claims[name][job.job_id] = Claim(1, job.spec.gpus_per_node)
    leaves = Interruption(DepartureKind.RETIREMENT, "ec2", later(draw.choice((100, 1_000))), "retires")
    instances = [
        available(
            name,
            claims=claims[name],
            gpus=8,
            gpus_most=8,
            departure=draw.choice((None, None, None, leaves)),
            rack=draw.choice(("", "r1", "r2")),
            reserved_for=draw.choice(("", "", "", "", "j0")),
        )
        for name in hosts
    ]
    return Books(jobs, instances, draw.choice(LIMITS))


MANY, MANY_SHOW = scaled(fast=500, default=500, full=2_000), scaled(fast=2, default=2, full=8)
"""Clusters that are drawn, and how many of them show the planted bug at least."""


@pytest.mark.slow
def test_nobody_is_overtaken_whatever_there_is() -> None:
    """The invariant is true of `place` for any line, any claims and any limits."""
    found = {seed: list(_any_books(seed).overtaken()) for seed in range(MANY)}
    assert {seed: sentences for seed, sentences in found.items() if sentences} == {}


@pytest.mark.slow
def test_a_line_in_another_order_is_found_in_many_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same clusters would show it if suspended jobs went to the end of the line."""
    planted_queue_bugs.to_the_end_of_the_line(monkeypatch)
    assert sum(bool(list(_any_books(seed).overtaken())) for seed in range(MANY)) >= MANY_SHOW


def test_a_suspended_job_that_has_to_stand_behind_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One place, two jobs of one priority: the one that was submitted first and made room for others is first."""
    books = Books([_suspended("old", -900), _job("new", -300)], [available("i-0")], {})
    assert list(books.overtaken()) == []
    planted_queue_bugs.to_the_end_of_the_line(monkeypatch)
    found = list(books.overtaken())
    assert len(found) == 1 and found[0].startswith("I10: new gets a place before old")


def _only(job: Job) -> Placement:
    return Placement((Assignment(job.job_id, job.version, job.attempt, ("i-0",), (0,), 0),), (), ())


OLD, NEW = _suspended("old", -900), _job("new", -300)
LAWFUL: dict[str, tuple[Job, Job, dict[str, Any]]] = {
    "the other is more urgent": (OLD, _job("new", -300, priority=Priority.HIGH), {}),
    "it is held": (replace(OLD, held=True), NEW, {}),
    "it pauses": (replace(OLD, not_before=later(5)), NEW, {}),
    "it wants more": (_suspended("old", -900, nodes=2), NEW, {}),
    "the other is sure to end sooner": (OLD, _job("new", -300, max_runtime_s=60), {}),
    "the other made room lately, it long ago": (
        replace(OLD, suspensions=(later(-9_000),)),
        _suspended("new", -300, suspensions=(later(-9),)),
        {},
    ),
    "its user has used up the quota": (
        _suspended("old", -900, user="ada"),
        _job("new", -300, user="ben"),
        {"instances": {"ada/*/*": 0}},
    ),
}


@pytest.mark.parametrize("why", LAWFUL)
def test_who_may_pass_is_let_pass(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these reasons, and nothing without one."""
    first, other, limits = LAWFUL[why]
    monkeypatch.setattr(place, "place", lambda *read: _only(other))
    assert list(Books([first, other], [available("i-0"), available("i-1")], limits).overtaken()) == []
    monkeypatch.setattr(place, "place", lambda *read: _only(NEW))
    assert len(list(Books([OLD, NEW], [available("i-0")], {}).overtaken())) == 1


def test_who_loses_the_place_in_line_is_found_at_the_write() -> None:
    """The time of the first submission never moves."""
    broken: list[str] = []
    store = WriteCheckedStore(MemoryStore(), broken)
    store.create_job(queued(), "")
    kept = store.save_job(store.load_job("sft-1"))
    assert broken == []
    store.save_job(replace(kept, queued_at=later(60)))
    assert broken[0].startswith("I10: sft-1 was in line since")


def test_counts_that_are_not_the_truth_are_found() -> None:
    """Too many and too few; a person's gang is in no count."""
    running = _job("a", status=JobStatus.RUNNING, user="ada", nodes=2, quota_nodes=2)
    theirs = replace(_job("b", status=JobStatus.RUNNING, user="ada"), started_by_person=True)
    books = Books([running, theirs], [], {})
    assert list(quotas.miscounted(books.store, books.store.jobs.records.values())) == []
    books.store.count(QuotaChange(running.quota_key, 1))
    found = list(quotas.miscounted(books.store, books.store.jobs.records.values()))
    assert found == ["I9: 2 instance(s) of ada/NORMAL/ are in use, 3 are counted"]


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"instances": {"ada/*/*": 2}}, "I9: 3 instance(s) of ada/NORMAL/ are in use, with b, of 2"),
        ({"max_running_jobs": 1}, "I9: 2 jobs have a place, with b, of 1"),
        ({"max_running_jobs_per_user": 1}, "I9: 2 jobs of ada have a place, with b, of 1"),
        ({"instances": {"ada/*/*": 3}, "max_running_jobs": 2, "max_running_jobs_per_user": 2}, None),
    ],
)
def test_a_place_beyond_a_limit_is_found(limits: dict[str, Any], sentence: str | None) -> None:
    """By instances, by jobs, and by the jobs of one user."""
    first = _job("a", status=JobStatus.RECOVERING, user="ada", nodes=2, quota_nodes=2)
    second = _job("b", status=JobStatus.SUBMITTING, user="ada", quota_nodes=1)
    books = Books([first, second], [], limits)
    assert list(quotas.exceeded(books.store, second)) == ([] if sentence is None else [sentence])


def test_a_persons_gang_that_comes_back_beyond_a_quota_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: passes ask no quota. A person who suspends their gang and wants it back stands in line like others."""
    monkeypatch.setattr(QuotaAdmission, "refusal", lambda self, job: None)
    world = World(instances=4, adoption=Adoption.RECOVER)
    world.let_pass(5)
    for rank in range(3):
        world.start_by_hand("run-0", rank, 3, world.model_instances()[rank])
    world.let_pass(60)
    world.suspend("run-0")
    world.let_pass(200)
    world.store.save_limits({"instances": {"*/*/*": 2}}, world.store.load_limits()[1])
    world.resume("run-0")
    with pytest.raises(InvariantBroken, match="I9: 3 instance"):
        world.let_pass(600)

"""I9 and I10 as the simulator asks them: true of whatever the product may decide, and false of each wrong decision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from gpu_recovery.core.instance.record import Claim, Departure, Instance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.machine import QuotaChange
from gpu_recovery.core.queue import place as placing
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import Assignment, Placement
from gpu_recovery.core.signals import DepartureKind
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import quotas, turns
from simulator.memory_store import MemoryStore
from simulator.referee import JudgedStore
from simulator.world import World
from tests.core.build import ADAPTIVE, NOW, SPEC, available, later, queued
from tests.simulator import planted_queue

LIMITS: tuple[dict[str, Any], ...] = (
    {}, {"instances": {"ada/*/*": 3}}, {"max_running_jobs": 2}, {"max_running_jobs_per_user": 1},
)  # fmt: skip


class Books:
    """A store with these records, and what `overtaken` needs of the product beside it."""

    def __init__(self, jobs: list[Job], instances: list[Instance], limits: dict[str, Any]) -> None:
        self.world, self.store = World(instances=0, policy=ADAPTIVE), MemoryStore()
        for job in jobs:
            self.store.jobs.keep(job.job_id, replace(job, revision=0))
            self.store.count(QuotaChange(job.quota_key, job.quota_nodes))
        for one in instances:
            self.store.machines.keep(one.instance_id, replace(one, revision=0))
        if limits:
            self.store.save_limits(limits, 0)

    def overtaken(self, now: datetime = NOW) -> Iterator[str]:
        """What the invariant objects to."""
        return turns.overtaken(replace(self.world.recovery, clock=lambda: now), self.store)


def _job(name: str, at: int = 0, nodes: int = 1, gpus: int = 8, **fields: Any) -> Job:
    spec_of = {key: fields.pop(key) for key in ("user", "priority", "max_runtime_s") if key in fields}
    spec = replace(SPEC, nnodes=nodes, gpus_per_node=gpus, **spec_of)
    return replace(queued(job_id=name, spec=spec, now=later(at)), **fields)


def _suspended(name: str, at: int = 0, **fields: Any) -> Job:
    known = {"status": JobStatus.SUSPENDED, "attempt": 1, "suspended_at": NOW, "instances": ("i-0",)}
    return _job(name, at, **{**known, **fields})


@st.composite
def _books(draw: st.DrawFn) -> Books:
    """Up to eight jobs in every status that a pass looks at, and up to five instances, some of them in use."""
    names = [f"i-{n}" for n in range(draw(st.integers(1, 5)))]
    jobs, claims = [], {name: dict[str, Claim]() for name in names}
    for number in range(draw(st.integers(2, 8))):
        fields = {
            "nodes": draw(st.integers(1, 3)), "gpus": draw(st.sampled_from((2, 4, 8))),
            "user": draw(st.sampled_from(("ada", "ben"))), "priority": draw(st.sampled_from((0, 10, 20, 30))),
            "max_runtime_s": draw(st.sampled_from((None, 300, 3_000))), "ran_s": draw(st.sampled_from((0, 2_000))),
        }  # fmt: skip
        fields["priority"] = Priority(fields["priority"])
        status = draw(st.sampled_from((
            JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.SUSPENDED, JobStatus.SUSPENDED,
            JobStatus.RECOVERING, JobStatus.RUNNING, JobStatus.SUSPENDING,
        )))  # fmt: skip
        where = tuple(draw(st.permutations(names))[: fields["nodes"]])
        told: dict[str, Any] = {"status": status}
        if status not in (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES):
            told |= {"attempt": 1, "instances": where}
        if status is JobStatus.SUSPENDED:
            told |= {
                "held": draw(st.booleans()), "suspended_at": later(-60),
                "suspensions": tuple(later(-at) for at in draw(st.sampled_from(((), (60,), (60, 4_000), (4_000,))))),
                "suspended_for": draw(st.sampled_from(("", "j0", "j1", "j2"))),
                "not_before": draw(st.sampled_from((None, later(60), later(-60)))),
            }  # fmt: skip
        if status in (JobStatus.RECOVERING, JobStatus.RUNNING, JobStatus.SUSPENDING):
            told |= {"quota_nodes": fields["nodes"]}
        jobs.append(_job(f"j{number}", draw(st.integers(-3_000, -100)), **fields, **told))
        if status in (JobStatus.RUNNING, JobStatus.SUSPENDING):
            jobs[-1] = replace(jobs[-1], running_at=later(-draw(st.integers(1, 2_000))))
            for name in where:
                claims[name][jobs[-1].job_id] = Claim(1, fields["gpus"])
    leaves = Departure(DepartureKind.RETIREMENT, "ec2", later(draw(st.sampled_from((100, 1_000)))), "retires")
    instances = [
        available(
            name, claims=claims[name], gpus=8, gpus_most=8, departure=draw(st.sampled_from((None, None, leaves))),
            rack=draw(st.sampled_from(("", "r1", "r2"))), reserved_for=draw(st.sampled_from(("", "", "", "j0", "j1"))),
        )
        for name in names
    ]  # fmt: skip
    return Books(jobs, instances, draw(st.sampled_from(LIMITS)))


@settings(max_examples=300, deadline=None)
@given(_books())
def test_nobody_is_overtaken_whatever_there_is(books: Books) -> None:
    """The invariant is true of `place` for any line, any claims and any limits."""
    assert list(books.overtaken()) == []


def test_a_suspended_job_that_has_to_stand_behind_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One place, two jobs of one priority: the one that was submitted first and made room for others is first."""
    books = Books([_suspended("old", -900), _job("new", -300)], [available("i-0")], {})
    assert list(books.overtaken()) == []
    planted_queue.to_the_end_of_the_line(monkeypatch)
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
        replace(OLD, suspensions=(later(-9_000),)), _suspended("new", -300, suspensions=(later(-9),)), {},
    ),
    "its user has used up the quota": (
        _suspended("old", -900, user="ada"), _job("new", -300, user="ben"), {"instances": {"ada/*/*": 0}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", LAWFUL)
def test_who_may_pass_is_let_pass(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these reasons, and nothing without one."""
    first, other, limits = LAWFUL[why]
    monkeypatch.setattr(placing, "place", lambda *read: _only(other))
    assert list(Books([first, other], [available("i-0"), available("i-1")], limits).overtaken()) == []
    monkeypatch.setattr(placing, "place", lambda *read: _only(NEW))
    assert len(list(Books([OLD, NEW], [available("i-0")], {}).overtaken())) == 1


def test_who_loses_the_place_in_line_is_found_at_the_write() -> None:
    """The time of the first submission never moves."""
    broken: list[str] = []
    store = JudgedStore(MemoryStore(), broken)
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
    assert list(quotas.miscounted(books.store, books.store.records_of_jobs())) == []
    books.store.count(QuotaChange(running.quota_key, 1))
    found = list(quotas.miscounted(books.store, books.store.records_of_jobs()))
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

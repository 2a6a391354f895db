"""The store in memory and the store on DynamoDB, told the same things in any order, answer the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import boto3
import pytest
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import PRESENT, EcsStatus, Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus, ListedJob
from gpu_recovery.core.task import RankFailure
from gpu_recovery.ports.errors import StaleRecord
from gpu_recovery.ports.store import Store
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from moto import mock_aws

from simulator.dynamodb.double import DynamoDb
from simulator.memory_store.store import MemoryStore
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.records import NOW, A, checked, claim, failure, instance, job, later, pending, plan
from tests.tiers import examples

JOBS, MACHINES = ("job-a", "job-b"), (A,)
SECONDS = 12
WEIGHT = 0.2
"""Each step of a state machine makes several calls of the production store."""
KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
CLIENT = boto3.client("dynamodb", region_name="us-east-1", **KEYS)

job_ids, machine_ids = st.sampled_from(JOBS), st.sampled_from(MACHINES)
ranks, attempts, flags = st.integers(0, 2), st.integers(1, 2), st.booleans()
seconds = st.integers(0, SECONDS)
times = st.none() | seconds.map(later)
job_statuses = st.sampled_from([JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.FAILED])
instance_statuses = st.sampled_from([InstanceStatus.AVAILABLE, InstanceStatus.CHECKING])


def same(one: Any, other: Any) -> Any:
    """What both answered; they may differ only in how many writes a settle took."""
    blank = [_without_revision(answer) for answer in (one, other)]
    assert blank[0] == blank[1]
    return one


def _without_revision(answer: Any) -> Any:
    if isinstance(answer, ListedJob | Instance):  # ListedJob is the base of Job
        return replace(answer, revision=0)
    if isinstance(answer, tuple):
        return tuple(_without_revision(one) for one in answer)
    return answer


KINDS = ("running", "ended", "failed", "held", "checked")
"""The facts about a rank."""


class BothStores(RuleBasedStateMachine):
    """Every rule does one thing to both stores. Copies are kept, so that some writers are stale."""

    @initialize()
    def begin(self) -> None:
        """Two stores with a job and an instance in them."""
        self.leaving = ExitStack()
        self.stores: tuple[Store, Store] = (MemoryStore(), self.production_store())
        self.copies: dict[str, list[tuple[Any, Any]]] = {name: [] for name in (*JOBS, *MACHINES)}
        self.both("create_job", job(JOBS[0], commands=(pending(JOBS[0], 1, until=4), pending(JOBS[0], 2, until=8))), "")
        self.both("save_instance", instance(A, epoch=1, commands=(pending(A, 1, until=6),)))
        for name in (JOBS[0], A):
            self.read(name)

    def production_store(self) -> Store:
        """The production store on the DynamoDB double."""
        return dynamo_store(DoubleClient(DynamoDb()))

    def teardown(self) -> None:
        """Whatever was done, the records are the same."""
        try:
            self.everything_agrees()
        finally:
            self.leaving.close()

    def both(self, name: str, *given: Any) -> Any:
        return same(*(getattr(store, name)(*given) for store in self.stores))

    def read(self, name: str) -> None:
        """Keep another copy of the record, to be written some time."""
        load = "load_job" if name in JOBS else "load_instance"
        copy = tuple(getattr(store, load)(name) for store in self.stores)
        same(*copy)
        if copy[0] is not None:
            self.copies[name].append(copy)

    def copy(self, data: st.DataObject, name: str) -> tuple[Any, Any] | None:
        """One of the copies, the latest among them as likely as all others together."""
        known = self.copies[name]
        if not known:
            return None
        return known[-1] if data.draw(flags) else data.draw(st.sampled_from(known))

    def save(self, name: str, records: Iterator[Any]) -> None:
        """Both keep it, or both call it stale."""
        save = "save_job" if name in JOBS else "save_instance"
        answers = []
        for store, record in zip(self.stores, records, strict=True):
            try:
                answers.append(getattr(store, save)(record))
            except StaleRecord:
                answers.append("stale")
        same(*answers)
        self.read(name)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    @rule(job_id=job_ids, at=seconds, status=job_statuses, deadline=times)
    def create_job(self, job_id: str, at: int, status: JobStatus, deadline: Any) -> None:
        commands = (pending(job_id, 1, until=at),)
        queued_at = later(2 * at + JOBS.index(job_id))
        record = job(job_id, queued_at=queued_at, status=status, deadline_at=deadline, commands=commands)
        self.both("create_job", record, "text")
        self.read(job_id)

    @rule(data=st.data(), job_id=job_ids, status=job_statuses, deadline=times, look=times, more=flags)
    def save_job(self, data: Any, job_id: str, status: JobStatus, deadline: Any, look: Any, more: bool) -> None:
        copies = self.copy(data, job_id)
        if copies is not None:
            version = copies[0].version + 1
            new = (pending(job_id, 1, version=version, until=9),) if more else ()
            changes = {"status": status, "deadline_at": deadline, "look_at": look, "version": version}
            self.save(job_id, (replace(one, commands=(*one.commands, *new), **changes) for one in copies))

    @rule(data=st.data(), name=st.sampled_from((*JOBS, *MACHINES)), until=seconds)
    def settle(self, data: Any, name: str, until: int) -> None:
        copies = self.copy(data, name)
        if copies is None:
            return
        known = [one.command_id for one in copies[0].commands]
        done = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
        left = [one for one in known if one not in done]
        deferred = data.draw(st.lists(st.sampled_from(left), unique=True)) if left else []
        method = "remove_finished_job_commands" if name in JOBS else "remove_finished_instance_commands"
        for store, record in zip(self.stores, copies, strict=True):
            getattr(store, method)(record, tuple(done), {one: later(until) for one in deferred})
        self.read(name)

    # -- attempts ------------------------------------------------------------------------------------------------------

    @rule(job_id=job_ids, attempt=attempts, world=st.integers(1, 3))
    def begin_attempt(self, job_id: str, attempt: int, world: int) -> None:
        self.both("begin_attempt", plan(job_id, attempt, world))

    @rule(job_id=job_ids, attempt=attempts, rank=ranks, kind=st.sampled_from(KINDS))
    def add(self, job_id: str, attempt: int, rank: int, kind: str) -> None:
        failed: RankFailure | None = failure(rank) if kind == "failed" else None
        match kind:
            case "running":
                self.both("add_running", job_id, attempt, rank)
            case "held":
                self.both("add_held", job_id, attempt, rank, failure(rank))
            case "checked":
                self.both("add_checked", job_id, attempt, rank, checked(CheckOutcome.REBOOT))
            case _:
                self.both("add_stopped", job_id, attempt, rank, failed)

    # -- instances -----------------------------------------------------------------------------------------------------

    @rule(machine=machine_ids, status=instance_statuses, reserved=st.sampled_from(["", *JOBS]), deadline=times)
    def register(self, machine: str, status: InstanceStatus, reserved: str, deadline: Any) -> None:
        record = instance(machine, status=status, reserved_for=reserved, deadline_at=deadline)
        self.save(machine, iter((record, record)))
        self.both("remember_registration", record)

    @rule(data=st.data(), machine=machine_ids, status=instance_statuses, ecs=st.sampled_from(EcsStatus), epoch=ranks)
    def save_instance(self, data: Any, machine: str, status: InstanceStatus, ecs: EcsStatus, epoch: int) -> None:
        copies = self.copy(data, machine)
        if copies is not None:
            new = (pending(machine, 1, version=copies[0].version + 1, until=3),)
            changes = {"status": status, "ecs_status": ecs, "epoch": epoch, "version": copies[0].version + 1}
            self.save(machine, (replace(one, commands=(*one.commands, *new), **changes) for one in copies))

    @rule(
        machine=machine_ids,
        job_id=job_ids,
        attempt=attempts,
        epoch=st.none() | st.integers(0, 1),
        replaces=st.integers(0, 2),
    )
    def claim(self, machine: str, job_id: str, attempt: int, epoch: int | None, replaces: int) -> None:
        self.both("claim_instance", machine, job_id, claim(attempt), epoch, replaces if epoch is not None else 0)
        self.read(machine)

    @rule(machine=machine_ids, job_id=job_ids, keep=flags, attempt=st.none() | attempts, left_out=flags)
    def release(self, machine: str, job_id: str, keep: bool, attempt: int | None, left_out: bool) -> None:
        self.both("release_instance", machine, job_id, keep, attempt, NOW if left_out else None)
        self.read(machine)

    @rule(data=st.data(), machine=machine_ids, repairing=flags, stale=flags)
    def save_with_fleet(self, data: Any, machine: str, repairing: bool, stale: bool) -> None:
        """A repair begins or ends; sometimes whoever decides it has read an older budget."""
        copies = self.copy(data, machine)
        if copies is None:
            return
        answers: list[Any] = []
        for store, record in zip(self.stores, copies, strict=True):
            fleet = store.load_fleet()
            read = replace(fleet, revision=max(fleet.revision - stale, 0))
            joined = replace(read, repairing=frozenset({machine} if repairing else ()))
            try:
                answers.append(store.save_instance(replace(record, reason=f"{repairing}"), joined))
            except StaleRecord:
                answers.append("stale")
        same(*answers)
        self.both("load_fleet")
        self.read(machine)

    # -- what they say -------------------------------------------------------------------------------------------------

    @rule(status=job_statuses, limit=st.integers(1, 3), each=st.integers(1, 2))
    def jobs_listed(self, status: JobStatus, limit: int, each: int) -> None:
        """Every page of one status. Every page of all statuses takes 30 requests and is read once, at the end."""
        self.every_page(status, limit)
        self.both("jobs_in", (JobStatus.RUNNING, JobStatus.QUEUED), each)
        self.both("instances_in", PRESENT)
        self.both("list_instances", limit, None)

    def every_page(self, status: JobStatus | None, limit: int) -> None:
        """The pages of both stores have the same jobs in the same order, and each job of the status once."""
        listed = []
        for store in self.stores:
            page = store.list_jobs(status, limit, None)
            seen = list(page.jobs)
            while page.cursor is not None:
                page = store.list_jobs(status, limit, page.cursor)
                seen += page.jobs
            kept = filter(None, map(store.load_job, JOBS))
            assert sorted(one.job_id for one in seen) == [one.job_id for one in kept if status in (None, one.status)]
            listed.append(tuple(seen))
        same(*listed)

    def everything_agrees(self) -> None:
        self.every_page(None, 1)
        for at in range(1, 2 * SECONDS, 3):
            for method in ("due_jobs", "due_instances"):
                one, other = (set(getattr(store, method)(later(at))) for store in self.stores)
                assert one == other
        for name in JOBS:
            self.both("load_job", name)
            for attempt in (1, 2):
                self.both("load_progress", name, attempt)
        for name in MACHINES:
            self.both("load_instance", name)
        self.both("load_fleet")


class OnMoto(BothStores):
    """The same with the production store on moto."""

    def production_store(self) -> Store:
        self.leaving.enter_context(mock_aws())
        return dynamo_store(CLIENT)


def test_both_stores_answer_the_same() -> None:
    """A few hundred operations, the same every time; in the tier `full` several thousand, others every time."""
    run_state_machine_as_test(BothStores, settings=examples(WEIGHT))


@pytest.mark.slow
def test_the_store_answers_the_same_on_moto() -> None:
    """The double is not alone in what it answers."""
    run_state_machine_as_test(OnMoto, settings=examples(WEIGHT / 2))

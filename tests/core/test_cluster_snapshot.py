"""What a pass of the scheduler makes of the line's entries."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from gpu_recovery.core.cluster_snapshot import is_usable, snapshot_of
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.instance.out_of_use import out_of_use
from gpu_recovery.core.instance.record import (
    Claim,
    HealthReport,
    Instance,
    InstanceStatus,
    Interruption,
    RepairHold,
)
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import Placement, RejectionKind
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import ADAPTIVE, NOW, SPEC, Cluster, available, later, place_records, placed, queued

SMALL = replace(SPEC, user="cleo", nnodes=1)
ONE_EACH = QuotaLimits(max_running_jobs_per_user=1)


def _pass(
    *jobs: Job, limits: QuotaLimits, fleet: tuple[Instance, ...] = (available("i-1"), available("i-2"))
) -> Placement:
    entries = [entry for job in jobs if (entry := entry_of(job)) is not None]
    return place(snapshot_of(entries, fleet, ADAPTIVE, NOW, {}, limits), ADAPTIVE, NOW)


def _recovering(not_before: datetime) -> Job:
    return replace(
        queued(job_id="old", spec=SMALL),
        status=JobStatus.RECOVERING,
        attempt=1,
        instances=("i-1",),
        quota_nodes=1,
        not_before=not_before,
    )


def test_a_gang_that_may_not_start_yet_counts_among_the_jobs_that_run() -> None:
    """Between two attempts it pauses, and another job of its user would be one too many when it goes on."""
    paused, other = _recovering(not_before=later(60)), queued(job_id="new", spec=SMALL)
    placement = _pass(paused, other, limits=ONE_EACH)
    assert placement.assignments == ()
    assert [(one.job_id, one.short_of) for one in placement.rejected] == [("new", RejectionKind.JOBS)]
    assert [one.job_id for one in _pass(paused, other, limits=QuotaLimits()).assignments] == ["new"]


@pytest.mark.parametrize(("ran_s", "priority"), [(1_799, Priority.ABOVE_NORMAL), (1_800, Priority.NORMAL)])
def test_a_placed_job_that_does_not_run_yet_is_demoted_by_its_earlier_attempts(ran_s: int, priority: Priority) -> None:
    """Only the run time of earlier attempts counts until all ranks run."""
    record = placed(queued(spec=replace(SMALL, priority=Priority.ABOVE_NORMAL)), ids=("i-1",))
    entry = entry_of(replace(record, ran_s=ran_s))
    assert entry is not None and entry.running_at is None
    (running,) = snapshot_of([entry], (available("i-1"),), ADAPTIVE, NOW, {}, QuotaLimits()).running
    assert running.priority is priority


def test_a_gang_that_may_not_start_yet_gives_no_instance_back() -> None:
    """It holds none: what its last attempt had may be another's, and nobody can tell when that ends."""
    spec = replace(SMALL, max_runtime_s=600)
    paused, wanted = replace(_recovering(not_before=later(60)), spec=spec), queued(job_id="new", spec=SPEC)
    fleet = (available("i-1", claims={"a person's": Claim(1, 8)}), available("i-2"))
    reservation = _pass(paused, wanted, limits=QuotaLimits(), fleet=fleet).reservations[0]
    assert (reservation.job_id, reservation.at) == ("new", None)


def test_a_gang_whose_pause_is_over_is_placed_and_counted_once() -> None:
    """It holds its place already, so the limit does not stand against itself."""
    again = _recovering(not_before=NOW)
    assert [one.job_id for one in _pass(again, limits=ONE_EACH).assignments] == ["old"]


def test_a_place_that_is_given_is_nobody_elses_before_its_claim_is_made() -> None:
    """Who makes the claims may have died: the job comes by its place later, not another that asks meanwhile."""
    launching = placed(queued(job_id="first", spec=SMALL), ids=("i-1",))
    other = queued(job_id="second", spec=SMALL)
    assert _pass(launching, other, limits=QuotaLimits(), fleet=(available("i-1"),)).assignments == ()
    claimed = available("i-1", claims={"first": Claim(1, 8)})
    assert _pass(launching, other, limits=QuotaLimits(), fleet=(claimed,)).assignments == ()


def test_a_place_is_counted_once_when_its_claim_is_made() -> None:
    """Half an instance that is given and claimed leaves the other half."""
    half = replace(SMALL, gpus_per_node=4)
    launching, other = placed(queued(job_id="first", spec=half), ids=("i-1",)), queued(job_id="second", spec=half)
    for claims in ({}, {"first": Claim(1, 4)}):
        fleet = (available("i-1", claims=claims),)
        assert [one.job_id for one in _pass(launching, other, limits=QuotaLimits(), fleet=fleet).assignments] == [
            "second"
        ]


def test_a_gang_that_is_stopped_keeps_nothing_that_it_has_not_claimed() -> None:
    """Its launch is given up: what it has not taken is free."""
    launching = placed(queued(job_id="first", spec=SMALL), ids=("i-1",))
    stopping = replace(launching, status=JobStatus.STOPPING)
    other = queued(job_id="second", spec=SMALL)
    given = _pass(stopping, other, limits=QuotaLimits(), fleet=(available("i-1"),)).assignments
    assert [one.job_id for one in given] == ["second"]


def test_a_gang_that_a_person_started_goes_on_among_its_instances() -> None:
    """It names no group; the machines that it ran on have one, and others of that group can take it."""
    ids = ("i-0a1", "i-0b2", "i-0c3")
    machines = [available(one, group="a100") for one in ids]
    gang = replace(queued(spec=replace(SPEC, nnodes=2)), status=JobStatus.RECOVERING, attempt=1, instances=ids[:2])
    broken = [replace(machines[0], status=InstanceStatus.REBOOTING), *machines[1:]]
    placement = place_records(Cluster((gang,), tuple(broken)))
    assert [one.instances for one in placement.assignments] == [("i-0c3", "i-0b2")]


HEALTH = {"GPU": HealthReport(HealthStatus.IMPAIRED, NOW, "XID 79")}
LEAVES = Interruption(DepartureKind.INTERRUPTION, "spot", later(120), "EC2 takes it back")


@given(
    status=st.sampled_from([status for status in InstanceStatus if status is not InstanceStatus.GONE]),
    ecs_status=st.sampled_from(["ACTIVE", "DRAINING", "DEREGISTERING"]),
    connected=st.booleans(),
    drained=st.booleans(),
    health=st.sampled_from([{}, HEALTH]),
    silent=st.sampled_from([None, NOW]),
    departure=st.sampled_from([None, LEAVES]),
    held=st.sampled_from([None, RepairHold(NOW, "the circuit breaker is open")]),
)
def test_an_instance_is_usable_exactly_if_no_reason_keeps_it_out_of_use(
    status: InstanceStatus,
    ecs_status: str,
    connected: bool,
    drained: bool,
    health: dict[str, HealthReport],
    silent: datetime | None,
    departure: Interruption | None,
    held: RepairHold | None,
) -> None:
    """So a list of the reasons misses no instance that gets no job."""
    instance = available(
        status=status,
        ecs_status=ecs_status,
        agent_connected=connected,
        drained=drained,
        health=health,
        silent_since=silent,
        departure=departure,
        held=held,
    )
    assert is_usable(instance) == (out_of_use(instance) is None)


def test_a_waiting_job_learns_from_the_fleet_record_what_holds_the_instances() -> None:
    """A quarantined instance with a held repair is not simply missing from the cluster."""
    held = replace(
        available("i-2"), status=InstanceStatus.QUARANTINED, held=RepairHold(NOW, "the circuit breaker is open")
    )
    entry = entry_of(queued(spec=replace(SPEC, nnodes=2)))
    assert entry is not None
    fleet = Fleet(gpu_instances=2, opened_at=NOW, opened_because="2 of 2 looked bad")
    snapshot = snapshot_of([entry], (available("i-1"), held), ADAPTIVE, NOW, {}, QuotaLimits(), fleet=fleet)
    (rejection,) = place(snapshot, ADAPTIVE, NOW).rejected
    assert rejection.short_of is RejectionKind.HELD
    assert "1 is held by the circuit breaker until 03:15:00 UTC" in rejection.sentence


def test_the_instances_of_a_gang_that_are_being_released_are_counted() -> None:
    """Only for an elastic job, and not those that the job leaves or that are out of use."""
    spec = replace(SPEC, nnodes=4, nnodes_min=1)
    job = placed(queued(job_id="e", spec=spec), ids=("i-1", "i-2", "i-3", "i-4"))
    job = replace(job, status=JobStatus.RECOVERING, left_out={"i-3": 2})
    claimed = {"claims": {"e": Claim(1, 8)}}
    fleet = (
        available("i-1"),
        available("i-2", **claimed),
        available("i-3", **claimed),
        available("i-4", status=InstanceStatus.CHECKING, **claimed),
    )
    (waiting,) = snapshot_of([entry_of(job)], fleet, ADAPTIVE, NOW, {}, QuotaLimits()).waiting  # type: ignore[list-item]
    assert (waiting.returning, waiting.widths) == (1, (1, 4))
    assert _pass(job, limits=QuotaLimits(), fleet=fleet).assignments == ()
    released = (available("i-1"), available("i-2"), *fleet[2:])
    (assignment,) = _pass(job, limits=QuotaLimits(), fleet=released).assignments
    assert assignment.instances == ("i-1", "i-2")

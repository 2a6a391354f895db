"""Who gets which instances: first in, first out, whole gangs or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.instance.record import Claim, HealthReport, Instance, InstanceStatus, Interruption
from gpu_recovery.core.job.record import Job, JobStatus, Origin
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.queue.snapshot import Placement
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import ADAPTIVE, CLASSIC, NOW, POLICIES, SPEC, Cluster, available, later, place_records, queued


def _job(name: str, nnodes: int = 1, at: int = 0, gpus: int = 8, **fields: Any) -> Job:
    spec = replace(SPEC, nnodes=nnodes, gpus_per_node=gpus)
    return replace(queued(job_id=name, spec=spec, now=later(at)), **fields)


def _recovering(name: str, *instances: str, **fields: Any) -> Job:
    return _job(name, len(instances), 99, status=JobStatus.RECOVERING, attempt=1, instances=instances, **fields)


def _fleet(*names: str, **fields: Any) -> list[Instance]:
    return [available(name, **fields) for name in names]


def _place(jobs: list[Job], fleet: list[Instance], policy: RecoveryPolicy = ADAPTIVE) -> Placement:
    return place_records(Cluster(tuple(jobs), tuple(fleet)), policy)


def _given(placement: Placement) -> Mapping[str, tuple[str, ...]]:
    return {one.job_id: one.instances for one in placement.assignments}


def _why(placement: Placement) -> Mapping[str, str]:
    return {one.job_id: one.sentence for one in placement.rejected}


def test_the_first_submitted_is_placed_first() -> None:
    """Whatever the order in which the snapshot lists them."""
    placement = _place([_job("b", at=2), _job("a", at=1)], _fleet("i-1"))
    assert _given(placement) == {"a": ("i-1",)}
    assert _why(placement) == {"b": "needs 1 instance(s) with 8 GPU(s) each; 0 are free"}


def test_a_gang_gets_every_instance_or_none() -> None:
    """Half a gang would hold GPUs and wait."""
    placement = _place([_job("a", 3)], [*_fleet("i-1", "i-2"), *_fleet("i-3", claims={"x": Claim(1, 8)})])
    assert _given(placement) == {}
    assert _why(placement) == {"a": "needs 3 instance(s) with 8 GPU(s) each; 2 are free"}


def test_a_job_at_the_head_of_the_line_holds_the_rest_back() -> None:
    """Otherwise small jobs would pass a large one for ever; each says whom it waits behind."""
    fleet = [*_fleet("i-1"), *_fleet("i-2", claims={"x": Claim(1, 8)})]
    placement = _place([_job("large", 2, at=1), _job("small", at=2)], fleet)
    assert _given(placement) == {}
    assert _why(placement)["small"] == "waits behind large"


def test_an_impossible_job_does_not_hold_others_back() -> None:
    """Not even the whole empty cluster could hold it."""
    placement = _place([_job("huge", 3, at=1), _job("small", at=2)], _fleet("i-1", "i-2"))
    assert _given(placement) == {"small": ("i-1",)}
    assert _why(placement)["huge"].endswith("the cluster has fewer, used or free")


@pytest.mark.parametrize("status", [status for status in InstanceStatus if status is not InstanceStatus.AVAILABLE])
def test_only_an_available_instance_gets_a_job(status: InstanceStatus) -> None:
    """An instance that left the cluster has no reason for being out of use, and still gets none."""
    fleet = [*_fleet("i-1", status=status), *_fleet("i-2", claims={"x": Claim(1, 8)})]
    assert _given(_place([_job("a")], fleet)) == {}


def test_an_instance_with_too_few_gpus_serves_nobody_who_needs_more() -> None:
    """GPUs are per instance; two halves are no whole."""
    placement = _place([_job("a")], _fleet("i-1", "i-2", gpus=4))
    assert _given(placement) == {}
    assert "used or free" in _why(placement)["a"]


def test_the_smallest_sufficient_instances_are_taken() -> None:
    """Larger ones stay whole for those who need them."""
    placement = _place([_job("a", gpus=4)], [*_fleet("i-1", gpus=8), *_fleet("i-2", gpus=4)])
    assert _given(placement) == {"a": ("i-2",)}


def test_a_recovering_gang_goes_before_the_queue_and_keeps_its_survivors_in_rank_order() -> None:
    """Rank 1's instance is sick: a spare takes its rank, the others stay where they were."""
    fleet = [
        *_fleet("i-0"),
        *_fleet("i-1", "i-3", reserved_for="back"),
        *_fleet("i-2", status=InstanceStatus.REBOOTING),
    ]
    placement = _place([_job("first", at=0), _recovering("back", "i-3", "i-2", "i-1")], fleet)
    assert _given(placement) == {"back": ("i-3", "i-0", "i-1")}
    assert "first" in _why(placement)


def test_a_recovering_gang_that_waits_does_not_hold_the_queue_back() -> None:
    """Its own instances are kept for it; what else is free may work."""
    fleet = [*_fleet("i-1"), *_fleet("i-2", status=InstanceStatus.REBOOTING), *_fleet("i-3", reserved_for="back")]
    placement = _place([_recovering("back", "i-3", "i-2"), _job("small")], fleet, CLASSIC)
    assert _given(placement) == {"small": ("i-1",)}


def test_a_recovering_gang_that_takes_spares_keeps_those_it_has_found() -> None:
    """Otherwise small jobs would take each spare as it comes, and the gang would never be whole; the rest may work."""
    fleet = [*_fleet("i-1", "i-2", "i-3"), *_fleet("i-4", "i-5", status=InstanceStatus.REBOOTING)]
    waiting = _recovering("back", "i-3", "i-4", "i-5", "i-6")
    placement = _place([waiting, _job("small")], [*fleet, *_fleet("i-6", gpus=16, claims={"x": Claim(1, 16)})])
    assert _given(placement) == {}
    more = _place([waiting, _job("small")], [*fleet, *_fleet("i-0", "i-7", gpus=4), *_fleet("i-9", gpus=16, epoch=1)])
    assert "back" in _given(more)
    small = replace(_job("small"), spec=replace(SPEC, nnodes=1, gpus_per_node=4))
    beside = _place([waiting, small], [*fleet, *_fleet("i-0", gpus=4)])
    assert _given(beside) == {"small": ("i-0",)}


def test_classic_waits_for_its_own_instances() -> None:
    """Seed 001 re-runs on the instance that came back, spare capacity or not."""
    fleet = [*_fleet("i-1", "i-9"), *_fleet("i-2", status=InstanceStatus.REBOOTING)]
    placement = _place([_recovering("back", "i-1", "i-2")], fleet, CLASSIC)
    assert _given(placement) == {}
    assert _why(placement) == {"back": "waits for its own instances: i-2"}
    assert _given(_place([_recovering("back", "i-2", "i-1")], _fleet("i-1", "i-2"), CLASSIC)) == {
        "back": ("i-2", "i-1")
    }


def test_classic_waits_until_it_has_heard_of_the_repair() -> None:
    """An instance that is back before the job was told is not taken behind its back."""
    record = _recovering("back", "i-1", "i-2", repairing=("i-2",))
    assert "to be reported" in _why(_place([record], _fleet("i-1", "i-2"), CLASSIC))["back"]


@pytest.mark.parametrize(
    "fields",
    [
        {"reserved_for": "other"},
        {"claims": {"other": Claim(1, 8)}},
        {"agent_connected": False},
        {"ecs_status": "DRAINING"},
        {"health": {"DAEMON": HealthReport(HealthStatus.IMPAIRED, NOW)}},
        {"departure": Interruption(DepartureKind.REBALANCE, "spot", NOW, "likely to go")},
        {"gpus_free": 7},
        *({"status": one} for one in InstanceStatus if one is not InstanceStatus.AVAILABLE),
    ],
)
def test_what_is_not_free_is_not_given_away(fields: dict[str, Any]) -> None:
    """Kept for another job, claimed, used by strangers, out of ECS's reach, suspect, leaving, or not AVAILABLE."""
    assert _given(_place([_job("a")], _fleet("i-1", **fields))) == {}


@pytest.mark.parametrize("status", [HealthStatus.OK, HealthStatus.INSUFFICIENT_DATA, HealthStatus.INITIALIZING])
def test_only_an_impairment_makes_an_instance_suspect(status: HealthStatus) -> None:
    """Where a watcher never found it impaired, one that cannot tell keeps nobody away."""
    assert _given(_place([_job("a")], _fleet("i-1", health={"DAEMON": HealthReport(status, NOW)}))) == {"a": ("i-1",)}


def test_what_is_kept_for_a_job_is_free_for_it() -> None:
    """That is what it was kept for."""
    assert _given(_place([_job("a")], _fleet("i-1", reserved_for="a"))) == {"a": ("i-1",)}


@pytest.mark.parametrize("policy", POLICIES, ids=["classic", "adaptive"])
def test_two_ranks_that_a_person_put_on_one_instance_are_never_relaunched_there_together(
    policy: RecoveryPolicy,
) -> None:
    """An adopted gang may have shared an instance; ours has one rank on each, and the pass goes on for everybody."""
    record = _recovering("run-1", "i-1", "i-1", origin=Origin.ADOPTED)
    placement = _place([record, _job("other")], _fleet("i-1", "i-2"), policy)
    assert _given(placement) == ({"run-1": ("i-1", "i-2")} if policy is ADAPTIVE else {"other": ("i-2",)})


def test_an_assignment_carries_what_it_was_decided_from() -> None:
    """The job's version and the instances' epochs: whoever has moved since refuses it."""
    (one,) = _place([_job("a", version=7)], _fleet("i-1", epoch=3)).assignments
    assert (one.version, one.attempt, one.epochs) == (7, 0, (3,))


INSTANCE = st.builds(
    available,
    st.sampled_from([f"i-{n}" for n in range(8)]),
    status=st.sampled_from([InstanceStatus.AVAILABLE] * 4 + list(InstanceStatus)),
    gpus=st.sampled_from([4, 8]),
    reserved_for=st.sampled_from(["", "", "", "job-1", "job-2"]),
    claims=st.sampled_from([{}, {}, {}, {"job-9": Claim(1, 8)}]),
    agent_connected=st.sampled_from([True, True, True, False]),
)
JOB = st.builds(
    lambda name, nnodes, gpus, at, status, last: replace(
        _job(name, nnodes, at, gpus), status=status, instances=tuple(last) if status is JobStatus.RECOVERING else ()
    ),
    st.sampled_from([f"job-{n}" for n in range(6)]),
    st.integers(1, 4),
    st.sampled_from([1, 4, 8]),
    st.integers(0, 5),
    st.sampled_from([JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, JobStatus.RECOVERING]),
    st.lists(st.sampled_from(["", *(f"i-{n}" for n in range(8))]), max_size=5),
)
SNAPSHOTS = st.builds(
    lambda jobs, fleet: Cluster(tuple(jobs), tuple(fleet)),
    st.lists(JOB, max_size=6, unique_by=lambda job: job.job_id),
    st.lists(INSTANCE, max_size=8, unique_by=lambda instance: instance.instance_id),
)


@given(snapshot=SNAPSHOTS, policy=st.sampled_from(POLICIES))
def test_no_gpu_is_ever_given_twice(snapshot: Cluster, policy: RecoveryPolicy) -> None:
    """Whatever the line and the fleet: whole gangs, of free and sufficient instances, each with no more than it has."""
    placement = place_records(snapshot, policy)
    by_id = {instance.instance_id: instance for instance in snapshot.instances}
    jobs = {record.job_id: record for record in snapshot.jobs}
    taken: Counter[str] = Counter()
    for one in placement.assignments:
        assert len(one.instances) == len(set(one.instances)) == jobs[one.job_id].spec.nnodes
        for instance in (by_id[name] for name in one.instances):
            taken[instance.instance_id] += jobs[one.job_id].spec.gpus_per_node
            assert instance.status is InstanceStatus.AVAILABLE
            assert instance.agent_connected
            assert not instance.claims
            assert instance.reserved_for in ("", one.job_id)
    assert all(gpus <= by_id[name].gpus for name, gpus in taken.items())


@given(snapshot=SNAPSHOTS, policy=st.sampled_from(POLICIES))
def test_every_job_in_line_is_answered_exactly_once(snapshot: Cluster, policy: RecoveryPolicy) -> None:
    """It starts, or it hears in a sentence why it does not."""
    placement = place_records(snapshot, policy)
    answered = [one.job_id for one in placement.assignments] + [one.job_id for one in placement.rejected]
    assert sorted(answered) == sorted(record.job_id for record in snapshot.jobs)
    assert all(one.sentence for one in placement.rejected)


@given(snapshot=SNAPSHOTS, policy=st.sampled_from(POLICIES))
def test_placing_depends_on_no_order_of_reading(snapshot: Cluster, policy: RecoveryPolicy) -> None:
    """Two reads of the same cluster, listed differently, give the same places."""
    turned = Cluster(snapshot.jobs[::-1], snapshot.instances[::-1])
    assert place_records(turned, policy) == place_records(snapshot, policy)


def test_a_queued_job_knows_nothing_of_an_earlier_attempts_instances() -> None:
    """Only a recovering gang has survivors to keep."""
    record = _job("a", at=1, instances=("i-9",), status_at=NOW)
    assert _given(_place([record], _fleet("i-1", "i-9"))) == {"a": ("i-1",)}

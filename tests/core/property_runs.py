"""Random runs of a job and of an instance, and what must hold of each step."""

from __future__ import annotations

from typing import Any

from gpu_recovery.core import events
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.health_reports import unhandled_report
from gpu_recovery.core.instance.idle_check import is_stopped
from gpu_recovery.core.instance.record import Instance, InstanceStatus, RankOnInstance
from gpu_recovery.core.instance.repair_proof import is_reset, proves_end_of_orphans, proves_reboot
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.policy import RecoveryPolicy, policy_from
from hypothesis import strategies as st

from tests.core import all_events
from tests.core.build import POLICIES
from tests.core.random_walks import Run, Step, run_of

TIGHT = policy_from(
    {"history_max": 3, "attempts_max": 2, "uncounted_relaunches_max": 2, "reboots_max": 1, "replace": True}
)
OBSERVED = policy_from({"observe_only": True, "replace": True})
POLICY = st.sampled_from((*POLICIES, TIGHT, OBSERVED))
FIRST = st.integers(0, 99)
IN_MOTION = tuple(set(InstanceStatus) - {InstanceStatus.AVAILABLE, InstanceStatus.GONE})


def job_run(policy: RecoveryPolicy, first: int, steps: list[Step]) -> Run:
    """Run the job state machine from the job with number `first` through `steps`."""
    firsts = all_events.first_jobs(policy)
    return run_of(job_state_machine, firsts[first % len(firsts)], all_events.anything_for_job, policy, steps)


def instance_run(policy: RecoveryPolicy, first: int, steps: list[Step]) -> Run:
    """Run the instance state machine through `steps`; half of the first records have a claim, as after a launch."""
    firsts = all_events.first_instances(policy)
    firsts += [claimed for one in firsts for claimed in all_events.written_by_a_store(one)]
    return run_of(state_machine, firsts[first % len(firsts)], all_events.anything_for_instance, policy, steps)


def works_only_after_proof(before: Instance, event: Any, after: Instance, policy: RecoveryPolicy) -> None:
    """Assert that an instance became AVAILABLE only after proof of its repair and a passing check."""
    if after.status is not InstanceStatus.AVAILABLE or before.status is InstanceStatus.AVAILABLE:
        return
    if isinstance(event, events.ReleaseRequested):  # a person had taken it away, nothing spoke against it
        assert before.withdrawn and before.claims
        return
    if policy.observe_only and before.status is InstanceStatus.CHECKING:
        return  # nothing is withheld of an instance but what would take it out of use
    assert before.status in (InstanceStatus.CHECKING, InstanceStatus.VERIFYING)
    if before.status is InstanceStatus.CHECKING and isinstance(event, events.InstanceDeadlineReached):
        assert before.check is not None
        # ECS never started its check, and nothing blames it; or it only read logs beside somebody's work.
        refused = any(one.refusals for one in before.commands)
        drained = before.drained_by_others and not before.check.task_id
        assert before.check.passive or refused or drained
        return
    assert isinstance(event, events.CheckEnded)
    if before.status is InstanceStatus.VERIFYING:
        assert event.verdict.outcome is CheckOutcome.HEALTHY
        assert before.reboot is None or is_reset(before) or proves_reboot(before.reboot, event.verdict)
    else:
        assert not event.verdict.outcome.blames_hardware
        assert before.check is not None
        if event.verdict.outcome is not CheckOutcome.HEALTHY and not before.check.passive:
            # A check that was stopped for a job says nothing: the report leads to a check of its own.
            handled_later = is_stopped(before.check) and unhandled_report(after) is not None
            assert handled_later or not _has_a_fault_of_this_check(before)


def _has_a_fault_of_this_check(before: Instance) -> bool:
    """Return whether a health source has reported an error that only a repair cures, since check and boot began."""
    faults = [health.fault for health in before.health.values() if health.status is HealthStatus.IMPAIRED]
    since = max(filter(None, (before.status_at, before.boot_heard_at)))
    return any(fault is not None and fault.since >= since for fault in faults)


def claims_go_only_when_sure(before: Instance, event: Any, after: Instance) -> None:
    """Assert that a claim was dropped for a check of its own attempt, for a proved reboot, or for EC2's word."""
    for job_id in before.claims.keys() - after.claims.keys():
        rank = RankOnInstance(job_id, before.claims[job_id].attempt)
        orphaned = rank in before.orphaned_ranks
        if isinstance(event, events.CheckRequested):
            assert event.job_id == job_id
            assert event.attempt >= before.claims[job_id].attempt
        elif isinstance(event, events.MachineSeen):
            assert event.state.is_off
        elif isinstance(event, events.CheckEnded):
            if orphaned and before.reboot is None:
                assert proves_end_of_orphans(before, event.verdict)
            elif is_reset(before):
                assert orphaned and proves_end_of_orphans(before, event.verdict)
            elif before.reboot is None:  # given back by a person, or registered anew: its check had every GPU
                assert event.verdict.outcome is CheckOutcome.HEALTHY
            else:
                assert orphaned or before.reboot.ends == rank
                assert proves_reboot(before.reboot, event.verdict)
        else:  # the word of ECS alone ends no rank
            assert after.status is InstanceStatus.GONE and not isinstance(event, events.InstanceObserved)

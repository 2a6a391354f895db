"""Launch holds: which waiting jobs a missing permission keeps from starting, and for how long."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from gpu_recovery.core.fleet import DeniedLaunches
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import DeniedLaunch, JobStatus
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.launch_holds import launch_holds
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import LaunchHold, RejectionKind, WaitingJob

from tests.core.build import placed, queued
from tests.core.queue.build import NOW, at, given, host, hosts, passed, recovering, running, suspended, waiting

ROLE = "iam:PassRole on arn:aws:iam::123456789012:role/training"
TRYING, BLOCKING = LaunchHold("llm:1", ROLE, blocks=False), LaunchHold("llm:1", ROLE, blocks=True)
TRUSTED = replace(TRYING, has_precedence=True)
DENIED = Entry("a", 1, 1, "ann", Priority.NORMAL, "", 1, 8, NOW, NOW, waits=True, task_definition="llm:1", lacks=ROLE)
DENIED = replace(DENIED, denials=1, not_before=at(60))


def test_a_blocking_hold_keeps_every_job_of_its_task_definition_and_no_other() -> None:
    """The jobs stand first in the queue, and the free host goes to the job behind them."""
    line = [waiting(name, task_definition="llm:1", since=-900) for name in "ab"]
    answer = passed([*line, waiting("c", task_definition="vision:1")], hosts("i-0"), launch_holds=(BLOCKING,))
    assert given(answer) == {"c": ("i-0",)}
    assert {(one.job_id, one.short_of) for one in answer.rejected} == {
        ("a", RejectionKind.PERMISSION),
        ("b", RejectionKind.PERMISSION),
    }


def test_a_hold_that_does_not_block_lets_one_job_start() -> None:
    """The first in the queue that fits; a larger one before it does not keep it from that."""
    line = [waiting("large", 9, task_definition="llm:1", since=-900)]
    line += [waiting(name, task_definition="llm:1", since=since) for since, name in enumerate("ab", -500)]
    assert given(passed(line, hosts("i-0", "i-1"), launch_holds=(TRYING,))) == {"a": ("i-0",)}


def test_no_job_is_suspended_for_one_that_aws_may_deny() -> None:
    """Its victim would have lost work for a launch that fails."""
    urgent = waiting("urgent", priority=Priority.HIGH, task_definition="llm:1")
    busy = [running("low", "i-0", priority=Priority.LOW)]
    assert suspended(passed([urgent], [host("i-0", free=0)], busy)) == {"low": "urgent"}
    assert suspended(passed([urgent], [host("i-0", free=0)], busy, launch_holds=(TRYING,))) == {}


def test_a_gang_that_aws_may_deny_keeps_no_host_from_the_jobs_behind_it() -> None:
    """The gang does not fit. The small job uses a host that the gang would need when the running job ends."""
    line = [waiting("gang", 2, task_definition="llm:1", since=-900), waiting("small", task_definition="vision:1")]
    busy, fleet = [running("busy", "i-0", ends=600)], [host("i-0", free=0), host("i-1")]
    answer = passed(line, fleet, busy, launch_holds=(TRYING,))
    assert given(answer) == {"small": ("i-1",)} and answer.reservations == ()
    assert [(one.job_id, one.short_of) for one in answer.rejected] == [("gang", RejectionKind.GPUS)]
    kept = passed(line, fleet, busy, launch_holds=(TRUSTED,))
    assert given(kept) == {} and [one.job_id for one in kept.reservations] == ["gang"]


@pytest.mark.parametrize("head", [(), (waiting("head", since=-990, priority=Priority.HIGH),)])
def test_a_recovering_gang_that_aws_may_deny_keeps_none_of_its_instances(head: tuple[WaitingJob, ...]) -> None:
    """Neither as the next job of the queue, nor behind a job that waits for another host."""
    gang = recovering("gang", "i-0", "i-1", gpus=4, task_definition="llm:1")
    line = [*head, gang, waiting("small", gpus=4, task_definition="vision:1")]
    busy = [running("busy", "i-0", ends=600, priority=Priority.HIGH)]
    busy.append(running("half", "i-1", gpus=4, ends=9_000, priority=Priority.HIGH))
    fleet = [host("i-0", free=0), host("i-1", free=4)]
    assert given(passed(line, fleet, busy, launch_holds=(TRYING,))) == {"small": ("i-1",)}
    assert given(passed(line, fleet, busy, launch_holds=(TRUSTED,))) == {}


def test_no_job_is_suspended_for_a_probe_over_the_job_limit() -> None:
    """The probe would replace its victim, and AWS may deny the probe."""
    urgent = waiting("urgent", priority=Priority.HIGH, task_definition="llm:1")
    busy = [running("low", "i-0", priority=Priority.LOW)]
    for hold, leaving in ((TRUSTED, {"low": "urgent"}), (TRYING, {})):
        limits = QuotaLimits(max_running_jobs=1)
        answer = passed([urgent], [host("i-0", free=0)], busy, limits=limits, launch_holds=(hold,))
        assert suspended(answer) == leaving


def test_jobs_are_suspended_for_one_job_of_a_hold_with_precedence() -> None:
    """The other job of the hold neither starts nor has jobs suspended for it."""
    line = [waiting(name, priority=Priority.HIGH, task_definition="llm:1") for name in ("first", "second")]
    busy = [running(f"low-{number}", f"i-{number}", priority=Priority.LOW) for number in range(2)]
    fleet = [host("i-0", free=0), host("i-1", free=0)]
    answer = passed(line, fleet, busy, launch_holds=(TRUSTED,))
    assert list(suspended(answer).values()) == ["first"]
    assert {one.job_id: one.short_of for one in answer.rejected}["second"] is RejectionKind.PERMISSION


def test_the_job_that_was_denied_least_is_tried_first_in_a_hold_of_every_launch() -> None:
    """Among jobs that were denied equally often the order of the queue decides."""
    line = [waiting(name, since=since, denials=n) for name, since, n in (("a", -9, 2), ("b", -8, 1), ("c", -7, 1))]
    everywhere = LaunchHold("", "ecs:RunTask", blocks=False)
    assert given(passed(line, hosts("i-0", "i-1"), launch_holds=(everywhere,))) == {"b": ("i-0",)}
    blocked = passed(line, hosts("i-0", "i-1"), launch_holds=(replace(everywhere, blocks=True),))
    assert [one.job_id for one in blocked.rejected] == ["a", "b", "c"]


def holds(*entries: Entry, now: datetime = NOW, scope: str = "llm:1") -> tuple[LaunchHold, ...]:
    return launch_holds(entries, {scope: DeniedLaunches(ROLE, at(-60), 120)}, now)


def test_a_hold_blocks_while_its_job_pauses_or_is_being_launched() -> None:
    """Then one job may start, also if a user holds the denied job. A denied job that is diagnosed blocks none."""
    assert holds(DENIED) == (BLOCKING,)
    assert holds(DENIED, now=at(60)) == (TRYING,)
    assert holds(replace(DENIED, waits=False, launching=True), now=at(60)) == (BLOCKING,)
    assert holds(replace(DENIED, waits=False), now=at(60)) == (TRYING,)
    assert holds(replace(DENIED, held=True)) == (TRYING,)


def test_a_hold_blocks_while_a_job_that_was_never_denied_is_being_launched() -> None:
    """A launch of another task definition blocks nothing."""
    other = replace(DENIED, job_id="b", lacks="", waits=False, launching=True)
    assert holds(DENIED, other, now=at(60)) == (BLOCKING,)
    assert holds(DENIED, replace(other, task_definition="vision:1"), now=at(60)) == (TRYING,)


def test_a_hold_ends_with_its_record() -> None:
    """A launch that succeeds removes the record. After its denied jobs are gone, the next job starts as a probe."""
    assert launch_holds([DENIED], {}, NOW) == ()
    for other in (replace(DENIED, lacks=""), replace(DENIED, task_definition="vision:1")):
        assert holds(other) == holds() == (TRYING,)


def test_a_hold_has_precedence_after_a_day_without_a_denied_launch() -> None:
    """Counted from the last denial, 60 s before NOW."""
    assert holds(DENIED, now=at(86_339)) == (TRYING,)
    assert holds(DENIED, now=at(86_340)) == (TRUSTED,)


def test_a_permission_that_every_launch_needs_holds_every_job() -> None:
    """The hold has no task definition, and every launch blocks it."""
    everywhere = replace(DENIED, lacks="ecs:RunTask", lacks_everywhere=True)
    (hold,) = holds(everywhere, scope="")
    assert (hold.scope, hold.blocks) == ("", True)
    line = [waiting("a", task_definition="llm:1"), waiting("c", task_definition="vision:1")]
    assert given(passed(line, hosts("i-0", "i-1"), launch_holds=(hold,))) == {}
    other = replace(DENIED, job_id="b", lacks="", waits=False, launching=True, task_definition="vision:1")
    assert [one.blocks for one in holds(everywhere, other, now=at(60), scope="")] == [True]


@pytest.mark.parametrize(
    ("status", "launching"),
    [(JobStatus.SUBMITTING, True), (JobStatus.STOPPING, True), (JobStatus.DIAGNOSING, False)],
)
def test_a_denied_job_is_being_launched_until_its_gang_is_stopped(status: JobStatus, launching: bool) -> None:
    """A diagnosis takes long, and is no launch."""
    denied = DeniedLaunch(MissingPermission("iam:PassRole"), NOW)
    entry = entry_of(replace(placed(queued(), ids=("i-0",)), status=status, denied=denied))
    assert entry is not None and entry.launching is launching

"""The MPS daemon in reports of ECS: operators hear of it, and the instance works on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import commands
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.fault_signs import fault_of
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.instance.record_parts import whole_gpus_free
from gpu_recovery.core.mps_daemon import BY_SHARING_MODE, names_mps_daemon
from gpu_recovery.core.notifications.template import Phase

from tests.core.build import NOW, applied, available, claimed, later, observed, orders, tell
from tests.core.instance.health_cases import IN_STATUS, health_report

GPUS = HealthKind.ACCELERATED_COMPUTE
WEDGED = "mps control daemon probe timed out after 3s (daemon wedged?): signal: killed"
MPS = replace(health_report(GPUS), sentence=WEDGED)
REASONS = [
    WEDGED,
    'mps control daemon probe failed (exit 1, output "Cannot find MPS control daemon process"): exit status 1',
    "mps pipe directory /run/mps-ecs is not a directory",
    "stat /run/mps-ecs: no such file or directory",
    "stat /tmp/nvidia-mps: no such file or directory",
    "fork/exec /usr/bin/nvidia-cuda-mps-control: no such file or directory",
]


@pytest.mark.parametrize("reason", REASONS)
def test_the_mps_daemon_takes_no_instance_out_of_use(reason: str) -> None:
    """The agent's own words (ecs-agent/utils/mps/mps.go): no check, no repair, new work; one message to operators."""
    decision = tell(available(), replace(MPS, sentence=reason))
    assert decision.record.status is InstanceStatus.AVAILABLE and is_usable(decision.record)
    assert not decision.record.avoid_reason and decision.record.need is None
    assert not orders(decision, commands.RunCheck)
    (notice,) = orders(decision, commands.NotifyOperator)
    assert "MPS daemon" in notice.subject and reason in notice.body and "systemctl restart nvidia-mps" in notice.body


@pytest.mark.parametrize("reason", ["XID_79", "XID_79, mps control daemon probe failed", "stamps are missing", "it is"])
def test_every_other_reason_is_checked_as_before(reason: str) -> None:
    """A GPU may take the daemon with it: an XID decides."""
    assert not names_mps_daemon(reason)
    assert tell(available(), replace(MPS, sentence=reason)).record.status is InstanceStatus.CHECKING


@pytest.mark.parametrize(("shared", "where"), [(0, InstanceStatus.CHECKING), (1, InstanceStatus.AVAILABLE)])
def test_without_a_reason_the_sharing_mode_of_the_gpus_decides(shared: int, where: InstanceStatus) -> None:
    """An agent between the two pull requests gives none."""
    record = applied(tell(available(), observed(2, gpus_shared=shared)))
    decision = tell(record, replace(MPS, sentence=""))
    assert decision.record.status is where
    assert bool(decision.record.health[GPUS].sentence == BY_SHARING_MODE) is bool(shared)


def test_operators_hear_once_of_the_daemon_and_once_that_it_answers() -> None:
    """ECS repeats the report with a newer update; the end closes the thread."""
    first = tell(available(), MPS)
    again = tell(first.record, replace(MPS, updated_at=later(60), sentence=REASONS[1]))
    assert len(orders(first, commands.NotifyOperator)) == 1 and not orders(again, commands.NotifyOperator)
    answers = tell(again.record, health_report(GPUS, HealthStatus.OK, later(120)))
    (notice,) = orders(answers, commands.NotifyOperator)
    assert notice.phase is Phase.RESOLVED and "MPS daemon" in notice.subject
    assert not answers.record.incident_id and answers.record.status is InstanceStatus.AVAILABLE


def test_a_gpu_that_fails_after_the_daemon_is_checked() -> None:
    """The thread goes on with the GPU."""
    down = applied(tell(available(), MPS))
    lost = replace(health_report(GPUS, since=later(5), xid=79), sentence="XID_79")
    assert tell(down, lost).record.status is InstanceStatus.CHECKING


def test_a_daemon_that_fails_after_a_gpu_revokes_nothing() -> None:
    """The instance of a running job is avoided because of its GPU; the report about the GPU stands."""
    lost = replace(health_report(GPUS, xid=79), sentence="XID_79")
    suspect = applied(tell(claimed(), lost))
    after = tell(suspect, replace(MPS, since=later(5), at=later(5))).record
    assert after.health[GPUS].sentence == "XID_79" and after.avoid_reason


@pytest.mark.parametrize("where", [status for status in InstanceStatus if status is not InstanceStatus.GONE])
def test_no_status_is_left_for_the_daemon(where: InstanceStatus) -> None:
    """Busy or not: the report is recorded, and nothing is done on the instance."""
    record = IN_STATUS[where]()
    decision = tell(record, MPS)
    assert decision.record.status is record.status
    assert not orders(decision, commands.RunCheck) and not orders(decision, commands.TellJob)


def test_the_daemon_is_no_sign_of_a_fault_after_a_failure_of_a_job() -> None:
    """The job goes on there without a check."""
    down = applied(tell(available(), MPS))
    assert fault_of(down, Heartbeat(down.instance_id, NOW), "", NOW) == ""


@pytest.mark.parametrize(
    ("gpus", "free", "shared", "whole"),
    [(8, 8, 0, 8), (8, 8, 2, 6), (8, 6, 2, 6), (8, 0, 8, 0), (8, None, 2, None), (1, 1, 2, 0)],
)
def test_a_shared_gpu_is_not_free_for_a_rank(gpus: int, free: int | None, shared: int, whole: int | None) -> None:
    """Whatever the remaining resources of ECS count."""
    assert whole_gpus_free(gpus, free, shared) == whole
    event = observed(2, gpus=gpus, gpus_free=free, gpus_shared=shared)
    assert tell(available(), event).record.gpus_free == whole


def test_an_event_without_sharing_modes_leaves_what_a_description_said() -> None:
    """Until the next registration."""
    shared = applied(tell(available(), observed(2, gpus=8, gpus_free=8, gpus_shared=3)))
    assert tell(shared, observed(3, gpus=8, gpus_free=8)).record.gpus_free == 5
    fresh = observed(1, gpus=8, gpus_free=8, container_instance_id="another")
    assert tell(shared, fresh).record.gpus_free == 8

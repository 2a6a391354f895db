"""Mails about a failed job have the evidence about its instances that is known when they are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.diagnosis.observations import Observation, ProgressReport
from gpu_recovery.core.events import RankFailed
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.record import HealthReport
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.notifications.template import Part, Phase, Severity, message
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.task import Ending, EndingKind
from gpu_recovery.execution.context import ExecutionContext
from gpu_recovery.execution.notifications import notify
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.records import JOB, NOW, instance, job, later, pending
from tests.execution.failed_gang import CRASH, FIRST, SECOND, ended, failed, loop, two_instances
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions

KILLED = replace(CRASH, ending=Ending(EndingKind.CRASHED, 137, "was ended by signal 9 (exit code 137)"))


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    return two_instances(functions)


def first_mail(api: Api) -> str:
    """The mail that rank 1 of the running gang has failed."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=later(-600))
    loop(api).handle(JOB, RankFailed(at=NOW, attempt=1, failure=CRASH))
    (asked,) = api.functions.aws.asked("Publish")
    return str(asked["Message"])


def progress(name: str, rank: int, at_s: float) -> Observation:
    return ProgressReport(report_id=f"p{rank}", at_s=NOW.timestamp() + at_s, instance_id=name, rank=rank, value=7.0)


def test_the_first_mail_has_the_xid_that_an_agent_has_reported(api: Api) -> None:
    """It is often on another instance than that of the rank that ended first."""
    report = HealthReport(HealthStatus.IMPAIRED, NOW, "XID 79 on GPU-1b2c, 2 times within a day")
    api.functions.store.save_instance(instance(FIRST, health={HealthKind.NODE_AGENT: report}, revision=1))
    mail = first_mail(api)
    assert f"{FIRST} (rank 0): NODE_AGENT is IMPAIRED since 2026-11-21 09:00 UTC: XID 79 on GPU-1b2c" in mail
    assert "XID 79 on GPU-1b2c (GPU_HAS_FALLEN_OFF_THE_BUS)" in mail


def test_the_first_mail_names_the_rank_that_fell_silent_long_before(api: Api) -> None:
    """The rank that ended first waited for it and gave up. Where every rank fell silent, no rank is named."""
    store = api.functions.store
    store.add_observations(JOB, 1, FIRST, [progress(FIRST, 0, -60)])
    store.add_observations(JOB, 1, SECOND, [progress(SECOND, 1, -5)])
    mail = first_mail(api)
    assert f"suspect (rank 0) on {FIRST}: its last report came 60 s before the failure" in mail
    assert f"suspect (rank 1) on {SECOND}" not in mail


def test_no_rank_is_suspected_where_every_rank_fell_silent(api: Api) -> None:
    """A collective that hangs silences all of them."""
    for rank, name in enumerate((FIRST, SECOND)):
        api.functions.store.add_observations(JOB, 1, name, [progress(name, rank, -60 - rank)])
    assert "suspect" not in first_mail(api)


def test_the_first_mail_names_an_agent_that_is_silent(api: Api) -> None:
    """Its machine may hang."""
    for name, seen_s in ((FIRST, -58), (SECOND, -3)):
        api.functions.store.save_heartbeat(Heartbeat(name, later(seen_s), "boot-1", later(-9_000)), True)
    mail = first_mail(api)
    assert f"{FIRST} (rank 0): suspect: no heartbeat of its node agent for 58 s" in mail
    assert f"{SECOND} (rank 1): suspect" not in mail


def test_an_agent_that_was_silent_before_the_job_ran_is_no_suspect(api: Api) -> None:
    """It was removed, or died days ago."""
    api.functions.store.save_heartbeat(Heartbeat(FIRST, later(-700), "boot-1", later(-9_000)), True)
    assert "suspect" not in first_mail(api)


@pytest.mark.parametrize(
    ("booted_s", "ordered_s", "restarted"), [(-40, None, True), (-900, None, False), (-40, -60, False)]
)
def test_a_machine_that_restarted_under_the_job_is_the_cause(
    api: Api, booted_s: int, ordered_s: int | None, restarted: bool
) -> None:
    """Its boot is later than the start of the run, and gpu-recovery has not ordered it."""
    reboots = () if ordered_s is None else (later(ordered_s),)
    api.functions.store.save_instance(
        instance(SECOND, boot_heard_at=later(booted_s), reboots=reboots, boot_id="boot-2", revision=1)
    )
    failed(api, running_at=later(-600), failure=KILLED)
    conclusion = ended(api).conclusion
    assert (conclusion.cause == "NODE_FAULT" and conclusion.decided) is restarted
    assert ("restarted during the attempt" in conclusion.sentence) is restarted


class Unreadable:
    """A store that answers no read."""

    def load_instances(self, instance_ids: object) -> object:
        raise TryAgainSoon("throttled")


class Mailbox:
    """Actions that keep what is sent."""

    def __init__(self) -> None:
        self.sent: list[NotifyOperator] = []

    def notify(self, message: NotifyOperator) -> None:
        self.sent.append(message)


@pytest.mark.parametrize(("ordered_s", "told"), [(None, True), (-60, False)])
def test_the_first_mail_says_that_a_machine_restarted(api: Api, ordered_s: int | None, told: bool) -> None:
    """Its boot changed under the rank. A reboot that gpu-recovery ordered is no news."""
    reboots = () if ordered_s is None else (later(ordered_s),)
    api.functions.store.save_instance(instance(SECOND, boot_heard_at=later(-40), reboots=reboots, revision=1))
    assert (f"{SECOND} (rank 1): the instance restarted at 2026-11-21 08:59 UTC" in first_mail(api)) is told


def test_a_mail_that_was_not_sent_at_the_first_try_is_sent_without_its_evidence() -> None:
    """A read that fails for good keeps no mail back."""
    mail = message("i-1", Severity.SEV2, Phase.OPENED, "FAILED", {Part.EVIDENCE: ["exit code 1"]}, evidence_of=(FIRST,))
    mailbox: Any = Mailbox()
    store: Any = Unreadable()
    context = ExecutionContext(store, mailbox, RecoveryPolicy(), NOW, lambda call, items: None)
    first = pending(JOB, 1, mail)
    with pytest.raises(TryAgainSoon):
        notify(context, job(), first)
    notify(context, job(), replace(first, tries=2))
    notify(context, job(), replace(first, tries=3, refusals=2))
    assert mailbox.sent == [mail, mail]


def test_a_mail_that_is_left_to_another_function_has_its_evidence(api: Api) -> None:
    """The function that decided stopped a large gang first, and had no time left for the mail."""
    report = HealthReport(HealthStatus.IMPAIRED, NOW, "XID 79 on GPU-1b2c, 2 times within a day")
    api.functions.store.save_instance(instance(FIRST, health={HealthKind.NODE_AGENT: report}, revision=1))
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=later(-600))
    replace(loop(api), has_time=lambda: False).handle(JOB, RankFailed(at=NOW, attempt=1, failure=CRASH))
    assert not api.functions.aws.asked("Publish")
    assert loop(api).execute_left(lambda: api.functions.store.load_job(JOB))
    (asked,) = api.functions.aws.asked("Publish")
    assert "XID 79 on GPU-1b2c" in asked["Message"]

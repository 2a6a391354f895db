"""What a function leaves in its log: a line for each decision, and one blob of metrics that CloudWatch reads."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any, cast

import pytest
from aws_lambda_powertools import Logger, Metrics
from gpu_recovery.aws.decision_log import PowertoolsDecisionLog
from gpu_recovery.core import events
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import NotifyOperator, PokeScheduler
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.metrics import METRICS, NAMESPACE, SERVICE
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.core.task import EndingKind
from gpu_recovery.fleet_controls import save_gpu_instance_count
from gpu_recovery.ports.errors import NotificationFailed, StaleRecord
from gpu_recovery.reconciler.reconcile import process_due_job
from gpu_recovery.recovery import Recovery

from simulator.memory_store.store import MemoryStore
from tests.core.build import ADAPTIVE, NOW, SPEC, failure, later, observed, running, stopping, tell

NOTICE = NotifyOperator("sft-1--a01", "SEV3", "subject", "body of the message")


@pytest.fixture
def log() -> io.StringIO:
    """What the function has logged."""
    return io.StringIO()


@pytest.fixture
def journal(log: io.StringIO, request: pytest.FixtureRequest) -> PowertoolsDecisionLog:
    """A journal that counts from nothing, as a function does after its last invocation."""
    Metrics().clear_metrics()  # one set of metrics is shared by all of a process
    logger = Logger(service=request.node.nodeid, level="INFO", stream=log)  # and one handler by all of a service
    return PowertoolsDecisionLog(logger, Metrics(namespace=NAMESPACE, service=SERVICE))


def blob(journal: PowertoolsDecisionLog) -> dict[str, Any]:
    """The metrics as the end of the invocation writes them."""
    return dict(journal.metrics.serialize_metric_set())


def failed(seconds: int = 0) -> tuple[Any, Any, Any]:
    """A stored running job, the failure of its rank, and the decision taken `seconds` later."""
    record = replace(running(), revision=4)
    event = events.RankFailed(at=NOW, attempt=1, failure=failure(EndingKind.CRASHED))
    return record, event, tell(record, event, now=later(seconds))


def test_metrics_are_written_in_the_format_that_cloudwatch_reads(journal: PowertoolsDecisionLog) -> None:
    """Namespace, unit and value of each, and the one dimension that all functions share."""
    journal.decided(*failed(seconds=12))
    written = blob(journal)
    (directive,) = written["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "GpuRecovery"
    assert directive["Dimensions"] == [["service"]]
    assert written["service"] == "gpu-recovery"
    units = {one["Name"]: one["Unit"] for one in directive["Metrics"]}
    assert units == {
        "JobStopping": "Count",
        "DetectionSeconds": "Seconds",
        "GpuHoursLost": "None",
        "RecoveriesStarted": "Count",
    }
    assert written["DetectionSeconds"] == [12.0]
    assert written["GpuHoursLost"] == [pytest.approx(16 * 12 / 3600)]


def test_values_of_one_invocation_are_kept_apart(journal: PowertoolsDecisionLog) -> None:
    """Percentiles are made of raw values: an invocation that decides for two jobs sends two."""
    journal.decided(*failed(seconds=12))
    journal.decided(*failed(seconds=90))
    assert blob(journal)["DetectionSeconds"] == [12.0, 90.0]


def test_powertools_knows_every_unit_of_the_table(journal: PowertoolsDecisionLog) -> None:
    """A unit that it does not know fails the function that sends it."""
    for name, kind in METRICS.items():
        journal.metrics.add_metric(name, kind.unit.value, 1)
    assert set(METRICS) <= set(blob(journal))


def test_a_decision_is_one_line_with_its_reason(journal: PowertoolsDecisionLog, log: io.StringIO) -> None:
    """The same sentence as in history and e-mail, with what one searches for."""
    record, event, decision = failed()
    journal.decided(record, event, decision)
    (line,) = log.getvalue().splitlines()
    said = json.loads(line)
    assert said["message"] == "job_decided"
    assert (said["job_id"], said["event_type"], said["outcome"]) == ("sft-1", "RankFailed", "APPLIED")
    assert (said["before"], said["after"], said["reason"]) == ("RUNNING", "STOPPING", decision.reason)


def test_a_new_job_and_a_new_instance_count_as_entered(journal: PowertoolsDecisionLog) -> None:
    """A record that no store has written yet has its first status from this very decision."""
    journal.job_created(job_state_machine.created("sft-1", SPEC, ADAPTIVE, NOW))
    registered = state_machine.registered("i-0a1", observed(), ADAPTIVE, NOW)
    journal.decided(replace(registered.record, commands=()), observed(), registered)
    stored = replace(registered.record, revision=1)
    journal.decided(stored, observed(2), tell(stored, observed(2)))
    written = blob(journal)
    assert written["JobQueued"] == [1]
    assert written["InstanceAvailable"] == [1]


def test_what_the_reconciler_opens_says_how_old_it_is(journal: PowertoolsDecisionLog) -> None:
    """The alarm on what is stuck needs a value while nothing moves, too."""
    record = replace(stopping(failure(EndingKind.CRASHED)), deadline_at=later(10))
    journal.record_due(record, later(25))
    written = blob(journal)
    assert (written["OverdueSeconds"], written["RecoveryAgeSeconds"]) == ([15.0], [25.0])


def test_the_brakes_are_shown_at_each_round(journal: PowertoolsDecisionLog) -> None:
    """The alarm on an open breaker must go on ringing while nothing else happens."""
    journal.fleet_checked(Fleet(), NOW)
    assert not journal.metrics.metric_set
    store = MemoryStore()
    store.save_fleet(Fleet(opened_at=later(-60), opened_because="3 of 4 instances looked bad"))
    save_gpu_instance_count(loop(journal, store), 4)
    assert blob(journal)["BreakerOpenSeconds"] == [60.0]


def test_a_failed_placement_is_counted_and_logged_with_its_error(
    journal: PowertoolsDecisionLog, log: io.StringIO
) -> None:
    """The scheduler does not raise it, so the alarm and the log are all that operators have."""
    journal.placement_failed(TimeoutError("RunTask was not answered"))
    assert blob(journal)["PlacementsFailed"] == [1.0]
    line = json.loads(log.getvalue())
    assert (line["level"], line["exception_name"]) == ("ERROR", "TimeoutError")
    assert "RunTask was not answered" in line["exception"]


def test_a_word_that_was_not_sent_is_counted_and_named_but_not_quoted(
    journal: PowertoolsDecisionLog, log: io.StringIO
) -> None:
    """The log says which word and why; what it was to say stays in the record."""
    journal.notified(running(), NOTICE, None)
    assert not log.getvalue()
    journal.notified(running(), NOTICE, TimeoutError("the topic is away"))
    journal.notified(running(), PokeScheduler("sft-1/2"), TimeoutError("the queue is away"))
    written = blob(journal)
    assert (written["NoticesSent"], written["NoticesFailed"], written["Unsaid"]) == ([1], [1], [1])
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(one["level"], one["command"], one["failure"]) for one in lines] == [
        ("ERROR", "NotifyOperator", "TimeoutError"),
        ("ERROR", "PokeScheduler", "TimeoutError"),
    ]
    assert not any("body of the message" in json.dumps(one) for one in lines)


def test_only_one_thread_at_a_time_measures(journal: PowertoolsDecisionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are told in parallel, and Powertools' metrics are made for one thread."""
    free: list[bool] = []
    monkeypatch.setattr(
        journal.metrics, "add_metric", lambda *_: free.append(journal._measuring.acquire(blocking=False))
    )
    journal.fleet_checked(Fleet(repairing=frozenset({"i-1"})), NOW)
    assert free and not any(free)


def test_what_nobody_knows_is_a_warning_and_no_metric(journal: PowertoolsDecisionLog) -> None:
    """Events of strangers' tasks are none of our numbers."""
    journal.unknown_record("stranger", observed())
    assert not journal.metrics.metric_set


# -- what the loop tells its journal -----------------------------------------------------------------------------------


class RefusedOnce(MemoryStore):
    """A store in which somebody else has just written the record, once."""

    refusals = 1

    def save_job(self, job: Job, quota: QuotaChange | None = None) -> Job:
        """Refuse the first save."""
        if self.refusals:
            self.refusals -= 1
            raise StaleRecord(job.job_id)
        return super().save_job(job, quota)


class Unreadable(MemoryStore):
    """A store that has lost the plans of attempts."""

    def load_plan(self, job_id: str, attempt: int) -> Plan | None:
        """Nobody knows."""
        raise TimeoutError(f"{job_id}, attempt {attempt}")


class Deaf:
    """AWS with nothing running in it, which takes every word but messages to operators."""

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        """None."""
        return ()

    def stop_tasks(self, task_ids: tuple[str, ...], reason: str) -> None:
        """There are none."""

    def publish(self, command: Any, causation_id: str) -> None:
        """Taken."""

    def poke_scheduler(self, key: str, hops: int = 1) -> None:
        """Taken."""

    def notify(self, command: Any) -> None:
        """The topic is away."""
        raise TimeoutError("the topic is away")


def loop(journal: PowertoolsDecisionLog, store: MemoryStore) -> Recovery:
    """The loop at NOW."""
    return Recovery(store=store, actions=cast("Any", Deaf()), policy=ADAPTIVE, clock=lambda: NOW, decision_log=journal)


def test_a_decision_that_is_refused_and_taken_again_is_told_once(
    journal: PowertoolsDecisionLog, log: io.StringIO
) -> None:
    """Two writers of one record would otherwise count one failure twice."""
    store = RefusedOnce()
    store.create_job(running(), "")
    with pytest.raises(NotificationFailed):
        loop(journal, store).handle("sft-1", failed()[1])
    assert store.refusals == 0
    assert blob(journal)["JobStopping"] == [1]
    assert log.getvalue().count('"job_decided"') == 1


def test_a_notice_that_could_not_be_published_is_counted(journal: PowertoolsDecisionLog) -> None:
    """Nobody reads the mail that was not sent: an alarm must say so."""
    store = MemoryStore()
    store.create_job(running(), "")
    with pytest.raises(NotificationFailed):
        loop(journal, store).handle("sft-1", failed()[1])
    written = blob(journal)
    assert written["NoticesFailed"] == [1]
    assert "NoticesSent" not in written and "Unsaid" not in written


def test_a_job_that_is_kept_is_counted_and_one_whose_id_is_taken_is_not(journal: PowertoolsDecisionLog) -> None:
    """A submission that was refused has not entered the queue."""
    recovery = loop(journal, MemoryStore())
    new = job_state_machine.created("sft-1", SPEC, ADAPTIVE, NOW)
    assert recovery.create_job(new, "") and not recovery.create_job(new, "")
    assert blob(journal)["JobQueued"] == [1]


def test_the_reconciler_says_how_late_it_is_before_it_tries_anything(journal: PowertoolsDecisionLog) -> None:
    """What it fails on each time is what must be seen to be late."""
    store = Unreadable()
    stuck = replace(stopping(failure(EndingKind.CRASHED)), deadline_at=later(-900))
    store.create_job(stuck, "")
    with pytest.raises(TimeoutError):
        process_due_job(loop(journal, store), "sft-1")
    assert blob(journal)["OverdueSeconds"] == [900.0]

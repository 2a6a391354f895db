"""The messages operators get, for whatever job ids and reasons the world comes up with."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from gpu_recovery.core import notifications
from gpu_recovery.core.commands import Channel, NotifyOperator, PokeScheduler
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.events import Checked, DepartureAnnounced, HangSuspected
from gpu_recovery.core.fleet import Fleet, ReportingOutage
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import DepartureKind, HealthStatus
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.record import HealthReport, Instance, Interruption
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.downtime import DownPhase, Downtime
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.notifications import (
    adoption,
    agents,
    fleet,
    foreign_tasks,
    instances,
    jobs,
    permissions,
    recovery_contract,
    template,
)
from gpu_recovery.core.notifications.channels import for_every_channel
from gpu_recovery.core.notifications.template import Part, Phase, Severity
from gpu_recovery.core.state_machine import Decision, EventOutcome, HistoryEntry, PendingCommand
from gpu_recovery.core.task import EndingKind
from hypothesis import example, given
from hypothesis import strategies as st

from tests import command_line
from tests.core.build import ADAPTIVE, IDS, NOW, available, checking, failure, later, running

HOSTILE = "run\r\n[SEV1] \x00\x1b[31m\u2028Grüße\x7f\n\nYOU\n  gpu-recovery cancel other\n" + "x" * 900
ROOT = Path(__file__).resolve().parents[3]
TWO_SCREENS = 60
CHARACTERS_MAX = 12_000
BREAKER = Fleet(
    gpu_instances=8,
    opened_at=NOW,
    opened_because="4 of 8 instances were suspected within 300 s",
    incident_id="breaker/20261121T030000",
    blamed={f"i-0{n}": NOW for n in range(40)},
    repairing=frozenset({"i-01"}),
)
DEAF = Fleet(gpu_instances=10, deaf=ReportingOutage(NOW, 7, 10, "silence/20261121T030000"))


def messages_about(name: str, reason: str) -> dict[str, NotifyOperator]:
    """One message of every kind about a job and an instance called `name`, for `reason`."""
    lost = replace(failure(EndingKind.CRASHED), ending=replace(failure(EndingKind.CRASHED).ending, sentence=reason))
    story = tuple(HistoryEntry(NOW, "RUNNING", "STOPPING", "RankFailed", 1, reason) for _ in range(60))
    job = replace(running(), job_id=name, incident_id=f"{name}--a01", failure=lost, history=story, reason=reason)
    job = replace(job, spec=replace(job.spec, user="bob"))
    fresh = replace(job, incident_id=None)
    bound = replace(job, spec=replace(job.spec, max_down_minutes=10), repairing=(name,), deadline_at=later(3_600))
    health = {"SYSTEM_STATUS": HealthReport(HealthStatus.IMPAIRED, NOW, reason)}
    machine = replace(checking(), instance_id=name, incident_id=f"{name}/3", history=story, health=health)
    leaves = Interruption(DepartureKind.RETIREMENT, f"event-{name}", later(86_400), reason)
    ending = DepartureAnnounced(
        at=NOW, kind=DepartureKind.INTERRUPTION, source=f"cr-{name}", leaves_at=later(600), sentence=reason
    )
    results = {f"i-0{n}": Checked(CheckOutcome.REBOOT, reason, True) for n in range(40)}
    probing = replace(BREAKER, probe=name or "i-0")
    return {
        "recovery_started": jobs.recovery_started(fresh, f"{name}--a01", reason, lost, later(240), later(2_760)),
        "last_attempt_failed": jobs.recovery_started(
            fresh, f"{name}--a01", reason, lost, later(240), later(2_760), is_last=True
        ),
        "recovered": jobs.recovered(job, reason),
        "closed": jobs.closed(job, reason),
        "failed": jobs.failed(job, f"{name}--a01", reason, IDS, results),
        "started_again": jobs.started_again(job),
        "may_hang": jobs.may_hang(
            job, HangSuspected(at=NOW, attempt=1, sentence=reason, since=NOW, instance_id=name), later(90)
        ),
        "would_have_acted": jobs.would_have_acted(job, reason, lost),
        "stopped_by_person": jobs.stopped_by_person(job, lost, JobStatus.CANCELED),
        "adoption_refused": adoption.adoption_refused(name, "task-1", reason),
        "foreign_task": foreign_tasks.foreign_task(name, 1, 0, "task-1"),
        "contact_lost": jobs.contact_lost(fresh, f"{name}--a01/lost/4", name, reason, later(600)),
        "contact_restored": jobs.contact_restored(job, reason),
        "agent_silent": jobs.agent_silent(replace(job, silent=(name, *IDS)), reason),
        "incompletely_adopted": jobs.incompletely_adopted(job, reason),
        "quarantined": instances.quarantined(machine, f"{name}/3", reason, later(86_400)),
        "withdrawn": instances.withdrawn(machine, f"{name}/3", reason, later(86_400)),
        "repair_begun": instances.repair_begun(
            replace(machine, incident_id=""), f"{name}/3", reason, later(1_800), "the reset of its GPUs"
        ),
        "repair_held": instances.repair_held(machine, f"{name}/3", reason, later(21_600)),
        "suspected": instances.suspected(machine, f"{name}/3", reason),
        "stop_timeout_too_long": adoption.stop_timeout_too_long("sft-1", "gpu-training:3", reason),
        "deregistered": instances.deregistered(machine, f"{name}/3", reason, held=True, recovers=True),
        "interruption_announced": instances.interruption_announced(machine, f"{name}/3", leaves, later(82_800), False),
        "reservation_ending": instances.reservation_ending(f"cr-{name}", (name, *IDS), (name,), ending),
        "back_in_service": instances.back_in_service(machine, reason),
        "gone": instances.gone(machine, reason),
        "would_have_repaired": instances.would_have_repaired(machine, reason),
        "never_checked": instances.never_checked(machine, reason),
        "foreign_check": foreign_tasks.foreign_check(machine, f"check/{name}/1", "task-1"),
        "misconfigured": instances.misconfigured(machine, reason),
        "breaker_opened": fleet.of_breaker(Fleet(), BREAKER, ADAPTIVE)[0],
        "breaker_stays_open": fleet.of_breaker(probing, replace(BREAKER, opened_at=later(900)), ADAPTIVE)[0],
        "reporting_outage": fleet.reporting_outage(DEAF),
        "reporting_restored": fleet.reporting_restored(DEAF),
        "breaker_closed": fleet.breaker_closed(BREAKER, reason),
        "idle_repairs": fleet.idle_repairs(
            replace(BREAKER, repairing=frozenset({name or "i-0", "i-01"})), reason, ADAPTIVE
        ),
        **_messages_about_limits(bound, reason),
        "launch_denied": permissions.launch_denied(job, MissingPermission("ecs:RunTask"), reason, 604_800),
        "duplicate_agent": agents.duplicate_agent(Heartbeat(name or "i-0", NOW, run="new"), "old"),
        "agents_silent": agents.agents_silent("silence/1", {name or "i-0": NOW, "i-01": NOW}),
        "agents_back": agents.agents_back("silence/1", {name or "i-0": reason}),
        **_messages_about_mps(machine, f"{name}/3", reason),
    }


def _messages_about_limits(job: Job, reason: str) -> dict[str, NotifyOperator]:
    down = Downtime(1, NOW, DownPhase.WAIT, NOW, told=True)
    now, ended = later(1_200), down.closed(later(1_200), recovered=True)
    exceeded = recovery_contract.limit_exceeded(job, ended, reason, now)
    return {"limit_passed": recovery_contract.limit_passed(job, down, now), "limit_exceeded": exceeded}


def _messages_about_mps(machine: Instance, incident_id: str, reason: str) -> dict[str, NotifyOperator]:
    return {
        "mps_daemon_down": instances.mps_daemon_down(machine, incident_id, reason),
        "mps_daemon_back": instances.mps_daemon_back(machine, reason),
    }


KINDS = tuple(messages_about("sft-1", "why"))
each_kind = pytest.mark.parametrize("kind", KINDS)


def test_every_message_there_is_is_asked_here() -> None:
    """A function that makes a message and is missing in the table would go unread."""
    modules = [import_module(one.name) for one in iter_modules(notifications.__path__, f"{notifications.__name__}.")]
    public = {
        name
        for module in modules
        for name, one in vars(module).items()
        if getattr(one, "__module__", "") == module.__name__
        and getattr(one, "__annotations__", {}).get("return") == "NotifyOperator"
        and not name.startswith("_")
    } - {"message", "with_evidence"}
    assert public | {"breaker_opened", "breaker_stays_open", "last_attempt_failed"} == set(KINDS)


# -- the form ----------------------------------------------------------------------------------------------------------


@given(job_id=st.text(max_size=300), reason=st.text(max_size=100))
@example(job_id=HOSTILE, reason=HOSTILE)
@example(job_id="x" * 300, reason="")
def test_a_subject_is_one_short_line_of_printable_ascii(job_id: str, reason: str) -> None:
    """SNS refuses anything else, and a refused message is one that nobody reads."""
    for message in messages_about(job_id, reason).values():
        assert message.subject.isascii()
        assert message.subject.isprintable()
        assert len(message.subject) < 100
        assert message.subject == message.subject.strip()
        assert message.subject.startswith(f"[GPU-RECOVERY][{message.severity}] ")


@given(job_id=st.text(max_size=300), reason=st.text(max_size=2_000))
@example(job_id=HOSTILE, reason=HOSTILE)
@example(job_id="sft-1", reason="YOU")
@example(job_id="sft-1", reason="words " * 2_000)
def test_a_body_keeps_its_form_whatever_a_program_wrote(job_id: str, reason: str) -> None:
    """Every part is there, once, in its order and not empty; nothing quoted can add one, or fill more than a page."""
    for message in messages_about(job_id, reason).values():
        lines = message.body.split("\n")
        assert [line for line in lines if line in tuple(Part)] == list(Part)
        assert all(template.parts_of(message.body).values())
        assert list(template.parts_of(message.body)) == list(Part)
        assert len(lines) <= TWO_SCREENS
        assert len(message.body) <= CHARACTERS_MAX
        assert all(line.isprintable() for line in lines)


@each_kind
def test_a_body_names_whom_it_is_about_and_the_id_to_follow_it_by(kind: str) -> None:
    """The last lines: what to search the log, the bus and the history for."""
    message = messages_about("sft-1", "why")[kind]
    ids = template.parts_of(message.body)[Part.IDS]
    assert ids[-1] == f"correlation id {message.incident_id}"
    assert message.incident_id
    if not message.incident_id.startswith(("breaker/", "silence/", "reservation/", "repairs/")):
        assert "sft-1" in ids[0] and "sft-1" in (message.job_id, message.instance_id)


@each_kind
def test_the_commands_of_a_message_can_be_typed(kind: str) -> None:
    """At night nobody has the patience for a verb that does not exist. Every line with two blanks is one."""
    parts = template.parts_of(messages_about("sft-1", "why")[kind].body)
    typed = [line for line in parts[Part.YOU] if line.startswith("  ")]
    assert typed
    for line in typed:
        words = line.partition(" # ")[0].split()
        if words[:2] == ["make", "deploy"]:
            continue
        assert words.pop(0) == "gpu-recovery"
        _accepts(command_line.command(), words)
    indented = [line for part, lines in parts.items() if part is not Part.YOU for line in lines if line[0] == " "]
    assert not indented


def _accepts(command: Any, words: list[str]) -> None:
    """Click parses the words to the end; a missing or unknown one raises."""
    while hasattr(command, "commands") and words:
        command = command.commands[words.pop(0)]
    command.make_context("gpu-recovery", words, resilient_parsing=False)


def test_only_what_needs_a_person_is_urgent() -> None:
    """What heals by itself wakes nobody."""
    urgent = {kind for kind, message in messages_about("sft-1", "why").items() if message.severity == Severity.SEV2}
    assert urgent == {
        "failed",
        "quarantined",
        "breaker_opened",
        "breaker_stays_open",
        "reporting_outage",
        "launch_denied",
    }


def test_good_news_is_quiet_and_ends_its_thread() -> None:
    """And nothing else says that an incident is over."""
    messages = messages_about("sft-1", "why")
    resolved = {kind for kind, message in messages.items() if message.phase == Phase.RESOLVED}
    assert resolved == {kind for kind, message in messages.items() if message.severity == Severity.SEV4}
    of_silence = {"contact_restored", "agent_silent", "agents_back", "reporting_restored"}
    of_instances = {"back_in_service", "gone", "mps_daemon_back"}
    assert resolved == {"recovered", "closed", "started_again", "breaker_closed"} | of_instances | of_silence


def test_the_messages_of_one_incident_share_its_id() -> None:
    """They are one thread, from the first to the last."""
    messages = messages_about("sft-1", "why")
    of_job = ("recovery_started", "recovered", "failed", "closed", "started_again")
    assert {messages[kind].incident_id for kind in of_job} == {"sft-1--a01"}
    of_machine = ("quarantined", "repair_held", "suspected", "interruption_announced", "back_in_service", "gone")
    of_machine += ("mps_daemon_down", "mps_daemon_back")
    assert {messages[kind].incident_id for kind in of_machine} == {"sft-1/3"}
    assert {messages[kind].incident_id for kind in KINDS if "breaker" in kind} == {BREAKER.incident_id}


def test_bad_news_about_an_open_incident_escalates_it() -> None:
    """`recovery_started` is said once."""
    messages = messages_about("sft-1", "why")
    assert messages["recovery_started"].phase == Phase.OPENED
    assert messages["failed"].phase == messages["quarantined"].phase == Phase.ESCALATED
    untouched = available()
    assert instances.quarantined(untouched, "i/2", "why", NOW).phase == Phase.OPENED


# -- what is in it -----------------------------------------------------------------------------------------------------


def test_the_evidence_of_a_failure_is_its_rank_its_ending_and_its_exit_code() -> None:
    """What ECS said, not only what we made of it."""
    first = failure(EndingKind.CRASHED, 134)
    message = jobs.recovery_started(running(), "sft-1--a01", "why", first, later(240), later(2_760))
    evidence = "\n".join(template.parts_of(message.body)[Part.EVIDENCE])
    assert f"rank 0 on {IDS[0]} ended as CRASHED" in evidence
    assert "exit code 134, classified as CRASHED, at 2026-11-21 03:00 UTC" in evidence


def test_a_failure_lists_the_checks_that_matter_first() -> None:
    """Of a hundred checks the two that found something are on the page."""
    results = {f"i-{n:03}": Checked(CheckOutcome.HEALTHY, "fine") for n in range(100)}
    results["i-050"] = Checked(CheckOutcome.REPLACE, "XID 79 on GPU 3")
    results["i-051"] = Checked(CheckOutcome.REBOOT, "XID 48 on GPU 1", True)
    job = replace(running(), failure=failure(EndingKind.CRASHED))
    evidence = template.parts_of(jobs.failed(job, "sft-1--a01", "why", (), results).body)[Part.EVIDENCE]
    assert evidence[2] == "check of i-050: REPLACE: XID 79 on GPU 3 (GPU_HAS_FALLEN_OFF_THE_BUS)"
    assert evidence[3] == "check of i-051: REBOOT: XID 48 on GPU 1 (GPU_ECC_DBE) (its repair has begun)"
    assert evidence[-1] == "and 90 more checks"


def test_a_failure_says_which_gpus_are_not_given_back() -> None:
    """A person must see that rank ended before anything else may run there."""
    kept = template.parts_of(jobs.failed(running(), "sft-1--a01", "why", IDS[:1], {}).body)
    assert IDS[0] in kept[Part.DONE][0]
    assert any(line.startswith(f"  gpu-recovery instances {IDS[0]}") for line in kept[Part.YOU])
    assert "but for" not in jobs.failed(running(), "sft-1--a01", "why", (), {}).body
    many = template.parts_of(jobs.failed(running(), "sft-1--a01", "why", [f"i-{n}" for n in range(9)], {}).body)
    assert sum("gpu-recovery instances i-" in line for line in many[Part.YOU]) == 3


def test_a_recovery_tells_the_story_from_the_beginning_of_the_incident() -> None:
    """Not what came before it, and its newest decisions where it was long."""
    old = HistoryEntry(NOW, "", "QUEUED", "JobSubmitted", 0, "submitted by ada")
    since = [HistoryEntry(later(60 + n), "RUNNING", "STOPPING", "RankFailed", 1, f"step {n}") for n in range(12)]
    job = replace(running(), history=(old, *since), incident_id="sft-1--a01", recovery_since=later(60))
    evidence = template.parts_of(jobs.recovered(job, "it has run for 60 s").body)[Part.EVIDENCE]
    assert len(evidence) == 8
    assert evidence[-1].endswith("STOPPING: step 11")
    assert "submitted" not in "\n".join(evidence)


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        ("recovery_started", ("2026-11-21 03:04 UTC", "2026-11-21 03:46 UTC")),
        ("quarantined", ("2026-11-22 03:00 UTC",)),
        ("repair_held", ("2026-11-21 09:00 UTC",)),
        ("interruption_announced", ("2026-11-22 02:00 UTC",)),
        ("reservation_ending", ("2026-11-21 03:10 UTC",)),
        ("breaker_opened", ("2026-11-21 03:15 UTC",)),
        ("breaker_stays_open", ("2026-11-21 03:30 UTC",)),
    ],
)
def test_what_comes_next_says_when(kind: str, times: tuple[str, ...]) -> None:
    """In UTC: whoever reads it may sit anywhere."""
    told = "\n".join(template.parts_of(messages_about("sft-1", "why")[kind].body)[Part.NEXT])
    assert tuple(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", told)) == times


def test_a_time_is_told_in_utc_whatever_zone_it_comes_in() -> None:
    """Times of AWS come in any zone."""
    assert template.clock(datetime.fromisoformat("2026-11-21T05:00:00+02:00")) == "2026-11-21 03:00 UTC"
    assert template.clock(datetime(2026, 11, 21, 3, tzinfo=UTC) + timedelta(hours=1)) == "2026-11-21 04:00 UTC"


def test_a_foreign_task_is_told_with_the_rank_that_it_claims() -> None:
    """The environment of such a task may name no rank."""
    assert "claims to be rank 0 of attempt 1" in foreign_tasks.foreign_task("sft-1", 1, 0, "task-1").body
    assert "claims to be no rank of attempt 1" in foreign_tasks.foreign_task("sft-1", 1, None, "task-1").body


def test_the_reason_is_told_in_the_body() -> None:
    """The same sentence as in the history."""
    told = messages_about("sft-1", "GPU 3 fell off the bus")
    silent = {kind for kind, message in told.items() if "GPU 3 fell off the bus" not in message.body}
    without_reason = {"breaker_opened", "breaker_stays_open", "reporting_outage", "reporting_restored"}
    assert silent == without_reason | {"foreign_task", "foreign_check", "duplicate_agent", "agents_silent"}


def test_a_retirement_is_said_to_be_beyond_a_reboot_only_where_we_do_not_replace() -> None:
    """Where the switch is on, nobody needs to do anything."""
    leaves = Interruption(DepartureKind.RETIREMENT, "event-1", later(86_400), "its host is to be retired")
    by_hand = instances.interruption_announced(available(), "i/2", leaves, later(82_800), False).body
    by_us = instances.interruption_announced(available(), "i/2", leaves, later(82_800), True).body
    assert "A reboot does not prevent" in by_hand and "Then the instance is replaced." not in by_hand
    assert "Then the instance is replaced." in by_us and "A reboot does not prevent" not in by_us


# -- channels ----------------------------------------------------------------------------------------------------------


def _decided(*orders: Any) -> Decision[Any]:
    pending = tuple(PendingCommand(f"sft-1/2/{n}", order, later(180)) for n, order in enumerate(orders, 1))
    record = replace(running(), commands=pending)
    return Decision(record, pending, "why", EventOutcome.APPLIED)


def test_a_message_has_a_command_of_its_own_for_each_channel() -> None:
    """One that fails is repeated alone: neither mailbox nor chat hears twice because the other was not reached."""
    message = messages_about("sft-1", "why")["recovery_started"]
    told = for_every_channel((Channel.MAIL, Channel.CHAT), _decided(message, PokeScheduler("x")))
    assert [(one.command_id, getattr(one.command, "channel", None)) for one in told.commands] == [
        ("sft-1/2/1", Channel.MAIL),
        ("sft-1/2/2", None),
        ("sft-1/2/3", Channel.CHAT),
    ]
    assert told.record.commands == told.commands
    assert replace(told.commands[2].command, channel=Channel.MAIL) == message


def test_without_a_second_channel_nothing_is_added() -> None:
    """The decision is the very one."""
    decision = _decided(messages_about("sft-1", "why")["recovery_started"])
    assert for_every_channel((Channel.MAIL,), decision) is decision


@pytest.mark.parametrize("kind", KINDS)
def test_a_runbook_that_a_message_names_exists(kind: str) -> None:
    """Under the name that the alarms use, too."""
    named = re.findall(r"docs/runbooks/[\w-]+\.md", messages_about("sft-1", "why")[kind].body)
    assert all((ROOT / name).is_file() for name in named)
    if kind in ("quarantined", "withdrawn", "contact_lost", "breaker_opened", "breaker_stays_open", "failed"):
        assert named


def test_a_failure_offers_the_output_of_the_rank_that_failed_and_its_diagnosis() -> None:
    """The commands that show why."""
    job = replace(running(), failure=replace(failure(EndingKind.FAILED), rank=3))
    told = template.parts_of(jobs.failed(job, "sft-1--a01", "why", (), {}).body)[Part.YOU]
    assert any(line.startswith(f"  gpu-recovery logs {job.job_id} --rank 3") for line in told)
    assert any(line.startswith(f"  gpu-recovery diagnose {job.job_id}") for line in told)


def test_a_check_without_words_has_no_dangling_colon() -> None:
    """A check that passed says nothing more."""
    body = jobs.failed(running(), "sft-1--a01", "why", (), {"i-1": Checked(CheckOutcome.HEALTHY, "")}).body
    assert "check of i-1: HEALTHY\n" in body


def test_the_failure_of_the_last_attempt_promises_no_further_attempt() -> None:
    """The subject alone says that the job will end. The operator reads that it needs a person, and what to do."""
    started = partial(jobs.recovery_started, running(), "a", "why", None, later(1), later(2))
    last = started(is_last=True)
    assert last.subject.endswith("attempt 1 failed, the job will end") and "recovering" not in last.subject
    assert "this attempt was its last" in last.body and "goes on from its last checkpoint" not in last.body
    parts = template.parts_of(last.body)
    assert "submit the job again" in parts[Part.YOU][0] and "Nothing is needed" not in last.body
    assert any("FAILED" in line for line in parts[Part.NEXT])
    assert started().subject.endswith("attempt 1 failed, recovering") and "No action is needed" in started().body


def test_the_first_message_says_which_instances_are_checked() -> None:
    """All of them only if the evidence decides nothing, or is not read."""
    started = partial(jobs.recovery_started, running(), "a", "why", None, later(1), later(2))
    told = " ".join(template.parts_of(started().body)[Part.NEXT])
    assert "If they name faulty instances, at most half of the gang, only these are checked" in told
    assert f"Otherwise each of the {len(running().instances)} instances gets a health check" in told
    whole = " ".join(template.parts_of(started(spares_healthy=False).body)[Part.NEXT])
    assert "only these" not in whole and "Otherwise each" in whole
    classic = " ".join(template.parts_of(started(reads_evidence=False, spares_healthy=False).body)[Part.NEXT])
    assert "Then each of the" in classic and "logs" not in classic


OF_A_JOB = (
    "recovery_started",
    "last_attempt_failed",
    "recovered",
    "closed",
    "failed",
    "started_again",
    "may_hang",
    "would_have_acted",
    "stopped_by_person",
    "contact_lost",
    "contact_restored",
    "agent_silent",
    "incompletely_adopted",
    "launch_denied",
    "limit_passed",
    "limit_exceeded",
)
"""The messages that are made from the record of a job."""


@pytest.mark.parametrize("kind", OF_A_JOB)
def test_a_message_about_a_job_names_its_user(kind: str) -> None:
    """The operator knows whom to tell. An adopted task may name no user."""
    parts = template.parts_of(messages_about("sft-1", "why")[kind].body)
    assert "sft-1 of user bob" in parts[Part.WHAT][0] and "job sft-1 of user bob" in parts[Part.IDS][0]
    nobody = replace(running(), job_id="sft-1", spec=replace(running().spec, user=""))
    assert " of user" not in jobs.recovered(nobody, "why").body


@pytest.mark.parametrize(
    ("asks_reboot", "act"), [(True, "The health check asks for a reboot"), (False, "Replace the instance")]
)
def test_a_quarantine_asks_for_what_the_check_asks_for(asks_reboot: bool, act: str) -> None:
    """A person who released a machine without a reboot reads that it wants one."""
    body = instances.quarantined(available(), "i/2", "why", NOW, asks_reboot=asks_reboot).body
    assert template.parts_of(body)[Part.YOU][0].startswith(act)


CASES: list[tuple[Cause, Remedy, tuple[str, ...], str, str]] = [
    (Cause.STORAGE, Remedy.PERSON, (), "full: '/data/ckpt/step-4.pt'", "Free space on /data/ckpt/step-4.pt"),
    (Cause.STORAGE, Remedy.PERSON, (), "full: '/data/ckpt/step-4.pt'", "The storage is shared"),
    (Cause.STORAGE, Remedy.LEAVE_OUT, ("i-1",), "No space left on device", "Free space where the program writes"),
    (Cause.STORAGE, Remedy.WAIT, ("i-1",), "Input/output error", "Check the storage"),
    (Cause.APPLICATION, Remedy.FAIL, (), "KeyError: 'x'", "Fix the program"),
    (Cause.GPU_FAULT, Remedy.CHECK, ("i-1",), "XID 79", "Fix the cause"),
]


@pytest.mark.parametrize(("cause", "remedy", "where", "line", "act"), CASES)
def test_a_failure_asks_for_the_act_that_mends_its_cause(
    cause: Cause, remedy: Remedy, where: tuple[str, ...], line: str, act: str
) -> None:
    """And an undecided cause asks for none."""
    found = DiagnosisResult(1, cause, "there", where, remedy, 94, True, line)
    assert act in jobs.failed(running(), "a", "why", (), {}, found).body
    unsure = replace(found, decided=False)
    assert "Fix the cause" in jobs.failed(running(), "a", "why", (), {}, unsure).body

"""What the functions make of the diagnosis of a failed attempt, with DynamoDB of moto."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from gpu_recovery.aws.parallel_calls import in_parallel
from gpu_recovery.core.attempt import undelivered_event
from gpu_recovery.core.commands import GatherEvidence
from gpu_recovery.core.diagnosis.observations import Delivery, EventReport, FlightReport
from gpu_recovery.core.events import Checked, InstancesChecked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim, IdleCheckResult
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.redaction import FORMS, SecretForm
from gpu_recovery.core.task import Ending, EndingKind
from gpu_recovery.execution.context import ExecutionContext
from gpu_recovery.execution.diagnosis import diagnose_attempt
from gpu_recovery.execution.evidence import collect_evidence, topology_of
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery_client.render.timeline import explanation

from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.aws.records import JOB, NOW, later, pending, plan
from tests.core.logs.failed_gangs import MOE_NOTE, TIMEOUT
from tests.execution.failed_gang import (
    CRASH,
    FIRST,
    IMPORT,
    LIES,
    SECOND,
    checked,
    ended,
    failed,
    loop,
    no_such_stream,
    two_instances,
    wrote,
)
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.tiers import sampled

RDMA = "misc/ibvwrap.cc:280 NCCL WARN Call to ibv_create_qp failed"


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    return two_instances(functions)


@pytest.mark.parametrize(
    ("passed_s", "changes", "told"),
    [
        (-600 - 7_200, {}, True),
        (-600 - 90_000, {}, False),
        (-300, {}, False),
        (-600 - 7_200, {"healed_at": later(-4_000)}, False),
        (-600 - 7_200, {"blamed_at": later(-10)}, True),
    ],
    ids=["two hours before", "two days before", "not before", "a repair since", "the fault of this attempt"],
)
def test_a_diagnosis_tells_the_idle_check_that_the_blamed_instance_had_passed(
    api: Api, passed_s: int, changes: dict[str, Any], told: bool
) -> None:
    """The pass is part of the evidence, and takes nothing from the blame."""
    store, passed_at = api.functions.store, later(passed_s)
    for name in (FIRST, SECOND):
        record = store.load_instance(name)
        assert record is not None
        idle_check = IdleCheckResult(passed_at, CheckOutcome.HEALTHY.value, passed_at, 3)
        store.save_instance(replace(record, idle_check=idle_check, **changes))
    failed(api, reports=(LIES,), running_at=later(-600))
    conclusion = ended(api).conclusion
    assert (conclusion.cause, conclusion.instances, conclusion.decided) == ("GPU_FAULT", (SECOND,), True)
    sentence = f"{SECOND} had passed an idle check at level 3, {-passed_s / 3600:.1f} h before this diagnosis"
    assert (sentence in conclusion.sentence) is told
    assert FIRST not in conclusion.sentence
    page = api.post("/diagnoses", {"job_id": JOB}).body["page"]["en"]
    assert (f"[idle-check] {sentence}" in page) is told
    store.save_job(replace(api.functions.job(), attempt=2))
    earlier = api.post("/diagnoses", {"job_id": JOB, "attempt": 1}).body
    assert earlier["cause"] == "GPU_FAULT" and "idle check" not in earlier["page"]["en"]


def test_the_log_of_a_program_that_cannot_run_fails_the_job_at_once(api: Api) -> None:
    """With its line in the reason and the mail; no instance is checked."""
    failed(api, "step 1", IMPORT)
    after = ended(api)
    assert (after.status, after.conclusion.remedy) == (JobStatus.FAILED, "FAIL")
    assert IMPORT in after.reason
    assert any(IMPORT in asked["Message"] for asked in api.functions.aws.asked("Publish"))
    assert api.functions.aws.asked("RunTask") == []


def test_a_gpu_that_lies_is_checked_with_a_finger_on_it(api: Api) -> None:
    """It alone, beside the job, which goes on; its check is told which GPU."""
    failed(api, reports=(LIES,))
    after = ended(api)
    assert (after.status, after.conclusion.cause) == (JobStatus.RECOVERING, "GPU_FAULT")
    assert checked(api) == {SECOND: "3"}


def test_every_machine_is_checked_where_that_is_wanted(api: Api) -> None:
    """`check_in_background` is off: the suspect's check is told which GPU, the others' nothing."""
    failed(api, reports=(LIES,))
    assert ended(api, check_in_background=False).status is JobStatus.DIAGNOSING
    assert checked(api) == {FIRST: None, SECOND: "3"}


def test_a_notice_that_was_never_acknowledged_is_no_machines_fault(api: Api) -> None:
    """The job is started again without a check."""
    lost = EventReport(
        report_id="e1",
        at_s=NOW.timestamp() - 700,
        instance_id=SECOND,
        rank=1,
        request_id="q",
        event="rollout_start",
        state=Delivery.FAILED,
        last_state=Delivery.DELIVERED,
        error="TimeoutError",
    )
    failed(api, reports=(lost,))
    after = ended(api)
    assert (after.status, after.conclusion.cause) == (JobStatus.RECOVERING, "EVENT_UNPROCESSED"), after.reason
    assert api.functions.aws.asked("RunTask") == []


def test_a_log_that_cannot_be_read_keeps_no_machine_from_being_checked(api: Api) -> None:
    """Finding out helps; it must not be waited for."""
    failed(api)

    def deny(asked: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("the logs are away")

    api.functions.aws.answers["GetLogEvents"] = deny
    with pytest.raises(ExceptionGroup, match="found out"):
        ended(api)
    assert len(api.functions.aws.asked("RunTask")) == 2
    assert api.functions.job().status is JobStatus.DIAGNOSING


def test_a_machine_that_is_left_out_remembers_it(api: Api) -> None:
    """With the write that gives its GPUs back; the rest of the gang does not, and the API says so."""
    for one in (FIRST, SECOND):
        record = api.functions.instance(one)
        api.functions.store.save_instance(replace(record, claims={JOB: Claim(1, 8)}))
    failed(api, RDMA)
    after = ended(api)
    assert (after.status, tuple(after.left_out)) == (JobStatus.RECOVERING, (SECOND,)), after.reason
    seen = {one: api.get(f"/instances/{one}").body["lemon"] for one in (FIRST, SECOND)}
    assert seen[FIRST] == {"score": 0, "made_of": None, "signals": {}}
    assert seen[SECOND]["signals"] == {"excl_jobid_count": 1}
    assert seen[SECOND]["made_of"] == "1 time left out in 28 days" and seen[SECOND]["score"] > 0
    assert api.functions.instance(SECOND).claims == {}


def waits_for_rank_12() -> tuple[FlightReport, ...]:
    """Flight records of twice eight GPUs. Rank 12, on the second instance, has not called the last collective."""
    return tuple(
        FlightReport(
            report_id=f"f{rank}",
            at_s=NOW.timestamp(),
            instance_id=(FIRST, SECOND)[rank // 8],
            rank=rank,
            local_world=8,
            group="0 (default_pg)",
            member_ranges="0-15",
            last_enqueued=9 if rank == 12 else 10,
            last_completed=9,
        )
        for rank in range(16)
    )


def test_only_the_machine_of_a_hung_rank_is_checked(api: Api) -> None:
    """Rank 12 of twice eight GPUs: the job goes on without its instance, whose check tells what made it hang."""
    failed(api, reports=waits_for_rank_12())
    after = ended(api)
    assert (after.status, tuple(after.left_out)) == (JobStatus.RECOVERING, (SECOND,)), after.reason
    assert "ranks 12 are missing in process group 0 (default_pg)" in after.reason
    assert checked(api) == {SECOND: None}


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 4 has 79 GiB", "GPU_MEMORY"),
        ("KeyError: 'reward_model'", "APPLICATION"),
        (IMPORT, "CONFIGURATION"),
    ],
)
def test_the_own_error_of_a_missing_rank_is_its_cause(api: Api, line: str, cause: str) -> None:
    """The others wait for rank 12 because its program has ended. So it does not hang."""
    trace = ("Traceback (most recent call last):", '  File "train.py", line 7, in <module>')
    failed(api, *trace, line, reports=waits_for_rank_12())
    diagnosed = ended(api).diagnosed
    assert diagnosed is not None and diagnosed.cause == cause, diagnosed


def test_the_rank_of_a_flight_record_is_no_number_of_an_instance() -> None:
    """Its process 1 runs on the first of two instances, and the instance of rank 1 is the second."""
    record = FlightReport(report_id="f", at_s=0.0, instance_id=FIRST, rank=1, worker="0.1", group="0")
    topology = topology_of(plan(), {}, (record,))
    assert topology.by_rank[1].instance_id == SECOND
    assert topology.workers["0.1"].instance_id == FIRST


def test_a_hung_rank_ends_no_job_whose_checks_pass(api: Api) -> None:
    """Every instance is checked where that is wanted; the job then goes on elsewhere."""
    waits = [
        FlightReport(
            report_id=f"f{rank}",
            at_s=NOW.timestamp(),
            instance_id=one,
            rank=rank,
            group="dp",
            members=(0, 1),
            last_enqueued=10 - rank,
            last_completed=9,
        )
        for rank, one in enumerate((FIRST, SECOND))
    ]
    failed(api, reports=tuple(waits))
    assert ended(api, check_in_background=False).status is JobStatus.DIAGNOSING
    assert checked(api) == {FIRST: None, SECOND: None}
    healthy = Checked(CheckOutcome.HEALTHY, "all passed")
    results = InstancesChecked(at=NOW, attempt=1, results={FIRST: healthy, SECOND: healthy})
    loop(api).handle(JOB, results)
    after = api.functions.job()
    assert (after.status, tuple(after.left_out)) == (JobStatus.RECOVERING, (SECOND,)), after.reason
    sentence = f"{SECOND}: suspected, and used last until a stable run with it"
    assert sentence in after.reason
    story = {"job": api.get(f"/jobs/{JOB}").body, "pending": None, "instances": [], "left_out": []}
    assert sentence in explanation(story, NOW)


def test_the_fault_that_a_check_found_is_the_cause_of_the_failure(api: Api) -> None:
    """The agent's XID came too late for the diagnosis, and the check read it in the kernel log.

    The confidence is what the rules give to the same evidence, without the history of the instance.
    """
    crash = replace(CRASH, ending=Ending(EndingKind.CRASHED, 134, "was ended by signal 6 (exit code 134)"))
    failed(api, "step 1", failure=crash)
    assert ended(api).status is JobStatus.DIAGNOSING
    before = api.functions.job().diagnosed
    assert before is not None and not before.decided
    found = Checked(
        CheckOutcome.REBOOT, "kernel log: XID_79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", repairing=True
    )
    results = {FIRST: Checked(CheckOutcome.HEALTHY, "all passed"), SECOND: found}
    for rank, one in enumerate((FIRST, SECOND)):
        api.functions.store.add_checked(JOB, 1, rank, results[one])
    loop(api).handle(JOB, InstancesChecked(at=NOW, attempt=1, results=results))
    shown = api.get(f"/jobs/{JOB}").body["diagnosis"]
    assert (shown["cause"], shown["decided"], shown["instances"]) == ("GPU_FAULT", True, [SECOND])
    assert "XID_79" in shown["sentence"]
    asked = api.post("/diagnoses", {"job_id": JOB, "attempt": 1}).body
    assert (asked["cause"], asked["scope"]["names"], asked["decided"]) == ("GPU_FAULT", [SECOND], True)
    assert shown["confidence"] <= 100 * asked["confidence"] < shown["confidence"] + 3


def test_a_secret_in_a_log_goes_into_no_mail(api: Api) -> None:
    """The line is named, without what opens something."""
    failed(api, "ValueError: unknown option: token=hf_abcdef, at https://me:pass@host/x")
    after = ended(api)
    told = after.reason + "".join(asked["Message"] for asked in api.functions.aws.asked("Publish"))
    assert "unknown option" in told and "hf_abcdef" not in told and "pass@" not in told


@pytest.mark.parametrize("form", sampled(FORMS, fast=5, default=len(FORMS)), ids=lambda form: form.name)
def test_no_form_of_a_secret_goes_into_a_mail_or_a_table(api: Api, form: SecretForm) -> None:
    """The line comes from the log of the container. The record of the job keeps it, and the mail is not encrypted."""
    before, secret = re.fullmatch("(.*?)«(.*)».*", form.example, re.DOTALL).groups()  # type: ignore[union-attr]
    failed(api, f"ValueError: unknown option: {form.example}".replace("«", "").replace("»", ""))
    after = ended(api)
    told = after.reason + "".join(asked["Message"] for asked in api.functions.aws.asked("Publish"))
    assert f"unknown option: {before}***" in told and secret not in told
    assert secret not in str(api.functions.kept())


@pytest.mark.parametrize("times", [1, 20])
def test_a_note_that_every_start_prints_ends_no_job(api: Api, times: int) -> None:
    """SGLang names a missing file of its own. The time-out after it is undecided, so the checks go on."""
    failed(api, *[MOE_NOTE] * times, "step 1 loss 2.3", TIMEOUT.format(1))
    after = ended(api)
    assert after.status is JobStatus.DIAGNOSING
    assert after.conclusion.cause == "NETWORK" and not after.conclusion.decided
    assert MOE_NOTE not in after.reason and "MoE" not in after.conclusion.quoted


def test_what_a_wrapper_told_stands_for_a_log_that_nobody_can_read(api: Api) -> None:
    """CloudWatch has none: the end of what the rank wrote came by its agent, in parts, and its line ends the job."""
    trace = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>')
    failed(api, reports=(wrote(1, SECOND, IMPORT, part=0), wrote(1, SECOND, *trace, part=1)))
    api.functions.aws.answers["GetLogEvents"] = no_such_stream
    after = ended(api)
    assert (after.status, after.conclusion.cause) == (JobStatus.FAILED, "CONFIGURATION")
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert IMPORT in found["page"]["en"] and list(found["unread_logs"]) == ["0"]
    assert found["evidence"] == ["log/1/003"]  # the third line of what the two parts are together


def test_nobody_speaks_for_a_rank_of_which_nobody_knows_where_it_was(api: Api) -> None:
    """A person's task that never showed itself has no instance, and so has a report about somebody elsewhere."""
    failed(api)
    store, unseen = api.functions.store, replace(plan(), instances=(FIRST, ""))
    store.add_observations(JOB, 1, FIRST, (replace(wrote(1, "", IMPORT), report_id="e"),))
    found = collect_evidence(store, lambda *_: "no log", loop(api).policy, api.functions.job(), unseen, NOW)
    assert list(found.unread_logs) == [1, 0]


def test_the_logs_of_the_ranks_are_read_in_parallel(api: Api) -> None:
    """The first read creates the clients. Each of the other three waits until all three are under way."""
    failed(api, attempt=2)
    together, read = Barrier(3), list[str]()

    def log_tail(job: object, task_id: str, most: int) -> tuple[str, ...]:
        read.append(task_id)
        if len(read) > 1:
            together.wait(timeout=60)
        return (f"line of {task_id}",)

    tasks = tuple(f"task-{rank}" for rank in range(6))
    recovery = loop(api)
    instances = tuple(f"i-{rank}" for rank in range(6))
    recovery.store.begin_attempt(replace(plan(), attempt=2, task_ids=tasks, instances=instances))
    context = ExecutionContext(recovery.store, recovery.actions, recovery.policy, NOW, in_parallel)
    diagnose_attempt(context, api.functions.job(), 2, log_tail)
    assert sorted(read) == ["task-0", "task-1", "task-2", "task-3"]


def test_the_record_of_an_attempt_keeps_the_last_lines_of_the_rank_that_failed(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are none, why: for whoever looks when CloudWatch has forgotten."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"preset": "adaptive", "record_attempts": True}))
    api.functions.chill()
    failed(api, "step 1", IMPORT)
    api.functions.store.add_stopped(JOB, 1, 1, CRASH)
    ended(api)
    *_, put = api.functions.aws.asked("PutObject")
    assert json.loads(put["Body"].getvalue())["log"] == {"rank": 1, "lines": ["step 1", IMPORT], "why_none": None}


PACKAGE = Path(__file__).parents[2] / "lambdas"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ecs_task_handler", "dcgm_task_monitor", "ecs_instance_monitor", "reconciler", "scheduler", "node_api"]
)
def test_a_function_starts_without_the_rules(name: str) -> None:
    """They are a fifth of a start, and most functions never hear of a gang that has failed."""
    rules = "[one for one in sys.modules if '.core.logs' in one or '.diagnosis.rules' in one]"
    program = f"import sys, {name}; print({rules})"
    environment = {**os.environ, **FUNCTION, **CREDENTIALS, "PYTHONPATH": str(PACKAGE)}
    found = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"


def throttled(asked: dict[str, Any]) -> dict[str, Any]:
    """CloudWatch Logs is asked for too much, as our clients tell it."""
    raise TryAgainSoon("logs GetLogEvents: ThrottlingException")


def test_what_could_not_be_read_yet_is_read_later_and_told(api: Api) -> None:
    """The checks have begun by then, and decide; the line is known all the same."""
    failed(api, IMPORT)
    read = api.functions.aws.answers["GetLogEvents"]
    api.functions.aws.answers["GetLogEvents"] = throttled
    ended(api)
    assert len(api.functions.aws.asked("RunTask")) == 2
    api.functions.aws.answers["GetLogEvents"] = read
    api.functions.now = later(200)
    assert loop(api).reclaim_expired(api.functions.job())
    after = api.functions.job()
    assert after.status is JobStatus.DIAGNOSING and IMPORT in after.reason


def unexpected(asked: dict[str, Any]) -> dict[str, Any]:
    """A defect of the product: the log holds what its reader was not made for."""
    raise ZeroDivisionError


def test_a_failure_to_read_a_log_delays_no_check_and_is_raised(api: Api) -> None:
    """The function fails, so that its alarm rings; both instances are checked all the same."""
    failed(api, IMPORT)
    api.functions.aws.answers["GetLogEvents"] = unexpected
    with pytest.raises(ExceptionGroup, match=f"not everything could be found out about {JOB}"):
        ended(api)
    assert len(api.functions.aws.asked("RunTask")) == 2


def test_a_second_hearing_tells_the_word_of_the_checks_itself_and_nobody_else_meanwhile(api: Api) -> None:
    """A look that comes while the order is open would end the job before anybody was heard."""
    failed(api, "step 1")
    store = api.functions.store
    for rank in (0, 1):
        store.add_checked(JOB, 1, rank, Checked(CheckOutcome.HEALTHY, "", False))
    record = api.functions.job()
    gather = pending(JOB, 1, GatherEvidence(1))
    open_order = replace(record, status=JobStatus.DIAGNOSING, heard_again=1, commands=(gather,))
    progress = store.load_progress(JOB, 1)
    assert progress is not None
    policy = loop(api).policy
    assert undelivered_event(open_order, progress, plan(), policy, NOW) is None
    done = replace(open_order, commands=())
    assert undelivered_event(done, progress, plan(), policy, NOW) == InstancesChecked(
        at=NOW, attempt=1, results=progress.results(plan()), heard_again=True
    )
    saved = store.save_job(open_order)
    loop(api).execute(saved, saved.commands)
    assert api.functions.job().status is JobStatus.FAILED and api.functions.aws.asked("GetLogEvents")


def test_what_a_function_has_died_of_is_not_tried_again(api: Api) -> None:
    """Nobody answered the first try: the checks are what must not wait for a second."""
    failed(api, IMPORT)
    gather = pending(JOB, 1, GatherEvidence(1), until=-1)
    store = api.functions.store
    record = store.load_job(JOB)
    assert record is not None
    store.save_job(replace(record, status=JobStatus.DIAGNOSING, commands=(gather,)))
    assert loop(api).reclaim_expired(api.functions.job())
    assert api.functions.aws.asked("GetLogEvents") == []
    assert api.functions.job().commands == () and api.functions.job().conclusion is None

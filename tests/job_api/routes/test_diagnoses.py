"""POST /api/v2/diagnoses, and what the functions make of an attempt whose witnesses speak: with moto's DynamoDB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.attempt import undelivered_event
from gpu_recovery.core.commands import GatherEvidence
from gpu_recovery.core.diagnosis.observations import Check as Probe
from gpu_recovery.core.diagnosis.observations import (
    Delivery,
    EventReport,
    FlightReport,
    Progress,
    Report,
    StageReport,
    Written,
)
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.events import AllRanksStopped, Checked, InstancesChecked, JobLookDue
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.fault_history import noticed
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job.diagnosis_result import Conclusion
from gpu_recovery.core.job.record import JobStatus, StopPurpose
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.execution.evidence import heard
from gpu_recovery.execution.hang_detection import stopped_progress
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.recovery import Recovery

from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.aws.records import JOB, NOW, instance, job, later, pending, plan
from tests.job_api.routes.test_jobs import logging
from tests.lambdas.api_gateway import Api, refused, user_token
from tests.lambdas.conftest import Functions

FIRST, SECOND = plan().instances
CRASH = RankFailure(1, SECOND, NOW, Ending(EndingKind.FAILED, 1, "exited with code 1"))
LIES = StageReport(
    report_id="r1",
    at_s=NOW.timestamp(),
    instance_id=SECOND,
    rank=1,
    stage="rollout",
    gpu="3",
    probe=Probe.PASSED,
    synchronised=True,
    matches=False,
)

PACKAGE = Path(__file__).parents[3] / "lambdas"


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    for one in (FIRST, SECOND):
        functions.store.save_instance(instance(one))
    return Api(functions)


def failed(api: Api, *lines: str, reports: tuple[Report, ...] = (), **changes: Any) -> None:
    """A gang of two that is being stopped because rank 1 has exited with 1; what rank 1 wrote, and was told of it."""
    logging(api)
    store = api.functions.store
    fields: dict[str, Any] = {
        "status": JobStatus.STOPPING,
        "attempt": 1,
        "stop_purpose": StopPurpose.DIAGNOSE,
        "launched": True,
        "instances": plan().instances,
        "failure": CRASH,
        "stop_reason": "rank 1 exited with code 1",
    }
    store.create_job(job(**fields | changes), "")
    store.begin_attempt(plan())
    for rank in (0, 1):
        store.record_task(plan(), rank, plan().instances[rank], f"task-{rank}")
    at = int(NOW.timestamp() * 1000)

    def read(asked: dict[str, Any]) -> dict[str, Any]:
        mine = lines if asked["logStreamName"].endswith("task-1") else ()
        events = [{"timestamp": at + number, "message": line, "ingestionTime": at} for number, line in enumerate(mine)]
        return {"events": events, "nextForwardToken": "f/1", "nextBackwardToken": "b/1"}

    api.functions.aws.answers["GetLogEvents"] = read
    if reports:
        store.add_reports(JOB, 1, SECOND, reports)


def no_such_stream(asked: dict[str, Any]) -> dict[str, Any]:
    """CloudWatch has no log of it."""
    raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "GetLogEvents")


def loop(api: Api) -> Recovery:
    """The loop that the functions share, at the time of the test."""
    return replace(import_module("gpu_recovery.aws.wiring").recovery(), clock=lambda: api.functions.now)


def ended(api: Api, **settings: bool) -> Any:
    """What becomes of the job once every rank has ended, under the policy with these settings."""
    recovery = loop(api)
    recovery = replace(recovery, policy=replace(recovery.policy, **settings))
    recovery.tell(JOB, AllRanksStopped(at=NOW, attempt=1, failure=CRASH, own_ends=1))
    return api.functions.job()


IMPORT = "ModuleNotFoundError: No module named 'flash_attn'"


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
    """`check_aside` is off: the suspect's check is told which GPU, the others' nothing."""
    failed(api, reports=(LIES,))
    assert ended(api, check_aside=False).status is JobStatus.DIAGNOSING
    assert checked(api) == {FIRST: None, SECOND: "3"}


def checked(api: Api) -> dict[str, str | None]:
    """The GPUs on which the check of each instance that is checked has its finger."""
    runs = {}
    for asked in api.functions.aws.asked("RunTask"):
        pairs = asked["overrides"]["containerOverrides"][0]["environment"]
        environment = {one["name"]: one["value"] for one in pairs}
        runs[environment["INSTANCE_ID"]] = environment.get("FOCUS")
    return runs


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


def test_an_attempt_is_diagnosed_when_it_is_asked_for(api: Api) -> None:
    """As JSON and as a page in both languages; nothing is written."""
    failed(api, reports=(LIES,))
    before = api.functions.kept()
    answer = api.post("/diagnoses", {"job_id": JOB})
    assert (answer.status, answer.body["cause"], answer.body["attempt"]) == (200, "GPU_FAULT", 1)
    assert answer.body["scope"]["names"] and "r1" in answer.body["evidence"]
    assert "What: GPU_FAULT" in answer.body["page"]["en"] and "原因: GPU_FAULT" in answer.body["page"]["zh"]
    assert api.functions.kept() == before


def acted_upon(status: JobStatus, **changes: Any) -> dict[str, Any]:
    """A job that was started again because of a verdict on its first attempt."""
    verdict = Conclusion(
        1, Cause.WORKER_HANG, f"instance {SECOND}", (SECOND,), Remedy.LEAVE_OUT, 80, True, "no answer", spares=True
    )
    return {"status": status, "attempt": 2, "stop_purpose": None, "conclusion": verdict, **changes}


def test_a_diagnosis_tells_how_the_verdict_of_its_attempt_turned_out(api: Api) -> None:
    """It is open, then the next attempt lasts, and the job's record and the page say so; of others nothing is said."""
    failed(api, reports=(LIES,), **acted_upon(JobStatus.RUNNING, running_at=NOW, look_at=later(1_800)))
    store = api.functions.store
    store.begin_attempt(plan(attempt=2))
    answer = api.post("/diagnoses", {"job_id": JOB, "attempt": 1})
    assert (answer.body["outcome"]["cause"], answer.body["outcome"]["held"]) == ("WORKER_HANG", None)
    api.functions.now = later(1_800)
    loop(api).tell(JOB, JobLookDue(at=later(1_800), attempt=2, look_at=later(1_800)))
    assert [one.held for one in api.functions.job().verdicts] == [True]
    answer = api.post("/diagnoses", {"job_id": JOB, "attempt": 1})
    assert answer.body["outcome"]["held"] is True
    assert answer.body["page"]["en"].endswith(answer.body["outcome"]["english"] + "\n")
    assert "has held" in answer.body["page"]["en"] and "处置有效" in answer.body["page"]["zh"]
    other = api.post("/diagnoses", {"job_id": JOB, "attempt": 2})
    assert other.body["outcome"] is None and "Outcome" not in other.body["page"]["en"]


def test_a_machine_that_is_left_out_remembers_it(api: Api) -> None:
    """With the write that gives its GPUs back; the rest of the gang does not, and the API says so."""
    for one in (FIRST, SECOND):
        record = api.functions.instance(one)
        api.functions.store.save_instance(replace(record, claims={JOB: Claim(1, 8)}))
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
    after = ended(api)
    assert (after.status, tuple(after.left_out)) == (JobStatus.RECOVERING, (SECOND,)), after.reason
    seen = {one: api.get(f"/instances/{one}").body["lemon"] for one in (FIRST, SECOND)}
    assert seen[FIRST] == {"score": 0, "made_of": None, "signals": {}}
    assert seen[SECOND]["signals"] == {"excl_jobid_count": 1}
    assert seen[SECOND]["made_of"] == "1 time left out in 28 days" and seen[SECOND]["score"] > 0
    assert api.functions.instance(SECOND).claims == {}


def test_a_machine_that_failed_again_and_again_is_likelier_to_be_the_one(api: Api) -> None:
    """The same reports, with and without its past."""
    failed(api, reports=(LIES,))
    before = api.post("/diagnoses", {"job_id": JOB}).body
    record = api.functions.instance(SECOND)
    past = tuple(noticed(NOW, LemonSignal.OUT) for _ in range(4))
    api.functions.store.save_instance(replace(record, past=past))
    after = api.post("/diagnoses", {"job_id": JOB}).body
    assert after["cause"] == before["cause"] == "GPU_FAULT"
    assert after["confidence"] > before["confidence"]


def test_a_viewer_may_ask(api: Api) -> None:
    """It changes nothing."""
    failed(api)
    token = user_token(api, "ana", "viewer")
    assert api.post("/diagnoses", {"job_id": JOB}, token=token).status == 200


def test_a_case_that_is_brought_along_is_judged(api: Api) -> None:
    """Without any job; what is kept of it is nothing."""
    case = {
        "reports": [
            {
                "type": "stage",
                "id": "s",
                "at_s": 5,
                "instance": "i-0b",
                "stage": "rollout",
                "gpu": "1",
                "probe": "passed",
                "synchronised": True,
                "matches": False,
            }
        ],
        "workers": [{"name": "w", "instance_id": "i-0b"}],
    }
    before = api.functions.kept()
    answer = api.post("/diagnoses", case)
    assert (answer.status, answer.body["cause"], answer.body["job_id"]) == (200, "GPU_FAULT", None)
    assert api.functions.kept() == before
    again = json.loads(json.dumps(case))
    again["reports"] *= 3
    assert api.post("/diagnoses", again).body == answer.body


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ([], 400, "body"),
        ({"job_id": "none"}, 404, "job_id"),
        ({"job_id": 7}, 404, "job_id"),
        ({"job_id": JOB, "attempt": 9}, 404, "attempt"),
        ({"job_id": JOB, "attempt": "1"}, 404, "attempt"),
        ({"job_id": JOB, "reports": []}, 400, "reports"),
        ({"colour": 1}, 400, "colour"),
        ({"reports": 7}, 400, "reports"),
        ({"reports": [7]}, 400, "reports[0]"),
        ({"at_s": True}, 400, "at_s"),
        ({"workers": [{"name": "w"}]}, 400, "workers[0]"),
        ({"workers": [{"name": 1}]}, 400, "workers[0].name"),
    ],
)
def test_what_cannot_be_diagnosed_is_refused(api: Api, body: Any, status: int, field: str) -> None:
    """A problem document names the field."""
    failed(api)
    refused(api.post("/diagnoses", body), status, field)


def test_a_gang_that_stands_still_is_found_and_stopped(api: Api) -> None:
    """Its ranks run, its machines are heard of, and no value has grown for `stalled_s`; while one grows it runs on."""
    stands = [
        Progress(report_id=f"p{n}", at_s=NOW.timestamp() + 60 * n, instance_id=FIRST, rank=0, value=7.0)
        for n in range(20)
    ]
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW, look_at=later(600))
    store = api.functions.store
    api.functions.aws.tasks[attempt_id(JOB, 1)] = ["task-0", "task-1"]
    for rank in (0, 1):
        store.add_running(JOB, 1, rank)
    store.add_reports(JOB, 1, FIRST, stands[:11])
    look = api.functions.job().look_at
    assert look is not None
    api.functions.now = later(600)
    loop(api).tell(JOB, JobLookDue(at=later(600), attempt=1, look_at=look))
    assert api.functions.job().status is JobStatus.RUNNING
    store.add_reports(JOB, 1, FIRST, stands[11:])
    api.functions.now = later(1_150)
    look = api.functions.job().look_at
    assert look is not None
    loop(api).tell(JOB, JobLookDue(at=later(1_150), attempt=1, look_at=look))
    after = api.functions.job()
    assert after.status is JobStatus.STOPPING and "no rank has got on for" in after.stop_reason


def test_a_stall_that_is_longer_than_what_is_kept_is_seen_all_the_same(api: Api) -> None:
    """Each word says for how long nothing has changed; a word without a value says nothing."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None)
    store, job_now = api.functions.store, api.functions.job()
    at_s = NOW.timestamp()
    silent = [Progress(report_id=f"n{n}", at_s=at_s + n, instance_id=FIRST, rank=0) for n in range(0, 1_200, 100)]
    store.add_reports(JOB, 1, FIRST, silent)
    policy = loop(api).policy

    def stands() -> str | None:
        return stopped_progress(store, policy, job_now, plan(), later(1_200))

    assert stands() is None
    word = Progress(report_id="v", at_s=at_s + 1_190, instance_id=FIRST, rank=0, value=3.0, unchanged_s=100.0)
    store.add_reports(JOB, 1, FIRST, [word])
    assert stands() is None
    store.add_reports(JOB, 1, FIRST, [replace(word, report_id="w", at_s=at_s + 1_195, unchanged_s=1_000.0)])
    assert stands() == "no rank has got on for 1005 s, though its machines are heard of"


def test_a_secret_in_a_log_goes_into_no_mail(api: Api) -> None:
    """The line is named, without what opens something."""
    failed(api, "ValueError: unknown option: token=hf_abcdef, at https://me:pass@host/x")
    after = ended(api)
    told = after.reason + "".join(asked["Message"] for asked in api.functions.aws.asked("Publish"))
    assert "unknown option" in told and "hf_abcdef" not in told and "pass@" not in told


def _wrote(rank: int, instance_id: str, *lines: str, part: int = 0) -> Written:
    name = f"w-{rank}-{part}"
    return Written(report_id=name, at_s=NOW.timestamp(), instance_id=instance_id, rank=rank, part=part, lines=lines)


def test_what_a_wrapper_told_stands_for_a_log_that_nobody_can_read(api: Api) -> None:
    """CloudWatch has none: the end of what the rank wrote came by its agent, in parts, and its line ends the job."""
    trace = ("Traceback (most recent call last):", '  File "train.py", line 3, in <module>')
    failed(api, reports=(_wrote(1, SECOND, IMPORT, part=0), _wrote(1, SECOND, *trace, part=1)))
    api.functions.aws.answers["GetLogEvents"] = no_such_stream
    after = ended(api)
    assert (after.status, after.conclusion.cause) == (JobStatus.FAILED, "CONFIGURATION")
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert IMPORT in found["page"]["en"] and list(found["unread_logs"]) == ["0"]
    assert found["evidence"] == ["log/1/3"]  # the third line of what the two parts are together


@pytest.mark.parametrize(
    "told",
    [{"part": -1}, {"part": 4}, {"instance_id": ""}, {"lines": ()}, {"lines": ("",)}, {"rank": 7}, {"rank": None}],
    ids=str,
)
def test_what_no_wrapper_tells_stands_for_nothing(api: Api, told: dict[str, Any]) -> None:
    """Any process of the instance may write to the socket: the reason why there is no log stays."""
    failed(api, reports=(replace(_wrote(1, SECOND, IMPORT), **told),))
    api.functions.aws.answers["GetLogEvents"] = no_such_stream
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert list(found["unread_logs"]) == ["1", "0"] and IMPORT not in found["page"]["en"]


def test_nobody_speaks_for_a_rank_of_which_nobody_knows_where_it_was(api: Api) -> None:
    """A person's task that never showed itself has no instance, and so has a report about somebody elsewhere."""
    failed(api)
    store, unseen = api.functions.store, replace(plan(), instances=(FIRST, ""))
    store.add_reports(JOB, 1, FIRST, (replace(_wrote(1, "", IMPORT), report_id="e"),))
    found = heard(store, lambda *_: "no log", loop(api).policy, api.functions.job(), unseen, NOW)
    assert list(found.unread) == [1, 0]


def test_a_log_that_can_be_read_is_read_instead(api: Api) -> None:
    """It reaches further back; and the words of a rank count only from where that rank was."""
    failed(api, "step 1", IMPORT, reports=(_wrote(1, SECOND, "NCCL WARN timeout"), _wrote(0, SECOND, IMPORT)))
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert {one.split("/")[1] for one in found["evidence"] if one.startswith("log/")} == {"1"}
    assert "NCCL" not in found["page"]["en"]


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


@pytest.mark.parametrize(
    "name", ["ecs_task_handler", "dcgm_task_monitor", "ecs_instance_monitor", "reconciler", "scheduler", "node_api"]
)
def test_a_function_starts_without_the_rules(name: str) -> None:
    """They are a fifth of a start, and most functions never hear of a gang that has failed."""
    rules = "[one for one in sys.modules if '.core.logs' in one or '.diagnosis.families' in one]"
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
    with suppress(ExceptionGroup):
        ended(api)
    assert len(api.functions.aws.asked("RunTask")) == 2
    api.functions.aws.answers["GetLogEvents"] = read
    api.functions.now = later(200)
    loop(api).take_over(api.functions.job())
    after = api.functions.job()
    assert after.status is JobStatus.DIAGNOSING and IMPORT in after.reason


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
    loop(api).act(saved, saved.commands)
    assert api.functions.job().status is JobStatus.FAILED and api.functions.aws.asked("GetLogEvents")


def test_what_a_function_has_died_of_is_not_tried_again(api: Api) -> None:
    """Nobody answered the first try: the checks are what must not wait for a second."""
    failed(api, IMPORT)
    gather = pending(JOB, 1, GatherEvidence(1), until=-1)
    store = api.functions.store
    record = store.load_job(JOB)
    assert record is not None
    store.save_job(replace(record, status=JobStatus.DIAGNOSING, commands=(gather,)))
    loop(api).take_over(api.functions.job())
    assert api.functions.aws.asked("GetLogEvents") == []
    assert api.functions.job().commands == () and api.functions.job().conclusion is None

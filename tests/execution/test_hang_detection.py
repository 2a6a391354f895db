"""A gang that no longer makes progress: found by what its ranks report, and stopped."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from gpu_recovery.core.diagnosis.observations import ProgressReport
from gpu_recovery.core.events import JobLookDue
from gpu_recovery.core.heartbeat import AgentReport, GpuHealth
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.execution.evidence import collect_evidence, thresholds_of
from gpu_recovery.execution.hang_detection import Hang, find_hang
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver

from tests.aws.records import JOB, NOW, later, plan
from tests.execution.failed_gang import FIRST, SECOND, failed, loop, two_instances
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    return two_instances(functions)


def test_a_gang_that_stands_still_is_found_and_stopped(api: Api) -> None:
    """Ranks run and agents report, but no value grows for `progress_timeout_s`; while a value grows it runs on."""
    stands = [
        ProgressReport(report_id=f"p{n}", at_s=NOW.timestamp() + 60 * n, instance_id=FIRST, rank=0, value=7.0)
        for n in range(20)
    ]
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW, look_at=later(600))
    store = api.functions.store
    api.functions.aws.tasks[attempt_id(JOB, 1)] = ["task-0", "task-1"]
    for rank in (0, 1):
        store.add_running(JOB, 1, rank)
    store.add_observations(JOB, 1, FIRST, stands[:11])
    look = api.functions.job().look_at
    assert look is not None
    api.functions.now = later(600)
    loop(api).handle(JOB, JobLookDue(at=later(600), attempt=1, look_at=look))
    assert api.functions.job().status is JobStatus.RUNNING
    store.add_observations(JOB, 1, FIRST, stands[11:])
    api.functions.now = later(1_150)
    look = api.functions.job().look_at
    assert look is not None
    loop(api).handle(JOB, JobLookDue(at=later(1_150), attempt=1, look_at=look))
    after = api.functions.job()
    assert after.status is JobStatus.STOPPING and "no rank has made progress for" in after.stop_reason


def test_a_stall_that_is_longer_than_what_is_kept_is_seen_all_the_same(api: Api) -> None:
    """Each word says for how long nothing has changed; a word without a value says nothing."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None)
    store, job_now = api.functions.store, api.functions.job()
    at_s = NOW.timestamp()
    silent = [ProgressReport(report_id=f"n{n}", at_s=at_s + n, instance_id=FIRST, rank=0) for n in range(0, 1_200, 100)]
    store.add_observations(JOB, 1, FIRST, silent)
    policy = loop(api).policy

    def stands() -> str | None:
        return sentence_of(find_hang(store, policy, job_now, plan(), later(1_200)))

    assert stands() is None
    word = ProgressReport(report_id="v", at_s=at_s + 1_190, instance_id=FIRST, rank=0, value=3.0, unchanged_s=100.0)
    store.add_observations(JOB, 1, FIRST, [word])
    assert stands() is None
    store.add_observations(JOB, 1, FIRST, [replace(word, report_id="w", at_s=at_s + 1_195, unchanged_s=1_000.0)])
    assert stands() == "no rank has made progress for 1005 s, although its instances report; the limit is 900 s"


STEPS = {"steps": 30, "step_s": 2.0, "slowest_s": 3.0}


def sentence_of(hang: Hang | None) -> str | None:
    """What is said of a hang."""
    return None if hang is None else hang.sentence


def told(at_s: float, unchanged_s: float, rank: int = 0, **changed: object) -> ProgressReport:
    """A report of a rank that trains in steps of two seconds."""
    about = {"report_id": f"{rank}/{at_s}", "at_s": NOW.timestamp() + at_s, "rank": rank, "value": 30.0}
    where = {"instance_id": (FIRST, SECOND)[rank], "unchanged_s": unchanged_s}
    return ProgressReport(**{**about, **where, **STEPS, **changed})  # type: ignore[arg-type]


def found(api: Api, *reports: ProgressReport, at_s: int = 400, **changed: object) -> str | None:
    """What is said of a running gang at a time, by these reports."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW)
    for report in reports:
        api.functions.store.add_observations(JOB, 1, report.instance_id, [report])
    job_now = replace(api.functions.job(), **changed)
    return sentence_of(find_hang(api.functions.store, loop(api).policy, job_now, plan(), later(at_s)))


def test_a_gang_with_known_step_times_hangs_after_a_minute(api: Api) -> None:
    """The bound of short steps."""
    said = found(api, told(395, 55.0), told(395, 56.0, rank=1))
    assert said == "no rank has made progress for 60 s, although its instances report; the limit is 60 s"


@pytest.mark.parametrize(
    "reports",
    [
        (told(395, 54.0), told(395, 56.0, rank=1)),
        (told(395, 55.0), told(395, 56.0, rank=1, steps=3)),
        (told(395, 55.0), told(395, 56.0, rank=1, paused="checkpoint")),
        (told(310, 1.0, value=29.0, paused="evaluation"), told(345, 36.0, paused="evaluation"), told(395, 45.0)),
    ],
    ids=["sooner", "first steps", "in a phase", "after a phase"],
)
def test_a_gang_that_may_still_get_on_does_not_hang(api: Api, reports: tuple[ProgressReport, ...]) -> None:
    """It has not stood still for long enough, or a rank says that this is no usual step."""
    assert found(api, *reports) is None


def test_a_worker_that_was_replaced_has_no_say(api: Api) -> None:
    """A launcher started the process of the rank again. The first reported as another worker, and no step times."""
    before = told(100, 0.0, worker="first", steps=None, step_s=None)
    said = found(api, before, told(395, 80.0), told(395, 80.0, rank=1))
    assert said is not None and "for 85 s" in said


def test_the_limit_of_the_job_and_its_earlier_hangs_count(api: Api) -> None:
    """Both are in the record of the job."""
    stands = (told(395, 100.0), told(395, 100.0, rank=1))
    assert found(api, *stands, hang_stops=1) is None
    spec = api.functions.job().spec
    store, policy = api.functions.store, loop(api).policy
    for own_s, hangs in ((300, False), (90, True)):
        mine = replace(api.functions.job(), spec=replace(spec, progress_timeout_s=own_s))
        assert (find_hang(store, policy, mine, plan(), later(400)) is not None) is hangs


@pytest.mark.parametrize(
    ("unchanged_s", "confirmed", "limit"),
    [
        (78.0, True, None),
        (79.0, True, "80 s: 4 steps of 20.0 s, because the node agents see every rank wait"),
        (79.0, False, None),
        (159.0, True, "160 s: 8 steps of 20.0 s"),
        (159.0, False, "160 s: 8 steps of 20.0 s"),
    ],
)
def test_agents_that_confirm_the_hang_shorten_the_limit(
    api: Api, unchanged_s: float, confirmed: bool, limit: str | None
) -> None:
    """They are asked about the time since the last progress, and only once the shorter limit is over."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW)
    for rank in (0, 1):
        report = told(399, unchanged_s, rank=rank, step_s=20.0, slowest_s=21.0)
        api.functions.store.add_observations(JOB, 1, report.instance_id, [report])
    asked: list[float] = []

    def is_confirmed(since: datetime) -> bool:
        asked.append((later(400) - since).total_seconds())
        return confirmed

    hang = find_hang(api.functions.store, loop(api).policy, api.functions.job(), plan(), later(400), is_confirmed)
    assert (sentence_of(hang) or "").partition("the limit is ")[2] == (limit or "")
    assert asked == ([] if unchanged_s == 78.0 else [unchanged_s + 1])
    assert hang is None or hang.confirmed is confirmed


@pytest.mark.parametrize(("attempts_left", "limit_s"), [(1, 80.0), (0, 160.0)])
def test_the_last_attempt_has_the_whole_timeout(api: Api, attempts_left: int, limit_s: float) -> None:
    """If its hang is a long wait for a remote service, the program may get over the wait."""
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW)
    for rank in (0, 1):
        report = told(395, limit_s - 6, rank=rank, step_s=20.0)
        api.functions.store.add_observations(JOB, 1, report.instance_id, [report])
    policy, running = loop(api).policy, api.functions.job()
    last = replace(running, attempts_counted=running.attempts_max(policy) - 1 - attempts_left)
    for now_s, hangs in ((400, False), (402, True)):
        hang = find_hang(api.functions.store, policy, last, plan(), later(now_s), lambda since: True)
        assert (hang is not None) is hangs, now_s
        assert hang is None or hang.confirmed


def test_the_longest_step_of_a_former_attempt_counts(api: Api) -> None:
    """The attempt before got over an evaluation of 50 s, so this attempt may evaluate as well."""
    store = api.functions.store
    former = replace(plan(), attempt=1)
    store.begin_attempt(former)
    store.add_observations(JOB, 1, FIRST, [told(0, 0.0, slowest_s=50.0)])
    failed(api, status=JobStatus.RUNNING, stop_purpose=None, failure=None, running_at=NOW, attempt=2)
    store.begin_attempt(replace(plan(), attempt=2))
    policy, running = loop(api).policy, api.functions.job()
    for unchanged_s, hangs in ((94.0, False), (95.0, True)):
        store.add_observations(JOB, 2, FIRST, [told(390 + unchanged_s / 100, unchanged_s + unchanged_s / 100)])
        said = sentence_of(find_hang(store, policy, running, replace(plan(), attempt=2), later(395)))
        assert (said is not None) is hangs, said


@pytest.mark.parametrize(("step_s", "stalled_s"), [(2.0, 60.0), (20.0, 80.0)])
def test_what_counts_as_a_stall_in_the_diagnosis_follows_the_step_times_too(
    api: Api, step_s: float, stalled_s: float
) -> None:
    """A gang that is stopped as hung has stood still for long enough to say so, also if its agents confirmed it.

    In an attempt that ended otherwise, only the whole timeout is a stall.
    """
    found(api, told(395, 70.0, step_s=step_s), told(395, 70.0, rank=1, step_s=step_s))
    context = loop(api)
    for event, least_s in (("ProgressStopped", stalled_s), ("RankFailed", max(60.0, 8 * step_s))):
        stop = HistoryEntry(later(390), JobStatus.RUNNING, JobStatus.STOPPING, event, 1, "")
        of = replace(api.functions.job(), history=(stop,))
        evidence = collect_evidence(context.store, lambda *_: (), context.policy, of, plan(), later(400))
        assert thresholds_of(context.policy, evidence.stalled_s).stalled_s == least_s
    assert thresholds_of(context.policy).stalled_s == 900.0


# -- a program that reports no progress --------------------------------------------------------------------------------


def beats(api: Api, idle: tuple[int | None, int | None], seen: int = 3_990) -> None:
    """Both agents were heard last at `seen`; since when the GPUs of each are idle, None: they work."""
    for name, since in zip((FIRST, SECOND), idle, strict=True):
        if since is not None:
            save(api, name, 1, since, "0000")
        save(api, name, 2, seen, "0000" if since is not None else "0060")


def save(api: Api, name: str, sequence: int, at_s: int, utilisation: str) -> None:
    """One report of an agent, as the node API receives it."""
    report = AgentReport(name, "boot", 10.0 + at_s, sequence, health=GpuHealth.OK, utilisation=utilisation, running=())
    HeartbeatReceiver(replace(loop(api), clock=lambda: later(at_s))).receive(report)


@pytest.mark.parametrize(
    ("idle", "seen", "says"),
    [
        ((2_100, 2_190), 3_990, "every GPU has been idle for 1810 s after it had worked, and no rank reports progress"),
        ((2_100, 2_300), 3_990, None),
        ((2_100, None), 3_990, None),
        ((None, 2_100), 3_990, None),
        ((-30, 2_100), 3_990, None),
        ((2_100, 2_100), 3_700, None),
    ],
    ids=["idle", "not for long", "one works", "the first works", "never worked", "not heard of"],
)
def test_a_job_without_progress_reports_hangs_if_every_gpu_is_idle_after_work(
    api: Api, idle: tuple[int | None, int | None], seen: int, says: str | None
) -> None:
    """Nothing else shows a program that waits for ever for its storage or its data."""
    beats(api, idle, seen)
    assert found(api, at_s=4_000) == says


def test_a_report_of_a_working_gpu_ends_the_idleness(api: Api) -> None:
    """It counts anew from the next idle report; an agent that does not tell ends it too."""
    for sequence, at_s, utilisation in ((1, 0, "00"), (2, 15, "00"), (3, 30, "01"), (4, 45, "00"), (5, 60, "")):
        save(api, FIRST, sequence, at_s, utilisation)
        since = api.functions.store.load_heartbeats((FIRST,))[FIRST].idle_since
        assert since == {0: NOW, 15: NOW, 30: None, 45: later(45), 60: None}[at_s]

"""What the agents report after a failure, and whether the gang is checked: from the node API to the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.events import AllRanksStopped
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import AgentReport, GpuHealth
from gpu_recovery.core.instance.lemons import LemonSignal, Signal
from gpu_recovery.core.instance.record import HealthReport, IdleCheckResult, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import GangCheck
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.execution.passive_evidence import WAITS
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver

from tests.aws.records import JOB, NOW, later
from tests.execution.failed_gang import FIRST, SECOND, checked, failed, loop, two_instances
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions

CRASH = RankFailure(1, SECOND, NOW, Ending(EndingKind.CRASHED, 134, "was ended by signal 6 (exit code 134)"))
OK = GpuHealth.OK


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    return two_instances(functions)


def reports(api: Api, name: str, at_s: int, health: GpuHealth = OK, sentence: str = "", sequence: int = 0) -> None:
    """One report of the agent, `at_s` seconds after the failure."""
    report = AgentReport(
        name, "b", 5_000.0 + at_s, sequence or 1_000 + at_s, health=health, sentence=sentence, running=()
    )
    HeartbeatReceiver(replace(loop(api), clock=lambda: later(at_s))).receive(report)


def ended(api: Api, late: dict[int, tuple[str, ...]] | None = None, **settings: Any) -> tuple[Any, int]:
    """What becomes of the job 3 s after the crash, and how often late reports are waited for.

    Args:
        late: the instances whose agents report during each wait, by its number.
    """
    failed(api, failure=CRASH, stop_reason="rank 1 crashed", incident_at=NOW, running_at=later(-600))
    waits = 0

    def wait(seconds: float) -> None:
        nonlocal waits
        waits += 1
        for name in (late or {}).get(waits, ()):
            reports(api, name, 4)

    recovery = replace(loop(api), clock=lambda: later(3), wait=wait)
    recovery = replace(recovery, policy=replace(recovery.policy, **settings))
    recovery.handle(JOB, AllRanksStopped(at=later(3), attempt=1, failure=CRASH, own_ends=1))
    return api.functions.job(), waits


def test_with_a_clean_report_of_every_agent_the_job_goes_on_without_a_check(api: Api) -> None:
    """The instance of the first end is left out if there is room."""
    for name in (FIRST, SECOND):
        reports(api, name, 2)
    job, waits = ended(api)
    assert (job.status, waits, checked(api)) == (JobStatus.RECOVERING, 0, {}), job.reason
    assert "no agent shows a fault; started again without a check of the gang" in job.reason
    assert (tuple(job.left_out), job.unchecked, job.attempts_counted) == ((SECOND,), 1, 1)
    for name in (FIRST, SECOND):
        record = api.functions.store.load_instance(name)
        assert record is not None and (record.status, record.claims) == (InstanceStatus.AVAILABLE, {})


def test_a_report_that_comes_seconds_later_is_waited_for(api: Api) -> None:
    """ECS may tell the end before the agent does."""
    reports(api, FIRST, 2)
    reports(api, SECOND, -10)
    job, waits = ended(api, {2: (SECOND,)})
    assert (job.status, waits, checked(api)) == (JobStatus.RECOVERING, 2, {}), job.reason


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ([(FIRST, 2, OK)], 0),
        ([(FIRST, 2, OK), (SECOND, -10, OK)], WAITS),
        ([(FIRST, 2, OK), (SECOND, -300, OK)], 0),
        ([(FIRST, 2, OK), (SECOND, 2, GpuHealth.UNKNOWN)], 0),
    ],
    ids=["no agent", "it does not report again", "silent for long", "it cannot read its GPUs"],
)
def test_without_a_report_of_one_agent_the_gang_is_checked(
    api: Api, said: list[tuple[str, int, GpuHealth]], waits: int
) -> None:
    """Only an agent that was alive just before is waited for, and for a bounded time."""
    for name, at_s, health in said:
        reports(api, name, at_s, health)
    job, waited = ended(api)
    assert (job.status, waited, set(checked(api))) == (JobStatus.DIAGNOSING, waits, {FIRST, SECOND}), job.reason


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"health": {HealthKind.ACCELERATED_COMPUTE: HealthReport(HealthStatus.IMPAIRED, NOW, "a GPU")}}, "a GPU"),
        (
            {"past": (Signal(LemonSignal.LEFT_OUT, int(NOW.timestamp()) - 86_400),)},
            "jobs have failed there first before",
        ),
    ],
    ids=["ECS reports a fault", "first before"],
)
def test_an_instance_with_a_sign_is_checked_alone(api: Api, changes: dict[str, Any], told: str) -> None:
    """In the background. Its claim is passed to the check, so no job is placed there before."""
    store = api.functions.store
    record = store.load_instance(SECOND)
    assert record is not None
    store.save_instance(replace(record, **changes))
    for name in (FIRST, SECOND):
        reports(api, name, 2)
    job, _ = ended(api)
    assert (job.status, set(checked(api))) == (JobStatus.RECOVERING, {SECOND}), job.reason
    assert f"{SECOND} checked in the background ({SECOND}: " in job.reason and told in job.reason
    assert (job.blamed, job.repairs, tuple(job.left_out)) == ((SECOND,), 1, (SECOND,))


def test_the_idle_check_that_an_instance_had_passed_is_told_with_its_sign(api: Api) -> None:
    """It is told and changes nothing: that instance is checked and left out as without the pass."""
    store, passed_at = api.functions.store, later(-600 - 2 * 3_600)
    for name in (FIRST, SECOND):
        record = store.load_instance(name)
        assert record is not None
        idle_check = IdleCheckResult(passed_at, CheckOutcome.HEALTHY.value, passed_at, 3)
        store.save_instance(replace(record, idle_check=idle_check))
        reports(api, name, 2, GpuHealth.IMPAIRED if name == SECOND else OK, "row remapping failed on GPU 3")
    job, _ = ended(api)
    assert (job.status, set(checked(api)), tuple(job.left_out)) == (JobStatus.RECOVERING, {SECOND}, (SECOND,))
    told = f"{SECOND}: row remapping failed on GPU 3; it had passed an idle check at level 3, 2.0 h before the attempt"
    assert told in job.reason and "idle check" not in job.reason.replace(told, "")


@pytest.mark.parametrize(
    "settings", [{"gang_check": GangCheck.ALWAYS}, {"relaunch_on_same_instances": True}, {"attempts_max": 1}]
)
def test_where_the_gang_is_checked_in_any_case_no_heartbeat_is_waited_for(api: Api, settings: dict[str, Any]) -> None:
    """The agents could change nothing."""
    for name in (FIRST, SECOND):
        reports(api, name, -10)
    job, waits = ended(api, **settings)
    assert (job.status, waits, set(checked(api))) == (JobStatus.DIAGNOSING, 0, {FIRST, SECOND})


def preflight_of(api: Api, results: dict[str, str], step: str = "nccl_loopback") -> None:
    """The agents have reported a step of the preflight of the attempt, by instance."""
    for rank, (name, result) in enumerate(results.items()):
        entry = {"type": "preflight", "id": f"p-{rank}", "job": JOB, "attempt": 1, "rank": rank}
        (found,), left_out = observed(name, [{**entry, "steps": [{"name": step, "result": result, "sentence": "so"}]}])
        assert left_out == 0
        api.functions.store.add_observations(JOB, 1, name, [replace(found.report, at_s=later(-600).timestamp())])


@pytest.mark.parametrize("launched", [True, False], ids=["with a preflight", "without"])
def test_an_instance_that_the_preflight_sets_apart_is_checked_first(
    api: Api, launched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its all-reduce did not end, that of the other did: it is left out, and checked in the background."""
    for name in (FIRST, SECOND):
        reports(api, name, 2)
    preflight_of(api, {FIRST: "inconclusive", SECOND: "passed"})
    whole = type(api.functions.store).load_plan

    def load_plan(store: Any, job_id: str, attempt: int) -> Any:
        plan = whole(store, job_id, attempt)
        return None if plan is None else replace(plan, preflight=launched)

    monkeypatch.setattr(type(api.functions.store), "load_plan", load_plan)
    job, _ = ended(api)
    assert job.status is JobStatus.RECOVERING, job.reason
    assert (FIRST in job.blamed) is launched and (FIRST in job.left_out) is launched
    assert ("its preflight: nccl_loopback inconclusive: so" in job.reason) is launched

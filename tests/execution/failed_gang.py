"""A gang of two whose rank 1 has failed, what its log and its reports say, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from botocore.exceptions import ClientError
from gpu_recovery.core.diagnosis.observations import Check as Probe
from gpu_recovery.core.diagnosis.observations import Observation, StageReport, Written
from gpu_recovery.core.events import AllRanksStopped
from gpu_recovery.core.job.record import JobStatus, StopPurpose
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.recovery import Recovery

from tests.aws.records import JOB, NOW, instance, job, plan
from tests.job_api.routes.test_jobs import logging
from tests.lambdas.api_gateway import Api
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
IMPORT = "ModuleNotFoundError: No module named 'flash_attn'"


def two_instances(functions: Functions) -> Api:
    """The API of a deployment with two instances."""
    for one in (FIRST, SECOND):
        functions.store.save_instance(instance(one))
    return Api(functions)


def failed(api: Api, *lines: str, reports: tuple[Observation, ...] = (), **changes: Any) -> None:
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
    store.record_tasks(replace(plan(), task_ids=("task-0", "task-1")), (0, 1))
    at = int(NOW.timestamp() * 1000)

    def read(asked: dict[str, Any]) -> dict[str, Any]:
        mine = lines if asked["logStreamName"].endswith("task-1") else ()
        events = [{"timestamp": at + number, "message": line, "ingestionTime": at} for number, line in enumerate(mine)]
        return {"events": events, "nextForwardToken": "f/1", "nextBackwardToken": "b/1"}

    api.functions.aws.answers["GetLogEvents"] = read
    if reports:
        store.add_observations(JOB, 1, SECOND, reports)


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
    recovery.handle(JOB, AllRanksStopped(at=NOW, attempt=1, failure=CRASH, own_ends=1))
    return api.functions.job()


def checked(api: Api) -> dict[str, str | None]:
    """The GPUs on which the check of each instance that is checked has its finger."""
    runs = {}
    for asked in api.functions.aws.asked("RunTask"):
        pairs = asked["overrides"]["containerOverrides"][0]["environment"]
        environment = {one["name"]: one["value"] for one in pairs}
        runs[environment["INSTANCE_ID"]] = environment.get("FOCUS")
    return runs


def wrote(rank: int, instance_id: str, *lines: str, part: int = 0) -> Written:
    name = f"w-{rank}-{part}"
    return Written(report_id=name, at_s=NOW.timestamp(), instance_id=instance_id, rank=rank, part=part, lines=lines)

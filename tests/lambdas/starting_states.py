"""Where tests of the functions begin: a gang at work, an instance under its check; and published events made ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import CheckRun, InstanceStatus
from gpu_recovery.core.job.record import Job, JobStatus

from tests.aws.ecs_events import rank_event, task_arn
from tests.aws.records import JOB, instance, job, launched, plan
from tests.lambdas.conftest import Functions

EVENTS = Path(__file__).parents[1] / "events"


def published(name: str) -> dict[str, Any]:
    """An event as somebody published it."""
    document: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return document


def gang(functions: Functions, job_id: str = JOB, **changes: Any) -> Job:
    """A running job of two ranks."""
    there = launched(job_id)
    fields = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True, "instances": there.instances}
    functions.store.create_job(job(job_id, **fields | changes), "")
    functions.store.begin_attempt(there)
    functions.aws.tasks[attempt_id(job_id, 1)] = list(there.task_ids)
    return functions.job(job_id)


def checking(functions: Functions, outcome: str) -> None:
    """An instance that is being checked for the usual job, and the document that its check left."""
    gang(functions, status=JobStatus.DIAGNOSING)
    check_id = f"check/{plan().instances[0]}/1"
    run = CheckRun(check_id, JOB, 1, task_id=check_id.replace("/", "-"), signed=True)
    machine = instance(plan().instances[0], status=InstanceStatus.CHECKING, check=run, checks=1)
    functions.store.save_instance(machine)
    left = {"check_id": run.check_id, "outcome": outcome, "summary": "GPU 3", "boot_id": "b-1"}
    functions.aws.documents[f"verdicts/{run.check_id}.json"] = left


def as_rank(detail: dict[str, Any], rank: int, main: str = "", **changes: Any) -> dict[str, Any]:
    """A published task `detail` as that of a rank of the usual gang, whose main container is the one called `main`.

    Only what makes the task ours is put in; everything else, and whatever is missing, stays as published.
    """
    ours = rank_event(JOB, 1, rank, "STOPPED")
    containers = detail.get("containers", [])
    main = main or (containers[0]["name"] if containers else "main")
    environment = ours["detail"]["overrides"]["containerOverrides"][0]["environment"]
    names = {
        "taskArn": task_arn(f"{JOB}-1-{rank}"),
        "startedBy": attempt_id(JOB, 1),
        "overrides": {"containerOverrides": [{"name": main, "environment": environment}]},
    }
    return {**ours, "detail": {"lastStatus": "STOPPED", **detail, **names, **changes}}

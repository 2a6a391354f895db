"""Totals of the queue by priority through the HTTP API, and the jobs on Ray beside those on ECS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.aws.instance_index import SHARDS
from gpu_recovery.aws.queue_store import WAITING
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.priority import Priority

from tests.aws.records import NOW, A, B, instance, job, later, spec
from tests.job_api.routes.test_queue import NOTHING, PRIORITIES, runs
from tests.lambdas.api_gateway import Api, with_ray
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on a cluster of two free instances."""
    functions.now = later(3_600)
    for one in (A, B):
        functions.store.save_instance(instance(one))
    return Api(functions)


def test_the_queue_totals_what_runs_and_waits_by_priority(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 003's page: jobs, instances and GPUs at the priority that counts now, with those of jobs on Ray. The totals
    are made of the entries of the index: one more query where there is a Ray cluster, and no record is read."""
    with_ray(api, monkeypatch)
    runs(api, "low-1", A, spec=spec(user="bob", nnodes=1, priority=Priority.LOW))
    demoted = spec(user="bob", nnodes=1, gpus_per_node=4, priority=Priority.ABOVE_NORMAL)
    runs(api, "above-1", B, spec=demoted, running_at=later(0))
    api.functions.store.create_job(job("sft-1", spec=spec(nnodes=3)), "")
    api.functions.store.create_job(job("held", status=JobStatus.SUSPENDED, held=True), "")
    on_ray = spec(nnodes=4, gpus_per_node=2, backend=Backend.RAY, entrypoint="true", task_definition="")
    api.functions.store.create_job(job("ray-1", spec=on_ray, status=JobStatus.RUNNING, attempt=1, running_at=NOW), "")
    wanted = replace(on_ray, priority=Priority.EXTREME_HIGH)
    api.functions.store.create_job(job("ray-2", spec=wanted), "")
    api.functions.aws.forget()
    body = api.get("/queue").body
    calls = api.functions.aws.operations("dynamodb")
    assert calls["Query"] == len(WAITING) + 2 + SHARDS and set(calls) <= {"Query", "GetItem", "BatchGetItem"}
    read = [key["job_id_rank"]["S"] for asked in api.functions.aws.asked("BatchGetItem") for key in keys_of(asked)]
    assert read and all(name.startswith("#") for name in read)
    assert [row["priority"] for row in body["totals"]] == PRIORITIES
    totals = {row["priority"]: (row["running"], row["queued"]) for row in body["totals"]}
    assert totals.pop("EXTREME_HIGH") == (NOTHING, {"jobs": 1, "instances": 4, "gpus": 8})
    assert totals.pop("NORMAL") == (
        {"jobs": 2, "instances": 5, "gpus": 12},
        {"jobs": 2, "instances": 5, "gpus": 40},
    )
    assert totals.pop("LOW") == ({"jobs": 1, "instances": 1, "gpus": 8}, NOTHING)
    assert set(map(str, totals.values())) == {str((NOTHING, NOTHING))}
    assert {one["job_id"]: one["backend"] for one in (*body["waiting"], *body["running"])} == {
        "sft-1": "ecs",
        "held": "ecs",
        "ray-2": "ray",
        "low-1": "ecs",
        "above-1": "ecs",
        "ray-1": "ray",
    }
    assert [one["can_suspend"] for one in body["running"] if one["backend"] == "ray"] == [False]


def keys_of(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The keys that a BatchGetItem asks for in the table of jobs."""
    return [key for table in asked["RequestItems"].values() for key in table["Keys"] if "job_id_rank" in key]

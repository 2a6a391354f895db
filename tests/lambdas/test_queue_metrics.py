"""The reconciler measures the queue by priority each minute, from the entries that it reads anyway."""

from __future__ import annotations

import json

import pytest
from gpu_recovery.aws.queue_store import WAITING
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.metrics import TOTALS
from gpu_recovery.core.queue.priority import Priority

from tests.aws.records import NOW, job, spec
from tests.lambdas.api_gateway import Api, with_ray
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def measured(text: str) -> dict[str, list[float]]:
    """The totals among the metrics that a function has written."""
    documents = [json.loads(line) for line in text.splitlines() if '"_aws"' in line]
    return {name: document[name] for document in documents for name in document if name in TOTALS.values()}


@pytest.mark.parametrize("has_ray", [False, True])
def test_the_queue_is_measured_each_minute(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_ray: bool
) -> None:
    """Jobs on Ray count where there is a cluster, for one query more."""
    if has_ray:
        with_ray(Api(functions), monkeypatch)
    functions.store.create_job(job("sft-1", spec=spec(nnodes=3, priority=Priority.HIGH)), "")
    on_ray = spec(nnodes=4, gpus_per_node=2, backend=Backend.RAY, entrypoint="true", task_definition="")
    functions.store.create_job(job("ray-1", spec=on_ray, status=JobStatus.RUNNING, attempt=1, running_at=NOW), "")
    capsys.readouterr()
    functions.call("reconciler", {})
    queued = {"QueuedJobsHigh": [1.0], "QueuedInstancesHigh": [3.0], "QueuedGpusHigh": [24.0]}
    running = {"RunningJobsNormal": [1.0], "RunningInstancesNormal": [4.0], "RunningGpusNormal": [8.0]}
    assert measured(capsys.readouterr().out) == (queued | running if has_ray else queued)
    lines = [asked for asked in functions.aws.asked("Query") if asked["IndexName"] == "line"]
    assert len(lines) == len(WAITING) + 1 + has_ray

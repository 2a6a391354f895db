"""What drivers on Ray wrote, through the HTTP API, which cannot reach Ray: it asks the one function that can."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.ray.log_chunk import log_chunk_of
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.execution.evidence import LOG_LINES_PER_RANK

from tests.aws.counted_aws import Read
from tests.aws.records import JOB, NOW, job, spec
from tests.lambdas.api_gateway import Api, refused, with_ray
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
LOGS = f"/jobs/{JOB}/logs"


@pytest.fixture
def api(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A deployment with a Ray cluster, and a job on it in its second attempt."""
    made = Api(functions)
    with_ray(made, monkeypatch)
    on_ray = spec(backend=Backend.RAY, entrypoint="python train.py", task_definition="")
    functions.store.create_job(job(spec=on_ray, status=JobStatus.RUNNING, attempt=2), "")
    return made


def written(api: Api, *lines: str) -> None:
    """What the driver has written so far; `ray_runner` answers as its handler does."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        question = json.loads(asked["Payload"])
        text = "".join(f"{line}\n" for line in lines)
        found = log_chunk_of(text, question["tail"], question["after"], grows=question["grows"])
        told = {"logs": "".join(f"{line}\n" for line in found.lines), "end": found.end}
        return {"StatusCode": 200, "Payload": Read(json.dumps(told).encode())}

    api.functions.aws.answers["Invoke"] = answer


def silent(api: Api) -> None:
    """`ray_runner` does not answer in time."""

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        raise ReadTimeoutError(endpoint_url="https://lambda")

    api.functions.aws.answers["Invoke"] = answer


def questions(api: Api) -> list[dict[str, Any]]:
    """What the latest request asked `ray_runner`."""
    asked = api.functions.aws.asked("Invoke")
    assert {one["FunctionName"] for one in asked} <= {"gpu-recovery-ray_runner"}
    return [json.loads(one["Payload"]) for one in asked]


def test_the_newest_lines_of_the_driver_are_read(api: Api) -> None:
    """Of the latest attempt; Ray keeps no times."""
    written(api, "step 1", "", "step 2")
    body = api.get(LOGS, tail="2").body
    assert (body["attempt"], body["rank"]) == (2, 0)
    assert body["lines"] == [{"at": None, "text": ""}, {"at": None, "text": "step 2"}]
    assert questions(api) == [{"logs": f"{JOB}--a02", "tail": 2, "after": None, "grows": True}]


def test_a_cursor_goes_on_where_the_page_before_ended(api: Api) -> None:
    """And belongs to that attempt; once the driver has ended and nothing follows, there is none."""
    written(api, "one")
    first = api.get(LOGS, attempt="1").body
    assert questions(api)[0]["grows"] is False
    written(api, "one", "two", "three")
    second = api.get(LOGS, attempt="1", cursor=first["next_cursor"]).body
    assert [line["text"] for line in second["lines"]] == ["two", "three"]
    last = api.get(LOGS, attempt="1", cursor=second["next_cursor"]).body
    assert last["lines"] == [] and last["next_cursor"] is None
    refused(api.get(LOGS, cursor=first["next_cursor"]), 400, "cursor")


def test_what_there_is_no_log_of_is_said(api: Api) -> None:
    """404: Ray keeps the driver's alone, and none of an attempt that never was."""
    assert "driver" in refused(api.get(LOGS, rank="1"), 404)
    assert "2 attempt" in refused(api.get(LOGS, attempt="3"), 404)
    assert not questions(api)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"FunctionError": "Unhandled", "Payload": {"errorType": "TryAgainSoon", "errorMessage": "away"}}, "away"),
        ({"FunctionError": "Unhandled", "Payload": None}, "an error"),
        (ReadTimeoutError(endpoint_url="https://lambda"), "in time"),
        (ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "Invoke"), "not there"),
    ],
    ids=["cluster away", "died", "silent", "missing"],
)
def test_a_cluster_that_is_away_is_no_failure_of_ours(api: Api, answer: Any, said: str) -> None:
    """502 with a sentence."""

    def given(asked: dict[str, Any]) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return {**answer, "Payload": Read(json.dumps(answer["Payload"]).encode())}

    api.functions.aws.answers["Invoke"] = given
    assert said in refused(api.get(LOGS), 502)
    assert api.functions.aws.operations()["Invoke"] == 1


def test_a_deployment_that_has_no_cluster_any_more_says_so(functions: Functions) -> None:
    """404."""
    functions.store.create_job(job(spec=spec(backend=Backend.RAY), attempt=1), "")
    assert "no Ray cluster" in refused(Api(functions).get(LOGS), 404)


def test_a_failed_driver_is_diagnosed_by_its_log(api: Api) -> None:
    """On no machine of ours; a cluster that cannot be asked is named beside what else is known."""
    store = api.functions.store
    store.begin_attempt(Plan(JOB, 2, ("",), task_ids=(f"{JOB}--a02",)))
    store.add_stopped(JOB, 2, 0, RankFailure(0, "", NOW, Ending(EndingKind.FAILED, 1, "exited with code 1")))
    written(api, "epoch 1", "ModuleNotFoundError: No module named 'flash_attn'")
    found = api.post("/diagnoses", {"job_id": JOB}).body
    assert found["cause"] == "CONFIGURATION" and "flash_attn" in found["page"]["en"]
    assert found["unread_logs"] == {}
    assert questions(api) == [{"logs": f"{JOB}--a02", "tail": LOG_LINES_PER_RANK, "after": None, "grows": False}]
    silent(api)
    away = api.post("/diagnoses", {"job_id": JOB}).body
    assert "in time" in away["unread_logs"]["0"] and "flash_attn" not in away["page"]["en"]

"""POST /api/v2/jobs: what is accepted, and which field a refusal names."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.job_api.submissions import ASKED, with_definition
from tests.lambdas.api_gateway import Api, refused

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_a_job_is_taken_in(api: Api) -> None:
    """201 with the whole view; the record, the text and the scheduler's wake-up are there."""
    answer = api.post("/jobs", ASKED)
    assert (answer.status, answer.kind) == (201, "application/json")
    view = answer.body
    assert view["job_id"].startswith("sft-20261121-090000-") and len(view["job_id"]) == len("sft-20261121-090000-0a1b")
    expected = {name: ASKED[name] for name in ("workload", "nnodes", "n_gpus_per_node", "task_definition", "user")}
    assert expected.items() <= view.items()
    assert (view["status"], view["attempt"], view["attempts_max"], view["container"]) == ("QUEUED", 0, 3, "main")
    assert [entry["to"] for entry in view["history"]] == ["QUEUED"]
    assert api.functions.aws.operations()["SendMessage"] == 1
    kept = api.functions.job(view["job_id"])
    assert kept.spec.env == {"LR": "0.1"} and kept.commands == ()
    text = api.functions.store.jobs.get(f"{view['job_id']}#spec")
    assert text is not None and json.loads(text["submitted"]) == ASKED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", None),
        ("workload", "SFT"),
        ("workload", 7),
        ("nnodes", 0),
        ("nnodes", "2"),
        ("nnodes", True),
        ("nnodes", 2.0),
        ("nnodes", None),
        ("n_gpus_per_node", 17),
        ("task_definition", "a b"),
        ("command", "train"),
        ("command", [1]),
        ("env", []),
        ("attempts_max", 0),
        ("max_runtime_s", 1),
        ("user", 3),
        ("colour", "blue"),
    ],
)
def test_a_field_that_is_wrong_is_named(api: Api, field: str, value: Any) -> None:
    """422, and nothing is kept."""
    assert refused(api.post("/jobs", ASKED | {field: value}), 422, field)
    assert "PutItem" not in api.functions.aws.operations()


def test_everything_that_is_wrong_is_told_at_once(api: Api) -> None:
    """Unknown fields first, each with the field that may have been meant."""
    wrong = {"nnodes": 0, "priority": "SUPER", "max_runtime_s": -5, "checkpoint_dir": 7, "env": {"STEPS": 50, "A": "1"}}
    answer = api.post("/jobs", ASKED | wrong | {"priorty": "HIGH", "nods": 1})
    fields = ["priorty", "nods", "nnodes", "env.STEPS", "max_runtime_s", "priority", "checkpoint_dir"]
    told = {each["field"]: each["detail"] for each in answer.body["errors"]}
    assert (answer.status, list(told), answer.body["field"]) == (422, fields, "priorty")
    assert "did you mean priority?" in told["priorty"] and "did you mean nnodes?" in told["nods"]
    assert answer.body["detail"] == told["priorty"] and told["env.STEPS"].endswith('write "50"')


def test_fields_of_the_other_backend_are_told_at_once(api: Api) -> None:
    """Each of them by itself is a field of a job."""
    answer = api.post("/jobs", ASKED | {"backend": "ray"})
    assert [each["field"] for each in answer.body["errors"]] == ["entrypoint", "task_definition", "command"]


def test_many_errors_are_cut(api: Api) -> None:
    """An answer has twenty at most."""
    answer = api.post("/jobs", ASKED | {f"field{number}": number for number in range(30)})
    assert len(answer.body["errors"]) == 20


@pytest.mark.parametrize(("value", "told"), [(50, 'write "50"'), (True, 'write "true"'), (None, "must be a text")])
def test_a_variable_that_is_no_text_is_named(api: Api, value: Any, told: str) -> None:
    """With the notation that makes a text of it."""
    assert refused(api.post("/jobs", ASKED | {"env": {"STEPS": value}}), 422, "env.STEPS").endswith(told)


def test_a_variable_of_ours_cannot_be_given(api: Api) -> None:
    """RANK is set on every rank; the field says which one."""
    refused(api.post("/jobs", ASKED | {"env": {"RANK": "1"}}), 422, "env.RANK")


@pytest.mark.parametrize("document", [[], "text", 5, None])
def test_a_body_that_is_no_object_is_refused(api: Api, document: Any) -> None:
    """JSON, but not a job."""
    refused(api.post("/jobs", raw=json.dumps(document)), 422, "body")


BROKEN = ["", "{", "workload: sft", "[" * 100_000, "1" * 5_000, '{"nnodes": NaN}', '{"nnodes": -Infinity}']


@pytest.mark.parametrize("text", BROKEN)
def test_a_body_that_is_not_json_is_refused(api: Api, text: str) -> None:
    """400, however odd it is."""
    refused(api.post("/jobs", raw=text), 400, "body")


def test_a_key_that_is_given_twice_is_named(api: Api) -> None:
    """Whichever of the two values were taken, the user might have meant the other."""
    assert "nnodes" in refused(api.post("/jobs", raw='{"nnodes": 2, "env": {"A": "1"}, "nnodes": 4}'), 400, "body")
    assert "'A'" in refused(api.post("/jobs", raw='{"env": {"A": "1", "A": "2"}}'), 400, "body")


def test_a_body_that_is_not_text_is_refused(api: Api) -> None:
    """API Gateway hands binary bodies over in base64."""
    assert api.post("/jobs", raw=base64.b64encode(json.dumps(ASKED).encode()).decode(), encoded=True).status == 201
    refused(api.post("/jobs", raw=base64.b64encode(b"\xff\xfe").decode(), encoded=True), 400, "body")


def test_half_a_character_is_refused(api: Api) -> None:
    """JSON can spell one; neither DynamoDB nor ECS can hold it."""
    text = json.dumps(ASKED).replace("train.py", "\\ud800")
    refused(api.post("/jobs", raw=text), 400, "body")


def test_a_body_that_is_too_large_is_refused(api: Api) -> None:
    """413 in bytes, not in characters."""
    refused(api.post("/jobs", ASKED | {"user": "x" * 262_144}), 413, "body")
    refused(api.post("/jobs", raw=json.dumps(ASKED | {"user": "é" * 140_000}, ensure_ascii=False)), 413, "body")


@pytest.mark.parametrize("mode", ["awsvpc", "bridge", None])
def test_host_network_mode_is_required(api: Api, mode: str | None) -> None:
    """Ranks find each other by the instances' addresses."""
    with_definition(api, networkMode=mode)
    assert "host" in refused(api.post("/jobs", ASKED), 422, "task_definition")


def test_a_task_definition_that_was_deregistered_is_named(api: Api) -> None:
    """ECS describes it for ever and runs it no more: better said now than at the launch."""
    with_definition(api, status="INACTIVE")
    assert "active" in refused(api.post("/jobs", ASKED), 422, "task_definition")


def test_a_task_definition_that_does_not_exist_is_named(api: Api) -> None:
    """ECS says so with ClientException, or InvalidParameterException for an absurd revision; else it is an error."""

    def say(code: str) -> Any:
        def answer(asked: dict[str, Any]) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": code, "Message": "Unable to describe task definition."}}, "Describe")

        return answer

    for code in ("ClientException", "InvalidParameterException"):
        api.functions.aws.answers["DescribeTaskDefinition"] = say(code)
        assert "gpu-training" in refused(api.post("/jobs", ASKED), 422, "task_definition")
    api.functions.aws.answers["DescribeTaskDefinition"] = say("ThrottlingException")
    refused(api.post("/jobs", ASKED), 500)
    assert "Throttling" in api.functions.logged("failed")[0]["exception"]


def test_the_container_is_one_of_the_essential_ones(api: Api) -> None:
    """The first if none is named; one that does not decide the task's end is refused."""
    with_definition(api)
    assert api.post("/jobs", ASKED).body["container"] == "a"
    assert api.post("/jobs", ASKED | {"container": "b"}).body["container"] == "b"
    with_definition(api, containerDefinitions=[{"name": "a"}, {"name": "log", "essential": False}])
    assert "a" in refused(api.post("/jobs", ASKED | {"container": "log"}), 422, "container")


def test_two_jobs_of_one_second_get_two_names(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is taken is not given again."""
    endings = iter(["0a1b", "0a1b", "ffff"])
    monkeypatch.setattr("secrets.token_hex", lambda count: next(endings))
    names = [api.post("/jobs", ASKED).body["job_id"] for _ in range(2)]
    assert names == ["sft-20261121-090000-0a1b", "sft-20261121-090000-ffff"]

"""The HTTP API of jobs and instances, as API Gateway calls it (payload format 2.0)."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.heartbeat import Beat
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.ports.errors import StaleRecord, TryAgainSoon

from tests.aws.records import JOB, NOW, A, B, claim, failure, instance, job, later, plan
from tests.lambdas.api_gateway import TOKEN, Api, encoded, forged, refused, signed
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ASKED = {
    "workload": "sft",
    "nnodes": 2,
    "n_gpus_per_node": 8,
    "task_definition": "gpu-training",
    "command": ["python", "train.py"],
    "env": {"LR": "0.1"},
    "user": "ana",
    "attempts_max": 3,
    "max_runtime_s": 3600,
}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


# -- who may -----------------------------------------------------------------------------------------------------------

ROUTES = [
    ("POST", "/api/v2/jobs"),
    ("GET", "/api/v2/jobs"),
    ("GET", f"/api/v2/jobs/{JOB}"),
    ("POST", f"/api/v2/jobs/{JOB}/cancel"),
    ("GET", "/api/v2/instances"),
    ("GET", f"/api/v2/instances/{A}"),
    ("POST", f"/api/v2/instances/{A}/release"),
    ("POST", f"/api/v2/instances/{A}/quarantine"),
    ("GET", "/api/v2/fleet"),
    ("POST", "/api/v2/fleet/pause"),
    ("POST", "/api/v2/fleet/unpause"),
    ("POST", "/api/v2/fleet/reset-breaker"),
    ("GET", "/api/v2/dead-letters"),
    ("POST", "/api/v2/dead-letters/redrive"),
]
WRONG = [
    None,
    "",
    "Bearer ",
    "Bearer wrong",
    TOKEN,
    f"Basic {TOKEN}",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    "Bearer ü",
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("token", [None, "Bearer wrong"])
def test_every_route_needs_the_token(api: Api, method: str, path: str, token: str | None) -> None:
    """401 before anything is read or written."""
    refused(api.call(method, path, ASKED, token=token), 401)
    assert api.functions.aws.count("dynamodb") == 0


@pytest.mark.parametrize("token", WRONG)
def test_only_the_whole_token_will_do(api: Api, token: str | None) -> None:
    """Not a part of it, not another scheme, not more."""
    refused(api.call("GET", "/api/v2/jobs", token=token), 401)
    assert api.get("/jobs").status == 200


def test_no_token_is_ever_logged(api: Api) -> None:
    """Neither the right one nor one that was tried."""
    api.get("/jobs")
    api.post("/jobs", ASKED)
    api.call("GET", "/api/v2/jobs", token="Bearer guessed-by-somebody")
    logged = api.functions.log.getvalue()
    assert TOKEN not in logged and "guessed" not in logged
    assert api.functions.logged("job_decided") == [] and JOB not in logged


def test_the_token_is_read_once_for_many_requests(api: Api) -> None:
    """Secrets Manager is not asked each time."""
    api.get("/jobs")
    assert api.functions.aws.asked("GetSecretValue") == [{"SecretId": "operator-token"}]
    api.get("/jobs")
    assert api.functions.aws.asked("GetSecretValue") == []


def test_a_secret_that_cannot_be_read_opens_nothing(api: Api) -> None:
    """The request fails; it is not let in."""

    def denied(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetSecretValue")

    api.functions.aws.answers["GetSecretValue"] = denied
    with pytest.raises(ClientError):
        api.get("/jobs")


def test_an_unknown_route_is_a_problem(api: Api) -> None:
    """404 with what was asked for."""
    assert "/api/v2/nothing" in refused(api.get("/nothing"), 404)
    refused(api.call("DELETE", f"/api/v2/jobs/{JOB}"), 404)


# -- what goes wrong behind it -----------------------------------------------------------------------------------------


def test_an_aws_that_is_too_busy_is_named_and_may_be_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with the seconds to wait, and the log knows of it."""

    def busy(*_: object) -> None:
        raise TryAgainSoon("dynamodb GetItem: ThrottlingException")

    monkeypatch.setattr(import_module("gpu_recovery.aws.wiring").recovery().store, "load_job", busy)
    answer = api.get(f"/jobs/{JOB}")
    assert "dynamodb GetItem" in refused(answer, 503)
    assert int(answer.headers["retry-after"]) > 0
    assert len(api.functions.logged("busy")) == 1


def test_a_record_that_others_write_all_the_time_may_be_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a busy AWS: 503 with the seconds to wait."""
    api.functions.store.create_job(job(), "")

    def overtaken(*_: object, **__: object) -> None:
        raise StaleRecord(JOB)

    monkeypatch.setattr(import_module("gpu_recovery.aws.wiring").recovery().store, "save_job", overtaken)
    answer = api.post(f"/jobs/{JOB}/cancel")
    assert "all the time" in refused(answer, 503)
    assert int(answer.headers["retry-after"]) > 0


def test_a_record_that_nobody_can_read_is_named(api: Api) -> None:
    """500 as a problem document with the record's name and what is wrong with it; asking again does not help."""
    api.functions.store.save_instance(instance())
    kept = api.functions.kept()
    kept[A]["schema"] = {"N": "999"}
    api.functions.restore(kept)
    answer = api.get(f"/instances/{A}")
    detail = refused(answer, 500)
    assert A in detail and "newer release" in detail
    assert "retry-after" not in answer.headers
    assert len(api.functions.logged("unreadable")) == 1


# -- submitting --------------------------------------------------------------------------------------------------------


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
        ("env", {"A": 1}),
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


def with_definition(api: Api, **changes: Any) -> None:
    """Another task definition than the usual one."""
    usual = {"networkMode": "host", "containerDefinitions": [{"name": "a"}, {"name": "b", "essential": True}]}
    api.functions.aws.answers["DescribeTaskDefinition"] = lambda asked: {"taskDefinition": usual | changes}


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
    """ECS says so with ClientException, or InvalidParameterException for an absurd revision; else it is raised."""

    def say(code: str) -> Any:
        def answer(asked: dict[str, Any]) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": code, "Message": "Unable to describe task definition."}}, "Describe")

        return answer

    for code in ("ClientException", "InvalidParameterException"):
        api.functions.aws.answers["DescribeTaskDefinition"] = say(code)
        assert "gpu-training" in refused(api.post("/jobs", ASKED), 422, "task_definition")
    api.functions.aws.answers["DescribeTaskDefinition"] = say("ThrottlingException")
    with pytest.raises(ClientError, match="Throttling"):
        api.post("/jobs", ASKED)


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


# -- reading -----------------------------------------------------------------------------------------------------------


def test_a_job_is_read_with_its_failure(api: Api) -> None:
    """And times as ISO texts."""
    api.functions.store.create_job(job(status=JobStatus.FAILED, failure=failure(1), deadline_at=later(0.5)), "")
    body = api.get(f"/jobs/{JOB}").body
    assert body["failure"] == {
        "rank": 1,
        "instance_id": A,
        "at": "2026-11-21T09:00:00.000Z",
        "kind": "FAILED",
        "exit_code": 1,
        "sentence": "exited with code 1",
    }
    assert body["deadline_at"] == "2026-11-21T09:00:00.500Z"


def test_what_is_not_there_is_404(api: Api) -> None:
    """A problem document that names it."""
    assert JOB in refused(api.get(f"/jobs/{JOB}"), 404)
    assert JOB in refused(api.post(f"/jobs/{JOB}/cancel"), 404)
    assert A in refused(api.get(f"/instances/{A}"), 404)
    assert A in refused(api.post(f"/instances/{A}/release"), 404)


def test_jobs_are_listed_page_by_page(api: Api) -> None:
    """Each once, without history, until the cursor ends."""
    for n in range(5):
        api.functions.store.create_job(job(f"job-{n}", queued_at=later(n)), "")
    seen, cursor = [], {}
    while True:
        body = api.get("/jobs", limit="2", **cursor).body
        seen += [one["job_id"] for one in body["jobs"]]
        assert all("history" not in one for one in body["jobs"])
        if body["next_cursor"] is None:
            break
        cursor = {"cursor": body["next_cursor"]}
    assert seen == [f"job-{n}" for n in range(5)]


def test_jobs_are_filtered_by_status(api: Api) -> None:
    """Only those in it."""
    api.functions.store.create_job(job("job-q"), "")
    api.functions.store.create_job(job("job-f", status=JobStatus.FAILED), "")
    assert [one["job_id"] for one in api.get("/jobs", status="FAILED").body["jobs"]] == ["job-f"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "BUSY"),
        ("status", "queued"),
        ("limit", "0"),
        ("limit", "201"),
        ("limit", "-1"),
        ("limit", "many"),
        ("limit", ""),
        ("limit", "9" * 5000),
        ("cursor", "rubbish"),
        ("cursor", "bm8="),
        ("cursor", forged("QUEUED", "0001-01-01T00:00:00+14:00", JOB)),
        ("cursor", forged("QUEUED", "2026-11-21T09:00:00Z", "x" * 2_049)),
        ("cursor", encoded("[" * 20_000)),
        ("cursor", signed(encoded("[" * 20_000))),
        ("cursor", signed("rubbish")),
        ("cursor", forged("QUEUED", "2026-11-21T09:00:00Z", "\ud800")),
    ],
)
def test_a_listing_that_is_asked_for_wrongly_is_refused(api: Api, field: str, value: str) -> None:
    """400, with the parameter."""
    refused(api.get("/jobs", **{field: value}), 400, field)


def test_a_cursor_of_another_listing_is_refused(api: Api) -> None:
    """It would begin at a place that this listing does not have."""
    cursor = forged("FAILED", "2026-11-21T09:00:00Z", JOB)
    refused(api.get("/jobs", status="QUEUED", cursor=cursor), 400, "cursor")
    assert api.get("/jobs", status="FAILED", cursor=cursor).body["jobs"] == []


def test_a_job_id_with_a_slash_is_read_and_canceled(api: Api) -> None:
    """People name the jobs that are adopted, and a slash travels as %2F."""
    api.functions.store.create_job(job("team/run-17"), "")
    assert api.get("/jobs/team%2Frun-17").body["job_id"] == "team/run-17"
    assert api.post("/jobs/team%2Frun-17/cancel").body["status"] == "CANCELED"


@pytest.mark.parametrize("name", ["x" * 256, "%ff", "%ED%A0%80", "é", "%00" * 200, "x" * 5_000])
def test_an_id_that_nothing_can_have_is_not_found(api: Api, name: str) -> None:
    """Without a word to a table that could not take it."""
    for method, path in (("GET", f"/api/v2/jobs/{name}"), ("POST", f"/api/v2/instances/{name}/release")):
        refused(api.call(method, path), 404)
        assert len(api.functions.aws.calls) <= 1  # the token is read once


def test_instances_are_listed_page_by_page(api: Api) -> None:
    """By id; one that comes or goes before the page's end moves nobody else."""
    names = [f"i-{n:017x}" for n in range(5)]
    for name in names:
        api.functions.store.save_instance(instance(name))
    first = api.get("/instances", limit="2").body
    api.functions.store.save_instance(instance("i-0000000000000000"))
    second = api.get("/instances", limit="2", cursor=first["next_cursor"]).body
    last = api.get("/instances", cursor=second["next_cursor"]).body
    pages = [[one["instance_id"] for one in page["instances"]] for page in (first, second, last)]
    assert pages == [names[:2], names[2:4], names[4:]] and last["next_cursor"] is None


def test_instances_are_listed_without_those_that_are_gone(api: Api) -> None:
    """By id, with their claims."""
    api.functions.store.save_instance(instance(B, claims={JOB: claim(2)}))
    api.functions.store.save_instance(instance(A, reserved_for=JOB, booted_at=NOW))
    api.functions.store.save_instance(instance("i-0c", status=InstanceStatus.GONE))
    body = api.get("/instances").body
    assert [one["instance_id"] for one in body["instances"]] == [A, B] and body["next_cursor"] is None
    assert body["instances"][1]["claims"] == {JOB: 2}
    one = api.get(f"/instances/{A}").body
    assert (one["reserved_for"], one["booted_at"], one["gpus"]) == (JOB, "2026-11-21T09:00:00.000Z", 8)


def test_a_listing_of_instances_leaves_their_histories_out(api: Api) -> None:
    """Each may hold many sentences, and Lambda answers with 6 MB at most: a thousand machines must fit in."""
    most = import_module("gpu_recovery.aws.wiring").settings().policy.history_max
    entry = HistoryEntry(NOW, "AVAILABLE", "CHECKING", "CheckRequested", 1, "x" * 400)
    api.functions.store.save_instance(instance(history=(entry,) * most))
    (listed,) = api.get("/instances").body["instances"]
    alone = api.get(f"/instances/{A}").body
    assert alone.pop("history") and alone.pop("heartbeat") is None and listed == alone
    assert len(json.dumps(listed)) * 1_000 < 6_000_000


USUAL: dict[str, int] = {}
HURRIED, PATIENT = {"suspect_s": 20, "unreachable_s": 60}, {"unreachable_s": 400, "heartbeat_stale_s": 500}


@pytest.mark.parametrize(
    ("policy", "unheard_s", "word"),
    [
        (USUAL, 45, "HEARD"),
        (USUAL, 46, "SUSPECT"),
        (USUAL, 120, "SUSPECT"),
        (USUAL, 121, "UNREACHABLE"),
        (USUAL, 180, "UNREACHABLE"),
        (USUAL, 181, "LOST"),
        (HURRIED, 21, "SUSPECT"),
        (HURRIED, 61, "UNREACHABLE"),
        (HURRIED, 181, "LOST"),
        (PATIENT, 181, "SUSPECT"),
        (PATIENT, 401, "UNREACHABLE"),
        (PATIENT, 501, "LOST"),
    ],
)
def test_how_sure_it_is_that_an_instance_is_there_is_said_in_the_words_of_the_policy(
    api: Api, monkeypatch: pytest.MonkeyPatch, policy: dict[str, int], unheard_s: int, word: str
) -> None:
    """Each of the three ages is a setting of the deployment."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps(policy))
    api.functions.store.save_instance(instance())
    api.functions.store.keep_beat(Beat(A, NOW), True)
    api.functions.now = later(unheard_s)
    assert api.get(f"/instances/{A}").body["heartbeat"]["liveness"] == word


# -- acting ------------------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_canceled_at_once(api: Api) -> None:
    """And says by whom."""
    api.functions.store.create_job(job(), "")
    body = api.post(f"/jobs/{JOB}/cancel").body
    assert body["status"] == "CANCELED" and "operator" in body["reason"]
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "CANCELED"


def test_a_running_job_is_stopped_first(api: Api) -> None:
    """Its tasks are told to stop; it is canceled when they have ended."""
    store = api.functions.store
    store.create_job(job(status=JobStatus.RUNNING, attempt=1, launched=True, instances=plan().instances), "")
    store.begin_attempt(plan())
    api.functions.aws.tasks[attempt_id(JOB, 1)] = ["task-0", "task-1"]
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "STOPPING"
    assert len(api.functions.aws.asked("StopTask")) == 2


def test_a_cancellation_is_not_lost_to_a_launch(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler places the job between the API's look at it and its order: it is canceled all the same."""
    store = api.functions.store
    store.create_job(job(), "")
    client = import_module("gpu_recovery.aws.wiring").recovery().store.jobs.client
    get_item, placed = client.get_item, []

    def placing_after_the_first_look(**request: Any) -> Any:
        answer = get_item(**request)
        if not placed:
            placed.append(JOB)
            fields = {"status": JobStatus.SUBMITTED, "attempt": 1, "launched": True, "instances": plan().instances}
            store.save_job(replace(api.functions.job(), **fields))
        return answer

    monkeypatch.setattr(client, "get_item", placing_after_the_first_look)
    assert api.post(f"/jobs/{JOB}/cancel").body["status"] == "STOPPING"
    assert placed


def test_a_quarantined_instance_is_given_back_through_a_check(api: Api) -> None:
    """It does not work again before it has passed."""
    held = instance(status=InstanceStatus.QUARANTINED, ecs_status="DRAINING", drained=True)
    api.functions.store.save_instance(held)
    body = api.post(f"/instances/{A}/release").body
    assert body["status"] == "VERIFYING" and "operator" in body["reason"]
    assert [asked["status"] for asked in api.functions.aws.asked("UpdateContainerInstancesState")] == ["ACTIVE"]
    assert len(api.functions.aws.asked("RunTask")) == 1


def test_releasing_what_is_not_quarantined_changes_nothing(api: Api) -> None:
    """409, and why."""
    api.functions.store.save_instance(instance())
    assert "AVAILABLE" in refused(api.post(f"/instances/{A}/release"), 409)
    assert "RunTask" not in api.functions.aws.operations()

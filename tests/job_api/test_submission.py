"""Submitting through the HTTP API: YAML, keys, limits, what can never run, and what it costs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery.auth.authenticator import TOKEN_CACHE_TTL
from gpu_recovery.aws.instance_index import MARK, SHARDS
from gpu_recovery.aws.submission_store import KNOWN_FOR, DynamoSubmissions
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.queue.quota import parse_limits
from gpu_recovery.job_api.submission import IDEMPOTENCY_KEY_TTL

from tests.aws.counted_aws import THROTTLED
from tests.aws.records import NOW, A, B, instance
from tests.job_api.submissions import ASKED, with_definition
from tests.lambdas.api_gateway import Answer, Api, refused, user_token, with_ray
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
WRITES = {"PutItem", "UpdateItem", "TransactWriteItems", "DeleteItem", "BatchWriteItem"}
YAML = """\
# the job of the example
workload: sft
nnodes: 2
n_gpus_per_node: 8
task_definition: gpu-training
command: [python, train.py]
env:
  LR: "0.1"
user: ana
attempts_max: 3
max_runtime_s: 3600
"""


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def submitted(api: Api, text: str, kind: str = "application/yaml", **headers: str) -> Answer:
    """POST /jobs with a body that is no JSON, which API Gateway hands over in base64."""
    raw = base64.b64encode(text.encode()).decode()
    return api.post("/jobs", raw=raw, encoded=True, headers={"content-type": kind, **headers})


def keyed(api: Api, key: str, body: Any = None, **how: Any) -> Answer:
    """POST /jobs with a key."""
    return api.post("/jobs", body or ASKED, headers={"idempotency-key": key}, **how)


def wrote(api: Api) -> int:
    """How many writes the latest request made."""
    return sum(number for name, number in api.functions.aws.operations("dynamodb").items() if name in WRITES)


def jobs_kept(api: Api) -> list[str]:
    """The ids of all jobs."""
    return [name for name, item in api.functions.kept().items() if "status" in item and "job_id_rank" in item]


def limit(api: Api, document: dict[str, Any]) -> None:
    """Let these be the limits of users."""
    api.functions.store.save_limits(parse_limits(document).document(), 0)


# -- YAML --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["application/yaml", "text/yaml", "application/x-yaml", "Text/YAML; charset=utf-8"])
def test_a_specification_may_be_yaml(api: Api, kind: str) -> None:
    """It makes the same job as its JSON does, and its text is kept as it was written, comments included."""
    answer = submitted(api, YAML, kind)
    assert answer.status == 201
    kept = api.functions.job(answer.body["job_id"]).spec
    assert kept == api.functions.job(api.post("/jobs", ASKED).body["job_id"]).spec
    text = api.functions.store.jobs.get(f"{answer.body['job_id']}#spec")
    assert text is not None and text["submitted"] == YAML


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("workload: sft\nnnodes: [1", "line 2"),
        ("workload: &a sft", "quoted"),
        ("env: *a", "quoted"),
        ("workload: !!python/object:os.system x", "quoted"),
        ("nnodes: 2\nnnodes: 4", "twice"),
        ("env:\n\tLR: x", "U+0009"),
        ("--- a\n--- b", "one document"),
        ("env: {A: yes}", "quote it"),
        ("a: " + "[" * 5_000, "nested"),
        ("\ufeffworkload: sft", "U+FEFF"),
    ],
)
def test_yaml_that_is_none_or_too_much_is_refused_with_its_line(api: Api, text: str, said: str) -> None:
    """400, and nothing is stored."""
    assert said in refused(submitted(api, text), 400, "body")
    assert wrote(api) == 0 and jobs_kept(api) == []


def test_a_yaml_value_of_the_wrong_kind_is_the_fields_error(api: Api) -> None:
    """As with JSON: an unquoted number is no text."""
    refused(submitted(api, YAML.replace('"0.1"', "0.1")), 422, "env.LR")


def test_yaml_is_only_read_where_it_is_announced(api: Api) -> None:
    """A JSON body that is none is not tried as something else."""
    refused(submitted(api, YAML, "application/json"), 400, "body")


@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_a_body_of_a_megabyte_is_refused_before_it_is_read(api: Api, kind: str) -> None:
    """413, and nothing is stored, in either language."""
    text = json.dumps(ASKED | {"user": "x" * 1_048_576})
    refused(submitted(api, text, kind), 413, "body")
    assert api.functions.aws.count("dynamodb") == 0


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nnodes", -1),
        ("n_gpus_per_node", -8),
        ("priority", "URGENT"),
        ("group", "../x"),
        ("suspend_grace_s", 0),
        ("checkpoint_dir", "relative"),
        ("backend", "slurm"),
        ("entrypoint", "python x.py"),
        ("colour", "blue"),
        ("image", "me train"),
    ],
)
def test_what_is_wrong_is_named_twice_over(api: Api, field: str, value: Any) -> None:
    """`field` for people, `errors` for programs, `code` for both; nothing is stored."""
    answer = api.post("/jobs", ASKED | {field: value})
    detail = refused(answer, 422, field)
    assert answer.body["errors"] == [{"field": field, "detail": detail}] and answer.body["code"] == "invalid"
    assert wrote(api) == 0


def test_a_grace_that_ecs_would_cut_short_is_refused(api: Api) -> None:
    """The container's own stopTimeout is the ceiling; without one it is ECS's 30 s."""
    with_definition(api, containerDefinitions=[{"name": "a", "stopTimeout": 20}, {"name": "b"}])
    assert "20" in refused(api.post("/jobs", ASKED | {"suspend_grace_s": 21}), 422, "suspend_grace_s")
    assert api.post("/jobs", ASKED | {"suspend_grace_s": 20}).status == 201
    assert api.post("/jobs", ASKED | {"suspend_grace_s": 30, "container": "b"}).status == 201
    assert "30" in refused(api.post("/jobs", ASKED | {"suspend_grace_s": 31, "container": "b"}), 422, "suspend_grace_s")


def test_a_job_larger_than_its_users_whole_quota_is_refused_with_the_numbers(api: Api) -> None:
    """It would wait for ever; one that fits the quota may wait."""
    limit(api, {"instances": {"ana/*/*": 1}})
    detail = refused(api.post("/jobs", ASKED), 422, "nnodes")
    assert "2" in detail and "1" in detail and wrote(api) == 0
    assert api.post("/jobs", ASKED | {"nnodes": 1}).status == 201
    assert api.post("/jobs", ASKED | {"user": "bob"}).status == 201


def test_a_job_below_the_smallest_size_of_the_deployment_is_refused(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """All GPUs of the job count, on all its instances."""
    small = ASKED | {"nnodes": 1, "n_gpus_per_node": 4}
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"preset": "adaptive", "min_gpus": 8}))
    for query in ({"dry_run": "1"}, {}):
        detail = refused(api.post("/jobs", small, query=query), 422, "n_gpus_per_node")
        assert detail == "the job has 4 GPU(s) in all, and a job of this deployment must have at least 8"
    assert wrote(api) == 0
    assert api.post("/jobs", small | {"nnodes": 2}).status == 201


def test_a_job_larger_than_the_cluster_is_refused_with_the_numbers(api: Api) -> None:
    """Instances out of use count: they may come back. Those that are gone do not."""
    api.functions.store.save_instance(instance(A))
    api.functions.store.save_instance(instance(B, status=InstanceStatus.GONE))
    assert "at most 1" in refused(api.post("/jobs", ASKED), 422, "nnodes")
    assert "at most 8" in refused(api.post("/jobs", ASKED | {"n_gpus_per_node": 16}), 422, "n_gpus_per_node")
    assert "without a group" in refused(api.post("/jobs", ASKED | {"group": "h100", "nnodes": 1}), 422, "group")
    assert wrote(api) == 0
    api.functions.store.save_instance(instance("i-0c", status=InstanceStatus.QUARANTINED))
    assert api.post("/jobs", ASKED).status == 201


@pytest.mark.parametrize("named", ["gpu-training", "gpu-training:7"])
def test_an_image_is_that_of_the_task_definition_and_stays_it(api: Api, named: str) -> None:
    """A revision registered tomorrow may have another: the job keeps the one that was looked at."""
    containers = [{"name": "a", "image": "me/train:1"}, {"name": "b", "image": "me/log:9"}]
    with_definition(api, family="gpu-training", revision=7, containerDefinitions=containers)
    asked = ASKED | {"task_definition": named}
    made = api.post("/jobs", asked | {"image": "me/train:1"}).body
    assert (made["image"], made["task_definition"]) == ("me/train:1", "gpu-training:7")
    detail = refused(api.post("/jobs", asked | {"image": "me/train:2"}), 422, "image")
    assert "me/train:1 in gpu-training:7" in detail and "register a revision" in detail and wrote(api) == 0
    assert api.post("/jobs", asked | {"image": "me/log:9", "container": "b"}).status == 201
    free = api.post("/jobs", asked).body
    assert (free["image"], free["task_definition"]) == (None, named)


ON_RAY = {"workload": "ppo", "nnodes": 4, "n_gpus_per_node": 8, "backend": "ray", "entrypoint": "python ppo.py"}


def test_a_job_on_ray_is_refused_where_there_is_no_ray(api: Api) -> None:
    """Kept, it could neither be run nor be canceled, and the reconciler would fail on it each minute."""
    answer = api.post("/jobs", ON_RAY)
    assert (answer.status, answer.body["field"]) == (422, "backend")
    assert set(api.functions.kept()) == {MARK}


@pytest.mark.parametrize(
    "poison",
    [
        {"working_dir": 5},
        {"py_modules": True},
        {"working_dir": "/etc"},
        {"working_dir": ""},
        {"container": {"image": "me/ray:1", "run_options": ["--privileged"]}},
    ],
)
def test_what_would_stop_the_whole_pool_is_refused_at_the_door(
    api: Api, monkeypatch: pytest.MonkeyPatch, poison: dict[str, Any]
) -> None:
    """The function that reaches Ray handles one order after another: nobody's may make it fail."""
    with_ray(api, monkeypatch)
    answer = api.post("/jobs", ON_RAY | {"runtime_env": poison})
    assert (answer.status, answer.body["field"]) == (422, f"runtime_env.{next(iter(poison))}")


def test_an_image_on_ray_goes_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray takes it with variables only, and would fail the job at its start."""
    with_ray(api, monkeypatch)
    beside = {"env_vars": {"A": "1"}}
    assert api.post("/jobs", ON_RAY | {"image": "me/ray:1", "runtime_env": beside}).status == 201
    for other in ({"pip": ["x==1"]}, {"image_uri": "me/ray:2"}):
        assert "runtime_env" in refused(
            api.post("/jobs", ON_RAY | {"image": "me/ray:1", "runtime_env": other}), 422, "image"
        )


def test_no_job_runs_with_the_rights_of_the_health_check(api: Api) -> None:
    """Its container is privileged and may write every verdict: a user's command in it would own the machine."""
    for name in ("dcgm-health-check", "dcgm-health-check:1"):
        refused(api.post("/jobs", ASKED | {"task_definition": name}), 422, "task_definition")


def test_a_job_on_ray_needs_neither_task_definition_nor_instances(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pool is Ray's own."""
    with_ray(api, monkeypatch)
    api.functions.store.save_instance(instance(A))
    asked = {"workload": "ppo", "nnodes": 4, "n_gpus_per_node": 8, "backend": "ray", "entrypoint": "python ppo.py"}
    answer = api.post("/jobs", asked)
    assert (answer.status, answer.body["backend"], answer.body["entrypoint"]) == (201, "ray", "python ppo.py")
    assert "DescribeTaskDefinition" not in api.functions.aws.operations()


def test_a_priority_that_is_to_be_chosen_for_the_job_is_refused(api: Api) -> None:
    """AUTO takes whatever quota is left, which was the wrong one."""
    refused(api.post("/jobs", ASKED | {"priority": "AUTO"}), 422, "priority")
    assert wrote(api) == 0 and jobs_kept(api) == []


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_a_job_is_kept_in_one_transaction(api: Api) -> None:
    """Record, text and key: all of them or none."""
    keyed(api, "k-1")
    (transaction,) = api.functions.aws.asked("TransactWriteItems")
    kinds = sorted(
        action["Put"]["Item"]["job_id_rank"]["S"].split("#")[-1][:3] for action in transaction["TransactItems"]
    )
    assert len(kinds) == 3 and "spe" in kinds and "sft" in kinds


@pytest.mark.parametrize("key", ["", "k-1"])
@pytest.mark.parametrize("instances", [0, 1, 40])
def test_a_submission_costs_three_calls_of_dynamodb_and_a_list_of_the_fleet_at_most(
    api: Api, key: str, instances: int
) -> None:
    """Cold and warm, with a key or without, in a cluster of any size that fits the job at once."""
    for number in range(instances):
        api.functions.store.save_instance(instance(f"i-{number:017x}"))
    headers = {"idempotency-key": key} if key else {}
    for again in range(2):
        asked = ASKED | {"nnodes": max(1, instances)}
        answer = api.post("/jobs", asked, headers={name: f"{value}{again}" for name, value in headers.items()})
        assert answer.status == 201
        calls = api.functions.aws.operations("dynamodb")
        assert calls["Query"] in (0, SHARDS) and sum(calls.values()) - calls["Query"] <= 3, calls
        assert calls["TransactWriteItems"] == 1


@pytest.mark.parametrize("key", ["", "k-1"])
@pytest.mark.parametrize("instances", [0, 1])
def test_a_users_submission_costs_three_calls_and_a_list_while_the_token_is_not_known_yet(
    api: Api, key: str, instances: int
) -> None:
    """The token is read along with what a submission has to know; the key is left to the write then."""
    for number in range(instances):
        api.functions.store.save_instance(instance(f"i-{number:017x}"))
    token, costs = user_token(api, "ana"), []
    for again in range(2):
        headers = {"idempotency-key": f"{key}{again}"} if key else {}
        assert api.post("/jobs", ANAS, token=token, headers=headers).status == 201
        costs.append(api.functions.aws.count("dynamodb"))
    cold = 3 + SHARDS
    assert costs == ([cold, 3] if instances else [cold, cold])  # an empty cluster is looked at each time


ANAS = {name: value for name, value in ASKED.items() if name != "user"} | {"nnodes": 1}


@pytest.mark.parametrize("broken", [False, True], ids=["as before", "not acceptable any more"])
def test_a_key_that_is_left_to_the_write_is_the_same_job_all_the_same(api: Api, broken: bool) -> None:
    """A function that does not know the caller yet does not read the key before it writes."""
    token = user_token(api, "ana")
    first = keyed(api, "k-1", ANAS, token=token)
    if broken:
        with_definition(api, status="INACTIVE")
    api.functions.now += TOKEN_CACHE_TTL
    again = keyed(api, "k-1", ANAS, token=token)
    assert (again.status, again.body["job_id"]) == (200, first.body["job_id"])
    assert jobs_kept(api) == [first.body["job_id"]]
    api.functions.now += TOKEN_CACHE_TTL
    refused(keyed(api, "k-1", ANAS | {"nnodes": 2}, token=token), 422, "Idempotency-Key")


def test_what_was_read_along_with_a_token_is_for_that_request_alone(api: Api) -> None:
    """A limit that was set since holds."""
    token = user_token(api, "ana")
    assert api.get("/queue", token=token).status == 200
    api.functions.store.save_limits({"instances": {"ana/*/*": 0}}, 0)
    api.functions.now += KNOWN_FOR
    assert api.post("/jobs", ANAS, token=token).body["field"] == "nnodes"


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_repeated_key_is_the_same_job(api: Api) -> None:
    """200 the second time, however the specification is laid out; one job is kept and one wake-up sent."""
    first = keyed(api, "k-1")
    again = api.post("/jobs", raw=json.dumps(ASKED, indent=3, sort_keys=True), headers={"idempotency-key": "k-1"})
    assert (first.status, again.status) == (201, 200)
    assert first.body["job_id"] == again.body["job_id"] == first.headers["location"].rpartition("/")[2]
    assert wrote(api) == 0 and api.functions.aws.operations()["SendMessage"] == 0
    assert jobs_kept(api) == [first.body["job_id"]]
    assert submitted(api, YAML, **{"idempotency-key": "k-1"}).body["job_id"] == first.body["job_id"]


def test_a_repeated_key_is_the_same_job_even_if_it_could_not_be_submitted_any_more(api: Api) -> None:
    """Whoever asks again wants to know what became of the first time."""
    first = keyed(api, "k-1")
    with_definition(api, status="INACTIVE")
    again = keyed(api, "k-1")
    assert (again.status, again.body["job_id"]) == (200, first.body["job_id"])


def test_a_key_that_stands_for_another_specification_is_refused(api: Api) -> None:
    """422 with the job it belongs to; nothing is stored."""
    first = keyed(api, "k-1")
    answer = keyed(api, "k-1", ASKED | {"nnodes": 1})
    refused(answer, 422, "Idempotency-Key")
    assert (answer.body["code"], answer.body["job_id"]) == ("idempotency_mismatch", first.body["job_id"])
    assert wrote(api) == 0 and len(jobs_kept(api)) == 1


@pytest.mark.parametrize("key", [{}, {"idempotency-key": "k-1"}], ids=["without a key", "with a key"])
def test_a_job_that_is_stored_is_answered_with_201_although_dynamodb_throttles(api: Api, key: dict[str, str]) -> None:
    """After an error its user would submit the job again, so the reconciler removes the finished commands instead."""
    api.functions.aws.dynamodb["UpdateItem"] = lambda asked: THROTTLED
    answer = api.post("/jobs", ASKED, headers=key)
    assert answer.status == 201
    assert jobs_kept(api) == [answer.body["job_id"]]
    assert api.functions.aws.operations()["SendMessage"] == 1
    assert api.functions.job(answer.body["job_id"]).commands != ()
    api.functions.aws.dynamodb.clear()
    api.functions.now += timedelta(minutes=10)
    api.functions.call("reconciler", {})
    assert api.functions.job(answer.body["job_id"]).commands == ()


def test_a_job_that_is_stored_is_answered_with_201_although_no_function_can_be_woken(api: Api) -> None:
    """The wake-up stays in the record, and the reconciler sends it."""

    def down(asked: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("SQS does not answer")

    api.functions.aws.answers["SendMessage"] = down
    answer = api.post("/jobs", ASKED)
    assert answer.status == 201
    assert jobs_kept(api) == [answer.body["job_id"]]
    assert api.functions.job(answer.body["job_id"]).commands != ()
    del api.functions.aws.answers["SendMessage"]
    api.functions.now += timedelta(minutes=10)
    api.functions.call("reconciler", {})
    assert api.functions.job(answer.body["job_id"]).commands == ()
    assert api.functions.aws.operations()["SendMessage"] == 1


def test_two_callers_may_choose_the_same_key(api: Api) -> None:
    """Nobody meets another's job by guessing keys."""
    asked = {name: value for name, value in ASKED.items() if name != "user"}
    ids = {keyed(api, "k-1", asked, token=user_token(api, user)).body["job_id"] for user in ("ana", "bob")} | {
        keyed(api, "k-1", asked).body["job_id"]
    }
    assert len(ids) == 3


def test_of_two_submissions_at_once_with_one_key_one_is_kept(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second finds the key taken at the write, and answers with the job of the first."""
    module = import_module("gpu_recovery.aws.submission_store")
    save: Callable[..., bool] = module.DynamoSubmissions.save
    first: list[str] = []

    def overtaken(self: DynamoSubmissions, record: Any, text: str, submission: Any, now: Any) -> bool:
        if not first:
            first.append(f"{record.job_id[:-4]}beef")
            twin = replace(record, job_id=first[0])
            assert save(self, twin, text, replace(submission, job_id=first[0]), now)
        return save(self, record, text, submission, now)

    monkeypatch.setattr(module.DynamoSubmissions, "save", overtaken)
    answer = keyed(api, "k-1")
    assert (answer.status, answer.body["job_id"]) == (200, first[0])
    assert jobs_kept(api) == first


def test_a_key_is_remembered_for_a_day_and_forgotten_after_two(api: Api) -> None:
    """Its item carries the time by which DynamoDB deletes it, and is believed no longer even if that is late."""
    first = keyed(api, "k-1").body["job_id"]
    api.functions.now = NOW + timedelta(hours=24)
    assert keyed(api, "k-1").body["job_id"] == first
    (kept,) = [item for name, item in api.functions.kept().items() if name.startswith("submission#")]
    assert int(kept["expires_s"]["N"]) == int((NOW + IDEMPOTENCY_KEY_TTL).timestamp())
    api.functions.now = NOW + IDEMPOTENCY_KEY_TTL
    again = keyed(api, "k-1", ASKED | {"nnodes": 1})
    assert again.status == 201 and again.body["job_id"] != first


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "\u00e9"])
def test_a_key_that_no_header_should_carry_is_refused(api: Api, key: str) -> None:
    """400; nothing is stored."""
    refused(keyed(api, key), 400, "Idempotency-Key")
    assert wrote(api) == 0


def test_keys_are_in_no_index(api: Api) -> None:
    """Neither the scheduler nor a listing meets them."""
    keyed(api, "k-1")
    assert [one["job_id"] for one in api.get("/jobs").body["jobs"]] == jobs_kept(api)
    (name,) = [name for name in api.functions.kept() if name.startswith("submission#")]
    assert refused(api.get(f"/jobs/{name.replace('#', '%23')}"), 404)

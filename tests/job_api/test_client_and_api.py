"""The command line against the API as it is: every request understood, every answer shown, one pipe through both."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpu_recovery.core.instance.record import Claim, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery_client.cli import app
from typer.testing import CliRunner, Result

from tests.aws.records import JOB, NOW, A, B, instance, job, later, spec
from tests.lambdas import api_gateway
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
YAML = """\
# two instances, as ever
workload: sft
nnodes: 2
n_gpus_per_node: 8
task_definition: gpu-training
command: [python, train.py]
"""
LIMITS = {"instances": {"ana/NORMAL/a100": 4}, "max_running_jobs": None, "max_running_jobs_per_user": None}
Run = Callable[..., Result]


@pytest.fixture
def api(functions: Functions) -> api_gateway.Api:
    """The API on a cluster of two free instances."""
    functions.now = later(3_600)
    for one in (A, B):
        functions.store.save_instance(instance(one))
    return api_gateway.Api(functions)


def carried(api: api_gateway.Api, request: httpx.Request, **context: Any) -> httpx.Response:
    """The answer of the API to a request. `context` is what API Gateway adds to the context of the request."""
    event = {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": request.url.raw_path.decode().partition("?")[0],
        "rawQueryString": request.url.query.decode(),
        "headers": dict(request.headers),
        "queryStringParameters": dict(request.url.params) or None,
        "isBase64Encoded": True,
        "body": base64.b64encode(request.content).decode(),
        "requestContext": {
            "http": {"method": request.method, "path": request.url.path},
            "stage": "$default",
            "requestId": "r-1",
            **context,
        },
    }
    with redirect_stdout(io.StringIO()):  # where the function's metrics go
        answer = api.functions.call("job_api", event)
    raw = answer["body"].encode()
    content = base64.b64decode(raw) if answer["isBase64Encoded"] else raw
    return httpx.Response(answer["statusCode"], headers=answer["headers"], content=content)


@pytest.fixture
def run(api: api_gateway.Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command line with an operator's token, or with one of a user in that role."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "https://api.example.test")
    tokens: dict[str, str] = {}

    def invoke(*arguments: str, by: str = "root", role: str = "operator", stdin: str | None = None) -> Result:
        if by not in tokens:
            tokens[by] = api_gateway.user_token(api, by, role).removeprefix("Bearer ")
        monkeypatch.setenv("GPU_RECOVERY_TOKEN", tokens[by])
        return CliRunner().invoke(app.app, list(arguments), input=stdin, obj=httpx.MockTransport(partial(carried, api)))

    return invoke


def told(result: Result) -> Any:
    """What a verb printed as JSON, once it went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def running(api: api_gateway.Api, job_id: str, *where: str) -> None:
    """A job of bob's on whole instances."""
    own = spec(user="bob", nnodes=len(where), priority=Priority.LOW)
    fields: dict[str, Any] = {"status": JobStatus.RUNNING, "attempt": 1, "instances": where, "running_at": NOW}
    api.functions.store.create_job(job(job_id, spec=own, quota_nodes=len(where), **fields), "")
    for one in where:
        assert api.functions.store.claim_instance(one, job_id, Claim(1, 8, 0), None)


def test_a_yaml_document_is_submitted_once_under_its_key(run: Run, api: api_gateway.Api) -> None:
    """The text is kept with its comment, the second call finds the first one's job, another job is refused."""
    first = told(run("submit", "-", "--idempotency-key", "k1", "--json", stdin=YAML))
    again = told(run("submit", "-", "--idempotency-key", "k1", "--json", stdin=YAML))
    assert (first["job_id"], first["status"]) == (again["job_id"], "QUEUED")
    kept = api.functions.kept()[f"{first['job_id']}#spec"]
    assert YAML in [one.get("S") for one in kept.values()]
    other = run("submit", "-", "--idempotency-key", "k1", stdin=YAML.replace("nnodes: 2", "nnodes: 1"))
    assert other.exit_code == 1 and "leave --idempotency-key out, or give a new key" in other.stderr


def test_a_dry_run_tells_where_and_why_not(run: Run, api: api_gateway.Api) -> None:
    """On free instances, and on those of somebody else."""
    free = run("submit", "-", "--dry-run", stdin=YAML).stdout
    assert "would start" in free and A in free and B in free
    running(api, "low-1", A)
    lines = run("submit", "-", "--dry-run", stdin=YAML).stdout.splitlines()
    facts = {line[:18].split("  ")[0]: line for line in lines}
    assert {"would wait", "short of", "position", "waits for", "earliest start"} <= set(facts)
    assert "low-1" in facts["waits for"]
    assert not api.functions.store.list_jobs(JobStatus.QUEUED, 10, None, []).jobs


def test_explain_names_at_once_the_instance_that_a_person_has_drained(run: Run, api: api_gateway.Api) -> None:
    """The check of the failed job cannot start there. Its time limit is a minute away, and no decision says why yet."""
    drained = "i-0dddddddddddddddd"
    api.functions.store.save_instance(
        instance(drained, status=InstanceStatus.CHECKING, ecs_status="DRAINING", version=1)
    )
    api.functions.store.create_job(job(status=JobStatus.DIAGNOSING, attempt=1, instances=(A, drained)), "")
    said = run("explain", JOB).stdout
    assert f"{drained}: set to DRAINING in ECS, not by gpu-recovery" in said
    assert f"{A}: " not in said


def test_the_line_is_shown_and_explained(run: Run, api: api_gateway.Api) -> None:
    """The same place and sentence in the queue as in the explanation."""
    running(api, "low-1", A)
    waits = told(run("submit", "-", "--user", "ana", "--json", stdin=YAML))["job_id"]
    (line,) = told(run("queue", "--json"))["waiting"]
    story = told(run("explain", waits, "--json"))
    assert story["pending"]["sentence"] == line["sentence"] and story["pending"]["position"] == line["position"] == 1
    for text in (run("queue").stdout, run("explain", waits).stdout):
        assert waits in text and " ".join(line["sentence"].split()) in text
    assert "low-1" in run("queue", "--user", "bob").stdout


def test_the_queue_shows_the_names_of_jobs_that_have_one(run: Run, api: api_gateway.Api) -> None:
    """In a column of their own, which is missing without any name."""
    running(api, "low-1", A)
    told(run("submit", "-", "--user", "ana", "--json", stdin=YAML))
    assert "NAME" not in run("queue").stdout
    told(run("submit", "-", "--user", "ana", "--name", "night-run", "--json", stdin=YAML))
    waiting, runs = run("queue").stdout.split("JOB")[1:3]
    assert "NAME" in waiting and "night-run" in waiting and "NAME" in runs


def test_orders_move_a_job_and_are_refused_once_it_has_ended(run: Run, api: api_gateway.Api) -> None:
    """Suspended, resumed, canceled; then there is nothing left to order."""
    api.functions.store.create_job(job(), "")
    assert "a demo" in run("suspend", JOB, "--because", "a demo").stdout
    assert run("resume", JOB).exit_code == 0
    assert told(run("cancel", JOB, "--json"))["status"] == JobStatus.CANCELED
    late = run("suspend", JOB)
    assert late.exit_code == 1 and "show the present status." in late.stderr
    assert "CANCELED" in run("status", JOB).stdout


def test_the_list_takes_every_filter(run: Run, api: api_gateway.Api) -> None:
    """By user, group, status and time, over all pages."""
    for number in range(3):
        api.functions.store.create_job(job(f"job-{number}", spec=spec(user="ana" if number else "bob")), "")
    found = told(run("list", "--user", "ana", "--limit", "1", "--all", "--status", "QUEUED", "--json"))
    assert [one["job_id"] for one in found["jobs"]] == ["job-2", "job-1"]
    ago = f"{int((datetime.now(UTC) - NOW).total_seconds()) + 60}s" if datetime.now(UTC) > NOW else "1s"
    assert told(run("list", "--since", ago, "--json"))["jobs"]
    assert run("list", "--group", "a100").stdout == "no jobs\n"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), ["job-2", "job-1", "job-0"]),
        (("--sort", "oldest"), ["job-0", "job-1", "job-2"]),
        (("--sort", "status", "--status", "queued"), ["job-0", "job-1", "job-2"]),
        (("--state", "waiting", "--limit", "2", "--all"), ["job-2", "job-1", "job-0"]),
        (("--state", "ended"), []),
        (("--prefix", "job-1"), ["job-1"]),
        (("--filter", "user=b*"), ["job-0"]),
    ],
)
def test_the_list_has_orders_states_and_filters(
    run: Run, api: api_gateway.Api, arguments: tuple[str, ...], found: list[str]
) -> None:
    """The newest first; what the command line sends, the API understands, also for a table."""
    for number in range(3):
        new = job(f"job-{number}", spec=spec(user="ana" if number else "bob"), queued_at=later(number))
        api.functions.store.create_job(new, "")
    assert run("list", *arguments, "-o", "name").stdout.split() == found
    rows = run("list", *arguments).stdout.splitlines()
    assert [row.split()[0] for row in rows if row.startswith("job-")] == found


def test_all_jobs_by_status_include_a_job_that_starts_between_two_pages(
    run: Run, api: api_gateway.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was queued first, so in a list by status it moves to a part that has been read."""
    monkeypatch.setattr("gpu_recovery_client.cli.job_list.PAGE_MAX", 2)
    for number, status in enumerate((JobStatus.QUEUED, JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.QUEUED)):
        api.functions.store.create_job(job(f"job-{number}", status=status, queued_at=later(number)), "")

    def start(asked: dict[str, Any]) -> None:
        if "job-1" in json.dumps(asked):
            api.functions.aws.dynamodb.clear()
            api.functions.store.save_job(replace(api.functions.job("job-0"), status=JobStatus.RUNNING))

    api.functions.aws.dynamodb["BatchGetItem"] = start
    listed = run("list", "--sort", "status", "--all", "-o", "name").stdout.split()
    assert listed == ["job-0", "job-1", "job-2", "job-3"]


def test_a_row_of_the_list_tells_how_many_attempts_are_used_up(run: Run, api: api_gateway.Api) -> None:
    """The short views of jobs, which a table asks for, have the number."""
    api.functions.store.create_job(job("job-0", attempt=2, attempts_counted=1), "")
    assert "2 (1/3)" in run("list").stdout


def test_all_jobs_of_a_user_are_canceled_and_no_others(run: Run, api: api_gateway.Api) -> None:
    """The API says who calls; another user's job is neither asked for nor refused."""
    for number in range(3):
        api.functions.store.create_job(job(f"job-{number}", spec=spec(user="ana" if number else "bob")), "")
    ended = told(run("cancel", "--all", "--yes", "--json", by="ana", role="user"))
    assert {one["job_id"]: one["status"] for one in ended["jobs"]} == {"job-1": "CANCELED", "job-2": "CANCELED"}
    assert told(run("status", "job-0", "--json"))["status"] == "QUEUED"


def test_instances_have_orders_and_filters(run: Run) -> None:
    """Of the API."""
    assert run("instances", "--status", "available", "--sort", "since", "-o", "name").stdout.split() == [A, B]
    assert run("instances", "--status", "QUARANTINED").stdout == "no instances\n"


def test_a_job_without_a_log_says_why(run: Run, api: api_gateway.Api) -> None:
    """In the API's words, with where to look."""
    api.functions.store.create_job(job(), "")
    result = run("logs", JOB)
    assert result.exit_code == 1 and "No log (404)" in result.stderr and "has not run yet" in result.stderr


def test_limits_are_set_read_and_guarded(run: Run, api: api_gateway.Api) -> None:
    """What is named changes, what is not stays, and a wrong entry is named."""
    told(run("quota", "set", "ana/NORMAL/a100=4", "--max-running-jobs", "9", "--json"))
    view = told(run("quota", "set", "--max-running-jobs", "none", "--json"))
    assert view["limits"] == LIMITS and told(run("quota", "show", "--json")) == view
    wrong = run("quota", "set", "--file", "-", stdin='{"instances": {"ana/NORMAL/a100": -1}}')
    assert wrong.exit_code == 1 and "instances.ana/NORMAL/a100" in wrong.stderr


def test_a_users_token_opens_what_its_role_allows(run: Run) -> None:
    """Issued, used, listed, revoked, all by the command line."""
    issued = told(run("token", "issue", "--user", "ana", "--role", "viewer", "--json"))
    assert issued["token"].startswith("gru_")
    listed = run("token", "list", "--user", "ana").stdout
    assert issued["id"] in listed and "viewer" in listed and issued["token"] not in listed
    assert run("list", by="eve", role="viewer").exit_code == 0
    refused = run("submit", "-", by="ben", role="viewer", stdin=YAML)
    assert refused.exit_code == 1 and "Use a token with a higher role" in refused.stderr
    assert "revoked" in run("token", "revoke", "--user", "ana", issued["id"]).stdout


def test_a_user_submits_in_no_other_name(run: Run) -> None:
    """A job is its token's user's."""
    mine = told(run("submit", "-", "--json", by="ana", role="user", stdin=YAML))
    assert mine["user"] == "ana"
    other = run("submit", "-", "--user", "bob", by="zoe", role="user", stdin=YAML)
    assert other.exit_code == 1 and "leave --user and the field user out" in other.stderr

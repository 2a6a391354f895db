"""Warnings about timeouts that do not fit each other: at submission, in a dry run, and while the ranks run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, A, job, launched, plan, spec
from tests.job_api.submissions import ASKED, with_definition
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
QUORUM_TOO_SHORT = {"TORCHFT_TIMEOUT_SEC": "300", "TORCHFT_QUORUM_TIMEOUT_SEC": "60"}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def inner(body: dict[str, Any]) -> list[str]:
    """The inner limits of an answer's warnings."""
    return [warning["inner"] for warning in body["timeout_warnings"]]


def test_a_submission_and_its_dry_run_say_what_does_not_fit(api: Api) -> None:
    """Also what only the container of the task definition says. The job is stored, and its status says it again."""
    environment = [{"name": "NCCL_TIMEOUT", "value": "3600"}, {"name": "PASSWORD", "value": "98765"}]
    with_definition(api, containerDefinitions=[{"name": "a", "environment": environment}])
    asked = ASKED | {"env": QUORUM_TOO_SHORT, "command": ["torchrun", "train.py", "--ddp_timeout", "1800"]}
    expected = ["TORCHFT_TIMEOUT_SEC", "--ddp_timeout", "NCCL_TIMEOUT"]
    assert inner(api.call("POST", "/api/v2/jobs", asked, dry_run="1").body) == expected
    created = api.post("/jobs", asked)
    assert created.status == 201 and inner(created.body) == expected
    path = f"/jobs/{created.body['job_id']}"
    assert inner(api.get(path).body) == inner(api.get(f"{path}/explain").body) == expected
    (first, *_) = created.body["timeout_warnings"]
    assert (first["inner_s"], first["outer_s"]) == (300, 60) and "TORCHFT_QUORUM_TIMEOUT_SEC" in first["sentence"]
    assert "98765" not in json.dumps(api.functions.kept(), default=str)


def test_a_job_without_known_variables_has_no_warning(api: Api) -> None:
    """As most jobs."""
    assert inner(api.post("/jobs", ASKED).body) == []


def test_the_policy_refuses_what_was_set_for_the_job(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer names the field and both values. Where one limit is a default, the job is only warned of."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"preset": "adaptive", "timeout_order": "refuse"}))
    asked = ASKED | {"env": QUORUM_TOO_SHORT}
    detail = refused(api.post("/jobs", asked), 422, "env.TORCHFT_TIMEOUT_SEC")
    assert "300 s" in detail and "60 s" in detail
    assert refused(api.call("POST", "/api/v2/jobs", asked, dry_run="1"), 422, "env.TORCHFT_TIMEOUT_SEC") == detail
    only_one = api.post("/jobs", ASKED | {"env": {"TORCHFT_TIMEOUT_SEC": "700"}})
    assert only_one.status == 201 and inner(only_one.body) == ["TORCHFT_TIMEOUT_SEC"]


def test_a_running_rank_replaces_what_was_stated(api: Api) -> None:
    """In its explanation the variables that the wrapper of rank 0 sees count, and only those of the present attempt."""
    store = api.functions.store
    running = {"status": JobStatus.RUNNING, "launched": True, "instances": plan().instances}
    store.create_job(job(attempt=1, spec=spec(timeouts={"--ddp_timeout": 1_800}), **running), "")
    store.begin_attempt(launched())
    report = {"type": "timeouts", "id": "t", "job": JOB, "attempt": 1, "rank": 0}
    variables = [{"name": "--ddp_timeout", "value": 2_400}, {"name": "OTHER", "value": 7}]
    (read,), left_out = observed(A, [{**report, "variables": variables}])
    store.add_observations(JOB, 2, plan().instances[0], [read.report])
    explanation = f"/jobs/{JOB}/explain"
    assert [warning["inner_s"] for warning in api.get(explanation).body["timeout_warnings"]] == [1_800]
    store.add_observations(JOB, 1, plan().instances[0], [read.report])
    assert left_out == 0
    assert [warning["inner_s"] for warning in api.get(explanation).body["timeout_warnings"]] == [2_400]
    assert [warning["inner_s"] for warning in api.get(f"/jobs/{JOB}").body["timeout_warnings"]] == [1_800]

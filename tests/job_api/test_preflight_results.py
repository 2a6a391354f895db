"""The preflight of a job in the API: its field, and the results in the explanation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import Preflight

from tests.aws.records import JOB, job, launched, plan, spec
from tests.job_api.submissions import ASKED, with_definition
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
FIRST, SECOND = plan().instances[:2]


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def says(api: Api, instance_id: str, rank: int, *steps: dict[str, Any]) -> None:
    """The agent of an instance has reported steps of the preflight of attempt 1."""
    entry = {"type": "preflight", "id": f"p{rank}", "job": JOB, "attempt": 1, "rank": rank, "steps": list(steps)}
    (read,), left_out = observed(instance_id, [entry])
    assert left_out == 0
    api.functions.store.add_observations(JOB, 1, instance_id, [read.report])


def step(name: str, result: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "result": result, "seconds": 1.5, "sentence": "so", **more}


def running(api: Api, **fields: Any) -> None:
    """A job with two ranks that run."""
    status = {"status": JobStatus.RUNNING, "launched": True, "instances": plan().instances}
    api.functions.store.create_job(job(attempt=1, spec=spec(**fields), **status), "")
    api.functions.store.begin_attempt(launched())


@pytest.mark.parametrize("policy", ["off", "quick"])
def test_a_job_says_whether_its_ranks_run_a_preflight(api: Api, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """Without a word the policy of the deployment decides. Another word is refused."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"preset": "adaptive", "preflight": policy}))
    with_definition(api)
    asked: tuple[dict[str, str], ...] = ({}, {"preflight": "quick"}, {"preflight": "off"})
    shown = [api.post("/jobs", ASKED | given).body["preflight"] for given in asked]
    assert shown == [policy, "quick", "off"]
    assert "off, quick" in refused(api.post("/jobs", ASKED | {"preflight": "deep"}), 422, "preflight")


def test_the_explanation_counts_what_passed_and_shows_what_did_not(api: Api) -> None:
    """A step that was not run is counted apart: it is no pass."""
    running(api, preflight=Preflight.QUICK)
    explanation = api.get(f"/jobs/{JOB}/explain").body["preflight"]
    assert (explanation["ranks"], explanation["reported"], explanation["others"]) == (len(plan().instances), 0, [])
    says(api, FIRST, 0, step("gpu_count", "passed"), step("dcgm_level_1", "not_run"), step("nccl_loopback", "passed"))
    says(api, SECOND, 1, step("gpu_count", "passed"), step("nccl_loopback", "inconclusive", error="NCCL WARN"))
    found = api.get(f"/jobs/{JOB}/explain").body["preflight"]
    assert (found["attempt"], found["reported"]) == (1, 2)
    assert found["passed"] == {"gpu_count": 2, "nccl_loopback": 1} and found["not_run"] == {"dcgm_level_1": 1}
    (other,) = found["others"]
    assert (other["rank"], other["instance_id"], other["result"]) == (1, SECOND, "inconclusive")
    assert other["sentence"] == "so (NCCL WARN)"
    assert found["apart"] == {SECOND: "its preflight: nccl_loopback inconclusive: so"}


def test_without_a_preflight_nothing_is_read_or_shown(api: Api) -> None:
    """The field is there, and empty."""
    running(api)
    says(api, FIRST, 0, step("gpu_count", "failed"))
    assert api.get(f"/jobs/{JOB}/explain").body["preflight"] is None
    assert api.get(f"/jobs/{JOB}").body["preflight"] == "off"

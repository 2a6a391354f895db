"""The recovery contract of a job in the API: its fields, what a submission says of it, and the bill afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.job.downtime import DownPhase, Downtime, LossCause

from tests.aws.records import JOB, NOW, A, B, instance, job, later
from tests.core.event_history.recorded import COURSE, OPENED, recovery
from tests.job_api.submissions import ASKED
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions
from tests.lambdas.test_event_recorder import deliver

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
BOUND = ASKED | {"max_down_minutes": 5, "max_lost_minutes": 60, "checkpoint_every_s": 600, "max_runtime_s": 864_000}
BILL = {
    "down_s": 550,
    "phases": {"notice": 10, "stop": 12, "check": 138, "repair": 360, "start": 30},
    "repeated_s": 90,
    "cause": "hardware",
    "recovered": True,
    "kept": False,
}
"""The bill of the course of an incident."""


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def expected(api: Api, **changes: Any) -> dict[str, Any]:
    """What a dry run expects of the job."""
    answer = api.call("POST", "/api/v2/jobs", BOUND | changes, dry_run="1")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body["recovery_expectation"]
    return found


def test_a_contract_that_cannot_be_met_is_accepted_with_the_figures_and_what_would_meet_it(api: Api) -> None:
    """A warning and no refusal. The submission says the same as its dry run."""
    found = expected(api)
    assert found["is_met"] is False and found["down_p95_s"] > 300 and found["down_kept"] < 0.95
    assert found["alternatives"] and all(each["down_p95_s"] <= 300 for each in found["alternatives"])
    assert any("not met" in sentence for sentence in found["sentences"])
    assert any("this would meet it: " in sentence for sentence in found["sentences"])
    created = api.post("/jobs", BOUND)
    assert created.status == 201 and created.body["recovery_expectation"] == found
    read = api.get(f"/jobs/{created.body['job_id']}").body
    assert (read["max_down_minutes"], read["max_lost_minutes"], read["checkpoint_every_s"]) == (5, 60, 600)
    assert read["recovery_expectation"] is None and read["downtime"] is None and read["lost_s"] == {}


def test_a_fleet_without_figures_gets_the_published_rate_and_a_sentence_that_says_so(api: Api) -> None:
    """6.5 incidents of 1,000 instances a day."""
    found = expected(api)
    assert found["rate_per_1000_instance_days"] == 6.5 and found["own_incidents"] == found["own_recoveries"] == 0
    assert found["incidents"] == pytest.approx(6.5 / 1_000 * 2 * 10, abs=1e-3)
    assert any("published rate of 6.5" in one and "no figures yet" in one for one in found["sentences"])
    assert found["rate_source"] == "published"


def test_the_fleets_own_incidents_are_counted_and_their_times_are_used(api: Api) -> None:
    """From the events alone: the bill of the recovery is in its event."""
    before = expected(api)
    deliver(api, *COURSE[:-1], recovery(11, "Succeeded", 610, attempt=2, bill=BILL))
    api.functions.now = OPENED + timedelta(hours=1)
    found = expected(api)
    assert (found["own_incidents"], found["own_recoveries"]) == (1, 1) and found["own_gpu_days"] > 0
    assert found["down_p50_s"] != before["down_p50_s"] or found["down_kept"] != before["down_kept"]
    assert any("too few for a rate of its own" in one for one in found["sentences"])
    assert found["rate_source"] == "blended"
    (incident,) = [one for one in api.get("/incidents").body["incidents"] if one["job_id"]]
    assert incident["bill"] == BILL | {"lost_s": 640}


def test_the_idle_instances_beyond_the_job_are_its_spares(api: Api) -> None:
    """Without one, half of the recoveries wait for a repair."""
    alone = expected(api)
    for one in (A, B, "i-0c3"):
        api.functions.store.save_instance(instance(one))
    found = expected(api)
    assert (alone["spares"], found["spares"]) == (0, 1) and found["down_p50_s"] < alone["down_p50_s"] / 2
    assert any("1 spare instance(s)" in one for one in found["sentences"])


def test_an_elastic_job_counts_its_spares_from_its_least_width(api: Api) -> None:
    """It continues at once on fewer instances, so it waits for no repair. A warm spare needs an instance beyond it."""
    for one in (A, B, "i-0c3"):
        api.functions.store.save_instance(instance(one))
    wide, elastic = expected(api, nnodes=3), expected(api, nnodes={"min": 2, "max": 3}, warm_spares=1)
    assert (wide["spares"], elastic["spares"]) == (0, 1) and elastic["down_p50_s"] < wide["down_p50_s"] / 2
    assert any("1 instance(s) beyond the least width of 2 are idle now" in one for one in elastic["sentences"])


def test_no_progress_reports_are_assumed_unless_the_job_states_them(api: Api) -> None:
    """A sentence says how to state them. With them a hang is noticed sooner, and they are no advice."""
    silent, stated = expected(api), expected(api, reports_progress=True)
    told = "no progress reports are assumed: state reports_progress: true if the program reports progress"
    assert (silent["reports_progress"], told in silent["sentences"]) == (False, True)
    assert (stated["reports_progress"], told in stated["sentences"]) == (True, False)
    assert stated["lost_p95_s"] <= silent["lost_p95_s"] and stated["down_kept"] >= silent["down_kept"]
    assert not any("progress_reports" in each["changes"] for each in stated["alternatives"])
    assert expected(api, progress_timeout_s=600)["reports_progress"] is True
    assert expected(api, progress_timeout_s=600, reports_progress=False)["reports_progress"] is False
    created = api.post("/jobs", BOUND | {"reports_progress": True})
    assert api.get(f"/jobs/{created.body['job_id']}").body["reports_progress"] is True


def test_without_a_contract_nothing_is_read_and_nothing_is_said(api: Api) -> None:
    """A submission without a contract costs what it did."""
    api.functions.aws.operations()
    answer = api.call("POST", "/api/v2/jobs", ASKED, dry_run="1")
    assert answer.body["recovery_expectation"] is None
    asked = api.functions.aws.asked("Query")
    assert not any("incidents" in str(one.get("ExpressionAttributeValues")) for one in asked)


def test_a_history_that_does_not_answer_costs_no_submission(api: Api) -> None:
    """The job is stored, and the answer says which figures are missing."""
    item = {"stream": {"S": "incidents"}, "at": {"S": "2026-11-21T08:00:00.000Z#x"}, "0#job": {"S": "no JSON"}}
    api.functions.aws.client("dynamodb").put_item(TableName="gpu-recovery-event-history", Item=item)
    created = api.post("/jobs", BOUND)
    assert created.status == 201
    found = created.body["recovery_expectation"]
    assert found["rate_source"] == "unread" and found["rate_per_1000_instance_days"] == 6.5
    assert any("published figures are used" in one for one in found["sentences"])
    assert not any("no figures yet" in one for one in found["sentences"])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"max_down_minutes": 0}, "max_down_minutes"),
        ({"max_lost_minutes": 1_441}, "max_lost_minutes"),
        ({"checkpoint_every_s": "often"}, "checkpoint_every_s"),
        ({"max_down_minutes": 30, "max_lost_minutes": 10}, "max_lost_minutes"),
    ],
)
def test_a_contract_that_makes_no_sense_is_refused(api: Api, changes: dict[str, Any], field: str) -> None:
    """The answer names the field."""
    refused(api.post("/jobs", BOUND | changes), 422, field)


def test_the_open_downtime_of_a_job_is_shown_with_its_bill(api: Api) -> None:
    """In its view and in its explanation: what it has cost so far, and when the limit passes."""
    api.functions.now = later(900)
    down = Downtime(1, NOW, DownPhase.WAIT, later(300), {"notice": 60, "stop": 240}, cause=LossCause.NETWORK)
    record = job(downtime=down, limit_at=later(1_200), lost_s={"network": 30})
    api.functions.store.create_job(replace(record, spec=replace(record.spec, max_down_minutes=20)), "")
    view = api.get(f"/jobs/{JOB}").body
    assert view["downtime"] == api.get(f"/jobs/{JOB}/explain").body["downtime"]
    assert view["downtime"]["phases"] == {"notice": 60, "stop": 240, "wait": 600}
    assert (view["downtime"]["down_s"], view["downtime"]["kept"], view["downtime"]["phase"]) == (900, True, "wait")
    assert view["recovery_limit_at"] is not None
    assert view["lost_s"] == {"network": 30}

"""One id from the event to the e-mail: the log, the record, the bus, the message and its attributes have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.identifiers import attempt_id

from tests.aws.ecs_events import rank_event
from tests.aws.records import JOB
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
INCIDENT = attempt_id(JOB, 1)
LAMBDAS = Path(__file__).parents[2] / "lambdas"


def fails(event_id: str) -> dict[str, Any]:
    """A rank ends by a signal; `event_id` is what EventBridge calls this delivery."""
    return {**rank_event(JOB, 1, 0, "STOPPED", exit_code=134), "id": event_id}


def test_an_incident_is_followed_by_one_id_from_the_event_to_the_mail(functions: Functions) -> None:
    """Whoever has the id from any of these finds all the others."""
    gang(functions)
    functions.call("ecs_task_handler", fails("6a7e8feb-b491-4cf7-a9f1-bf3703467718"))
    aws = functions.aws
    (line,) = functions.logged("job_decided")
    assert (line["incident_id"], f"{line['job_id']}/{line['version']}") == (INCIDENT, f"{JOB}/2")
    assert functions.job().incident_id == INCIDENT
    details = [json.loads(entry["Detail"]) for asked in aws.asked("PutEvents") for entry in asked["Entries"]]
    assert len(details) == 2
    for detail in details:
        assert detail["metadata"]["correlation_id"] == INCIDENT == detail["data"]["incident_id"]
        assert detail["metadata"]["causation_id"] == f"{JOB}/2"
    (mail,) = aws.asked("Publish")
    attributes = {name: one["StringValue"] for name, one in mail["MessageAttributes"].items()}
    assert attributes["correlation_id"] == attributes["incident_id"] == INCIDENT
    assert (attributes["event_type"], attributes["job_id"]) == ("opened", JOB)
    assert f"correlation id {INCIDENT}" in mail["Message"]
    assert f"decision {JOB}/2" in mail["Message"]


def test_the_id_of_an_event_is_looked_up_by_and_never_believed(functions: Functions) -> None:
    """The same event under another id is the same event; its id is in the log and nowhere else."""
    gang(functions)
    functions.call("ecs_task_handler", fails("first-delivery"))
    functions.call("ecs_task_handler", fails("second-delivery"))
    assert functions.aws.asked("Publish") == [] and len(functions.logged("job_decided")) == 1
    assert functions.logged("job_decided")[0]["correlation_id"] == "first-delivery"
    kept = json.dumps(functions.kept(), default=str)
    assert "delivery" not in kept


def test_no_function_imports_the_x_ray_sdk() -> None:
    """Lambda itself traces each invocation. The SDK of X-Ray would add a third to the cold start of the API."""
    assert [
        path.stem for path in sorted(LAMBDAS.rglob("*.py")) if re.search(r"Tracer|aws_xray", path.read_text())
    ] == []

"""One id from the event to the e-mail: the log, the record, the bus, the message and its attributes have it."""

from __future__ import annotations

import ast
import json
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


def test_only_the_api_pays_for_a_tracer_and_it_keeps_answers_out_of_traces() -> None:
    """It costs an event's function 40 % of its start; and an answer may hold what a user wrote."""
    traced = {}
    for path in sorted(LAMBDAS.glob("*.py")):
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        captures = [call for call in calls if call.func.attr == "capture_lambda_handler"]  # type: ignore[attr-defined]
        if captures or "Tracer" in path.read_text():
            traced[path.stem] = [
                {word.arg: ast.literal_eval(word.value) for word in call.keywords} for call in captures
            ]
    assert traced == {"job_api": [{"capture_response": False}]}

"""The HTTP API in front of a scene: the routes as deployed, on the scene's store, with no way to the cluster."""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass
from typing import Any

from gpu_recovery.aws.attempt_store import DynamoAttemptHistory
from gpu_recovery.aws.http_resolver import resolver
from gpu_recovery.aws.submission_store import DynamoSubmissions
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.capacity import Capacity
from gpu_recovery.job_api.dependencies import Dependencies, Deployment, LogPage
from gpu_recovery.job_api.router import ROUTES
from gpu_recovery.job_api.task_definition import TaskDefinitionRules

from ray_runner import handler as function
from tests.lambdas.conftest import Context
from tests.ray_runner.recovery_system import Scene

TOKEN = "the operator's"


class Invoked:
    """`job_api.dependencies.RayLogs`: the function is called as Lambda calls it, with JSON in and out."""

    def read(self, submission_id: str, most: int, place: str | None, *, grows: bool) -> LogPage:
        question = {"logs": submission_id, "tail": most, "after": int(place) if place else None, "grows": grows}
        answer = json.loads(json.dumps(function.handler(json.loads(json.dumps(question)), Context("ray_runner"))))
        return LogPage(tuple((None, line) for line in answer["logs"].splitlines()), str(answer["end"]))


@dataclass
class Api:
    """The API as an operator calls it."""

    scene: Scene

    def __post_init__(self) -> None:
        self._app = resolver(ROUTES, self._desk)

    def _desk(self) -> Dependencies:
        store: Any = self.scene.store
        nobody: Any = None  # only the operator calls
        return Dependencies(
            recovery=self.scene.afar,
            submissions=DynamoSubmissions(store.jobs.client, store.jobs.name, store.table.name),
            attempts=DynamoAttemptHistory(store.jobs.client, store.jobs.name),
            capacity=Capacity(lambda statuses: store.instances_in(statuses, [])),
            logs=nobody,
            node_tokens=nobody,
            user_tokens=nobody,
            users=nobody,
            node_token_key=nobody,
            user_token_key=nobody,
            cursor_key=TOKEN.encode,
            session_key=TOKEN.encode,
            dead_letters=nobody,
            operator_token=lambda: TOKEN,
            describe=lambda name: None,
            random=lambda: secrets.token_hex(2),
            rules=TaskDefinitionRules(("gpu-training",)),
            priority_max=Priority.HIGH,
            job_id_prefix="",
            deployment=Deployment("cluster", "eu-central-1", "off"),
            log=logging.getLogger("api"),
            history=nobody,
            user_directory=nobody,
            verdicts=nobody,
            ray_logs=Invoked(),
        )

    def call(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        """(status, body) of an answer."""
        event = {
            "version": "2.0",
            "routeKey": "ANY /{proxy+}",
            "rawPath": f"/api/v2{path}",
            "rawQueryString": "",
            "headers": {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
            "queryStringParameters": query or None,
            "isBase64Encoded": False,
            "body": None if body is None else json.dumps(body),
            "requestContext": {"http": {"method": method, "path": path}, "stage": "$default", "requestId": "r-1"},
        }
        context: Any = Context("job_api")
        answer = self._app.resolve(event, context)
        return answer["statusCode"], json.loads(answer["body"])

    def submit(self, **fields: Any) -> str:
        """The id of a new job on Ray."""
        status, made = self.call("POST", "/jobs", {"backend": "ray", "nnodes": 1, "n_gpus_per_node": 8, **fields})
        assert status == 201, made
        self.scene.jobs.append(made["job_id"])
        return str(made["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        """The job as a reader sees it."""
        status, view = self.call("GET", f"/jobs/{job_id}")
        assert status == 200, view
        return dict(view)

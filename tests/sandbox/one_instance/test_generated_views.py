"""Clients that are generated from docs/openapi.json read every view of a real deployment back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.openapi_document import operation_id
from gpu_recovery.job_api.router import OPENAPI, ROUTES

from tests.client_generators.generated import generate, read_back
from tests.sandbox.api_clients import operator
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
SPEC = {
    "workload": "sft",
    "nnodes": 1,
    "n_gpus_per_node": 8,
    "task_definition": "gpu-training",
    "env": {"TOTAL_STEPS": "100000"},
    "checkpoint_dir": "/tmp/checkpoints",
}


def test_generated_clients_read_every_view(state: dict[str, Any], tmp_path: Path) -> None:
    """Of a job that runs, of its instance, and of all lists."""
    answers: dict[str, tuple[str, Any]] = {}
    with operator(state) as client:
        job_id = client.post("/jobs", json=SPEC).json()["job_id"]
        try:
            wait_until(lambda: client.get(f"/jobs/{job_id}").json()["status"] == "RUNNING")
            machine = client.get("/instances").json()["instances"][0]["instance_id"]
            client.post("/users/ana/tokens", json={"role": "user"}).raise_for_status()
            named = {"job_id": job_id, "instance_id": machine, "user": "ana", "name": "gpu-0", "number": "1"}
            for route in ROUTES:
                if route.method == "GET" and route.path != OPENAPI:
                    path = re.sub(r"<(\w+)>", lambda part: named.get(part[1], "none"), route.path)
                    needed = {"job_id": job_id, "since": "2026-01-01T00:00:00Z"}
                    query = {each.name: needed[each.name] for each in route.query if each.required}
                    answer = client.get(path.removeprefix("/api/v2"), params=query)
                    schema = route.answers[200] if answer.status_code == 200 else "Problem"
                    assert answer.status_code in (200, 404), (path, answer.text)
                    answers[operation_id(route)] = (schema, answer.json())
            log = client.post("/diagnoses", json={"log": "NCCL WARN", "name": "a"})
            answers["make_diagnosis"] = ("LogFindings", log.json())
        finally:
            client.post(f"/jobs/{job_id}/cancel")
    generate(tmp_path)
    assert answers["read_job"][1]["attempts"][0]["failure_kind"] is None
    assert sum(schema == "Problem" for schema, _ in answers.values()) <= 2, "an incident, and the document of a check"
    assert {name: told for name, told in read_back(tmp_path, answers).items() if told} == {}

"""What a function does at its cold start. Modules, dataclasses, garbage collections and folders are counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.exceptions import DataNotFoundError
from gpu_recovery.aws import sdk_session

from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.markdown import ROOT

PROGRAM = """
import gc, json, sys
collected = []
def note(phase, info):
    if phase == "start" and "gpu_recovery.aws" in sys.modules:
        collected.append(info["generation"])
gc.callbacks.append(note)
import importlib
importlib.import_module(sys.argv[1])
from gpu_recovery.core import lazy_dataclass
made = []
for module in list(sys.modules.values()):
    for each in vars(module).values() if module.__name__.startswith("gpu_recovery.") else ():
        if isinstance(each, type) and isinstance(each.__dict__.get("__dataclass_fields__"), dict):
            made.append(each.__name__)
modules = [name for name in sys.modules if name.startswith(("gpu_recovery", "pydantic", "aws_xray_sdk"))]
print(json.dumps({"modules": modules, "made": sorted(set(made)), "collected": len(collected)}))
"""
"""Import a handler. Print the modules, the dataclasses whose methods were generated, and the garbage collections."""
NOT_FOR_EVENTS = (
    "gpu_recovery.auth.tokens",
    "gpu_recovery.aws.api_wiring",
    "gpu_recovery.aws.event_history_store",
    "gpu_recovery.aws.gpu_history_store",
    "gpu_recovery.aws.job_archive",
    "gpu_recovery.aws.ray_client",
    "gpu_recovery.core.diagnosis.diagnose",
    "gpu_recovery.core.console_snapshots",
    "gpu_recovery.core.logs",
    "gpu_recovery.core.redaction",
    "gpu_recovery.execution.evidence",
    "gpu_recovery.execution.ray",
    "gpu_recovery.node_api",
    "gpu_recovery.wire",
    "pydantic",
    "aws_xray_sdk",
)
"""Modules that the functions behind ECS events need for few events or for none."""
READ_BY_LISTS = {"Entry", "ListedInstance", "ListedJob", "SecretForm"}
"""Dataclasses of lists and of log lines: no import may use them."""


def _started(handler: str) -> dict[str, Any]:
    environment = {**os.environ, **FUNCTION, **CREDENTIALS, "PYTHONPATH": str(ROOT / "lambdas")}
    command = [sys.executable, "-c", PROGRAM, handler]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    started: dict[str, Any] = json.loads(made.stdout)
    return started


def test_an_event_function_imports_and_makes_only_what_its_events_need() -> None:
    """A recovery waits for this start. Each module that is imported for nothing adds to it."""
    started = _started("ecs_task_handler")
    assert [name for name in started["modules"] if name.startswith(NOT_FOR_EVENTS)] == []
    assert not READ_BY_LISTS & set(started["made"])
    assert len(started["modules"]) <= 200
    assert len(started["made"]) <= 15
    assert started["collected"] <= 1


def test_the_first_client_looks_into_no_folder_of_another_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore looks into the folder of each service of AWS, twice. That is a third of the client's creation."""
    opened: list[str] = []
    listdir = os.listdir

    def counted(path: str) -> list[str]:
        opened.append(str(path))
        return listdir(path)

    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    sdk_session.ensure_default_session()
    monkeypatch.setattr(os, "listdir", counted)
    with_ours = boto3.client("sqs", region_name="us-east-1", **_KEYS)
    assert 0 < len(opened) <= 12
    monkeypatch.setattr(os, "listdir", listdir)
    of_botocore = botocore.session.get_session().create_client("sqs", region_name="us-east-1", **_KEYS)
    assert with_ours.meta.service_model.operation_names == of_botocore.meta.service_model.operation_names
    assert with_ours.meta.endpoint_url == of_botocore.meta.endpoint_url


def test_an_unknown_service_is_still_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is no service is not taken for one."""
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    sdk_session.ensure_default_session()
    with pytest.raises(Exception, match="Unknown service: 'sqss'"):
        boto3.client("sqss", region_name="us-east-1")  # type: ignore[call-overload]
    assert boto3.DEFAULT_SESSION is not None
    loader = boto3.DEFAULT_SESSION._session.get_component("data_loader")
    with pytest.raises(DataNotFoundError):
        loader.load_service_model("sqs", "service-99")


def test_a_session_that_exists_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer or a test may have made its own."""
    own = boto3.Session()
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", own)
    sdk_session.ensure_default_session()
    assert boto3.DEFAULT_SESSION is own


_KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}

"""What programs outside the stack read or set: metrics, the APIs, events, settings."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

from gpu_recovery.aws.item_codec import encode
from gpu_recovery.aws.notification_requests import SCHEMA_VERSION, chat_request, event_entry, mail_request
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.event_origin import OWN_SOURCE
from gpu_recovery.core.metrics import METRICS, NAMESPACE, SERVICE
from gpu_recovery.core.policy import PRESETS, RecoveryPolicy
from gpu_recovery.node_api.report_parser import parse_gpu_report, parse_report, parse_task_report

from infra import settings as deployment
from tests.aws.environment import CLUSTER, TOPIC
from tests.aws.records import A, job
from tests.stored_names.messages import unpacked
from tests.stored_names.spellings import ROOT, trees

OBJECTS = ("health", "inventory")
LISTS = ("running", "exits", "xids", "sxids", "tasks", "gpus")
SENT = {
    "boot_id": "0b7f3c1e-6a55-4e0c-9f3b-2a9c7d1e4f60",
    "uptime_s": 1,
    "sequence": 1,
    "job": job().job_id,
    "attempt": 1,
    "rank": 0,
    "pid": 1,
    "ticks": 1,
    "code": 1,
    "xid": 79,
    "sxid": 1,
    "fatal": True,
    "status": "ok",
    "uuid": "GPU-1",
}
"""A value for each field of a report that cannot be left out, wherever it stands."""


def metrics() -> dict[str, Any]:
    """Name and unit of every metric, with the namespace and the value of the only dimension."""
    units = {name: kind.unit.value for name, kind in METRICS.items()}
    return {"namespace": NAMESPACE, "service": SERVICE, "metrics": units}


def api() -> dict[str, Any]:
    """The operations of the job API with their parameters and answers, and the properties of every schema."""
    described = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    operations = {
        f"{method.upper()} {path}": [
            operation["operationId"],
            *(f"{one['in']} {one['name']}" for one in operation.get("parameters", [])),
            *sorted(operation["responses"]),
            *sorted(one for one in set(_properties(operation)) if "components/schemas" in one),
        ]
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    schemas = {name: sorted(_properties(schema)) for name, schema in described["components"]["schemas"].items()}
    return {"operations": operations, "schemas": schemas}


def events() -> dict[str, Any]:
    """The properties of the events and of the chat message, from the schemas that `docs/events` promises."""
    found = {
        path.name: sorted(_properties(json.loads(path.read_text(encoding="utf-8"))))
        for folder in ("docs/events", "health_check")
        for path in sorted((ROOT / folder).glob("*.schema.json"))
    }
    message = NotifyOperator("incident-1", "SEV2", "subject", "body", "opened", job().job_id, A)
    told = PublishEvent("Job State Changed", {"job_id": job().job_id})
    return {
        "source": OWN_SOURCE,
        "schema version": SCHEMA_VERSION,
        "schemas": found,
        "event entry": unpacked(event_entry(told, "cause", "gpu-recovery")),
        "mail": mail_request(message, TOPIC, CLUSTER),
        "chat": unpacked(chat_request(message, TOPIC, CLUSTER)),
    }


def node_api() -> dict[str, Any]:
    """The fields that each call of an agent is read for; `[]` marks an entry of a list."""
    calls = {
        "/api/v1/reports": parse_report,
        "/api/v1/report_tasks": parse_task_report,
        "/api/v1/report_gpu": parse_gpu_report,
    }
    read = {}
    for path, call in calls.items():
        asked = set[str]()
        call(A, _Body(asked))
        read[path] = sorted(asked)
    return read


class _Body(dict[str, Any]):
    """The body of a report that has every field, and writes down what is asked of it."""

    def __init__(self, asked: set[str], where: str = "") -> None:
        super().__init__(SENT)
        self._asked, self._where = asked, where

    def get(self, name: str, default: Any = None) -> Any:
        place = f"{self._where}{name}"
        self._asked.add(place)
        if name in OBJECTS:
            return _Body(self._asked, f"{place}.")
        if name in LISTS and not self._where.startswith(name):
            return [_Body(self._asked, f"{place}[].")]
        return SENT.get(name, default)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)


def refusals() -> list[str]:
    """Status and code of every refusal: calls whose first two arguments are such a status and a word."""
    found = set[str]()
    for tree in trees("lambdas"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                match node.args[:2]:
                    case [ast.Constant(value=int() as status), ast.Constant(value=str() as code)]:
                        found |= {f"{status} {code}"} if 400 <= status <= 599 else set()
    return sorted(found)


def settings() -> dict[str, Any]:
    """The policy with its presets, and the context keys of a deployment with their defaults."""
    usual = {one.name: encode(one.default) for one in fields(RecoveryPolicy)}
    changed = {
        name.value: {field: encode(getattr(preset, field)) for field in usual} for name, preset in PRESETS.items()
    }
    keys = {
        deployment.NAMESPACE + one.name: one.default if one.default is not MISSING else "made"
        for one in fields(deployment.DeploymentSettings)
    }
    return {
        "policy": usual,
        "presets": {name: {k: v for k, v in values.items() if v != usual[k]} for name, values in changed.items()},
        "context keys": keys,
    }


def _properties(schema: Any, where: str = "") -> Iterator[str]:
    """The paths of the properties in a JSON schema, and the values, the needed fields and the schemas it names."""
    if isinstance(schema, list):
        for one in schema:
            yield from _properties(one, where)
    if not isinstance(schema, dict):
        return
    for name, inner in schema.items():
        if name in ("const", "enum", "required", "$ref"):
            yield f"{where} {name} {json.dumps(inner)}".strip()
        elif name == "properties":
            for each, value in inner.items():
                yield f"{where}.{each}"
                yield from _properties(value, f"{where}.{each}")
        elif name not in ("default", "examples", "example"):
            yield from _properties(inner, where)

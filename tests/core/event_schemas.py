"""The committed schemas of the events that we publish, and the detail of an event as a consumer reads it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from gpu_recovery.aws import notification_requests
from gpu_recovery.core.commands import PublishEvent

EVENTS = Path(__file__).parents[2] / "docs" / "events"
DETAIL_TYPES = (
    "Job State Changed",
    "Instance State Changed",
    "Recovery Started",
    "Recovery Succeeded",
    "Recovery Failed",
    "Operator Action Required",
)


@cache
def schema(name: str) -> dict[str, Any]:
    """A committed schema by the name of its file."""
    found: dict[str, Any] = json.loads((EVENTS / f"{name}.schema.json").read_text())
    return found


@cache
def of_type(detail_type: str) -> jsonschema.Draft202012Validator:
    """The validator of a detail type."""
    return jsonschema.Draft202012Validator(schema(detail_type.lower().replace(" ", "-")))


def detail(event: PublishEvent, causation_id: str = "sft-1/2") -> dict[str, Any]:
    """The detail as a consumer reads it."""
    entry = notification_requests.event_entry(event, causation_id, "gpu-recovery")
    assert (entry["Source"], entry["DetailType"]) == ("gpu.recovery", event.detail_type)
    found: dict[str, Any] = json.loads(entry["Detail"])
    return found

"""Answers to every request of the console, made of the examples of docs/openapi.json, without a deployment.

The examples are answers that tests have recorded. `changes` adds what an operator meets in a bad night: limits that
hold repairs back, instances that are quarantined for each reason, an open incident with a diagnosis, and long names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.fake.model import Size
from console.fake.server import running

DOCS = Path(__file__).parents[3] / "docs"
INSTANCE, OTHER, THIRD = "i-0aaaaaaaaaaaaaaaa", "i-0bbbbbbbbbbbbbbbb", "i-0ccccccccccccccccc"
JOB = "team-vision/pretrain-of-a-model-with-a-long-name-20261121-090000-0a1b"
INCIDENT = f"{JOB}--a01"
USER = "ana.de-la-fuente@research.example.org"
AT = "2026-11-21T09:00:00.000Z"
SENTENCE = "kernel log: XID_79 on /dev/nvidia3 of 0000:3b:00.0, and_a_word_that_is_longer_than_a_line_of_a_telephone"
PLACES = (
    *("#/", "#/jobs", "#/queue", "#/submit", "#/instances", "#/incidents", "#/fleet", "#/users", "#/users/ana"),
    "#/diagnose",
    f"#/incidents/{INCIDENT.replace('/', '%2F')}",
    *(
        f"#/jobs/{JOB.replace('/', '%2F')}?tab={tab}"
        for tab in ("timeline", "why", "log", "attempts", "diagnosis", "spec")
    ),
    *(f"#/instances/{INSTANCE}?tab={tab}" for tab in ("history", "gpus", "jobs", "tokens")),
    f"#/instances/{INSTANCE}?tab=checks&check=2",
)
"""The address of every page and of each of its views."""
DIAGNOSIS = {
    "attempt": 1,
    "cause": "GPU_FAULT",
    "confidence": 97,
    "decided": True,
    "remedy": "CHECK",
    "instances": [INSTANCE],
    "gpus": ["GPU 3"],
    "where": f"instance {INSTANCE}",
    "sentence": SENTENCE,
}


def quarantined(name: str, **changes: Any) -> dict[str, Any]:
    """An instance that is quarantined."""
    return {
        **deepcopy(example("list_instances")["instances"][0]),
        "instance_id": name,
        "status": "QUARANTINED",
        "reason": SENTENCE,
        "quarantined_by": None,
        "held": None,
        "claims": {JOB: 1},
        "rack": "rack-1",
        "availability_zone": "use1-az1",
        "incident_id": INCIDENT,
        **changes,
    }


def event(version: int, kind: str, **changes: Any) -> dict[str, Any]:
    """An event about an instance that is quarantined."""
    return {
        **deepcopy(example("list_events")["events"][0]),
        "id": f"{INSTANCE}/{version}/{kind}",
        "kind": kind,
        "instance_id": INSTANCE,
        "job_id": None,
        "at": AT,
        "incident_id": INCIDENT,
        "before": "CHECKING",
        "after": "QUARANTINED",
        "reason": SENTENCE,
        "check_id": "2",
        **changes,
    }


def _events() -> list[dict[str, Any]]:
    message = {"severity": "SEV2", "subject": f"{INSTANCE}: quarantined, needs an operator"}
    failure = {"rank": 1, "instance_id": INSTANCE, "exit_code": 134, "at": AT, "sentence": SENTENCE}
    return [
        event(1, "recovery_started", instance_id=None, job_id=JOB, before=None, after=None, failure=failure),
        event(2, "instance_state_changed", diagnosis=DIAGNOSIS),
        event(2, "operator_action_required", before=None, after=None, message=message),
    ]


def _limits() -> dict[str, Any]:
    outs = ("held", "quarantined", "repair", "draining", "orphaned", "impaired", "lost", "leaving", "disconnected")
    return {
        "deaf": {"because": SENTENCE, "since": AT, "incident_id": "outage/1"},
        "observe_only": True,
        "pause": {"by": "eve", "because": SENTENCE, "at": AT},
        "repairing": [OTHER],
        "for_a_person": [
            {"instance_id": INSTANCE, "since": AT, "because": SENTENCE, "quarantined_by": None},
            {"instance_id": THIRD, "since": AT, "because": f"quarantined by eve: {SENTENCE}", "quarantined_by": "eve"},
        ],
        "out_of_use": [{"instance_id": INSTANCE, "kind": kind, "since": AT, "because": SENTENCE} for kind in outs],
    }


def _job() -> dict[str, Any]:
    attempt = {"failure_kind": "HARDWARE", "message": SENTENCE, "exit_code": 134, "started_at": AT, "counted": True}
    return {
        "job_id": JOB,
        "user": USER,
        "group": "a100",
        "priority": "HIGH",
        "asked_priority": "LOW",
        "incident_id": INCIDENT,
        "reason": SENTENCE,
        "short_of": "held",
        "diagnosis": DIAGNOSIS,
        "checkpoint_dir": "/fsx/" + "a" * 80,
        "attempts": [{**each, **attempt} for each in example("read_job")["attempts"]],
    }


def _instance() -> dict[str, Any]:
    return {
        **quarantined(INSTANCE, quarantined_by="eve", reason=f"quarantined by eve: {SENTENCE}"),
        "need": {"rung": "REBOOT", "evidence": SENTENCE, "seen_at": AT, "job_id": JOB},
        "departure": {"kind": "MAINTENANCE", "leaves_at": AT, "source": "EC2", "sentence": SENTENCE},
        "lemon": {"score": 60, "made_of": SENTENCE, "signals": {}},
        "history": [
            {
                "at": AT,
                "attempt": 1,
                "event": "HealthReported",
                "from": "CHECKING",
                "to": "QUARANTINED",
                "reason": SENTENCE,
            }
        ],
        "deadline_at": AT,
        "boot_id": "0a1b2c3d-0000",
        "booted_at": AT,
    }


def _incident() -> dict[str, Any]:
    return {
        "incident_id": INCIDENT,
        "job_id": JOB,
        "state": "open",
        "outcome": None,
        "closed_at": None,
        "user": USER,
        "cause": "GPU_FAULT",
        "gpu_h_lost": 0.004,
        "reason": SENTENCE,
        "recovered_at": None,
        "left_out": 3,
    }


def _check() -> dict[str, Any]:
    finding = {
        "gpu_index": 3,
        "source": "dcgm",
        "test": "memory",
        "code": "DCGM_FR_ROW_REMAP_FAILURE",
        "severity": "FATAL",
    }
    xid = {
        "code": 79,
        "mnemonic": "GPU_LOST",
        "class": "hardware",
        "gpu_index": 3,
        "pci_bus_id": "0000:3b:00.0",
        "count": 1,
    }
    return {
        "document": {
            "outcome": "REBOOT",
            "summary": SENTENCE,
            "findings": [{**finding, "remedy": "REBOOT", "message": SENTENCE}],
            "xids": [{**xid, "first_at": AT, "last_at": AT}],
            "diagnostics": [{"level": 2, "gpus": None, "exit_code": 1}],
            "driver": {"gpus": [{"index": 3, "pci_bus_id": "0000:3b:00.0", "recovery_action": "RESET"}]},
        }
    }


def changes() -> dict[str, dict[str, Any]]:
    """What is changed in the examples, by the name of the operation."""
    limits = _limits()
    breaker = example("read_fleet")["breaker"] | {"probe": OTHER, "because": SENTENCE}
    held = [{"instance_id": OTHER, "since": AT, "because": SENTENCE, "rung": "REBOOT", "evidence": SENTENCE}]
    row = {**example("list_jobs")["jobs"][0], "job_id": JOB, "user": USER, "priority": "HIGH", "reason": SENTENCE}
    incident = {**example("list_incidents")["incidents"][0], **_incident()}
    shown = {name: limits[name] for name in ("deaf", "observe_only", "pause", "repairing")}
    waiting = [
        {**each, "job_id": JOB, "sentence": SENTENCE, "blockers": [JOB]} for each in example("read_queue")["waiting"]
    ]
    return {
        "read_overview": {
            "for_a_person": limits["for_a_person"],
            "for_a_person_more": 4,
            "held": 2,
            "events": _events(),
            "limits": {**example("read_overview")["limits"], **shown, "breaker": breaker},
            "incidents": [incident],
            "missing": ["dead_letters"],
            "dead_letters": None,
            "queue_as_of": AT,
        },
        "read_limits": {
            "limits": {**example("read_limits")["limits"], **limits, "breaker": breaker, "held": held},
        },
        "list_jobs": {"jobs": [row, *example("list_jobs")["jobs"]], "next_cursor": "next"},
        "read_job": _job(),
        "explain_job": {"pending": {**waiting[0], "would_suspend": [JOB]} if waiting else None},
        "read_queue": {"waiting": waiting, "groups": ["", "a100"], "as_of": AT, "waiting_more": 2},
        "list_instances": {
            "instances": [
                quarantined(INSTANCE),
                quarantined(THIRD, quarantined_by="eve"),
                quarantined(OTHER, held={"since": AT, "because": SENTENCE}, need=_instance()["need"]),
                *example("list_instances")["instances"],
            ]
        },
        "read_instance": _instance(),
        "list_incidents": {"incidents": [incident, *example("list_incidents")["incidents"]]},
        "read_incident": {**_incident(), "events": _events(), "instances": [INSTANCE, OTHER]},
        "list_events": {"events": _events()},
        "read_check": _check(),
    }


def places_of_orders() -> tuple[str, ...]:
    """Return the addresses of the incident, of the job and of the instance."""
    return tuple(place for place in PLACES if place.partition("?")[0].count("/") == 2 and "/users/" not in place)


@cache
def _examples() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "api_examples.json").read_text(encoding="utf-8"))
    return found


def example(operation: str) -> Any:
    """Return the recorded answer of an operation."""
    return deepcopy(_examples()[operation]["response"])


@cache
def _operations() -> list[tuple[str, re.Pattern[str], str]]:
    """Return method, pattern of the path, and name of each operation; paths without parameters first."""
    paths = json.loads((DOCS / "openapi.json").read_text(encoding="utf-8"))["paths"]
    found = [
        (method.upper(), path, operation["operationId"])
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method != "parameters"
    ]
    return [
        (method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + "$"), name)
        for method, path, name in sorted(found, key=lambda each: each[1].count("{"))
    ]


def operation_of(method: str, path: str) -> str:
    """Return the name of the operation of a request; "" if there is none."""
    found = (name for each, pattern, name in _operations() if each == method and pattern.search(path))
    return next(found, "")


def answer_with_examples(
    page: Any, alter: Callable[[Any], Any] = lambda answer: answer, **more: dict[str, Any]
) -> None:
    """Answer the requests of a page with the examples. The fake server answers the sign-in and the map.

    Args:
        alter: changes every answer.
        more: further changes, by the name of the operation.
    """
    changed = changes()
    for name, change in more.items():
        changed[name] = {**changed.get(name, {}), **change}

    def respond(route: Any) -> None:
        name = operation_of(route.request.method, urlsplit(route.request.url).path)
        if name in ("open_session", "read_map", "read_members") or name not in _examples():
            route.fallback()
            return
        route.fulfill(json=alter({**example(name), **changed.get(name, {})}))

    page.route(lambda url: "/api/v2/" in url, respond)


@contextmanager
def console_url() -> Iterator[str]:
    """The address of a console whose map has instances in every state."""
    with running(Size(instances=400, jobs=20, events_a_second=0)) as server:
        yield server.url

"""Outputs of `dcgmi diag -j`, composed by the tests that vary them; whole ones lie in `outputs/`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

OUTPUTS = Path(__file__).with_name("outputs")


def output(name: str) -> str:
    """The text of a file of `outputs/`."""
    return (OUTPUTS / name).read_text(encoding="utf-8")


def warning(error_id: int | None, severity: int | None = None, text: str = "what DCGM says") -> dict[str, Any]:
    """One warning of a result; `severity` None leaves it out, as releases before 3.3 do."""
    entry: dict[str, Any] = {"warning": text}
    if error_id is not None:
        entry["error_id"] = error_id
    if severity is not None:
        entry |= {"error_severity": severity, "error_category": 8}
    return entry


def result(gpu: int, status: str = "Pass", warnings: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """One result of DCGM 4 on one GPU."""
    entry: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
    return entry | ({"warnings": list(warnings)} if warnings else {})


def dcgm4(
    memory: Sequence[dict[str, Any]],
    *,
    software: Sequence[dict[str, Any]] = (),
    gpus: int | None = None,
    driver: str | None = "570.86.15",
) -> str:
    """An output of DCGM 4 with the tests `software` and `memory`; `gpus` None lists no entities."""
    entities = [{"device_id": "2330", "entity_id": index} for index in range(gpus or 0)]
    groups = [] if gpus is None else [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}]
    return json.dumps(
        {
            "DCGM Diagnostic": {
                "test_categories": [
                    {"category": "Deployment", "tests": [_test("software", software)]},
                    {"category": "Hardware", "tests": [_test("memory", memory)]},
                ]
            },
            "entity_groups": groups,
            "metadata": {"version": "4.2.3"} | ({"Driver Version Detected": driver} if driver else {}),
        }
    )


def dcgm3(failed: str, message: str | list[str], gpu: int | None = 3) -> str:
    """An output of DCGM 3 before 3.3: eight GPUs, whose errors have sentences and neither ids nor severities."""
    results: dict[str, list[dict[str, Any]]] = {
        "Page Retirement/Row Remap": [{"status": "Pass"}],
        "GPU Memory": [{"gpu_ids": str(index), "status": "Pass"} for index in range(8)],
    }
    bad = {"status": "Fail", "warnings": message} | ({} if gpu is None else {"gpu_ids": str(gpu)})
    results[failed] = [
        bad,
        *(entry for entry in results[failed] if "gpu_ids" in entry and entry["gpu_ids"] != str(gpu)),
    ]
    tests = [
        {"category": category, "tests": [{"name": name, "results": results[name]}]}
        for category, name in (("Deployment", "Page Retirement/Row Remap"), ("Hardware", "GPU Memory"))
    ]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": tests, "version": "3.1.8"}})


def _test(name: str, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    statuses = {entry["status"] for entry in results}
    worst = next((status for status in ("Fail", "Pass", "Skip") if status in statuses), "Skip")
    return {"name": name, "results": list(results), "test_summary": {"status": worst}}

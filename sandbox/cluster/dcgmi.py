"""Stand-in for NVIDIA's `dcgmi`: the JSON and the exit codes of DCGM 4, from the GPU facts of an instance.

The sandbox runs this file as a script, with the instance's folder as the first argument. The file imports only the
standard library, so it starts fast. It supports `diag -r N [-j] [-i 0,2]`, `discovery -l` and `--version`.
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

VERSION, DRIVER = "4.2.3", "580.82.09"
NVVS_ERROR, NVVS_ISOLATE_ERROR, NO_TEST = 226, 205, 198  # dcgmReturn_t -30, -51, -58 cut to eight bits
ISOLATE, RESET = 2, 6  # dcgmErrorSeverity_t
TESTS_BY_LEVEL = {
    1: [("Deployment", ["software"])],
    2: [("Integration", ["pcie"]), ("Hardware", ["memory"])],
    3: [("Hardware", ["diagnostic", "nvbandwidth"]), ("Stress", ["targeted_stress", "targeted_power"])],
    4: [("Stress", ["memtest"]), ("Hardware", ["pulse_test"])],
}
FAULTS: dict[str, dict[str, list[dict[str, Any]]]] = {
    "xid79": {
        "software": [
            {
                "error_id": 120,
                "error_category": 15,
                "error_severity": ISOLATE,
                "warning": "GPU {index} has fallen off the bus. Reset the node and run a field diagnostic.",
            }
        ],
    },
    "xid119": {
        "software": [
            {
                "error_id": 125,
                "error_category": 10,
                "error_severity": RESET,
                "warning": "The driver asks for a reset of GPU {index}. Reset the GPU.",
            }
        ],
    },
    "ecc": {
        "memory": [
            {
                "error_id": 57,
                "error_category": 10,
                "error_severity": ISOLATE,
                "warning": "CUDA detected an unrecoverable double-bit error on GPU {index}.",
            },
            {
                "error_id": 52,
                "error_category": 10,
                "error_severity": ISOLATE,
                "warning": "Faulty memory detected on GPU {index}.",
            },
        ],
    },
}


def visible(gpus: list[str], variable: str | None) -> list[int]:
    """Return the indices of the GPUs that a container sees with this value of NVIDIA_VISIBLE_DEVICES."""
    if variable in {None, "all"}:
        return list(range(len(gpus)))
    wanted = (variable or "").split(",")
    return [index for index, gpu in enumerate(gpus) if gpu in wanted or str(index) in wanted]


def named(arguments: list[str], seen: list[int]) -> list[int]:
    """Return the visible GPUs that the option `-i` names; all visible GPUs without the option."""
    for option, value in pairwise(arguments):
        if option in {"-i", "--entity-id", "--gpuList"}:
            return [index for index in seen if str(index) in value.split(",")]
    return seen


def _result(test: str, index: int, fault: str | None) -> dict[str, Any]:
    warnings = FAULTS.get(fault or "", {}).get(test, [])
    result: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": index}
    result["status"] = "Fail" if warnings else "Pass"
    if warnings:
        result["warnings"] = [w | {"warning": w["warning"].format(index=index)} for w in warnings]
    return result


def diagnose(level: int, gpus: list[str], seen: list[int], faults: dict[str, str]) -> tuple[dict[str, Any], int]:
    """Return the document that `dcgmi diag -r LEVEL -j` prints, and its exit code.

    Args:
        level: Run level, 1 to 4.
        gpus: UUIDs of the instance's GPUs, in index order.
        seen: Indices of the GPUs to test.
        faults: Kind of fault by GPU UUID.
    """
    metadata = {"Driver Version Detected": DRIVER, "version": VERSION}
    if not seen:
        return {
            "DCGM Diagnostic": {"runtime_error": "No supported GPUs were found."},
            "metadata": metadata,
        }, NO_TEST
    categories: dict[str, list[dict[str, Any]]] = {}
    severities: set[int] = set()
    for step in range(1, level + 1):
        for category, tests in TESTS_BY_LEVEL[step]:
            for test in tests:
                results = [_result(test, index, faults.get(gpus[index])) for index in seen]
                bad = any(result["status"] == "Fail" for result in results)
                severities |= {w["error_severity"] for r in results for w in r.get("warnings", [])}
                summary = {"status": "Fail" if bad else "Pass"}
                categories.setdefault(category, []).append({"name": test, "results": results, "test_summary": summary})
    entities = [{"device_id": "20b2", "entity_id": i, "serial_num": f"13220{i:08d}"} for i in seen]
    document = {
        "DCGM Diagnostic": {"test_categories": [{"category": c, "tests": t} for c, t in categories.items()]},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": metadata,
    }
    if not severities:
        return document, 0
    return document, NVVS_ISOLATE_ERROR if ISOLATE in severities else NVVS_ERROR


def main(argv: list[str]) -> int:
    """Run one `dcgmi` command (`argv`: the instance's folder, then dcgmi's arguments). Returns the exit code."""
    folder, *arguments = argv
    facts = json.loads((Path(folder) / "gpus.json").read_text())
    gpus = facts["gpus"]
    seen = visible(gpus, os.environ.get("NVIDIA_VISIBLE_DEVICES"))
    if arguments[:1] == ["--version"] or arguments[:1] == ["-v"]:
        print(f"dcgmi  version: {VERSION}")
        return 0
    if arguments[:1] == ["discovery"]:
        print(f"{len(seen)} GPUs found.")
        for index in seen:
            print(f"| {index} | Name: NVIDIA A100-SXM4-40GB | Device UUID: {gpus[index]} |")
        return 0
    if arguments[:1] != ["diag"]:
        print(f"dcgmi: unknown subsystem {' '.join(arguments)}", file=sys.stderr)
        return 1
    level = next((int(arguments[i + 1]) for i, name in enumerate(arguments[:-1]) if name in {"-r", "--run"}), 1)
    document, code = diagnose(level, gpus, named(arguments, seen), facts["faults"])
    print(json.dumps(document))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

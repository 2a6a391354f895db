"""Branch coverage of the last `make test-full`, by package: printed, and written into benchmarks/results.json.

    python -m benchmarks.branch_coverage [FILE]

FILE is what coverage.py wrote, by default `.coverage`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coverage import Coverage

from benchmarks import results

LAMBDAS = ("lambdas", "gpu_recovery")


def package_of(file: str) -> str:
    """Return the package of a file: its top-level folder, or what is below `lambdas/gpu_recovery`."""
    parts = Path(file).with_suffix("").parts
    return "/".join(parts[1:3]) if parts[:2] == LAMBDAS else parts[0]


def figures(files: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float | int]]:
    """Return by package: statements, branches, and the percentage of each that was executed.

    Args:
        files: `files` of a JSON report of coverage.py with branches, by path from the root.
    """
    keys = ("covered_lines", "num_statements", "covered_branches", "num_branches")
    sums = defaultdict[str, dict[str, int]](lambda: dict.fromkeys(keys, 0))
    for file, row in files.items():
        for key in keys:
            sums[package_of(file)][key] += row["summary"][key]
    return {
        name: {
            "statements": total["num_statements"],
            "statements_percent": _percent(total["covered_lines"], total["num_statements"]),
            "branches": total["num_branches"],
            "branches_percent": _percent(total["covered_branches"], total["num_branches"]),
        }
        for name, total in sorted(sums.items())
    }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 100.0


def measured(data_file: Path) -> dict[str, dict[str, float | int]]:
    """Return the figures of a data file of coverage.py."""
    coverage = Coverage(data_file=str(data_file))
    coverage.load()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        coverage.json_report(outfile=str(report))
        return figures(json.loads(report.read_text())["files"])


def main() -> None:
    """Print a line for each package, and write the figures."""
    rows = measured(Path(sys.argv[1] if len(sys.argv) > 1 else ".coverage"))
    for name, row in rows.items():
        print(f"{name:<32} statements {row['statements_percent']:5} %   branches {row['branches_percent']:5} %")
    results.update("coverage", rows)


if __name__ == "__main__":
    main()

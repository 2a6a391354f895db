"""The command `make bench`: runs all benchmarks and writes benchmarks/results.json. It ends with the scoreboard."""

from __future__ import annotations

import os
import platform
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.agent import agent_figures
from benchmarks.cold_starts import PACKAGE, ROUNDS, cold_starts
from benchmarks.console import console_figures
from benchmarks.decisions import decision_figures
from benchmarks.diagnosis import diagnosis_figures
from benchmarks.fleet import fleet_figures
from benchmarks.goodput import goodput_figures
from benchmarks.heartbeats import heartbeat_figures
from benchmarks.log_kinds import kind_figures
from benchmarks.observation_overhead import observation_figures
from benchmarks.placement import placement_figures
from benchmarks.scoreboard.pages import table, write_pages
from benchmarks.scoreboard.sets import scoreboard_figures
from benchmarks.simulation import simulation_figures
from benchmarks.stragglers import straggler_figures
from benchmarks.submission import submission_figures


def package() -> dict[str, int]:
    """Return the size of the deployment package: files, bytes, and bytes of a zip archive."""
    files = [f for f in PACKAGE.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "package.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
            for file in files:
                bundle.write(file, file.relative_to(PACKAGE))
        zipped = archive.stat().st_size
    return {"files": len(files), "bytes": sum(f.stat().st_size for f in files), "zipped_bytes": zipped}


def main() -> None:
    """Run all benchmarks, print the results, and write them to results.json and the pages that quote them."""
    figures: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "rounds": ROUNDS,
        "cold_start": cold_starts(),
        "package": package(),
        "decisions": decision_figures(),
        "placing": placement_figures(),
        "submitting": submission_figures(),
        "heartbeats": heartbeat_figures(),
        "agent": agent_figures(),
        "simulation": simulation_figures(),
        "goodput": goodput_figures(),
        "diagnosing": diagnosis_figures(),
        "stragglers": straggler_figures(),
        "log_kinds": kind_figures(),
        "scoreboard": scoreboard_figures(),
        "telling": observation_figures(),
        "fleet": fleet_figures(),
        "console": console_figures(),
    }
    print(results.write(figures | results.kept()))
    write_pages(figures["scoreboard"])
    print(table(figures["scoreboard"]), end="")


if __name__ == "__main__":
    main()

"""The file benchmarks/results.json: figures of several commands, each under names of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results.json"
OTHER_COMMANDS = ("mutants", "coverage", "hangs", "quiet_hangs", "queue_estimates")
"""Names whose figures `make bench` does not measure: `make mutants`, `make test-full` and other modules do."""


def read(path: Path = RESULTS) -> dict[str, Any]:
    """Return all figures by name, or none if the file does not exist."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write(figures: Mapping[str, Any], path: Path = RESULTS) -> str:
    """Replace the file, and return its text."""
    text = json.dumps(figures, indent=2) + "\n"
    path.write_text(text)
    return text


def update(name: str, figures: Any, path: Path = RESULTS) -> None:
    """Replace the figures of one name, and keep the others."""
    write(read(path) | {name: figures}, path)


def kept(path: Path = RESULTS) -> dict[str, Any]:
    """Return the figures of other commands, for `make bench` to keep."""
    return {name: figures for name, figures in read(path).items() if name in OTHER_COMMANDS}

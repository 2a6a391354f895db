"""The command line as typer builds it, once per process: building takes 25 ms, and tests look at it for each line."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer
from gpu_recovery_client.cli import app


@cache
def command() -> Any:
    """Return the command `gpu-recovery` with all of its verbs. No test changes it."""
    return typer.main.get_command(app.app)

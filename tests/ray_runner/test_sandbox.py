"""A sandbox with a Ray head, as docs/queue.md shows it to a user."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import processes
from tests.markdown import ROOT, Page

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.full]
COMMANDS = [line for line in Page(ROOT / "docs/queue.md").commands() if line.startswith("gpu-recovery ")]
UP, SUBMIT, DOWN = (shlex.split(line)[1:] for line in COMMANDS)
"""The commands of the page, which are about Ray."""


def run(folder: Path, arguments: list[str]) -> str:
    """The output of one command of the page, called in `folder`; its sandbox is in that folder, too."""
    place = ["--directory", str(folder / ".sandbox")] if arguments[0] == "sandbox" else []
    command = [Path(sys.executable).parent / "gpu-recovery", *arguments, *place]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of its own; whatever happens, no process of its sandbox is left."""
    yield tmp_path
    run(tmp_path, DOWN)


def test_a_job_on_ray_is_tried_in_the_sandbox_as_the_page_says(folder: Path) -> None:
    """The head starts, the function that stands in for its image submits the driver, and `down` ends everything."""
    up = json.loads(run(folder, [*UP, "--json"]))
    assert up["ray_dashboard"].startswith("http://127.0.0.1:") and up["ray_control_store"].startswith("127.0.0.1:")
    session = (folder / ".sandbox/run/ray").readlink()
    assert session.is_dir()
    story = run(folder, SUBMIT)
    assert "SUCCEEDED" in story
    job_id = next(word.rstrip(";") for word in story.split() if word.startswith("ppo-"))
    assert "hello from Ray" in run(folder, ["logs", job_id])
    assert run(folder, DOWN) == "The sandbox has ended.\n"
    assert not session.exists() and processes.processes_in(folder) == []

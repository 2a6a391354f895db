"""The Makefile: the release of Node, and the two parts of the tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.markdown import DOCS, READMES, ROOT, Page

CONTRIBUTING = Page(ROOT / "CONTRIBUTING.md")


def _make(folder: Path, *arguments: str, release: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make as a user types it, on a computer with this release of Node."""
    node = folder / "node"
    node.write_text(f"#!/bin/sh\necho {release}\n")
    node.chmod(0o755)
    ours = ("MAKE", "MFLAGS", "GPU_RECOVERY_NODE_CHECKED")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("release", ["v22.0.0", "v24.11.1", "v100.0.0"])
def test_a_supported_release_of_node_is_accepted_in_silence(tmp_path: Path, release: str) -> None:
    """The release that the READMEs ask for, and newer releases."""
    result = _make(tmp_path, "node-release", release=release)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("release", ["v20.20.2", "v21.7.3"])
def test_a_release_of_node_after_its_end_of_life_is_named_in_one_line(tmp_path: Path, release: str) -> None:
    """A warning that does not stop the work."""
    result = _make(tmp_path, "node-release", release=release)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"Warning: Node {release[1:3]} has reached its end of life. Install Node 22 or newer.\n"


@pytest.mark.parametrize("release", ["v18.20.4", ""])
def test_an_older_release_of_node_and_no_release_are_refused(tmp_path: Path, release: str) -> None:
    """The setup would end with an error of npm that names no cause."""
    result = _make(tmp_path, "node-release", release=release)
    assert (result.returncode != 0, result.stdout) == (True, "Node 22 or newer is needed\n")


@pytest.mark.parametrize("verb", ["setup", "demo", "deploy"])
def test_what_needs_node_looks_at_its_release(tmp_path: Path, verb: str) -> None:
    """Once for each command of the user."""
    result = _make(tmp_path, "--dry-run", verb, release="v20.20.2")
    assert result.stdout.count("has reached its end of life") == 1


def test_a_make_of_somebody_else_does_not_skip_the_release(tmp_path: Path) -> None:
    """The level that GNU make counts would be 1 there."""
    result = _make(tmp_path, "--dry-run", "MAKELEVEL=1", "setup", release="v20.20.2")
    assert result.stdout.count("has reached its end of life") == 1


PYTHON = """#!/bin/sh
case "$*" in
  *"-m ray"*) echo "output of the tests with Ray"; exit {ray} ;;
  *"--ignore=tests/ray_runner"*) echo "output of the other tests"; exit {main} ;;
esac
"""
"""Stands for the Python of the virtual environment: pytest ends as the test says."""


@pytest.mark.parametrize("ray", [0, 1])
@pytest.mark.parametrize("main", [0, 1])
def test_both_parts_run_and_report_and_one_failure_fails_the_run(tmp_path: Path, main: int, ray: int) -> None:
    """CI runs the same command. The part with Ray reports also if the other part has failed."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.txt", "pyproject.toml", "package.json", "package-lock.json"):
        (tmp_path / name).touch()
    (tmp_path / "infra/layer").mkdir(parents=True)
    for name in ("requirements.txt", "build.py"):
        (tmp_path / "infra/layer" / name).touch()
    (tmp_path / "tests/client_generators").mkdir(parents=True)
    (tmp_path / "tests/client_generators/requirements.txt").touch()
    (tmp_path / "console").mkdir()
    (tmp_path / "console/package-lock.json").touch()
    (tmp_path / "agent/run").mkdir(parents=True)
    for name in ("agent/pyproject.toml", "agent/run/pyproject.toml"):
        (tmp_path / name).touch()
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(main=main, ray=ray))
    python.chmod(0o755)
    (tmp_path / ".make").mkdir()
    (tmp_path / ".make/ready").touch()
    result = _make(tmp_path, "test", release="v22.0.0", cwd=tmp_path)
    words = {0: "passed", 1: "FAILED"}
    assert "output of the other tests\n" in result.stdout and "output of the tests with Ray\n" in result.stdout
    assert f"tests: {words[main]}; tests with Ray: {words[ray]}\n" in result.stdout
    assert (result.returncode == 0) == (main == ray == 0)


def test_ci_runs_the_command_of_the_readme() -> None:
    """With its exit status. Before it CI installs the browser, and a missing browser fails the run."""
    lines = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[:2] == ["set -euo pipefail", 'cd "$(dirname "$0")/.."']
    assert lines[-2:] == ["export GPU_RECOVERY_NEEDS_BROWSER=1", "make test"]


PAGES = [*READMES, CONTRIBUTING, DOCS["try"], DOCS["install"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_ask_for_the_release_of_node_without_a_warning(page: Page) -> None:
    """The number that the Makefile compares with, and none else."""
    (warned,) = re.findall(r'"\$\$major" -lt (\d+)', (ROOT / "Makefile").read_text())
    assert re.findall(r"Node (\d+)", page.prose) == [warned]

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


FILES_OF_GROUPS = (
    *(f"requirements-{name}.txt" for name in ("deploy", "demo", "test", "bench")),
    *("requirements.txt", "pyproject.toml", "package.json", "package-lock.json", "console/package-lock.json"),
    *("infra/layer/requirements.txt", "infra/layer/build.py", "tests/client_generators/requirements.txt"),
    *("agent/pyproject.toml", "agent/run/pyproject.toml"),
)
"""Files whose change installs a group again."""
PARTS = (".make/venv", ".make/cdk", ".make/console", ".make/lambda_layer", ".make/generators")
STAMPS = (*PARTS, ".make/ready-deploy", ".make/ready-demo", ".make/ready-test", ".make/ready")
"""Files that say what is installed."""
OF_TESTS_ONLY = ("ray", "matplotlib", "schemathesis", "mypy", "playwright")
"""Packages that neither a deployment nor the demo installs."""


def _installed(tmp_path: Path, *words: str) -> set[str]:
    """The requirements files that `make` installs on a fresh machine."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in FILES_OF_GROUPS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    result = _make(tmp_path, "--dry-run", *words, release="v22.0.0", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    return set(re.findall(r"-m pip install .*-r (\S+)", result.stdout)) - {"tests/client_generators/requirements.txt"}


def _packages(name: str) -> set[str]:
    """The packages of a requirements file and of the files that it includes."""
    text = (ROOT / name).read_text()
    found = set(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==", text, re.MULTILINE))
    for line in re.findall(r"^-r (\S+)$", text, re.MULTILINE):
        found |= _packages((Path(name).parent / line).as_posix())
    return found


DEPLOY, DEMO = {"requirements-deploy.txt"}, {"requirements-deploy.txt", "requirements-demo.txt"}


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["deploy"], DEPLOY),
        (["deploy", "NAME=prod"], DEPLOY),
        (["synth"], DEPLOY),
        (["setup", "GROUP=deploy"], DEPLOY),
        (["demo"], DEMO),
        (["simulate"], DEMO),
        (["setup", "GROUP=demo"], DEMO),
        (["test-fast"], {*DEMO, "requirements-test.txt"}),
        (["setup"], {*DEMO, "requirements-test.txt", "requirements.txt"}),
        (["bench"], {*DEMO, "requirements-test.txt", "requirements.txt"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "files",
)
def test_a_verb_installs_only_its_group(tmp_path: Path, words: list[str], files: set[str]) -> None:
    """On a fresh machine, with nothing before it."""
    assert _installed(tmp_path, *words) == files


def test_neither_a_deployment_nor_the_demo_installs_what_only_tests_use() -> None:
    """Together they take several times the space of a deployment."""
    assert set(OF_TESTS_ONLY) <= _packages("requirements.txt")
    assert not set(OF_TESTS_ONLY) & _packages("requirements-demo.txt")
    assert _packages("requirements-deploy.txt") < _packages("requirements-demo.txt") < _packages("requirements.txt")


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    """With the groups that exist."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    result = _make(tmp_path, "setup", "GROUP=tests", release="v22.0.0", cwd=tmp_path)
    assert result.returncode != 0 and "GROUP is one of deploy demo test all, not tests" in result.stderr


PYTHON = """#!/bin/sh
case "$*" in
  *"-m tests.compiled"*) echo "modules are compiled" ;;
  *"-m ray"*) echo "output of the tests with Ray"; exit {ray} ;;
  *"--ignore=tests/ray_runner"*) echo "output of the other tests"; exit {main} ;;
esac
"""
"""Stands for the Python of the virtual environment: pytest ends as the test says."""


def _with_stand_in(folder: Path, verb: str, *, main: int = 0, ray: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a verb in a folder where everything is installed, with a pytest that ends with these statuses."""
    shutil.copy(ROOT / "Makefile", folder)
    (folder / ".make").mkdir()
    for name in (*FILES_OF_GROUPS, *STAMPS):  # the stamps last: nothing is newer than they
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(main=main, ray=ray))
    python.chmod(0o755)
    return _make(folder, verb, release="v22.0.0", cwd=folder)


@pytest.mark.parametrize("verb", ["test", "test-fast"])
def test_modules_are_compiled_once_before_the_workers_start(tmp_path: Path, verb: str) -> None:
    """Each worker of a fresh clone would compile all of them: 8 s of processor time for each."""
    lines = _with_stand_in(tmp_path, verb).stdout.splitlines()
    assert 0 <= lines.index("modules are compiled") < lines.index("output of the other tests")


@pytest.mark.parametrize("ray", [0, 1])
@pytest.mark.parametrize("main", [0, 1])
def test_both_parts_run_and_report_and_one_failure_fails_the_run(tmp_path: Path, main: int, ray: int) -> None:
    """CI runs the same command. The part with Ray reports also if the other part has failed."""
    result = _with_stand_in(tmp_path, "test", main=main, ray=ray)
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

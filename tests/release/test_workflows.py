"""The workflows of GitHub: they call verbs of the Makefile only, with the fewest permissions and pinned actions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
VERBS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
"""The verbs that `make` lists."""
BY_BRANCH = {"pypa/gh-action-pypi-publish@release/v1"}
"""Actions without a commit: CONTRIBUTING.md says why."""
MAY_WRITE = {("release", "index"): {"id-token": "write"}, ("release", "page"): {"contents": "write"}}
"""The permissions of each job that may do more than read: the token for the index, the page of a release."""
EXPRESSION = re.compile(r"\$\{\{")


def _read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(WORKFLOWS[name].read_text())
    return found


def _jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name in WORKFLOWS:
        for job, described in _read(name)["jobs"].items():
            yield name, job, described


def _steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job, described in _jobs():
        yield from ((f"{name}: {job}", step) for step in described["steps"])


def test_test_build_and_release_have_a_workflow() -> None:
    """A release begins with a tag and nothing else."""
    assert set(WORKFLOWS) == {"test", "build", "release"}
    assert _read("release")[True] == {"push": {"tags": ["v*"]}}, "YAML reads the key `on` as true"


def test_every_command_is_a_verb_of_the_makefile() -> None:
    """What CI does, a developer can do. An expression in a command could hold another command."""
    commands = [(where, step["run"]) for where, step in _steps() if "run" in step]
    assert len(commands) >= 10
    for where, command in commands:
        match = re.fullmatch(r'make ([a-z-]+)((?: [A-Z]+=(?:[\w.]+|"[\w$/:]+"))*)', command)
        assert match and match[1] in VERBS and not EXPRESSION.search(command), (where, command)


def test_every_variable_of_a_command_is_known_to_its_verb() -> None:
    """make accepts a variable that nobody reads."""
    text = (ROOT / "Makefile").read_text()
    for where, step in _steps():
        for name in re.findall(r" ([A-Z]+)=", step.get("run", "")):
            assert f"$({name})" in text, (where, name)


def test_every_action_is_pinned_by_commit_with_its_version_beside_it() -> None:
    """A tag of an action can be moved, and a moved action has the token of the job."""
    used = [line for path in WORKFLOWS.values() for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    for line in used:
        reference = line.split("uses:")[1].split("#")[0].strip()
        pinned = re.fullmatch(r"\s*- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
        assert pinned or reference in BY_BRANCH, line
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`{action}`" in contributing for action in BY_BRANCH)


def test_one_action_has_one_commit() -> None:
    """In every workflow."""
    used = {step["uses"] for _, step in _steps() if "uses" in step}
    assert len({action.split("@")[0] for action in used}) == len(used)


def test_every_workflow_may_only_read() -> None:
    """But for the two jobs that publish, and these have one permission each."""
    for name in WORKFLOWS:
        assert _read(name)["permissions"] == {"contents": "read"}
    assert {(name, job): each["permissions"] for name, job, each in _jobs() if "permissions" in each} == MAY_WRITE
    checkouts = [step for _, step in _steps() if "actions/checkout@" in step.get("uses", "")]
    assert checkouts and all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_a_release_is_published_after_every_check() -> None:
    """The index refuses to replace a file, so a mistake there stays."""
    jobs = _read("release")["jobs"]
    assert set(jobs["index"]["needs"]) == {"test", "try"} and jobs["index"]["environment"] == "pypi"
    assert jobs["page"]["needs"] == "index" and jobs["try"]["needs"] == "build"
    commands = [step.get("run", "") for step in jobs["test"]["steps"]]
    assert [command.split()[1] for command in commands if command] == ["release-check", "test-full"]


@pytest.mark.parametrize("workflow", ["build", "release"])
def test_the_wheels_are_tried_with_every_python_that_they_name(workflow: str) -> None:
    """A classifier promises a release of Python."""
    named = set()
    for project in ("pyproject.toml", "agent/pyproject.toml", "agent/run/pyproject.toml"):
        classifiers = tomllib.loads((ROOT / project).read_text())["project"]["classifiers"]
        named |= {each.rpartition(" ")[2] for each in classifiers if re.search(r":: 3\.\d+$", each)}
    assert set(_read(workflow)["jobs"]["try"]["strategy"]["matrix"]["python"]) == named


def test_every_job_ends() -> None:
    """GitHub ends a job after six hours by itself."""
    assert all(described.get("timeout-minutes", 360) < 360 for _, _, described in _jobs())

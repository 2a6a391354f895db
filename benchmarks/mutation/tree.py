"""Copies of the user's tree, and one run of the suite in a copy without any mutant. The user's tree is not changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from benchmarks.mutation.mutants import PRODUCT
from benchmarks.mutation.selection import Suite

TESTS = tuple(
    f"tests/{folder}"
    for folder in (
        "auth",
        "aws",
        "core",
        "ecs_events",
        "execution",
        "fuzz",
        "job_api",
        "lambdas",
        "node_api",
        "platform",
        "ports",
        "reconciler",
        "recovery",
        "scheduler",
        "simulator",
    )
)
"""Folders below `tests` whose tests run the functions of PRODUCT."""
PACKAGES = (".", "lambdas", "agent", "client")
"""Folders whose packages the tests import."""
COVERAGE, SECONDS = "coverage", "seconds.json"
"""Files of a run of the suite."""


def files_of_tree(root: Path) -> list[str]:
    """Return the files that git tracks or would track, as paths from the root."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def copy_tree(root: Path, to: Path) -> None:
    """Copy the files of the tree at `root` into the folder `to`."""
    for name in files_of_tree(root):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, to / name)


def environment(copy: Path) -> dict[str, str]:
    """Return the environment of a process that imports the packages of a copy, without the caller's pytest options."""
    path = os.pathsep.join(str(copy / package) for package in PACKAGES)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return {**inherited, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}


def digest(root: Path, tests: Sequence[str]) -> str:
    """Return a hash of everything that decides which test executes which line."""
    summary = sha256(" ".join(tests).encode())
    for name in files_of_tree(root):
        if name.startswith(("lambdas/", "tests/", "simulator/", "client/", "pyproject.toml", "requirements")):
            summary.update(f"{name}\0".encode() + (root / name).read_bytes())
    return summary.hexdigest()[:16]


def suite(root: Path, copy: Path, workers: int, tests: Sequence[str]) -> Suite:
    """Return what a run of the fast tier of folders in `copy` says. It is kept in `.make` for runs of the same tree."""
    kept = root / ".make" / "mutants" / digest(root, tests)
    if not (kept / SECONDS).exists():
        kept.mkdir(parents=True, exist_ok=True)
        files = {"COVERAGE_FILE": str(kept / COVERAGE), "MUTATION_SECONDS": str(kept / "part")}
        command = [sys.executable, "-m", "pytest", "-q", "--tier", "fast", "-n", str(workers), "-p", "no:cacheprovider"]
        command += [f"--cov={PRODUCT}", "--cov-context=test", "--cov-report=", "-p", "benchmarks.mutation.recorder"]
        command += tests
        with (kept / "log").open("w") as log:
            ended = subprocess.run(command, check=False, cwd=copy, env=environment(copy) | files, stdout=log)
        if ended.returncode not in (0, 1):  # 1: some tests failed, and are not used
            raise RuntimeError(f"the tests could not be run: {kept / 'log'}")
        (kept / "part").rename(kept / SECONDS)
    return Suite.load(copy, kept / COVERAGE, kept / SECONDS)

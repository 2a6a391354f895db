"""The budget of processor time: which test fails a run, and what the end of a run says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BURNS = """
import time
import pytest

def burn():
    until = time.process_time() + 0.4
    while time.process_time() < until:
        pass

def test_short():
    pass

def test_long():
    burn()

@pytest.mark.slow
def test_slow():
    burn()

@pytest.mark.full
def test_full():
    burn()

@pytest.fixture(scope="module")
def shared():
    burn()

def test_first_of_those_that_share(shared):
    pass
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of BURNS in the tier `full`, with the plugins of this suite."""
    (folder / "test_burns.py").write_text(BURNS)
    config = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-p", "tests.conftest")
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *config,
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "--tier",
            "full",
            *options,
        ],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )


@pytest.mark.slow
def test_a_test_over_the_budget_fails_a_run_in_which_every_test_passed(tmp_path: Path) -> None:
    """Unless it is marked `slow` or `full`. A fixture that several tests share counts for none of them."""
    done = run(tmp_path, "--cpu-budget", "0.2")
    assert "5 passed" in done.stdout and done.returncode == pytest.ExitCode.TESTS_FAILED
    over = [line for line in done.stdout.splitlines() if line.startswith("OVER BUDGET")]
    assert len(over) == 1 and "test_burns.py::test_long took" in over[0]


@pytest.mark.slow
def test_a_run_ends_with_its_totals_by_tier_and_its_slowest_tests(tmp_path: Path) -> None:
    """Without a budget no test is too slow, and the run passes."""
    done = run(tmp_path)
    assert done.returncode == pytest.ExitCode.OK and "OVER BUDGET" not in done.stdout
    *_, end = done.stdout.partition("processor time")
    totals = [line.partition(" s in ")[2] for line in end.splitlines() if " s in " in line and "passed" not in line]
    assert totals == ["1 tests", "3 tests", "1 tests"]  # default, fast, full
    slowest = [line.split()[2:] for line in end.splitlines() if "::" in line]
    assert set(map(tuple, slowest[:3])) == {
        ("default", "test_burns.py::test_slow"),
        ("fast", "test_burns.py::test_long"),
        ("full", "test_burns.py::test_full"),
    }
    assert "largest memory: this process" in end

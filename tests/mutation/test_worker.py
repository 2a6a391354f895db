"""A worker: it finds a mutant, leaves the copy as it was, and says so if the tests could not be run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.mutation.__main__ import ROOT, Worker
from benchmarks.mutation.mutants import PRODUCT

LIMITS = f"{PRODUCT}/core/limits.py"
TEST = """\
from gpu_recovery.core.limits import over


def test_over():
    assert over(4)


def test_not_over():
    assert not over(2)
"""

pytestmark = pytest.mark.full  # `make mutants` runs before a release, too


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with tests of its product, and a test of the product of another tree."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "benchmarks", root / "benchmarks")
    elsewhere = f"import sys\nsys.path.insert(0, {str(ROOT / 'lambdas')!r})\n"
    for name, text in {
        f"{PRODUCT}/__init__.py": "",
        LIMITS: "LIMIT = 3\n\n\ndef over(count):\n    return count > LIMIT\n",
        "pyproject.toml": "[tool.pytest.ini_options]\n",
        "tests/conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--tier')\n",
        "tests/test_limits.py": TEST,
        "tests/test_installed.py": f"{elsewhere}import gpu_recovery\n\n\ndef test_nothing():\n    pass\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def worker(copy: Path) -> Iterator[Worker]:
    """A worker in the copy."""
    started = Worker(copy)
    yield started
    started.close()


def test_a_worker_tries_one_mutant_after_the_other(copy: Path, worker: Worker) -> None:
    """Found, survived, too long, and found on import; each with the tests and the code of its own."""
    original = (copy / LIMITS).read_text()
    batches = [{"tests": [f"tests/test_limits.py::{name}"], "limit_s": 5} for name in ("test_over", "test_not_over")]
    changes = {
        ("> LIMIT", "< LIMIT"): ("found", "tests/test_limits.py::test_over", 1),
        ("> LIMIT", "> False"): ("found", "tests/test_limits.py::test_not_over", 2),
        ("> LIMIT", ">=LIMIT"): ("survived", "", 2),
        ("    return", "    while True: pass\n    return"): ("timeout", "exit code -24", 1),
        ("LIMIT = 3", "LIMIT = no"): ("found", "on import", 1),
    }
    for number, ((old, new), expected) in enumerate(changes.items(), start=1):
        request = {"file": LIMITS, "source": original.replace(old, new), "number": number, "batches": batches}
        answer = worker.ask(request)
        assert (answer["outcome"], answer["detail"], answer["tests"]) == expected
        assert (copy / LIMITS).read_text() == original
    assert worker.ask({"batches": batches})["outcome"] == "survived"


@pytest.mark.parametrize("test", ["tests/test_limits.py::test_gone", "tests/test_installed.py::test_nothing"])
def test_a_mutant_that_was_not_tested_is_no_survivor(worker: Worker, test: str) -> None:
    """A test that does not exist, or that imports the product of another tree, says nothing about the mutant."""
    with pytest.raises(RuntimeError):
        worker.ask({"batches": [{"tests": [test], "limit_s": 20}]})

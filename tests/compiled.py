"""Compiled modules of the suite and the product, made once before the workers of pytest-xdist start.

Pytest rewrites the assertions of each test module, which takes most of the time of a collection, and saves the result
beside the module. In a fresh clone all workers collect at the same moment, and each would rewrite every module.

Run as `python -m tests.compiled`, before `pytest -n`. The names of pytest here are private: its release is pinned, and
tests/test_compiled.py shows that pytest takes what is written here.
"""

from __future__ import annotations

import compileall
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from _pytest.assertion import rewrite

ROOT = Path(__file__).parent.parent
FOLDERS = (
    "agent",
    "benchmarks",
    "client",
    "health_check",
    "image_builder",
    "infra",
    "lambdas",
    "ray_runner",
    "release",
)
"""Folders whose modules the tests import as they are, beside those of `sandbox`, `simulator` and `tests`."""


def compiled(module: Path) -> Path:
    """Return the file in which pytest saves the compiled module."""
    return module.parent / "__pycache__" / f"{module.stem}{rewrite.PYC_TAIL}"


def rewritten_modules(folder: Path) -> list[Path]:
    """Return the modules below a folder whose assertions pytest rewrites."""
    return sorted(path for path in folder.rglob("*.py") if path.name.startswith("test_") or path.name == "conftest.py")


def compile_test_modules(modules: Sequence[Path]) -> None:
    """Save the compiled form of each module that has none of its present text."""
    for module in modules:
        target = compiled(module)
        if rewrite._read_pyc(module, target) is None:
            digest, code = rewrite._rewrite_test(module, None)  # type: ignore[arg-type]  # no setting is needed
            target.parent.mkdir(exist_ok=True)
            rewrite._write_pyc(SimpleNamespace(trace=print), code, digest, target)  # type: ignore[arg-type]


def compile_folder(name: str) -> None:
    """Compile the modules of a folder of the repository that no run of pytest rewrites."""
    compileall.compile_dir(ROOT / name, quiet=2)


def main() -> None:
    """Compile everything, with one process for each processor."""
    processes = os.cpu_count() or 1
    modules = rewritten_modules(ROOT / "tests")
    with ProcessPoolExecutor(processes) as pool:
        shares = [pool.submit(compile_test_modules, modules[number::processes]) for number in range(processes)]
        others = [pool.submit(compile_folder, name) for name in (*FOLDERS, "sandbox", "simulator")]
        for one in (*shares, *others):
            one.result()


if __name__ == "__main__":
    main()

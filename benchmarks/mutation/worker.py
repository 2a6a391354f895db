"""A process that tries mutants in a copy of the tree: `python -m benchmarks.mutation.worker`, started in the copy.

It reads a request for each mutant from its input, one line of JSON, and answers with one line of JSON. The libraries
are loaded once; the tests of each batch run in a child process, which begins with the product and the tests unread.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

LIBRARIES = ("aws_lambda_powertools", "boto3", "httpx", "hypothesis", "moto", "pydantic", "rich", "typer", "yaml")
"""What most tests import and no part of the product is."""
WALL_FACTOR = 4
"""Limit of wall time, in limits of processor time: for tests that wait for ever, on a computer that others use too."""
SURVIVED, FOUND, TIMEOUT, BROKEN = "survived", "found", "timeout", "broken"
"""Outcomes: no test failed; a test or an import failed; the tests took too long; the tests could not be run."""


class Chosen:
    """Pytest plugin: runs the given tests only, in their order, and keeps the first failure."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.rank = {test: n for n, test in enumerate(tests)}
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Have Hypothesis stop at the first example that fails: the smallest example is of no use here."""
        phases = [phase for phase in hypothesis.settings().phases if phase is not hypothesis.Phase.shrink]
        hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases)
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the other tests of the same files."""
        items[:] = sorted((item for item in items if item.nodeid in self.rank), key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the test that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def run_batch(tests: Sequence[str], limit_s: int, log: Path, answer: Any) -> None:
    """Run tests in this process, with its output in `log`, and put the exit code and the failed test into `answer`."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 5))
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    chosen = Chosen(tests)
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))
    code = int(pytest.main(["-q", "-x", "--tier", "fast", "-p", "no:cacheprovider", *files], plugins=[chosen]))
    product = sys.modules.get("gpu_recovery")
    if product is not None and not Path(next(iter(product.__path__))).is_relative_to(Path.cwd()):
        code = int(pytest.ExitCode.NO_TESTS_COLLECTED)
    answer.put((code, chosen.failed))
    os._exit(0)  # at once: a thread that a test left behind would be waited for


def outcome_of(tests: Sequence[str], limit_s: int) -> tuple[str, str]:
    """Run a batch of tests in a child process.

    Args:
        tests: node ids.
        limit_s: largest processor time, in seconds.

    Returns:
        The outcome, and the test that failed or the end of the child's output.
    """
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    log = Path(tempfile.gettempdir()) / f"mutation-{os.getpid()}.log"
    child = context.Process(target=run_batch, args=(tests, limit_s, log, answer))
    child.start()
    child.join(WALL_FACTOR * limit_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid or 0, signal.SIGKILL)  # the child's own children too
    child.join()
    if answer.empty():
        return TIMEOUT, f"exit code {child.exitcode}"
    code, failed = answer.get()
    if code == pytest.ExitCode.OK:
        return SURVIVED, ""
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        return BROKEN, log.read_text()[-2000:]
    return FOUND, failed or "on import"


def attempt(request: dict[str, Any]) -> dict[str, Any]:
    """Put a mutant into the copy, run its batches of tests until one fails, and restore the copy.

    Args:
        request: `file` and its `source` with the defect, or no file; `batches`, each with its
            `tests` and its limit of processor time, `limit_s`. The file is changed at the time `number`, in seconds.
    """
    path = Path(request["file"]) if request.get("file") else None
    original, state = (path.read_bytes(), path.stat()) if path else (b"", None)
    outcome, detail, spent = SURVIVED, "", 0
    try:
        if path:
            path.write_text(request["source"], encoding="utf-8")
            # Byte code is used if the time of the source is the same, in whole seconds: no two mutants may share it.
            os.utime(path, (request["number"], request["number"]))
        for batch in request["batches"]:
            outcome, detail = outcome_of(batch["tests"], batch["limit_s"])
            spent += len(batch["tests"])
            if outcome != SURVIVED:
                break
    finally:
        if path and state:
            path.write_bytes(original)
            os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    return {"outcome": outcome, "detail": detail, "tests": spent}


def main() -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    for name in LIBRARIES:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(attempt(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

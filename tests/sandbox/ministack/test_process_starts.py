"""Calls at once of one function: how many of its processes start at a time, with plain MiniStack and with ours."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sandbox.ministack_server import Cloud, lines
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
CALLS = 6


def parallel_calls(cloud: Cloud, starts_before: int) -> tuple[list[Any], set[int]]:
    """What the processes of a function record at their starts, and which of them answer `CALLS` calls at once.

    No start ends before `starts_before` processes have begun to start.
    """
    may_end = cloud.folder / cloud.name("starts")
    name, _, seen = cloud.function(
        "return os.getpid()\n"
        "import time\n"
        "record('begins')\n"
        f"while not os.path.exists({str(may_end)!r}): time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "record('ends')"
    )
    awslambda = cloud.client("lambda")
    with ThreadPoolExecutor(CALLS) as pool:
        answers = [pool.submit(awslambda.invoke, FunctionName=name) for _ in range(CALLS)]
        wait_until(lambda: len(lines(seen)) >= starts_before, lambda: lines(seen))
        may_end.touch()
        processes = {json.loads(answer.result()["Payload"].read()) for answer in answers}
    return lines(seen), processes


def test_plain_ministack_starts_a_process_for_each_call_at_once(plain: Cloud) -> None:
    """All of them start side by side, and share the processors."""
    started, processes = parallel_calls(plain, CALLS)
    assert started == ["begins"] * CALLS + ["ends"] * CALLS
    assert len(processes) == CALLS


def test_processes_of_a_function_start_one_after_the_other(whole: Cloud) -> None:
    """A call that waits takes a process that has become free meanwhile."""
    started, processes = parallel_calls(whole, 1)
    assert started == ["begins", "ends"] * (len(started) // 2)
    assert len(processes) < CALLS

"""Processor time of each test: the slowest tests and the totals of a run, and a budget for tests that are not slow.

The time of a test includes its child processes that have ended. It does not include fixtures that several tests share:
the first of these tests would pay for all of them.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any, cast

import pytest

SLOWEST = 15
"""Number of tests that the summary lists."""
PROPERTY = "processor_s"
"""Name of the user property of a report: seconds of the test, seconds of shared fixtures, and the tier of the test."""
PEAK = "peak_mib"
"""Name of the worker's output: its largest resident memory."""


def processor_s() -> float:
    """Return the processor time of this process and of its ended children, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_mib() -> int:
    """Return the largest resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def tier_of(item: pytest.Item) -> str:
    """Return the first tier that includes the test."""
    return "full" if item.get_closest_marker("full") else "default" if item.get_closest_marker("slow") else "fast"


class ProcessorTime:
    """Plugin that measures, summarises and, with `--cpu-budget`, fails a run.

    Attributes:
        budget_s: largest processor time of a test of the tier `fast`, in seconds; None: no limit.
        spent: seconds of each test, seconds of its shared fixtures, and its tier, by node id.
        peaks: largest resident memory of each worker, in MiB.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.budget_s: float | None = config.getoption("cpu_budget")
        self.spent: dict[str, tuple[float, float, str]] = {}
        self.peaks: dict[str, int] = {}
        self._shared_s = 0.0
        self._depth = 0

    # -- measuring, in each worker -------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        item.stash[_BEGAN] = processor_s()
        self._shared_s = 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function" or self._depth:
            return (yield)
        began, self._depth = processor_s(), self._depth + 1
        try:
            return (yield)
        finally:
            self._depth -= 1
            self._shared_s += processor_s() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        if call.when == "teardown":
            spent = processor_s() - item.stash[_BEGAN]
            item.user_properties.append((PROPERTY, (round(spent - self._shared_s, 3), self._shared_s, tier_of(item))))
        report = yield
        if hasattr(item.config, "workerinput"):
            report.keywords = {}  # a third of what a worker sends, and nothing reads them
        return report

    # -- the summary, in the process that the user started -------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY:
                own, shared, tier = cast("tuple[float, float, str]", value)
                self.spent[report.nodeid] = own, shared, tier

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", {})  # a worker that was killed has none
        self.peaks[node.gateway.id] = output.get(PEAK, 0)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[PEAK] = peak_mib()
        elif self.over_budget() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def over_budget(self) -> list[str]:
        """Return the node ids of the tests of the tier `fast` that took more than the budget."""
        if self.budget_s is None:
            return []
        return [name for name, (own, _, tier) in self.spent.items() if tier == "fast" and own > self.budget_s]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.spent:
            return
        write = terminalreporter.write_line
        terminalreporter.section("processor time")
        totals: dict[str, list[float]] = defaultdict(list)
        for own, shared, tier in self.spent.values():
            totals[tier].append(own)
            totals["shared fixtures"].append(shared)
        for tier, seconds in sorted(totals.items()):
            write(f"{tier}: {sum(seconds):.0f} s" + (f" in {len(seconds)} tests" if tier != "shared fixtures" else ""))
        peaks = self.peaks or {"this process": peak_mib()}
        write("largest memory: " + ", ".join(f"{name} {peak} MiB" for name, peak in sorted(peaks.items())))
        for name, (own, _, tier) in sorted(self.spent.items(), key=lambda entry: -entry[1][0])[:SLOWEST]:
            write(f"{own:7.2f} s  {tier:<7} {name}")
        for name in self.over_budget():
            write(f"OVER BUDGET of {self.budget_s} s: {name} took {self.spent[name][0]:.2f} s")


_BEGAN = pytest.StashKey[float]()

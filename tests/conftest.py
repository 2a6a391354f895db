"""What holds for every test: the tier of the run, the distribution to workers, and the processor time of each test."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest

from tests import tiers
from tests.distribution import UnitScheduling, rank_of
from tests.garbage import FileGarbage
from tests.heavy_imports import HeavyImports
from tests.processor_time import ProcessorTime
from tests.tiers import EXCLUDED_MARKS, Tier


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpu-recovery")
    group.addoption("--tier", type=Tier, choices=list(Tier), default=Tier.DEFAULT, help="see tests/tiers.py")
    group.addoption(
        "--cpu-budget",
        type=float,
        metavar="SECONDS",
        help="fail if a test without the marks slow and full takes more processor time",
    )


def pytest_configure(config: pytest.Config) -> None:
    tiers.select(Tier(config.getoption("tier")))
    config.pluginmanager.register(ProcessorTime(config))
    config.pluginmanager.register(HeavyImports())
    config.pluginmanager.register(FileGarbage())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without garbage collection: each worker collects all, and almost nothing of it is garbage.

    A collection takes 4.7 s of processor time with this, and 5.9 s without.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that the tier does not include. Order the others."""
    excluded = EXCLUDED_MARKS[tiers.selected()]
    left_out = [item for item in items if excluded.intersection(mark.name for mark in item.iter_markers())]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in gone]
    items.sort(key=lambda item: rank_of(item.nodeid))


def pytest_collection_finish() -> None:
    """Let garbage collection skip the modules and the collected tests, which live to the end, and run less often.

    The fast tier takes 145 s of processor time with this, and 176 s without.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 5)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling:
    return UnitScheduling(config, log)

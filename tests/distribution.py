"""Distribution of the tests to the workers of pytest-xdist, in units that share what is expensive to make.

A unit is the tests of one file, unless a table here says otherwise. One worker runs all tests of a unit, and
makes a shared fixture once.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler.loadscope import LoadScopeScheduling

GROUPS: dict[str, str] = {
    "tests/console/browser": "console",
    "tests/infra": "infra",
    "tests/sandbox/one_instance": "one instance",
    "tests/sandbox/three_instances": "three instances",
}
"""Beginnings of paths whose tests are one unit, and the name of the unit."""
INDEPENDENT: tuple[str, ...] = (
    "tests/platform/",
    "tests/simulator/explore/",
    "tests/simulator/goodput/",
    "tests/simulator/test_behaviours_crashes.py",
    "tests/simulator/test_planted",
    "tests/simulator/trials/",
)
"""Beginnings of paths where each test is a unit: the tests are long and share nothing that is expensive."""
FIRST: tuple[str, ...] = (
    "tests/console/browser",
    "tests/sandbox",
    "tests/infra",
    "tests/client/cli/test_doctor.py",
    "tests/fuzz/test_openapi.py",
    "tests/test_tidy.py",
)
"""Beginnings of paths that run first: their tests take long and mostly wait, or take much memory for a moment.

The memory that such a test returns is used by later tests. At the end of a run it would come on top of theirs.
"""


def unit_of(nodeid: str) -> str:
    """Return the name of the unit of a test."""
    path = nodeid.split("::", 1)[0]
    for beginning, group in GROUPS.items():
        if path.startswith(beginning):
            return group
    return nodeid if path.startswith(INDEPENDENT) else path


def rank_of(nodeid: str) -> int:
    """Return the position of a test by its path: the tests of FIRST, in this order, and then all others."""
    return next((n for n, beginning in enumerate(FIRST) if nodeid.startswith(beginning)), len(FIRST))


class UnitScheduling(LoadScopeScheduling):
    """Scheduler of pytest-xdist that distributes units in the order of the collection."""

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

"""Distribution of the tests to the workers of pytest-xdist, in units that share what is expensive to make.

A unit is the tests of one file, unless a table here says otherwise. One worker runs all tests of a unit, and
makes a shared fixture once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
    "tests/sandbox/three_instances",
    "tests/sandbox/one_instance",
    "tests/sandbox/test_agents.py",
    "tests/sandbox/test_heal.py",
    "tests/sandbox",
    "tests/infra",
    "tests/client/cli/test_doctor.py",
    "tests/fuzz/test_openapi.py",
    "tests/test_tidy.py",
)
"""Beginnings of paths that run first: their tests take long and mostly wait, or take much memory for a moment.

The sandboxes that are used longest begin before the others, so that none of them is left over at the end.

The memory that such a test returns is used by later tests. At the end of a run it would come on top of theirs.
"""
WAITING = "tests/sandbox"
"""Beginning of the paths whose tests mostly wait for servers. At most half of the workers have such a unit at a time.

Otherwise all workers would begin with these units, and the processors would have little to do.
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


def is_waiting(unit: str) -> bool:
    """Return whether the tests of a unit mostly wait. A unit is named after its path, or by GROUPS."""
    return unit.startswith(WAITING) or any(unit == group for path, group in GROUPS.items() if path.startswith(WAITING))


def next_unit(queue: Iterable[str], under_way: Collection[str], workers: int) -> str:
    """Return the unit of the queue that a worker gets next.

    Args:
        queue: names of the units that no worker has, in their order; at least one.
        under_way: names of the units that the other workers have not finished.
        workers: number of all workers.
    """
    may_wait = sum(map(is_waiting, under_way)) < max(1, workers // 2)
    first, *others = queue
    return first if may_wait else next((unit for unit in (first, *others) if not is_waiting(unit)), first)


class UnitScheduling(LoadScopeScheduling):
    """Scheduler of pytest-xdist that distributes units in the order of the collection, as `next_unit` says.

    A worker forgets the units that it has finished, and finds its tests by their names. With a search of all tests for
    each of them, the process that distributes would take several seconds.
    """

    def __init__(self, config: Any, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._positions: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """Send the next unit to a worker. Replaces the method of pytest-xdist, which takes the first of the queue."""
        if not self._positions:
            self._positions = {nodeid: position for position, nodeid in enumerate(self.collection)}
        self.assigned_work = {
            worker: {unit: tests for unit, tests in units.items() if not all(tests.values())}
            for worker, units in self.assigned_work.items()
        }
        under_way = [unit for other, units in self.assigned_work.items() if other is not node for unit in units]
        unit = next_unit(self.workqueue, under_way, len(self.nodes))
        tests = self.workqueue.pop(unit)
        self.assigned_work[node][unit] = tests
        node.send_runtest_some([self._positions[nodeid] for nodeid, is_done in tests.items() if not is_done])

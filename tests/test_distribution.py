"""Distribution of the tests to workers: the tables name paths that exist, and the order of the collection is kept."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace

import pytest
from xdist.remote import Producer

from tests.distribution import (
    FIRST,
    GROUPS,
    INDEPENDENT,
    WAITING,
    UnitScheduling,
    is_waiting,
    next_unit,
    rank_of,
    unit_of,
)

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("beginning", [*GROUPS, *INDEPENDENT, *FIRST, WAITING])
def test_each_beginning_is_that_of_a_test_file(beginning: str) -> None:
    """A folder that was renamed would lose its unit, and each worker would make its deployment."""
    assert any(str(path.relative_to(ROOT)).startswith(beginning) for path in ROOT.glob("tests/**/test_*.py"))


@pytest.mark.parametrize(
    ("nodeid", "unit"),
    [
        ("tests/infra/test_nag.py::test_a", "infra"),
        ("tests/sandbox/one_instance/test_cli.py::test_a", "one instance"),
        ("tests/sandbox/three_instances/test_queue.py::test_a", "three instances"),
        ("tests/sandbox/test_heal.py::test_a[classic]", "tests/sandbox/test_heal.py"),
        ("tests/platform/test_throttling.py::test_a[1]", "tests/platform/test_throttling.py::test_a[1]"),
    ],
)
def test_tests_that_share_a_deployment_are_one_unit(nodeid: str, unit: str) -> None:
    """The tests of a file are one unit too, unless each of them is long."""
    assert unit_of(nodeid) == unit


def test_tests_that_mostly_wait_run_first() -> None:
    """Their waiting overlaps with the work of the other workers."""
    paths = [
        "tests/core/test_fleet.py::test_a",
        "tests/infra/test_nag.py::test_a",
        "tests/sandbox/test_heal.py::test_a",
    ]
    assert sorted(paths, key=rank_of) == list(reversed(paths))


WORKS, SERVER, OTHER_SERVER = "tests/core/test_fleet.py", "tests/sandbox/test_heal.py", "one instance"


@pytest.mark.parametrize(
    ("under_way", "workers", "unit"),
    [
        ((), 4, SERVER),
        ((WORKS, WORKS, OTHER_SERVER), 4, SERVER),
        ((SERVER, WORKS, OTHER_SERVER), 4, WORKS),
        ((WORKS,), 2, SERVER),
        ((OTHER_SERVER,), 2, WORKS),
        ((), 1, SERVER),
    ],
)
def test_half_of_the_workers_may_wait(under_way: Collection[str], workers: int, unit: str) -> None:
    """The others work meanwhile. A worker gets a waiting unit anyway when nothing else is left."""
    assert next_unit(["tests/sandbox/test_agents.py"], under_way, workers) == "tests/sandbox/test_agents.py"
    assert next_unit([SERVER, WORKS], under_way, workers) == unit


class Worker:
    """A worker that notes which tests it gets."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="gw")
        self.shutting_down, self.positions = False, list[int]()

    def send_runtest_some(self, positions: list[int]) -> None:
        """Take the tests at these positions of the collection."""
        self.positions += positions

    def shutdown(self) -> None:
        """Take no further test."""
        self.shutting_down = True


def test_every_test_is_run_once_and_units_that_wait_are_spread_over_the_run() -> None:
    """Four workers, each of which ends a test in turn, and a collection that begins with the units that wait."""
    files = [f"tests/sandbox/test_{n}.py" for n in range(6)] + [f"tests/core/test_{n}.py" for n in range(30)]
    collection = [f"{path}::test_{n}" for path in files for n in range(5)]
    config = SimpleNamespace(option=SimpleNamespace(), getvalue=lambda name: ["4*popen"])
    scheduling = UnitScheduling(config, Producer("test", enabled=False))
    workers, done = [Worker() for _ in range(4)], list[str]()
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, collection)
    scheduling.schedule()
    while any(worker.positions for worker in workers):
        at_work = [unit_of(collection[worker.positions[0]]) for worker in workers if worker.positions]
        if not all(map(is_waiting, scheduling.workqueue)):
            assert sum(map(is_waiting, at_work)) <= 2
        for worker in [one for one in workers if one.positions]:
            position = worker.positions.pop(0)
            done.append(collection[position])
            scheduling.mark_test_complete(worker, position)
    assert sorted(done) == sorted(collection)
    assert all(worker.shutting_down for worker in workers)

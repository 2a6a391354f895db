"""Distribution of the tests to workers: the tables name paths that exist, and the order of the collection is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distribution import FIRST, GROUPS, INDEPENDENT, rank_of, unit_of

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("beginning", [*GROUPS, *INDEPENDENT, *FIRST])
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

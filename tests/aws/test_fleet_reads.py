"""Reads of a whole fleet with full histories: read units grow with the fleet as slowly as is measured, and no more.

Each operation runs in its handler against the server of the benchmark, which counts as DynamoDB does.
"""

from __future__ import annotations

import pytest

from benchmarks.fleet import fleet_figures

UNITS = {
    "reconciler round": (50, 1.35, 0.0),
    "scheduler pass": (350, 0.06, 0.06),
    "GET /instances": (620, 0.0, 0.0),  # a page of 1,000, each with its heartbeat, which may lag
    "GET /queue": (250, 0.06, 0.06),
}
"""Upper bounds of the read units of each operation: constant, for each instance, and for each waiting job.

A record of the instances with its history is 3 units and more. In a list it is a tenth of one.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "jobs"), [(60, 300), pytest.param(10_000, 50_000, marks=pytest.mark.full)])
def test_reads_of_a_fleet_grow_by_its_records_without_their_histories(instances: int, jobs: int) -> None:
    """No list reads a history, and the lists of the API read no more than their page."""
    (figures,) = fleet_figures([(instances, jobs)], tuple(UNITS)).values()
    for operation, (least, each_instance, each_job) in UNITS.items():
        figure = figures[operation]
        assert figure["histories"] == 0, operation
        assert 0 < figure["read_units"] <= least + each_instance * instances + each_job * jobs, operation

"""What the explorer saves costs nothing: the slow way finds the same, state by state and transition by transition."""

from __future__ import annotations

import pytest

from simulator.explore.cli import COMBINED
from simulator.explore.model import Bounds, DeliveryPace, ExploredFault
from simulator.explore.small_world import Incident
from tests.simulator.explore.reference_search import Recorded, SlowSearch
from tests.tiers import sampled

WALKS = [
    Bounds(Incident.AGENT, 1, COMBINED | {ExploredFault.OVERLAP}, DeliveryPace.ALL),
    Bounds(Incident.EXIT, 1, COMBINED, DeliveryPace.ALL),
    Bounds(Incident.GPU, 0, frozenset(), DeliveryPace.MACHINES),
]


def same(bounds: Bounds) -> int:
    """How many states both ways find, which must be the same ones."""
    fast, slow = Recorded(bounds), SlowSearch(bounds)
    walk = fast.run()
    assert walk.violation is None
    by_faults, number = [], 0
    for count in walk.states_by_faults:
        by_faults.append({fast.told(fast._state(n)) for n in range(number, number + count)})
        number += count
    others = [set(told) for told in slow.all_states()]
    # One by one and by their number only: to tell how two such sets differ takes longer than to make them.
    assert [len(mine ^ its) for mine, its in zip(by_faults, others, strict=True)] == [0] * len(others)
    assert len(fast.transitions ^ slow.transitions) == 0
    rows = [{row for row in one.stage.world.transcript.rows if row[-1] == "APPLIED"} for one in (fast, slow)]
    assert rows[0] == rows[1]
    assert fast.stage.carried_out < slow.stage.carried_out
    return number


@pytest.mark.parametrize("bounds", sampled(WALKS, default=0), ids=lambda bounds: f"{bounds.incident}-{bounds.pace}")
def test_the_slow_way_finds_the_same_states_transitions_and_rows(bounds: Bounds) -> None:
    """Nothing copied, named, remembered or kept in few bytes makes a state more or less."""
    assert same(bounds) > 300

"""What waits to be told: bounded, newest health first, exits never dropped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_recovery_agent.journal import Journal
from gpu_recovery_agent.report import Facts
from gpu_recovery_agent.sensors.health import Health
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.running import RunningSensor
from gpu_recovery_agent.state import State
from gpu_recovery_agent.untold import XIDS_KEPT_MAX, Untold

from tests.agent.proc import BOOT

OK, BAD = Health("ok"), Health("impaired", "GPU 0: it is lost")
INVENTORY = {"agent": "1", "driver": "580", "gpus": [{"index": 0}]}


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "running"
        self.folder.mkdir()
        self.sensor = RunningSensor(self.folder, Path("/proc"), BOOT, Journal())
        self.state = State(folder / "state", BOOT, Journal())
        self.untold = Untold(BOOT, self.state, self.sensor, Journal(), 300.0)

    def exits(self, *ranks: int) -> None:
        for rank in ranks:
            content = {"job_id": "j", "attempt": 1, "rank": rank, "code": 1, "uptime_s": 1.0, "boot_id": BOOT}
            (self.folder / f"{rank:03}.exit.json").write_text(json.dumps(content))

    def look(self, *xids: Xid, health: Health = OK) -> bool:
        return self.untold.sees(self.sensor.look()[1], xids, health)

    def facts(self, now: float = 0.0, health: Health = OK) -> Facts:
        return self.untold.facts([], health, INVENTORY, {}, now)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def xid(code: int = 79, at_s: float = 5.0, gpu: str = "0000:10:00", count: int = 1) -> Xid:
    return Xid(code, gpu, count, at_s, None)


def test_an_exit_waits_until_it_is_heard_however_often_it_is_told(place: Place) -> None:
    """Nothing but an answer removes it."""
    place.exits(0)
    for _ in range(1_000):
        place.look()
        facts = place.facts()
        assert len(facts.exits) == 1
    assert place.names() == ["000.exit.json"]
    place.untold.heard(facts, inventory_wanted=False, now=0.0)
    place.look()
    assert place.names() == [] and place.facts().exits == []


def test_more_exits_than_a_report_holds_are_told_in_the_next(place: Place) -> None:
    """A node of many small ranks that all end at once."""
    place.exits(*range(40))
    place.look()
    first = place.facts()
    assert len(first.exits) == 32
    assert place.untold.heard(first, inventory_wanted=False, now=0.0)
    place.look()
    second = place.facts()
    assert len(second.exits) == 8
    assert not place.untold.heard(second, inventory_wanted=False, now=0.0)


def test_the_newest_of_the_same_fault_is_what_is_told(place: Place) -> None:
    """Its count says how often it was; two GPUs are two."""
    place.look(xid(at_s=5.0), xid(at_s=6.0, count=2), xid(gpu="0000:11:00", at_s=5.5))
    assert [(one.gpu, one.count) for one in place.facts().xids] == [("0000:11:00", 1), ("0000:10:00", 2)]


def test_faults_are_kept_within_bounds_the_oldest_give_way(place: Place) -> None:
    """Exits do not."""
    place.exits(0)
    place.look(*(xid(code, at_s=float(code)) for code in range(XIDS_KEPT_MAX + 50)))
    told: list[int] = []
    while (facts := place.facts()).xids:
        told += [one.xid for one in facts.xids]
        place.untold.heard(facts, inventory_wanted=False, now=0.0)
    assert told == list(range(50, XIDS_KEPT_MAX + 50))


def test_the_cursor_passes_only_what_nobody_waits_for(place: Place) -> None:
    """Whatever comes before it is not told by the next agent."""
    place.look(*(xid(code, at_s=float(code)) for code in range(1, 41)))
    first = place.facts()
    place.untold.heard(first, inventory_wanted=False, now=0.0)
    assert place.state.told_s == 32.0
    place.look(xid(at_s=30.0))
    assert [one.xid for one in place.facts().xids] == list(range(33, 41))


def test_a_fault_that_came_while_the_report_was_on_its_way_is_not_taken_for_told(place: Place) -> None:
    """It is another one, with the same number on the same GPU."""
    place.look(xid(at_s=5.0))
    facts = place.facts()
    place.look(xid(at_s=6.0, count=2))
    place.untold.heard(facts, inventory_wanted=False, now=0.0)
    assert [one.count for one in place.facts().xids] == [2]


def test_news_are_cried_once(place: Place) -> None:
    """An exit, a fault, an impairment: each makes a report due at once, and not again at every look."""
    assert not place.look()
    place.exits(0)
    assert place.look() and not place.look()
    assert place.look(xid()) and not place.look()
    assert place.look(health=BAD) and not place.look(health=BAD)
    assert not place.look(health=OK)
    assert place.look(health=BAD)


def test_an_inventory_goes_on_change_every_five_minutes_and_when_it_is_asked_for(place: Place) -> None:
    """And not because a report was not heard."""
    assert place.facts(0.0).inventory is not None
    facts = place.facts(1.0)
    place.untold.heard(facts, inventory_wanted=False, now=1.0)
    assert place.facts(300.9).inventory is None and place.facts(301.0).inventory is not None
    changed = place.untold.facts([], OK, {**INVENTORY, "driver": "590"}, {}, 2.0)
    assert changed.inventory is not None and changed.digest != facts.digest
    place.untold.heard(place.facts(3.0), inventory_wanted=True, now=3.0)
    assert place.facts(4.0).inventory is not None


def test_before_the_gpus_are_read_there_is_no_inventory(place: Place) -> None:
    """An empty list would say that there are none."""
    facts = place.untold.facts([], OK, None, {}, 0.0)
    assert facts.inventory is None and facts.digest == ""


def test_after_a_report_that_nobody_can_read_each_exit_goes_alone(place: Place) -> None:
    """What was beside it may be what was wrong; health and presence come with the reports after them."""
    place.exits(0, 1)
    place.look(xid())
    assert place.untold.dropped(place.facts(), 0.0)
    for rank in (0, 1):
        place.look()
        facts = place.facts()
        assert [one.exit.rank.rank for one in facts.exits] == [rank]
        assert facts.health is None and not facts.xids and facts.inventory is None
        place.untold.heard(facts, inventory_wanted=False, now=0.0)
    assert place.names() == []
    assert place.facts().health == OK


@pytest.mark.parametrize(
    ("field", "kept"), [("running[3].job", True), ("exits[0]", True), ("xids[0]", False), ("", False)]
)
def test_a_fault_is_dropped_only_with_a_report_that_it_may_have_spoilt(place: Place, field: str, kept: bool) -> None:
    """A rank's own words must not cost what the kernel said."""
    place.look(xid())
    place.untold.dropped(place.facts(), 0.0, field)
    assert bool(place.facts().xids) == kept


def test_an_exit_that_is_refused_alone_is_put_aside_and_another_of_the_rank_is_told(place: Place) -> None:
    """It is kept for a person; a new exit under the same name is a new one."""
    place.exits(0)
    place.look()
    assert place.untold.dropped(place.facts(), 0.0)
    place.look()
    assert not place.untold.dropped(place.facts(), 0.0)
    assert place.names() == ["000.exit.refused"]
    place.look()
    assert place.facts().exits == []
    place.exits(0)
    place.look()
    assert len(place.facts().exits) == 1 and place.facts().health == OK

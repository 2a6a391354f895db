"""What waits to be told: bounded, newest health first, exits never dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.outbox import OUTBOX_XIDS_MAX, Outbox
from gpu_recovery_agent.report import ReportContent, body
from gpu_recovery_agent.sensors.gpu_health import GpuHealthStatus
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.ranks import RankSensor
from gpu_recovery_agent.state import UNREPORTED_MAX, AgentState

from tests.agent.fake_proc import BOOT

OK, BAD = GpuHealthStatus("ok"), GpuHealthStatus("impaired", "GPU 0: it is lost")
INVENTORY = {"agent": "1", "driver": "580", "gpus": [{"index": 0}]}


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "running"
        self.folder.mkdir()
        self.sensor = RankSensor(self.folder, Path("/proc"), BOOT, AgentLog())
        self.state = AgentState(folder / "state", BOOT, AgentLog())
        self.untold = Outbox(BOOT, self.state, self.sensor, AgentLog(), 300.0)

    def exits(self, *ranks: int) -> None:
        for rank in ranks:
            content = {"job_id": "j", "attempt": 1, "rank": rank, "code": 1, "uptime_s": 1.0, "boot_id": BOOT}
            (self.folder / f"{rank:03}.exit").write_text(json.dumps(content))

    def look(self, *xids: Xid, health: GpuHealthStatus = OK) -> bool:
        return self.untold.add(self.sensor.poll()[1], xids, health)

    def facts(self, now: float = 0.0, health: GpuHealthStatus = OK) -> ReportContent:
        return self.untold.next_report([], health, INVENTORY, {}, now)

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
    assert place.names() == ["000.exit"]
    place.untold.acknowledge(facts, inventory_wanted=False, now=0.0)
    place.look()
    assert place.names() == [] and place.facts().exits == []


def test_more_exits_than_a_report_holds_are_told_in_the_next(place: Place) -> None:
    """A node of many small ranks that all end at once."""
    place.exits(*range(40))
    place.look()
    first = place.facts()
    assert len(first.exits) == 32
    assert place.untold.acknowledge(first, inventory_wanted=False, now=0.0)
    place.look()
    second = place.facts()
    assert len(second.exits) == 8
    assert not place.untold.acknowledge(second, inventory_wanted=False, now=0.0)


def test_the_newest_of_the_same_fault_is_what_is_told(place: Place) -> None:
    """Its count says how often it was; two GPUs are two."""
    place.look(xid(at_s=5.0), xid(at_s=6.0, count=2), xid(gpu="0000:11:00", at_s=5.5))
    assert [(one.gpu, one.count) for one in place.facts().xids] == [("0000:11:00", 1), ("0000:10:00", 2)]


def test_faults_are_kept_within_bounds_the_oldest_give_way(place: Place) -> None:
    """Exits do not."""
    place.exits(0)
    place.look(*(xid(code, at_s=float(code)) for code in range(OUTBOX_XIDS_MAX + 50)))
    told: list[int] = []
    while (facts := place.facts()).xids:
        told += [one.xid for one in facts.xids]
        place.untold.acknowledge(facts, inventory_wanted=False, now=0.0)
    assert told == list(range(50, OUTBOX_XIDS_MAX + 50))


def test_the_cursor_passes_only_what_nobody_waits_for(place: Place) -> None:
    """Whatever comes before it is not told by the next agent."""
    place.look(*(xid(code, at_s=float(code)) for code in range(1, 41)))
    first = place.facts()
    place.untold.acknowledge(first, inventory_wanted=False, now=0.0)
    assert place.state.reported_s == 32.0
    place.look(xid(at_s=30.0))
    assert [one.xid for one in place.facts().xids] == list(range(33, 41))


def test_a_fault_that_came_while_the_report_was_on_its_way_is_not_taken_for_told(place: Place) -> None:
    """It is another one, with the same number on the same GPU."""
    place.look(xid(at_s=5.0))
    facts = place.facts()
    place.look(xid(at_s=6.0, count=2))
    place.untold.acknowledge(facts, inventory_wanted=False, now=0.0)
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
    place.untold.acknowledge(facts, inventory_wanted=False, now=1.0)
    assert place.facts(300.9).inventory is None and place.facts(301.0).inventory is not None
    changed = place.untold.next_report([], OK, {**INVENTORY, "driver": "590"}, {}, 2.0)
    assert changed.inventory is not None and changed.digest != facts.digest
    place.untold.acknowledge(place.facts(3.0), inventory_wanted=True, now=3.0)
    assert place.facts(4.0).inventory is not None


def test_before_the_gpus_are_read_there_is_no_inventory(place: Place) -> None:
    """An empty list would say that there are none."""
    facts = place.untold.next_report([], OK, None, {}, 0.0)
    assert facts.inventory is None and facts.digest == ""


def test_after_a_report_that_nobody_can_read_each_exit_goes_alone(place: Place) -> None:
    """What was beside it may be what was wrong; health and presence come with the reports after them."""
    place.exits(0, 1)
    place.look(xid())
    assert place.untold.reject(place.facts(), 0.0)
    for rank in (0, 1):
        place.look()
        facts = place.facts()
        assert [one.exit.rank.rank for one in facts.exits] == [rank]
        assert facts.health is None and not facts.xids and facts.inventory is None
        place.untold.acknowledge(facts, inventory_wanted=False, now=0.0)
    assert place.names() == []
    assert place.facts().health == OK


@pytest.mark.parametrize(
    ("field", "kept"), [("running[3].job", True), ("exits[0]", True), ("xids[0]", False), ("", False)]
)
def test_a_fault_is_dropped_only_with_a_report_that_it_may_have_spoilt(place: Place, field: str, kept: bool) -> None:
    """A rank's own words must not cost what the kernel said."""
    place.look(xid())
    place.untold.reject(place.facts(), 0.0, field)
    assert bool(place.facts().xids) == kept


def test_an_exit_that_is_refused_alone_is_put_aside_and_another_of_the_rank_is_told(place: Place) -> None:
    """It is kept for a person; a new exit under the same name is a new one."""
    place.exits(0)
    place.look()
    assert place.untold.reject(place.facts(), 0.0)
    place.look()
    assert not place.untold.reject(place.facts(), 0.0)
    assert place.names() == ["000.exit.refused"]
    place.look()
    assert place.facts().exits == []
    place.exits(0)
    place.look()
    assert len(place.facts().exits) == 1 and place.facts().health == OK


# -- what a reboot must not take with it -------------------------------------------------------------------------------


def under(boot: str, folder: Path) -> tuple[AgentState, Outbox]:
    """What an agent of that boot begins with; its predecessor has let go of the lock."""
    state = AgentState(folder / "kept", boot, AgentLog())
    state.open()
    found = Outbox(boot, state, RankSensor(folder, Path("/proc"), boot, AgentLog()), AgentLog(), 300.0)
    found.restore()
    return state, found


def told(untold: Outbox) -> ReportContent:
    return untold.next_report([], OK, None, {}, 0.0)


def test_an_xid_that_nobody_has_heard_of_is_told_after_the_reboot_with_its_boot(tmp_path: Path) -> None:
    """The kernel's log is gone by then; the file is on the disk before the first attempt to tell."""
    state, untold = under("boot-1", tmp_path)
    lost = replace(xid(79, 50.0), action=2, bursts=1)
    switch = Xid(24007, "", 3, 60.0, None, 1, fatal=True)
    untold.add([], [lost, switch], OK)
    state.close()  # the machine is reset: nothing else is saved
    state, untold = under("boot-2", tmp_path)
    untold.add([], [xid(48, 5.0)], OK)
    facts = told(untold)
    assert facts.xids == [replace(lost, boot_id="boot-1"), replace(switch, boot_id="boot-1"), xid(48, 5.0)]
    untold.acknowledge(facts, inventory_wanted=False, now=0.0)
    state.save()
    assert state.reported_s == 5.0
    state.close()
    assert told(under("boot-3", tmp_path)[1]).xids == []


def test_an_xid_survives_two_reboots_under_the_boot_it_was_logged_in(tmp_path: Path) -> None:
    """As long as the API is away; and a new start of the agent within a boot tells nothing twice."""
    state, untold = under("boot-1", tmp_path)
    untold.add([], [xid(79, 50.0)], OK)
    state.close()
    state, untold = under("boot-2", tmp_path)
    untold.add([], [xid(95, 7.0)], OK)
    state.close()
    state, untold = under("boot-2", tmp_path)
    untold.add([], [xid(95, 7.0)], OK)  # the kernel's log of this boot begins anew
    assert [(one.xid, one.boot_id) for one in told(untold).xids] == [(79, "boot-1"), (95, "")]
    state.close()
    assert [(one.xid, one.boot_id) for one in told(under("boot-3", tmp_path)[1]).xids] == [
        (79, "boot-1"),
        (95, "boot-2"),
    ]


def test_what_is_kept_for_the_next_boot_is_bounded_the_newest_first(tmp_path: Path) -> None:
    """A log that somebody floods fills no disk."""
    state, untold = under("boot-1", tmp_path)
    untold.add([], [xid(code + 1, float(code)) for code in range(3 * UNREPORTED_MAX)], OK)
    state.close()
    kept = under("boot-2", tmp_path)[0].unreported
    assert [one.xid for one in kept] == list(range(2 * UNREPORTED_MAX + 1, 3 * UNREPORTED_MAX + 1))


@pytest.mark.parametrize("untold", [None, 3, [3, {}, {"xid": "x"}, {"xid": 79, "gpu": 3, "count": 1, "at_s": 1}]])
def test_a_spool_that_is_broken_tells_nothing_and_stops_nothing(tmp_path: Path, untold: object) -> None:
    """Whatever is in the file is a claim."""
    (tmp_path / "kept").mkdir()
    content = json.dumps({"boot_id": "boot-1", "sequence": 4, "untold": untold})
    (tmp_path / "kept" / "state.json").write_text(content)
    assert under("boot-2", tmp_path)[0].unreported == []


# -- GPUs and their names ----------------------------------------------------------------------------------------------


def test_a_gpu_that_is_lost_keeps_the_uuid_it_had(place: Place) -> None:
    """Off the bus it answers nothing, and its XID is what the report is about."""
    place.look(xid(79))
    place.untold.next_report([], OK, None, {"0000:10:00": "GPU-lost", "0000:1b:00": "GPU-well"}, 0.0)
    facts = place.untold.next_report([], BAD, None, {"0000:1b:00": "GPU-well"}, 15.0)
    told = body(facts, sequence=1, uptime_s=20.0, kernel_log_s=20.0, interval_s=15.0)
    assert [one["gpu"] for one in told["xids"]] == ["GPU-lost"]
    replaced = place.untold.next_report([], OK, None, {"0000:10:00": "GPU-new"}, 30.0)
    assert replaced.uuids == {"0000:10:00": "GPU-new", "0000:1b:00": "GPU-well"}

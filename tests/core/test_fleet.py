"""The fleet's brakes: budget, breaker, probe, cap and kill switch, apart from any instance."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from gpu_recovery.core.fleet import (
    Breaker,
    DeniedLaunches,
    Fleet,
    Pause,
    breaker_limit,
    budget,
    holding_limit,
    repair_blocked_reason,
    with_blame,
    with_breaker_closed,
    with_missing_permission,
    with_permission_granted,
    with_repair_begun,
    with_repair_ended,
    with_repair_undone,
)
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.core.policy import RecoveryPolicy
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import ADAPTIVE, NOW, later

PAUSE = Pause("ada", "moving house", NOW)
PROBE_AT = later(ADAPTIVE.breaker_probe_s)


def _blamed(count: int, fleet: Fleet, at: datetime = NOW, policy: RecoveryPolicy = ADAPTIVE) -> Fleet:
    """The fleet once `count` different instances with GPUs were blamed."""
    for n in range(count):
        fleet = with_blame(fleet, f"i-{n:x}", 8, policy, at)
    return fleet


def _open(gpu_instances: int = 10) -> Fleet:
    return _blamed(5, Fleet(gpu_instances=gpu_instances))


# -- the budget --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instances", "most"), [(0, 1), (1, 1), (4, 1), (5, 1), (9, 1), (10, 2), (14, 2), (15, 3), (100, 20), (101, 20)]
)
def test_the_budget_is_a_fifth_rounded_down_and_always_one(instances: int, most: int) -> None:
    """The limit of ECS's own repair: a fifth of the fleet, and one of a small one."""
    assert budget(Fleet(gpu_instances=instances), ADAPTIVE) == most


def test_a_full_budget_holds_others_back_and_names_who_uses_it() -> None:
    """Whoever is under repair may go on to its next rung all the same."""
    fleet = with_repair_begun(with_repair_begun(Fleet(gpu_instances=10), "i-1", ADAPTIVE, NOW), "i-2", ADAPTIVE, NOW)
    assert repair_blocked_reason(fleet, "i-3", ADAPTIVE, NOW) == "2 of at most 2 instance(s) are under repair: i-1, i-2"
    assert repair_blocked_reason(fleet, "i-2", ADAPTIVE, NOW) == ""
    assert repair_blocked_reason(with_repair_ended(fleet, "i-1", True, NOW), "i-3", ADAPTIVE, NOW) == ""


NAMES = st.sampled_from([f"i-{n}" for n in range(12)])
ASKED = st.lists(
    st.tuples(
        st.sampled_from(("repair", "heal", "fail", "hold", "blame", "pause", "unpause")), NAMES, st.integers(1, 400)
    ),
    max_size=80,
)
SMALL = replace(ADAPTIVE, fleet_repairs_max=4, breaker_instances_max=5)


@given(asked=ASKED, instances=st.integers(0, 40))
def test_whatever_happens_the_brakes_hold_and_their_record_stays_small(
    asked: list[tuple[str, str, int]], instances: int
) -> None:
    """Any sequence: the budget, the cap in its window and the single probe hold; a paused fleet begins nothing."""
    fleet, now = Fleet(gpu_instances=instances), NOW
    began: list[datetime] = []
    for what, name, seconds in asked:
        now += timedelta(seconds=seconds)
        match what:
            case "repair" if not repair_blocked_reason(fleet, name, SMALL, now) and name not in fleet.repairing:
                assert fleet.pause is None
                fleet = with_repair_begun(fleet, name, SMALL, now)
                began.append(now)
            case "heal" | "fail" if name in fleet.repairing:
                fleet = with_repair_ended(fleet, name, what == "heal", now)
            case "hold" if name in fleet.repairing:
                fleet = with_repair_undone(fleet, name, now, now)
            case "blame":
                fleet = with_blame(fleet, name, 8, SMALL, now)
            case "pause":
                fleet = replace(fleet, pause=PAUSE)
            case "unpause":
                fleet = replace(fleet, pause=None)
        assert len(fleet.repairing) <= max(1, instances // 5)
        assert not fleet.probe or (fleet.probe in fleet.repairing and fleet.breaker is Breaker.HALF_OPEN)
        assert len(fleet.repairs) <= SMALL.fleet_repairs_max
        assert len(fleet.blamed) <= SMALL.breaker_instances_max
        limit = holding_limit(fleet, SMALL, now)
        assert (limit is None) == (repair_blocked_reason(fleet, "another", SMALL, now) == "")
        if limit is not None and limit.until is not None:
            assert limit.until > now
            assert holding_limit(fleet, SMALL, limit.until - timedelta(seconds=1)) == limit
            assert holding_limit(fleet, SMALL, limit.until) != limit
        if "hold" not in [one for one, _, _ in asked]:
            assert sum(now - at < timedelta(seconds=SMALL.fleet_window_s) for at in began) <= SMALL.fleet_repairs_max


def test_the_cap_of_the_fleet_counts_within_its_window() -> None:
    """So many repairs an hour, however few at once; the oldest falls out of the window to the second."""
    fleet = Fleet(gpu_instances=100)
    for n in range(ADAPTIVE.fleet_repairs_max):
        assert repair_blocked_reason(fleet, f"i-{n}", ADAPTIVE, later(n)) == ""
        fleet = with_repair_ended(with_repair_begun(fleet, f"i-{n}", ADAPTIVE, later(n)), f"i-{n}", True, later(n))
    assert "repairs began within" in repair_blocked_reason(fleet, "i-x", ADAPTIVE, later(ADAPTIVE.fleet_window_s - 1))
    assert repair_blocked_reason(fleet, "i-x", ADAPTIVE, later(ADAPTIVE.fleet_window_s)) == ""


def test_the_cap_of_replacements_counts_within_its_window_and_holds_no_reboot() -> None:
    """A new instance has no fault history, so the fleet counts; the oldest replacement falls out to the second."""
    fleet = Fleet(gpu_instances=100)
    for n in range(ADAPTIVE.replacements_max):
        assert repair_blocked_reason(fleet, f"i-{n}", ADAPTIVE, later(n), replacing=True) == ""
        fleet = with_repair_begun(fleet, f"i-{n}", ADAPTIVE, later(n), replacing=True)
        fleet = with_repair_ended(fleet, f"i-{n}", True, later(n))
    last, free = later(ADAPTIVE.replacement_window_s - 1), later(ADAPTIVE.replacement_window_s)
    assert "instances were replaced within" in repair_blocked_reason(fleet, "i-x", ADAPTIVE, last, replacing=True)
    assert repair_blocked_reason(fleet, "i-x", ADAPTIVE, last) == ""
    assert repair_blocked_reason(fleet, "i-x", ADAPTIVE, free, replacing=True) == ""


def test_a_repair_that_was_held_back_before_it_touched_anything_does_not_count() -> None:
    """A maintenance tag that is seen again and again would use up the whole fleet's repairs."""
    fleet = with_repair_begun(Fleet(gpu_instances=10), "i-1", ADAPTIVE, NOW)
    assert with_repair_undone(fleet, "i-1", NOW, NOW) == Fleet(gpu_instances=10)


# -- the breaker -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instances", "limit"), [(0, 3), (4, 3), (7, 3), (8, 4), (20, 10), (40, 20), (1000, 20)])
def test_the_breaker_opens_at_exactly_its_limit(instances: int, limit: int) -> None:
    """Half of the fleet, but never fewer than three and never more than twenty."""
    fleet = Fleet(gpu_instances=instances)
    assert breaker_limit(fleet, ADAPTIVE) == limit
    assert _blamed(limit - 1, fleet).breaker is Breaker.CLOSED
    opened = _blamed(limit, fleet)
    assert opened.breaker is Breaker.OPEN
    assert opened.opened_because == f"{limit} of {instances} instances were suspected within 300 s"


def test_the_breaker_counts_gpu_instances_each_once_and_within_the_window() -> None:
    """A node without GPUs, one that is blamed again, and what was five minutes ago open nothing."""
    fleet = _blamed(2, Fleet(gpu_instances=6))
    assert with_blame(fleet, "i-cpu", 0, ADAPTIVE, NOW) is fleet
    assert with_blame(fleet, "i-1", 8, ADAPTIVE, later(1)).breaker is Breaker.CLOSED
    outdated = with_blame(fleet, "i-x", 8, ADAPTIVE, later(ADAPTIVE.breaker_window_s))
    assert (outdated.breaker, list(outdated.blamed)) == (Breaker.CLOSED, ["i-x"])
    assert with_blame(fleet, "i-x", 8, ADAPTIVE, later(ADAPTIVE.breaker_window_s - 1)).breaker is Breaker.OPEN


def test_an_open_breaker_lets_no_repair_begin_and_every_one_under_way_end() -> None:
    """What heals passes; its record does not grow with all those who are blamed meanwhile."""
    fleet = _blamed(5, with_repair_begun(Fleet(gpu_instances=10), "i-busy", ADAPTIVE, NOW))
    assert repair_blocked_reason(fleet, "i-x", ADAPTIVE, NOW).startswith("the circuit breaker is open: 5 of 10")
    assert with_repair_ended(fleet, "i-busy", True, later(9)) == replace(fleet, repairing=frozenset())
    assert _blamed(1_000, fleet) == fleet


def test_half_open_exactly_one_tries() -> None:
    """After the wait the first who asks begins; everybody else is held as before."""
    fleet = _open()
    assert repair_blocked_reason(fleet, "i-a", ADAPTIVE, PROBE_AT - timedelta(seconds=1))
    assert repair_blocked_reason(fleet, "i-a", ADAPTIVE, PROBE_AT) == ""
    trying = with_repair_begun(fleet, "i-a", ADAPTIVE, PROBE_AT)
    assert (trying.breaker, trying.probe) == (Breaker.HALF_OPEN, "i-a")
    assert "the circuit breaker is open" in repair_blocked_reason(trying, "i-b", ADAPTIVE, PROBE_AT + timedelta(days=1))
    assert repair_blocked_reason(trying, "i-a", ADAPTIVE, PROBE_AT) == ""


def test_the_probe_that_heals_closes_the_breaker_and_forgets_all_blame() -> None:
    """It was the machines after all."""
    fleet = with_repair_ended(with_repair_begun(_open(), "i-a", ADAPTIVE, PROBE_AT), "i-a", True, PROBE_AT)
    assert (fleet.breaker, fleet.blamed, fleet.probe, fleet.incident_id) == (Breaker.CLOSED, {}, "", "")


def test_the_probe_that_does_not_heal_opens_it_again_with_a_fresh_wait() -> None:
    """The same incident goes on."""
    opened, at = _open(), later(3_000)
    fleet = with_repair_ended(with_repair_begun(opened, "i-a", ADAPTIVE, PROBE_AT), "i-a", False, at)
    assert (fleet.breaker, fleet.incident_id, fleet.probe) == (Breaker.OPEN, opened.incident_id, "")
    assert repair_blocked_reason(fleet, "i-b", ADAPTIVE, at + timedelta(seconds=ADAPTIVE.breaker_probe_s - 1))
    assert repair_blocked_reason(fleet, "i-b", ADAPTIVE, at + timedelta(seconds=ADAPTIVE.breaker_probe_s)) == ""


def test_a_probe_that_never_tried_leaves_its_turn_to_the_next() -> None:
    """Held back by a tag before anything was asked of EC2, it has proved nothing either way."""
    fleet = with_repair_undone(with_repair_begun(_open(), "i-a", ADAPTIVE, PROBE_AT), "i-a", PROBE_AT, PROBE_AT)
    assert fleet.breaker is Breaker.OPEN
    assert repair_blocked_reason(fleet, "i-b", ADAPTIVE, PROBE_AT) == ""


def test_a_person_may_close_the_breaker_by_hand_also_while_one_tries() -> None:
    """Whoever tried is under repair like any other from then on."""
    fleet = with_breaker_closed(with_repair_begun(_open(), "i-a", ADAPTIVE, PROBE_AT))
    assert (fleet.breaker, fleet.repairing) == (Breaker.CLOSED, {"i-a"})
    assert repair_blocked_reason(fleet, "i-b", ADAPTIVE, PROBE_AT) == ""
    assert with_repair_ended(fleet, "i-a", False, PROBE_AT).breaker is Breaker.CLOSED


@pytest.mark.parametrize(
    "fleet",
    [Fleet(gpu_instances=100), _open(), with_repair_begun(_open(), "i-a", ADAPTIVE, PROBE_AT)],
    ids=["closed", "open", "half-open"],
)
def test_the_kill_switch_beats_everything(fleet: Fleet) -> None:
    """Whatever the breaker and the budget say, also to the one that tries."""
    paused = replace(fleet, pause=PAUSE)
    for name in ("i-a", "i-b"):
        assert repair_blocked_reason(paused, name, ADAPTIVE, PROBE_AT) == "recovery is paused by ada: moving house"


def test_a_repair_that_never_began_takes_back_its_own_time_only() -> None:
    """Another instance's repair has begun since: that one still counts against the hour."""
    fleet = with_repair_begun(Fleet(gpu_instances=10), "i-1", ADAPTIVE, NOW)
    fleet = with_repair_begun(fleet, "i-2", ADAPTIVE, later(60))
    assert with_repair_undone(fleet, "i-1", NOW, NOW).repairs == (later(60),)
    assert with_repair_undone(fleet, "i-2", later(60), later(60)).repairs == (NOW,)


ROLE = MissingPermission("iam:PassRole", "arn:aws:iam::123456789012:role/training")


def _denied(fleet: Fleet, seconds: float, definition: str = "llm:1") -> Fleet:
    return with_missing_permission(fleet, ROLE, definition, f"a-{seconds}", ADAPTIVE, later(seconds))


def test_the_pause_of_denied_launches_doubles_with_each_try_up_to_the_cool_down() -> None:
    """Launches that are denied within a pause, as those of one pass are, belong to one try."""
    fleet, pauses = Fleet(), list[int]()
    for seconds in (0, 1, 61, 181, 421, 901, 1_801):
        fleet = _denied(fleet, seconds)
        pauses.append(fleet.denied_launches["llm:1"].pause_s)
    assert pauses == [60, 60, 120, 240, 480, 900, 900]


def test_denied_launches_of_yesterday_are_dropped() -> None:
    """Else the record would grow with each task definition that was ever denied."""
    fleet = _denied(_denied(Fleet(), 0), 86_400, "vision:1")
    assert fleet.denied_launches == {"vision:1": DeniedLaunches(ROLE.name, later(86_400), 60)}


def test_a_permission_stays_missing_for_the_other_task_definition_that_needs_it() -> None:
    """Two task definitions have the same role. The first grant does not clear the notice of the role."""
    fleet = with_permission_granted(_denied(_denied(Fleet(), 0), 1, "vision:1"), "llm:1")
    assert (list(fleet.denied_launches), list(fleet.permissions)) == (["vision:1"], [ROLE.name])
    fleet = with_permission_granted(fleet, "vision:1")
    assert (fleet.denied_launches, fleet.permissions) == ({}, {})


def test_a_launch_of_any_task_definition_ends_the_denial_of_every_launch() -> None:
    """The permission for RunTask is there."""
    lacks = MissingPermission("ecs:RunTask", everywhere=True)
    fleet = with_missing_permission(Fleet(), lacks, "llm:1", "a", ADAPTIVE, NOW)
    assert list(fleet.denied_launches) == [""]
    assert with_permission_granted(fleet, "vision:1") == Fleet()

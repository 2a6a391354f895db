"""The policies that ours is compared with do what is said of them, and feel the same failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.assumptions_file import read
from simulator.goodput.baselines import BASELINES, human_only, reboot_only
from simulator.goodput.contenders import CONTENDERS, own_way, replace_only
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Policy
from tests.simulator.goodput.test_own_way import CONDITIONS, failure, of

FACTS = read()
EVERYBODY: tuple[Policy, ...] = (
    *(make(spares) for make in (*BASELINES, *CONTENDERS) for spares in (0, 4)),
    own_way(2, 0),
    own_way(2, 4),
    LowerBound(),
)
HUMAN_ONLY, REBOOT_ONLY, REPLACE_ONLY = human_only(), reboot_only(), replace_only(0)


@pytest.mark.parametrize("contender", EVERYBODY, ids=lambda one: one.name)
def test_a_contender_has_no_luck_of_its_own(contender: Policy) -> None:
    """The same course twice is the same run twice."""
    given = failure_trace(FACTS.profile("small"), CONDITIONS, 5)
    assert contender.run(given) == contender.run(given)


@pytest.mark.parametrize("contender", EVERYBODY, ids=lambda one: one.name)
def test_every_failure_is_felt_once_or_meets_nothing(contender: Policy) -> None:
    """None is invented and none is forgotten; only what strikes after the last recovery may be open."""
    given = failure_trace(FACTS.profile("llama3"), CONDITIONS, 5)
    run = contender.run(given)
    first = [one.failure for one in run.episodes if not one.is_relapse]
    assert len(first) == len(set(first))
    assert len(given.failures) - 2 <= len(first) + run.unnoticed <= len(given.failures)


def test_a_program_that_does_not_run_is_not_hit() -> None:
    """A bug strikes in the middle of a recovery: there is nothing to strike."""
    given = of(failure(10_000.0, cure=Cure.RESTART), failure(10_100.0, cure=Cure.RESTART))
    run = HUMAN_ONLY.run(given)
    assert len(run.episodes) == 1
    assert run.unnoticed == 1


def test_a_machine_that_breaks_while_nothing_trains_shows_when_it_is_used() -> None:
    """The fault stays on the machine."""
    run = HUMAN_ONLY.run(of(failure(10_000.0), failure(10_100.0, place=9)))
    assert len(run.episodes) == 2
    assert run.episodes[1].fault_at == run.episodes[0].training_at


def test_a_lemon_that_was_replaced_fails_no_more() -> None:
    """Its other failures belong to it, not to its place."""
    faults = failure(10_000.0, of_lemon=True, cure=Cure.REPLACE), failure(90_000.0, of_lemon=True)
    assert len(REPLACE_ONLY.run(of(*faults)).episodes) == 1
    assert len(HUMAN_ONLY.run(of(faults[1], replace(faults[1], at_s=180_000.0))).episodes) == 2


def test_a_person_answers_once_and_rightly_in_their_own_time() -> None:
    """As long as this one takes, and the reboot after it."""
    run = HUMAN_ONLY.run(of(failure(human_s=5_000.0)))
    one = run.episodes[0]
    assert one.checked_at - one.stopped_at == 5_000.0
    assert one.placed_at - one.checked_at == CONDITIONS.reboot_s
    assert (run.messages, run.called) == (1, 1)
    assert [reboot.needed for reboot in run.reboots] == [True]


def test_a_node_monitor_replaces_and_waits_for_the_ranks_to_give_up() -> None:
    """It does not know the gang: the others end with their collective's time-out."""
    run = REPLACE_ONLY.run(of(failure()))
    one = run.episodes[0]
    assert one.stopped_at - one.fault_at == CONDITIONS.hang_s + CONDITIONS.event_s
    assert one.detected_at - one.fault_at == CONDITIONS.watch_s
    assert (run.replacements, len(run.reboots)) == (1, 0)


def test_a_reboot_of_whoever_ended_first_is_needless_when_a_program_failed() -> None:
    """No diagnosis: every exit looks like a sick machine."""
    run = REBOOT_ONLY.run(of(failure(cure=Cure.RESTART)))
    assert [one.needed for one in run.reboots] == [False]


def test_a_hang_names_nobody_and_is_only_restarted() -> None:
    """All ranks end together, so none of them is rebooted; what comes back is a person's in the end."""
    run = REBOOT_ONLY.run(of(failure(shows=Shows.HANG)))
    assert not run.reboots
    assert len(run.episodes) == 3
    assert run.called == 1


def test_a_spare_spares_the_wait_for_a_repair_of_every_baseline() -> None:
    """Like for like: who repairs the machine first does so behind the back of the gang, if a spare is ready."""
    for make in BASELINES:
        (alone,), (spared,) = (make(spares).run(of(failure())).episodes for spares in (0, 1))
        assert alone.placed_at - spared.placed_at == CONDITIONS.reboot_s, make
        assert (alone.was_short, spared.was_short) == (True, False)


def test_a_spare_is_used_once_until_the_repair_is_over() -> None:
    """The second fault within a reboot finds no spare."""
    close = of(failure(10_000.0), failure(10_200.0, place=4))
    assert [one.was_short for one in reboot_only(1).run(close).episodes] == [False, True]


def test_people_alone_are_worse_than_any_automation_at_scale() -> None:
    """The published experience: recovery time is what counts, and people are slow."""
    given = failure_trace(FACTS.profile("llama3"), CONDITIONS, 1)
    down = {
        one.name: sum(e.training_at - e.fault_at for e in one.run(given).episodes if e.training_at is not None)
        for one in EVERYBODY
    }
    assert max(down, key=lambda name: down[name]) == "human only"
    assert min(down, key=lambda name: down[name]) == "bound"

"""The times of the product's own way, and its rule model: nothing of our control plane is in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.assumptions_file import read
from simulator.goodput.contenders import own_way
from simulator.goodput.failure_trace import Failure, FailureTrace, failure_trace
from simulator.goodput.gang_rules import GangPolicy
from simulator.goodput.policy import Episode
from simulator.goodput.recovery_times import own_way_s, recovery
from simulator.goodput.token_bucket import TokenBucket

FACTS = read()
CONDITIONS = FACTS.conditions
LLAMA3, SMALL = FACTS.profile("llama3"), FACTS.profile("small")


def failure(at_s: float = 10_000.0, **given: object) -> Failure:
    """A fault that a reboot cures and that every check sees, or another."""
    first = Failure(0, at_s, 3, "gpu", Cure.REBOOT, Shows.EXIT, False, 0.0, Cure.REBOOT, 600.0, 2_400.0, (), 1.0)
    return replace(first, **given)


def of(*failures: Failure) -> FailureTrace:
    """A course of these failures on the small profile."""
    numbered = tuple(replace(one, number=number) for number, one in enumerate(failures))
    return FailureTrace(SMALL, CONDITIONS, numbered, 0)


def changed(policy: GangPolicy, **abilities: object) -> GangPolicy:
    """The policy with other abilities."""
    return replace(policy, abilities=replace(policy.abilities, **abilities))  # type: ignore[arg-type]


def test_calls_within_the_burst_take_no_time() -> None:
    """The bucket is full when a recovery begins."""
    assert TokenBucket(CONDITIONS).last(100, 50.0) == 50.0


def test_calls_beyond_the_burst_come_at_the_sustained_rate() -> None:
    """2,048 calls: a hundred at once, the others forty a second."""
    assert TokenBucket(CONDITIONS).last(2_048, 0.0) == pytest.approx(1_948 / 40)


def test_the_bucket_is_shared_and_fills_up_again_between_two_batches() -> None:
    """Stops, checks and launches draw on the same tokens; a second brings forty of them, a hundred is all it holds."""
    calls = TokenBucket(CONDITIONS)
    end = calls.last(140, 0.0)
    assert end == pytest.approx(1.0)
    assert calls.last(60, end + 1.0) == pytest.approx(end + 1.0 + 20 / 40)
    assert calls.last(100, end + 3_600.0) == end + 3_600.0


def test_the_own_way_of_a_recovery_is_the_sum_of_its_steps_in_the_table() -> None:
    """Computed here once more by hand, for 2,048 instances and a check of level 2."""
    steps = recovery(LLAMA3, CONDITIONS, Shows.EXIT, 2)
    assert steps.shown + steps.detected == 10 + 1
    assert steps.stopped == pytest.approx((2_047 - 100) / 40 + 10 + 1)
    assert steps.checked == pytest.approx((2_048 - 100) / 40 + 10 + 120 + 1)
    assert steps.started == pytest.approx((2_048 - 100) / 40 + 10)
    assert steps.training == pytest.approx(200, abs=0.2)
    assert steps.total == pytest.approx(509, abs=0.5)


def test_a_hang_is_seen_at_its_time_out_and_leaves_nobody_to_stop() -> None:
    """All ranks give up together."""
    steps = recovery(LLAMA3, CONDITIONS, Shows.HANG, 2)
    assert (steps.shown, steps.stopped) == (CONDITIONS.hang_s, 0.0)


def test_a_host_that_has_left_is_not_looked_for_by_a_check() -> None:
    """ECS says at once what ended, and the others are not to blame."""
    steps = recovery(LLAMA3, CONDITIONS, Shows.GONE, 2)
    assert (steps.shown, steps.checked) == (0.0, 0.0)


def test_without_checks_the_own_way_is_shorter_by_what_they_take() -> None:
    """Its start, its length, the news of its end, and its calls, for which the bucket then is fuller."""
    with_check, without = (recovery(SMALL, CONDITIONS, Shows.EXIT, level).total for level in (2, None))
    assert with_check - without == pytest.approx(10 + 120 + 1)


def test_the_own_way_at_its_best_takes_its_own_times() -> None:
    """Every episode of its run takes exactly the time that the formula says, with spares and without."""
    quiet = replace(CONDITIONS, false_alarm=0.0)
    for profile, spares in ((SMALL, 0), (SMALL, 2), (LLAMA3, 0), (LLAMA3, 4)):
        given = failure_trace(profile, quiet, 2)
        ended = [one for one in own_way(2, spares).run(given).episodes if one.training_at is not None]
        assert len(ended) > 15
        for one in ended:
            assert (one.training_at or 0.0) - one.fault_at == pytest.approx(own_way_s(one, given, 2)), one


def test_with_a_spare_nobody_waits_for_a_repair() -> None:
    """The gang is whole again before the sick machine is."""
    given = of(failure())
    alone, spared = (own_way(2, spares).run(given).episodes[0] for spares in (0, 1))
    assert alone.waited_for == {Cure.REBOOT}
    assert alone.placed_at - alone.checked_at == pytest.approx(360 + 10 + 120 + 1)
    assert spared.waited_for == frozenset()
    assert spared.placed_at == spared.checked_at


def test_a_spare_that_is_used_comes_back_when_the_machine_is_repaired() -> None:
    """Two faults within a repair need two spares, two faults a day apart one."""
    close, apart = of(failure(10_000.0), failure(10_250.0, place=4)), of(failure(10_000.0), failure(96_400.0, place=4))
    assert [bool(one.waited_for) for one in own_way(2, 1).run(close).episodes] == [False, True]
    assert [bool(one.waited_for) for one in own_way(2, 2).run(close).episodes] == [False, False]
    assert [bool(one.waited_for) for one in own_way(2, 1).run(apart).episodes] == [False, False]


def test_what_no_check_sees_comes_back_until_a_person_has_looked() -> None:
    """A restart helps for as long as the machine holds; after the second relapse somebody is asked, and it goes on."""
    run = changed(own_way(2, 1), leave_out_after=None).run(of(failure(depth=1.0, human_s=2_000.0)))
    assert all(one.is_relapse for one in run.episodes[1:])
    assert not any(one.waited_for for one in run.episodes)
    assert run.called == 1
    again = run.episodes[0].training_at
    assert again is not None
    assert run.episodes[1].fault_at == pytest.approx(again + 600.0)
    assert run.episodes[-1].fault_at < run.episodes[2].detected_at + 2_000.0
    assert len(run.episodes) == 5


def test_leaving_out_whose_rank_ends_first_twice_spares_the_person() -> None:
    """Suspicion takes the machine out, though its check passed."""
    run = changed(own_way(2, 1), leave_out_after=2).run(of(failure(depth=1.0)))
    assert len(run.episodes) == 2
    assert run.called == 0


def test_a_reboot_that_does_not_help_is_followed_by_another_machine() -> None:
    """It is a needless one, and its check costs time once more."""
    given = of(failure(cure=Cure.REPLACE))
    run = own_way(2, 0).run(given)
    assert [one.needed for one in run.reboots] == [False]
    assert run.replacements == 1
    one = run.episodes[0]
    assert one.placed_at - one.checked_at == pytest.approx(360 + 131 + 480)


def test_a_machine_that_is_blamed_wrongly_is_rebooted_and_replaced_by_a_spare() -> None:
    """False alarms cost spares, and time where there are none."""
    given = of(failure(cure=Cure.RESTART, accused=(9,)))
    assert [one.needed for one in own_way(2, 1).run(given).reboots] == [False]
    assert not own_way(2, 1).run(given).episodes[0].waited_for
    assert own_way(2, 0).run(given).episodes[0].waited_for == {Cure.REBOOT}


def test_the_own_way_of_an_episode_of_the_policys_own_doing_is_a_restart() -> None:
    """What the course does not know, no repair explains."""
    own = Episode(None, "own", 0, 0, 0, 0, 0, 0, 0, 500.0)
    assert own_way_s(own, of(), 2) == recovery(SMALL, CONDITIONS, Shows.EXIT, 2).total


@pytest.mark.parametrize("level", [2, None])
def test_a_persons_time_is_unavoidable_only_where_nothing_else_ends_the_failure(level: int | None) -> None:
    """Whoever calls one for a crash or a broken machine has chosen to wait for them."""
    waited = Episode(0, "", 0, 0, 0, 0, 0, 0, 0, 9_000.0, frozenset({Cure.PERSON}))
    steps = recovery(SMALL, CONDITIONS, Shows.EXIT, level).total
    for cure, least in ((Cure.RESTART, steps), (Cure.REBOOT, steps), (Cure.PERSON, steps + 2_400.0)):
        assert own_way_s(waited, of(failure(cure=cure)), level) == least


@pytest.mark.parametrize("level", [2, None])
def test_a_repair_is_unavoidable_only_where_too_few_healthy_machines_were_there(level: int | None) -> None:
    """Who waits for one though others stood ready has chosen to; who went on without had no need of it."""
    given = of(failure())
    steps = recovery(SMALL, CONDITIONS, Shows.EXIT, level).total
    chosen = Episode(0, "", 0, 0, 0, 0, 0, 0, 0, 9_000.0, frozenset({Cure.REBOOT}))
    assert own_way_s(chosen, given, level) == steps
    assert own_way_s(replace(chosen, waited_for=frozenset(), was_short=True), given, level) == steps
    assert own_way_s(replace(chosen, was_short=True), given, level) >= steps + CONDITIONS.reboot_s


def test_where_one_rank_ended_first_nobody_needs_to_wait_for_checks() -> None:
    """Its machine is left out and looked at meanwhile; a hang names no machine and is checked as ever."""
    quick = changed(own_way(2, 1), trusts_exits=True)
    (exits,), (hangs,) = (quick.run(of(failure(shows=shows))).episodes for shows in (Shows.EXIT, Shows.HANG))
    assert exits.checked_at == exits.stopped_at
    assert not exits.waited_for
    assert hangs.checked_at - hangs.stopped_at == pytest.approx(131)


def test_a_bug_is_a_persons_whoever_is_left_out() -> None:
    """Another machine runs the same program."""
    for way in (own_way(2, 1), changed(own_way(2, 1), leave_out_after=2), changed(own_way(2, 1), trusts_exits=True)):
        run = way.run(of(failure(cure=Cure.PERSON, depth=1.0)))
        assert run.called == 1
        assert len(run.episodes) < 10

"""The product in the virtual world as a contender: what is said of a run is what the processes did."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.policy import Preset
from gpu_recovery.scheduler.schedule import schedule

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace, failure_trace
from simulator.goodput.policy import Episode, PolicyRun
from simulator.goodput.production import FOR_MONTHS, Production, adaptive, seed_001
from simulator.goodput.recovery_times import own_way_s
from simulator.goodput.report import over_own_way
from simulator.world import World
from tests.simulator.goodput.test_own_way import CONDITIONS, FACTS, failure, of

pytestmark = pytest.mark.slow

HOUR = 3_600.0
OVERHEAD_MAX = 1.10
"""What the control plane itself may cost, of recoveries from what has not been there before."""


def _small(*failures: Failure, hours: float = 6.0) -> FailureTrace:
    """A course of these failures, whose second rank is hit, on four instances."""
    profile = replace(FACTS.profile("small").resized(4), days=hours / 24)
    return replace(of(*(replace(one, place=1) for one in failures)), profile=profile)


def _many() -> FailureTrace:
    """Two days of eight instances that fail very often, whose checks blame nobody wrongly."""
    profile = replace(FACTS.profile("llama3").resized(8), days=2.0, rate=1_000.0)
    return failure_trace(profile, replace(CONDITIONS, false_alarm=0.0), 3)


def _down(run: PolicyRun) -> list[float]:
    return [one.training_at - one.fault_at for one in run.episodes if one.training_at is not None]


def test_one_course_makes_one_run() -> None:
    """The product under a virtual clock has no luck either."""
    given = _small(failure(), failure(9_000.0))
    assert adaptive(2, 1).run(given) == adaptive(2, 1).run(given)


def test_no_recovery_is_faster_than_its_floor_or_much_slower() -> None:
    """Without throttles it is the floor and a few seconds: polls, queues, second looks. With spare machines the floor
    has no repair in it, and without them the repairs that were really needed."""
    given = _many()
    for spares in (4, 0):
        product = adaptive(2, spares)
        run = product.run(given)
        assert len(run.episodes) > 10
        assert (over_own_way(given, product, run, relapses=False) or 0) <= OVERHEAD_MAX
        for one in run.episodes:
            if one.training_at is not None and not one.is_relapse:
                assert own_way_s(one, given, 2) - 1.5 <= one.training_at - one.fault_at, one
            assert one.was_short is (spares == 0 and given.failures[one.failure or 0].is_instance_fault), one


def test_a_gang_that_may_call_ecs_more_often_is_back_sooner() -> None:
    """What the conditions say of AWS's limits holds for the product as for its floor."""
    back = {}
    for per_s in (0.5, 40.0):
        conditions = replace(CONDITIONS, calls_burst=1.0, calls_per_s=per_s)
        given = replace(_small(failure()), conditions=conditions)
        run = adaptive(2, 1).run(given)
        back[per_s] = _down(run)[0]
        assert back[per_s] == pytest.approx(own_way_s(run.episodes[0], given, 2), rel=0.15)
    assert back[0.5] > back[40.0] + 10


def test_a_function_that_needs_more_of_its_processor_takes_longer() -> None:
    """The processor time of a call is spent for each call, also where answers are awaited together."""
    back = {}
    for cpu_s in (0.0, 1.0):
        given = replace(_small(failure()), conditions=replace(CONDITIONS, call_cpu_s=cpu_s))
        back[cpu_s] = _down(adaptive(2, 1).run(given))[0]
    assert back[1.0] > back[0.0] + 10


def test_a_log_that_names_its_machine_spares_the_others_their_check() -> None:
    """The gang trains again on the spare before the check of the one that is named has ended; which is then mended."""
    course_s = {}
    for told in (0.0, 1.0):
        given = _small(failure(named_draw=told))
        run = adaptive(2, 1).run(given)
        (one,) = run.episodes
        assert [reboot.needed for reboot in run.reboots] == [True]
        assert (one.checked_at == one.stopped_at) is (told == 0.0)
        assert _down(run)[0] == pytest.approx(own_way_s(one, given, 2), rel=OVERHEAD_MAX - 1)
        course_s[told] = _down(run)[0]
    assert course_s[1.0] - course_s[0.0] > CONDITIONS.check_2_s


def test_what_the_product_waits_for_without_need_is_no_floor_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: no job is placed while any machine is under repair, though others stand ready. It has to show."""

    def waiting_for_all(self: World) -> None:
        if not any(one.under_repair for one in self.instances()):
            schedule(self.recovery)

    monkeypatch.setattr(World, "run_scheduler", waiting_for_all)
    given, product = _many(), adaptive(2, 4)
    run = product.run(given)
    assert not any(one.was_short for one in run.episodes)
    waited = [one for one in run.episodes if one.training_at is not None and Cure.REBOOT in one.waited_for]
    assert waited
    for one in waited:
        assert (one.training_at or 0.0) - one.fault_at > OVERHEAD_MAX * own_way_s(one, given, 2), one
    assert (over_own_way(given, product, run, relapses=False) or 0) > OVERHEAD_MAX


def test_the_moments_of_a_recovery_are_read_from_the_processes() -> None:
    """Fault, exit, notice, the last rank's end, the last check's, the launch: as long apart as the conditions say."""
    (one,) = adaptive(2, 1).run(_small(failure())).episodes
    assert one.shown_at - one.fault_at == CONDITIONS.exit_s
    assert one.detected_at - one.shown_at == CONDITIONS.event_s
    assert one.stopped_at - one.detected_at == pytest.approx(CONDITIONS.leave_s, abs=1)
    assert one.checked_at - one.stopped_at == pytest.approx(CONDITIONS.start_s + CONDITIONS.check_2_s, abs=3)
    assert one.training_at is not None
    assert one.training_at - one.started_at == pytest.approx(CONDITIONS.rejoin(32), abs=0.01)


def test_without_a_spare_it_waits_for_the_reboot_with_one_it_does_not() -> None:
    """The same fault, and the machine is as sick."""
    given = _small(failure())
    alone, spared = adaptive(2, 0).run(given), adaptive(2, 1).run(given)
    assert [one.waited_for for one in alone.episodes] == [frozenset({Cure.REBOOT})]
    assert [one.waited_for for one in spared.episodes] == [frozenset()]
    assert _down(alone)[0] - _down(spared)[0] > CONDITIONS.reboot_s
    assert [one.needed for one in (*alone.reboots, *spared.reboots)] == [True, True]


def test_a_hang_is_noticed_when_the_ranks_give_up() -> None:
    """All of them end at the time-out, and not before."""
    (one,) = adaptive(2, 1).run(_small(failure(shows=Shows.HANG))).episodes
    assert one.shown_at - one.fault_at == CONDITIONS.hang_s
    assert one.stopped_at == one.detected_at


def test_a_host_that_leaves_is_answered_without_a_check() -> None:
    """ECS says what ended; the others are not to blame."""
    (one,) = adaptive(2, 1).run(_small(failure(cure=Cure.REPLACE, shows=Shows.GONE))).episodes
    assert one.shown_at == one.fault_at
    assert one.checked_at == one.stopped_at


def test_a_machine_that_a_reboot_does_not_help_is_replaced() -> None:
    """Its reboots are needless, and it is terminated in the end."""
    run = adaptive(2, 1).run(_small(failure(cure=Cure.REPLACE)))
    assert run.reboots
    assert not any(one.needed for one in run.reboots)
    assert run.replacements == 1


def test_a_healthy_machine_that_its_check_blames_is_rebooted_needlessly() -> None:
    """A false alarm of the whole gang's check."""
    run = adaptive(2, 2).run(_small(failure(cure=Cure.RESTART, accused=(3,))))
    assert [one.needed for one in run.reboots] == [False]


def test_a_reboot_cures_no_machine_that_needs_another_cure() -> None:
    """Blamed by a false alarm and rebooted for it, the machine is as sick as before, and no check sees why."""
    sick = failure(cure=Cure.REPLACE, depth=1.0, relapse_s=300.0, accused=(1,))
    run = adaptive(2, 0).run(_small(sick))
    assert len(run.reboots) == 1
    assert [one.is_relapse for one in run.episodes[:2]] == [False, True]


def test_what_no_check_sees_comes_back_until_a_person_looks() -> None:
    """Where no machine is suspected: the third time somebody is called, and after them it does not come back."""
    trusting = replace(adaptive(2, 1), settings={**FOR_MONTHS, "suspect_repeats": False})
    run = trusting.run(_small(failure(depth=1.0, relapse_s=300.0, human_s=1_000.0)))
    assert len(run.episodes) >= 3
    assert all(one.is_relapse for one in run.episodes[1:])
    assert run.called == 1
    last = run.episodes[-1].training_at
    assert last is not None
    assert last < run.episodes[2].fault_at + 1_000.0 + 1_500.0


def test_what_no_check_sees_is_suspected_the_second_time_and_nobody_is_called() -> None:
    """Its machine is rebooted, which cures it, while the spare trains in its place."""
    run = adaptive(2, 1).run(_small(failure(depth=1.0, relapse_s=300.0)))
    assert [one.is_relapse for one in run.episodes] == [False, True]
    assert [one.needed for one in run.reboots] == [True] and run.called == 0


def test_a_failure_in_the_middle_of_a_recovery_meets_no_program() -> None:
    """There is none to meet; a machine's own fault is found on the way or shows afterwards."""
    assert adaptive(2, 1).run(_small(failure(), failure(10_060.0, cure=Cure.RESTART))).unnoticed == 1
    both = adaptive(2, 2).run(replace(_small(failure()), failures=(failure(), replace(failure(10_015.0), number=1))))
    assert len(both.episodes) + both.unnoticed == 2


def test_failures_that_lie_hours_apart_end_no_job_unless_they_are_held_against_it() -> None:
    """With `stable_run_resets_attempts` off the third is the last, however long it has trained between two of them."""
    failures = [failure(at * 3 * HOUR, cure=Cure.RESTART, human_s=1_200.0) for at in (1, 2, 3)]
    default = Production("adaptive, as it is", Preset.ADAPTIVE, 2, 1, {"retry_exits": True})
    unforgiving = replace(default, settings={"retry_exits": True, "stable_run_resets_attempts": False})
    given = _small(*failures, hours=12.0)
    assert default.run(given).called == adaptive(2, 1).run(given).called == 0
    run = unforgiving.run(given)
    assert [Cure.PERSON in one.waited_for for one in run.episodes] == [False, False, True]
    assert run.called == 1


def test_seed_001_calls_a_person_for_what_it_does_not_know() -> None:
    """Healthy GPUs fail its job; one reboot on the same instance is all that it does by itself."""
    program, machine = seed_001(2).run(_small(failure(cure=Cure.RESTART))), seed_001(2).run(_small(failure()))
    assert [Cure.PERSON in one.waited_for for one in program.episodes] == [True]
    assert own_way_s(program.episodes[0], _small(failure(cure=Cure.RESTART)), 2) < failure().human_s
    assert [one.waited_for for one in machine.episodes] == [frozenset({Cure.REBOOT})]
    assert (program.called, machine.called) == (1, 0)


def test_a_recovery_that_the_end_cuts_off_is_an_episode_all_the_same() -> None:
    """Its time is lost, though it has no end."""
    run = adaptive(2, 1).run(_small(failure(6 * HOUR - 60.0)))
    (one,) = run.episodes
    assert isinstance(one, Episode)
    assert one.training_at is None

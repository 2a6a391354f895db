"""From episodes to figures: every second is somewhere, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.goodput.accounting import WRITING, account, ettr, percentile, phases, trained
from simulator.goodput.assumptions_file import read
from simulator.goodput.baselines import BASELINES
from simulator.goodput.contenders import CONTENDERS, own_way
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.lower_bound import LowerBound
from simulator.goodput.policy import Episode, InstanceReboot, PolicyRun

FACTS = read()
PLAIN = replace(FACTS.conditions, checkpoint_s=100.0, stall_s=0.0, persist_s=0.0)
STALLING = replace(PLAIN, stall_s=10.0)


def _episode(fault_at: float, training_at: float | None, **given: float) -> Episode:
    moments = ("shown_at", "detected_at", "stopped_at", "checked_at", "placed_at", "started_at")
    return Episode(0, "gpu", fault_at, training_at=training_at, **{name: given.get(name, fault_at) for name in moments})


def test_a_run_without_failures_loses_only_what_checkpoints_cost() -> None:
    """Ten seconds of standing still for each hundred of training."""
    assert ettr(PolicyRun(()), 1_000.0, PLAIN) == 1.0
    assert ettr(PolicyRun(()), 1_100.0, STALLING) == pytest.approx(1_000 / 1_100)


def test_a_failure_costs_the_time_down_and_the_work_since_the_last_checkpoint() -> None:
    """250 s trained, 200 of them saved; 150 s down; 600 s trained to the end."""
    run = PolicyRun((_episode(250.0, 400.0),))
    assert ettr(run, 1_000.0, PLAIN) == pytest.approx((200 + 600) / 1_000)
    figures = account(run, 1_000.0, gpus=8, gpus_per_instance=8, conditions=PLAIN)
    assert figures.hours_by_cause["gpu"] == pytest.approx((150 + 50) * 8 / 3_600)
    assert figures.hours_by_phase["lost work"] == pytest.approx(50 * 8 / 3_600)
    assert figures.mttr_s == {"p50": 150.0, "p90": 150.0, "p99": 150.0}


def test_a_checkpoint_that_is_not_yet_readable_is_of_no_use() -> None:
    """The snapshot at 200 s is safe at 260 s only: an attempt that ends at 250 s goes back to the one at 100 s."""
    late = replace(PLAIN, persist_s=60.0)
    assert trained(250.0, late, broken=True).lost == 150.0
    assert trained(261.0, late, broken=True).lost == pytest.approx(61.0)


def test_a_failure_before_the_first_checkpoint_loses_the_whole_attempt_and_no_more() -> None:
    """What earlier attempts have saved stays saved."""
    run = PolicyRun((_episode(250.0, 300.0), _episode(390.0, 400.0)))
    assert ettr(run, 1_000.0, PLAIN) == pytest.approx((200 + 0 + 600) / 1_000)


def test_training_that_is_in_the_middle_of_a_write_has_written_for_so_long() -> None:
    """Half a stall is half a stall."""
    part = trained(105.0, STALLING, broken=False)
    assert (part.kept, part.writing) == (100.0, 5.0)
    broken = trained(105.0, STALLING, broken=True)
    assert (broken.kept, broken.lost, broken.writing) == (0.0, 100.0, 5.0)


@pytest.mark.parametrize("profile", ["small", "llama3"])
def test_no_second_is_lost_and_none_counted_twice(profile: str) -> None:
    """What counts, what was lost for each cause, and the same by phase: each adds up to the whole run."""
    given = failure_trace(FACTS.profile(profile), FACTS.conditions, 3)
    gpus = given.profile.instances * given.profile.gpus
    hours = gpus * given.profile.seconds / 3_600
    for one in (*(make(4) for make in (*BASELINES, *CONTENDERS)), own_way(2, 0), own_way(1, 4), LowerBound()):
        figures = account(one.run(given), given.profile.seconds, gpus, given.profile.gpus, given.conditions)
        assert figures.ettr * hours + sum(figures.hours_by_cause.values()) == pytest.approx(hours), one.name
        assert figures.ettr * hours + sum(figures.hours_by_phase.values()) == pytest.approx(hours), one.name


def test_what_never_recovers_counts_to_the_end_of_the_run_and_in_no_percentile() -> None:
    """A recovery that the end cuts off has no length, but its time is lost all the same."""
    figures = account(PolicyRun((_episode(250.0, None, started_at=2_000.0),)), 1_000.0, 8, 8, PLAIN)
    assert figures.ettr == pytest.approx(0.2)
    assert figures.unrecovered == 1
    assert figures.mttr_s["p50"] is None
    assert sum(figures.hours_by_cause.values()) == pytest.approx(800 * 8 / 3_600)


def test_the_time_of_a_recovery_is_divided_among_its_phases() -> None:
    """Each from one moment to the next, in the order of the moments."""
    one = Episode(0, "gpu", 0.0, 10.0, 11.0, 31.0, 61.0, 101.0, 151.0, 211.0)
    assert phases(one, 1_000.0) == {
        "shows": 10.0,
        "notice": 1.0,
        "stop": 20.0,
        "check": 30.0,
        "repair": 40.0,
        "start": 50.0,
        "rejoin": 60.0,
    }


def test_moments_that_go_backwards_are_refused() -> None:
    """An episode that was read wrongly must not turn into a figure."""
    with pytest.raises(ValueError, match="backwards"):
        phases(_episode(100.0, 200.0, stopped_at=90.0), 1_000.0)
    with pytest.raises(ValueError, match="had not begun again"):
        ettr(PolicyRun((_episode(100.0, None), _episode(300.0, 400.0))), 1_000.0, PLAIN)


def test_percentiles_are_values_that_really_occurred() -> None:
    """The smallest that is not exceeded by the share."""
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99)] == [50.0, 90.0, 99.0]
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.5) is None


def test_needless_reboots_are_told_from_the_others() -> None:
    """Only what a reboot cures is worth one."""
    run = PolicyRun((), reboots=(InstanceReboot(1.0, True), InstanceReboot(2.0, False), InstanceReboot(3.0, False)))
    figures = account(run, 1_000.0, 8, 8, PLAIN)
    assert (figures.reboots, figures.false_reboots) == (3, 2)


def test_spares_are_paid_for() -> None:
    """Idle machines cost what working ones cost."""
    figures = account(PolicyRun((), spares=4), 3_600.0, gpus=64, gpus_per_instance=8, conditions=PLAIN)
    assert figures.spare_hours == 32.0
    assert figures.hours_by_cause[WRITING] == 0.0

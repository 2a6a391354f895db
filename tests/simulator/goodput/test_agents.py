"""The product with node agents in a run of weeks: hangs by progress, evidence instead of checks, restarts in place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core.job.status import JobStatus
from gpu_recovery.core.policy import RecoveryPolicy

from simulator.cloud.agents import HELD_PACE_S, HOLDABLE_PACE_S, INTERVAL_S
from simulator.fast.fidelity import LARGE
from simulator.goodput import production
from simulator.goodput.agent_reports import ReportingStore
from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace, failure_trace
from simulator.goodput.policy import Episode
from simulator.goodput.production import Feature, Production, adaptive, with_agents
from simulator.world import World
from tests.simulator.goodput.test_own_way import CONDITIONS, FACTS, failure, of

pytestmark = pytest.mark.slow

HOUR = 3_600.0
OWN_S = 6.0
"""Seconds that the product's own functions take for a restart in place at most: deliveries, evidence, placement."""


def _trace(*failures: Failure, hours: float = 6.0) -> FailureTrace:
    """A course of these failures, whose second rank is hit, on four instances."""
    profile = replace(FACTS.profile("small").resized(4), days=hours / 24)
    return replace(of(*(replace(one, place=1) for one in failures)), profile=profile)


def _episodes(*failures: Failure, feature: Feature = Feature.IN_PLACE) -> tuple[Episode, ...]:
    return with_agents(2, 1, feature).run(_trace(*failures)).episodes


TRANSIENT = failure(2 * HOUR, cure=Cure.RESTART)
HANG = failure(2 * HOUR, cure=Cure.RESTART, shows=Shows.HANG)


def test_a_crash_is_over_in_place_within_the_times_of_the_agents() -> None:
    """The processes end within the stop grace, and the orders wait for reports. `respawn_s` includes both."""
    (one,) = with_agents(2, 0).run(_trace(TRANSIENT)).episodes
    leave_s, again_s = 5.0, CONDITIONS.respawn_s - 5.0 - HOLDABLE_PACE_S
    ends_s = HOLDABLE_PACE_S + leave_s
    assert one.detected_at - one.shown_at < 1.0
    assert one.stopped_at - one.detected_at <= ends_s + 2.0
    assert one.placed_at - one.stopped_at <= OWN_S
    assert again_s <= one.started_at - one.placed_at <= again_s + HELD_PACE_S + 1.5
    assert one.checked_at == one.stopped_at


@pytest.mark.parametrize("feature", [one for one in Feature if one is not Feature.IDLE_CHECKS])
def test_each_feature_shortens_the_recovery_from_a_crash_or_a_hang(feature: Feature) -> None:
    """Against the product without agents, and against the feature before."""
    lasts = [with_agents(2, 1, one) for one in Feature]
    before = [adaptive(2, 1), *lasts][lasts.index(with_agents(2, 1, feature))]
    down = {}
    for product in (before, with_agents(2, 1, feature)):
        run = product.run(_trace(TRANSIENT, replace(HANG, at_s=4 * HOUR)))
        down[product.name] = sum((one.training_at or 0.0) - one.fault_at for one in run.episodes)
        assert len(run.episodes) == 2
    assert down[with_agents(2, 1, feature).name] < down[before.name] - 5


def test_a_hang_is_noticed_by_the_step_times() -> None:
    """The agents confirm the hang: a minute; and, if a poll has just been made, half a minute later."""
    (one,) = _episodes(HANG)
    limit_s = RecoveryPolicy().progress_timeout_min_s
    assert limit_s - CONDITIONS.step_s <= one.detected_at - one.fault_at <= limit_s + 30 + INTERVAL_S
    assert one.training_at is not None and one.training_at < one.fault_at + CONDITIONS.hang_s


def test_the_agent_names_the_faulty_instance_and_only_its_rank_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """No log names it. The fault is found without a check of the others, and never returns."""
    worlds: list[World] = []
    made = production.World

    def remembered(**given: object) -> World:
        worlds.append(made(**given))  # type: ignore[arg-type]
        return worlds[-1]

    monkeypatch.setattr(production, "World", remembered)
    run = with_agents(2, 1).run(_trace(failure(2 * HOUR, named_draw=1.0)))
    (one,) = run.episodes
    assert one.checked_at == one.stopped_at and [reboot.needed for reboot in run.reboots] == [True]
    (world,) = worlds
    assert world.fleet.ranks.starts == 3
    assert [job.status for job in world.jobs()] == [JobStatus.RUNNING]


@pytest.mark.parametrize(("feature", "finds"), [(Feature.IN_PLACE, False), (Feature.IDLE_CHECKS, True)])
def test_the_idle_check_of_a_spare_finds_a_fault_that_level_2_does_not_see(feature: Feature, finds: bool) -> None:
    """The instance was left out, and its check found nothing. It is idle for a day."""
    hidden = failure(2 * HOUR, depth=(CONDITIONS.seen_2 + CONDITIONS.seen_3) / 2)
    run = with_agents(2, 2, feature).run(_trace(hidden, hours=40.0))
    assert [reboot.needed for reboot in run.reboots] == [True] * finds


def _set_up_s(one: Episode) -> float:
    return (one.training_at or 0.0) - (one.started_at or 0.0)


def test_a_standby_process_shortens_the_set_up_of_a_gang_that_restarts_in_place() -> None:
    """Only the share `warm_share` of the set-up is left, once the standby processes have had the time to import."""
    soon = replace(TRANSIENT, at_s=2 * HOUR + 80.0)  # the processes began 50 s ago
    first, second, third = (
        with_agents(2, 0, Feature.STANDBY).run(_trace(TRANSIENT, soon, replace(TRANSIENT, at_s=4 * HOUR))).episodes
    )
    whole_s = CONDITIONS.rejoin(4 * FACTS.profile("small").gpus)
    for one in (first, third):
        assert _set_up_s(one) == pytest.approx(whole_s * CONDITIONS.warm_share, abs=0.5)
    assert _set_up_s(second) == pytest.approx(whole_s, abs=0.5)


def test_a_gang_waits_for_the_rank_that_begins_in_a_new_container() -> None:
    """The faulty instance is left out. Its rank has no standby process on the spare."""
    product = with_agents(2, 1, Feature.STANDBY)
    product = replace(product, settings={**product.settings, "warm_spares": 0})
    (one,) = product.run(_trace(failure(2 * HOUR, named_draw=1.0))).episodes
    assert _set_up_s(one) == pytest.approx(CONDITIONS.rejoin(4 * FACTS.profile("small").gpus), abs=0.5)


def test_a_rank_on_a_warm_spare_begins_in_a_standby_process() -> None:
    """All other ranks do so in their own containers, so the whole gang does."""
    (one,) = with_agents(2, 1, Feature.STANDBY).run(_trace(failure(2 * HOUR, named_draw=1.0))).episodes
    share = CONDITIONS.rejoin(4 * FACTS.profile("small").gpus) * CONDITIONS.warm_share
    assert _set_up_s(one) == pytest.approx(share, abs=0.5)


def test_a_report_between_two_of_the_run_changes_nothing() -> None:
    """A silent hour is no silence: the reports that are left out are made up for the product."""
    run = with_agents(2, 1).run(_trace(TRANSIENT))
    assert run.called == 0 and run.messages <= 2


def test_quiet_hours_change_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most reconcile cycles are left out, and every moment of every recovery is the same."""
    profile = replace(FACTS.profile("llama3").resized(8), days=0.6, rate=1_000.0)
    trace, left_out = failure_trace(profile, CONDITIONS, 4), []
    hours = production.QuietHours

    class Counted(hours):  # type: ignore[misc, valid-type]
        """Keeps the object whose counter is read after the run."""

        def __init__(self, *given: object) -> None:
            super().__init__(*given)
            left_out.append(self)

    monkeypatch.setattr(production, "QuietHours", Counted)
    run = with_agents(2, 2).run(trace)
    monkeypatch.setattr(production, "QuietHours", lambda *given: None)
    assert with_agents(2, 2).run(trace) == run
    assert len(run.episodes) >= 4 and left_out[0].left_out > 200


def test_memory_checkpoints_are_no_agents() -> None:
    """They were given in the place of the agents."""
    product = adaptive(2, 1, memory_checkpoints=True)
    assert product.memory_checkpoints and not product.agents


def test_a_store_without_agents_has_no_heartbeats() -> None:
    """A run without agents is as before."""
    world = World(instances=1, store=ReportingStore(), fidelity=LARGE)
    assert world.store.load_heartbeats([one.instance_id for one in world.model_instances()]) == {}
    assert isinstance(adaptive(2, 0), Production)

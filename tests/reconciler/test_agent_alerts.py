"""An idle instance whose agent dies: operators hear it once, and once when it is back, however it comes and goes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.notifications.template import Phase
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler.agent_alerts import GATHERING_MAX

from simulator.memory_store.store import MemoryStore
from tests.recovery.heartbeat_world import IDS, Scene, dies_before

ALONE = f"[GPU-RECOVERY][SEV3] {IDS[0]}: its agent does not report"
BACK = "[GPU-RECOVERY][SEV4] the agents report again"
TOLD_S = 900


@pytest.fixture
def store() -> Store:
    """Hours of rounds: what a store must keep for them is one field of the brakes, which the stores' contract holds."""
    return MemoryStore()


@pytest.fixture
def idle(store: Store) -> Scene:
    """Ten instances on which nothing runs, each of them heard of."""
    return of_ten(store, PRESETS[Preset.ADAPTIVE])


@pytest.fixture
def wide(store: Store) -> Scene:
    """The same under a budget that nothing exceeds: it is never deaf."""
    return of_ten(store, replace(PRESETS[Preset.ADAPTIVE], repair_budget_percent=100))


def of_ten(store: Store, policy: RecoveryPolicy) -> Scene:
    scene = Scene(store, IDS, policy)
    for which in range(len(IDS)):
        scene.changes_instance(which, claims={})
    scene.beats(running=())
    return scene


def minutes(scene: Scene, count: int, *silent: int) -> None:
    """Each minute the others report and the reconciler sweeps."""
    for _ in range(count):
        scene.passes(60)
        scene.beats(*(one for one in range(len(IDS)) if one not in silent), running=())
        scene.sweep()


def phases(scene: Scene) -> list[Phase]:
    return [one.phase for one in scene.aws.said]


def test_an_idle_instance_whose_agent_dies_is_told_once_and_once_when_it_is_back(idle: Scene) -> None:
    """It works again at its first heartbeat; the mail waits until that lasts."""
    minutes(idle, 14, 0)
    assert idle.instance(0).silent_since is not None and idle.subjects() == []
    minutes(idle, 60, 0)
    assert idle.subjects() == [ALONE]
    minutes(idle, 14)
    assert idle.instance(0).silent_since is None and idle.subjects() == [ALONE]
    minutes(idle, 30)
    assert idle.subjects() == [ALONE, BACK] and phases(idle) == [Phase.OPENED, Phase.RESOLVED]
    assert len({one.incident_id for one in idle.aws.said}) == 1
    assert not idle.store.load_fleet().unheard


def test_an_agent_that_comes_and_goes_is_one_incident(idle: Scene) -> None:
    """Ten times silent for long, ten times heard for less than it takes to be back."""
    for _ in range(10):
        minutes(idle, 20, 0)
        minutes(idle, 10)
    assert idle.subjects() == [ALONE]
    minutes(idle, 16)
    assert idle.subjects() == [ALONE, BACK]


def test_an_agent_that_stays_away_for_minutes_only_is_not_told(idle: Scene) -> None:
    """An update of it, a reboot by its owner."""
    for _ in range(5):
        minutes(idle, 12, 0)
        minutes(idle, 3)
    assert idle.subjects() == []


def test_those_that_fall_silent_together_are_one_message_and_one_when_the_last_is_back(wide: Scene) -> None:
    """Within the budget, so that the fleet is not deaf; their last heartbeats are a minute apart."""
    minutes(wide, 1, 0)
    minutes(wide, 1, 0, 1)
    minutes(wide, 25, 0, 1, 2)
    assert wide.subjects() == ["[GPU-RECOVERY][SEV3] the agents of 3 idle instances do not report"]
    minutes(wide, 30, 2)
    assert len(wide.subjects()) == 1
    minutes(wide, 17)
    assert wide.subjects()[1:] == [BACK]


def test_who_is_waited_for_is_not_waited_for_without_end(wide: Scene) -> None:
    """One after the other, a minute apart: the first are told of all the same."""
    for count in range(1, 10):
        minutes(wide, 1, *range(count))
    minutes(wide, 9, *range(9))
    waited = wide.now - min(one for n in range(9) if (one := wide.instance(n).silent_since))
    assert timedelta(seconds=TOLD_S) < waited < timedelta(seconds=TOLD_S) + GATHERING_MAX and wide.subjects() == []
    minutes(wide, 3, *range(9))
    assert "idle instances do not report" in wide.subjects()[0]


def test_a_deaf_fleet_has_its_own_message_and_no_other(idle: Scene) -> None:
    """Beyond the budget it is the network."""
    minutes(idle, 60, 0, 1, 2, 3)
    assert len(idle.subjects()) == 1 and "instances do not report" in idle.subjects()[0]


def test_a_silent_instance_with_a_job_is_told_by_its_job_and_when_idle_by_itself(scene: Scene) -> None:
    """One message for one fact; it is told once nothing else would."""
    scene.aws.dead.clear()
    for _ in range(30):
        scene.passes(60)
        scene.beats(1, 2, 3)
        scene.sweep()
    assert not any("its agent does not report" in one for one in scene.subjects())
    scene.changes_instance(0, claims={})
    scene.passes(60)
    scene.beats(1, 2, 3)
    scene.sweep()
    assert [one for one in scene.subjects() if "its agent does not report" in one] == [ALONE]


@pytest.mark.parametrize("how", ["gone", "forgotten"])
def test_an_instance_that_leaves_or_is_forgotten_closes_the_incident(idle: Scene, how: str) -> None:
    """Nobody waits for a word of it any more."""
    minutes(idle, 20, 0)
    if how == "gone":
        idle.changes_instance(0, status=InstanceStatus.GONE)
    else:
        idle.passes(idle.policy.heartbeat_forget_s)
        idle.beats(*range(1, 10), running=())
        idle.sweep()
        minutes(idle, 16, 0)
    minutes(idle, 1, 0)
    assert idle.subjects() == [ALONE, BACK] and not idle.store.load_fleet().unheard
    why = "left the cluster" if how == "gone" else "used without an agent"
    assert why in idle.aws.said[-1].body


def test_a_reconciler_that_dies_before_it_entered_whom_it_told_of_tells_twice_and_not_never(idle: Scene) -> None:
    """The next round finds nobody entered."""
    minutes(idle, 14, 0)
    assert idle.subjects() == []
    idle.passes(60)
    idle.beats(*range(1, 10), running=())
    with dies_before(idle.store, "save_fleet"), pytest.raises(ExceptionGroup):
        idle.sweep()
    minutes(idle, 3, 0)
    assert idle.subjects() == [ALONE, ALONE]

"""Small worlds walked to the last state, with any one fault anywhere; `python -m simulator explore` goes on."""

from __future__ import annotations

import pytest
from gpu_recovery.core.instance.record import InstanceStatus

from simulator.explore import report
from simulator.explore.cli import COMBINED, walks
from simulator.explore.model import Bounds, DeliveryPace, ExploredFault, Walk
from simulator.explore.properties import PropertyChecker
from simulator.explore.search import Search
from simulator.explore.small_world import Incident, SmallWorld
from simulator.explore.state_capture import Core, StateCapture
from simulator.explore.transition import Transitions

pytestmark = pytest.mark.slow

WELL = "SUCCEEDED in attempt 2, machines AVAILABLE, AVAILABLE, AVAILABLE"
PEACE = "SUCCEEDED in attempt 1, machines AVAILABLE, AVAILABLE, AVAILABLE"
REPAIR_ROWS = {"Instance REBOOTING InstanceObserved", "Instance VERIFYING CheckEnded"}
ROWS = REPAIR_ROWS | {
    "Job QUEUED JobPlaced",
    "Job SUBMITTED AllRanksRunning",
    "Job RUNNING RankFailed",
    "Job STOPPING AllRanksStopped",
    "Job DIAGNOSING InstancesChecked",
    "Job RECOVERING JobPlaced",
    "Job RUNNING AllRanksStopped",
    "Instance AVAILABLE CheckRequested",
    "Instance CHECKING CheckEnded",
}
"""What a GPU fault and its recovery take at the least."""


def walked(bounds: Bounds) -> Walk:
    """The whole walk, in which nothing broke and from each state of which the end can be reached."""
    walk = Search(bounds).run()
    assert walk.violation is None, report.in_words({**report.report(walk), "seconds": 0})
    assert walk.is_whole and sum(walk.ends.values()) > 0
    assert set(walk.faults_taken) == (set(bounds.kinds) if bounds.faults else set())
    return walk


def rows(walk: Walk) -> set[str]:
    """The rows of the machines' tables that were taken."""
    return set(report.report(walk)["rows"])


def test_any_event_lost_doubled_or_late_and_any_death_changes_no_end() -> None:
    """One fault anywhere: the job succeeds, in its second attempt if a GPU failed, and every machine works again."""
    walk = walked(Bounds(Incident.GPU, 1, COMBINED, DeliveryPace.ALL))
    assert set(walk.ends) == {WELL, PEACE}
    assert rows(walk) >= ROWS | {"Instance REBOOTING RebootUncertain", "Job STOPPING JobLookDue"}
    assert walk.states_by_faults[1] > 10 * walk.states_by_faults[0]


@pytest.mark.parametrize(
    ("incident", "taken"),
    [(Incident.CRASH, ROWS - REPAIR_ROWS), pytest.param(Incident.GPU, ROWS, marks=pytest.mark.full)],
)
def test_any_order_of_everything_changes_no_end(incident: Incident, taken: set[str]) -> None:
    """Events, machines, scheduler and reconciler, whoever comes first.

    Of a GPU fault, the other walks of the default tier have any event late, and any invocation at any moment.
    """
    walk = walked(Bounds(incident, 0, frozenset(), DeliveryPace.FREE))
    assert set(walk.ends) == {WELL, PEACE}
    assert rows(walk) >= taken


def test_another_invocation_between_any_two_effects_changes_no_end() -> None:
    """Whoever has read what another has written since is refused, and decides again."""
    walk = walked(Bounds(Incident.GPU, 1, frozenset({ExploredFault.OVERLAP}), DeliveryPace.MACHINES))
    assert set(walk.ends) == {WELL, PEACE}
    assert walk.faults_taken[ExploredFault.OVERLAP] > 1_000


@pytest.mark.full
def test_any_step_of_a_machine_may_outlast_every_deadline() -> None:
    """A rank that does not start or stop, a boot or a check that does not end: all come to an end."""
    walk = walked(Bounds(Incident.GPU, 1, frozenset({ExploredFault.SLOW}), DeliveryPace.ALL))
    assert rows(walk) >= {
        "Job STOPPING JobDeadlineReached",
        "Job SUBMITTED JobDeadlineReached",
        "Instance VERIFYING InstanceDeadlineReached",
        "Instance CHECKING InstanceDeadlineReached",
        "Instance REBOOTING InstanceDeadlineReached",
    }


@pytest.mark.parametrize(
    ("incident", "kinds"),
    [
        (Incident.CRASH, COMBINED | {ExploredFault.OVERLAP}),
        pytest.param(Incident.AGENT, COMBINED | {ExploredFault.OVERLAP}, marks=pytest.mark.full),
        (Incident.SPOT, frozenset({ExploredFault.DROP, ExploredFault.DUPLICATE, ExploredFault.REORDER})),
        pytest.param(
            Incident.FLAKY,
            frozenset({ExploredFault.DROP, ExploredFault.DUPLICATE, ExploredFault.REORDER}),
            marks=pytest.mark.full,
        ),
    ],
)
def test_other_incidents_end_well_with_any_fault(incident: Incident, kinds: frozenset[ExploredFault]) -> None:
    """A crash on healthy GPUs, an agent cut off, a machine taken away, a GPU that comes back by itself."""
    walk = walked(Bounds(incident, 1, kinds, DeliveryPace.ALL))
    assert all(end.startswith("SUCCEEDED") and "QUARANTINED" not in end for end in walk.ends)


def test_a_job_whose_end_nobody_explains_ends_with_it_whatever_is_lost_or_dies() -> None:
    """Diagnosis is on, as delivered: the witnesses are heard, and after the checks once more, and then it is over."""
    walk = walked(Bounds(Incident.EXIT, 1, COMBINED | {ExploredFault.OVERLAP}, DeliveryPace.ALL))
    assert set(walk.ends) == {PEACE, "FAILED in attempt 1, machines AVAILABLE, AVAILABLE, AVAILABLE"}
    assert rows(walk) >= {"Job DIAGNOSING Diagnosed", "Job DIAGNOSING InstancesChecked", "Job DIAGNOSING JobLookDue"}
    copier, cores = walk.stage.copier, walk.stage.cores
    heard = {job.heard_again for core in cores for job in copier.records(core, "jobs").values()}
    assert heard == {0, 1}  # the second hearing of attempt 1, and no third


def test_each_transition_is_judged_wherever_it_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    """I6 is about a way, not about its end: one that breaks it may lead to a state that another has reached before."""
    asked: list[tuple[Core, Core]] = []
    judge_way = PropertyChecker.check_step

    def counted(self: PropertyChecker, before: Core, core: Core) -> None:
        asked.append((before, core))
        judge_way(self, before, core)

    monkeypatch.setattr(PropertyChecker, "check_step", counted)
    stage = Search(Bounds(Incident.GPU, 0, frozenset(), DeliveryPace.ALL)).run().stage
    assert len(asked) == stage.carried_out + 1  # nothing leads into the first state
    assert any(back_to_work(stage, *way) for way in asked)


def back_to_work(stage: Transitions, before: Core, after: Core) -> bool:
    """Whether an instance that did not work does."""
    was, now = (stage.copier.records(core, "machines") for core in (before, after))
    works = InstanceStatus.AVAILABLE
    return any(now[name].status is works and was[name].status is not works for name in now)


def test_every_incident_is_walked_by_the_command() -> None:
    """And the one of a GPU with as many faults as were asked for."""
    for faults in range(4):
        every = list(walks(faults))
        assert {one.incident for one in every} == set(Incident)
        assert max(one.faults for one in every if one.kinds == COMBINED) == faults


def test_a_field_that_nobody_has_thought_of_is_refused() -> None:
    """A field of the store that is neither copied nor known to be the same in every state would leak from one state
    into another."""
    world = SmallWorld()
    world.memory.pondered = object()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"MemoryStore\.pondered"):
        StateCapture(world)

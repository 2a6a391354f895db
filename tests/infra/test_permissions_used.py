"""What functions do in the simulated incidents is what their rows allow.

The sandbox's ECS and EC2 check no permissions, so a function that acts on what follows from its event could lack a call
that only AWS would refuse. In the simulator every call belongs to the function that makes it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gpu_recovery.ports.actions import Actions

from infra.functions import FUNCTIONS
from infra.permissions import Permission as P
from simulator.actions import SimulatedActions
from simulator.faults.delivery import Unruly
from simulator.world import World
from tests.simulator.incidents import INCIDENTS, TRAIN_S, troubled

NEEDED: dict[str, frozenset[P]] = {
    "run_ranks": frozenset({P.RUN_TRAINING, P.DESCRIBE_EC2_INSTANCES}),
    "run_check": frozenset({P.RUN_CHECKS}),
    "stop_tasks": frozenset({P.STOP_TASKS}),
    "stop_task": frozenset({P.STOP_TASKS}),
    "task_definition": frozenset({P.DESCRIBE_TASK_DEFINITIONS}),
    "log_tail": frozenset({P.DESCRIBE_TASK_DEFINITIONS, P.READ_TRAINING_LOGS}),
    "tasks_started_by": frozenset({P.LIST_TASKS}),
    "describe_tasks": frozenset({P.DESCRIBE_TASKS}),
    "running_tasks": frozenset({P.LIST_TASKS, P.DESCRIBE_TASKS}),
    "tasks_on": frozenset({P.LIST_TASKS, P.DESCRIBE_TASKS}),
    "describe_ec2": frozenset({P.DESCRIBE_EC2_INSTANCES}),
    "describe_ec2_status": frozenset({P.DESCRIBE_EC2_STATUS}),
    "container_instances": frozenset({P.LIST_CONTAINER_INSTANCES, P.DESCRIBE_CONTAINER_INSTANCES}),
    "describe_instance": frozenset({P.DESCRIBE_CONTAINER_INSTANCES}),
    "drain": frozenset({P.SET_CONTAINER_INSTANCE_STATE}),
    "activate": frozenset({P.SET_CONTAINER_INSTANCE_STATE}),
    "reboot": frozenset({P.REBOOT_INSTANCES}),
    "replace": frozenset({P.REPLACE_INSTANCES, P.DESCRIBE_EC2_INSTANCES}),
    "start": frozenset({P.REPLACE_INSTANCES}),
    "tag": frozenset({P.TAG_INSTANCES}),
    "deregister": frozenset({P.DEREGISTER_CONTAINER_INSTANCES}),
    "load_verdict": frozenset({P.READ_VERDICTS}),
    "notify": frozenset({P.NOTIFY_OPERATORS}),
    "publish": frozenset({P.PUBLISH_EVENTS}),
    "poke_scheduler": frozenset({P.WAKE_SCHEDULER}),
    "record_submitted": frozenset({P.RECORD_ATTEMPTS}),
    "record_attempt": frozenset({P.RECORD_ATTEMPTS}),
}
"""Each order and question of `ports.Actions`, with what it takes on AWS."""
SEEDS = 30
"""In every second of them agents report from the machines."""
ALLOWED = {row.name: row.permissions for row in FUNCTIONS}


def test_every_order_and_question_has_its_row() -> None:
    """A new one is looked up before a function may make it."""
    calls = {name for name, one in vars(Actions).items() if not name.startswith("_") and not isinstance(one, property)}
    assert calls == NEEDED.keys()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """(function, order or question) of every call that is made while a function of the simulator runs."""
    seen: set[tuple[str, str]] = set()

    def recorded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: SimulatedActions, *given: Any, **more: Any) -> Any:
            if self.invocations._stack:
                seen.add((self.invocations._stack[-1].name, name))
            return original(self, *given, **more)

        return call

    for name in NEEDED:
        monkeypatch.setattr(SimulatedActions, name, recorded(name, getattr(SimulatedActions, name)))
    yield seen


def _lacking(used: set[tuple[str, str]]) -> set[tuple[str, str, P]]:
    assert {function for function, _ in used} <= ALLOWED.keys()
    return {(function, call, one) for function, call in used for one in NEEDED[call] - ALLOWED[function]}


@pytest.mark.slow
@pytest.mark.parametrize("incident", INCIDENTS)
def test_no_function_needs_what_its_row_lacks(used: set[tuple[str, str]], incident: str) -> None:
    """From the first fault to the end of the job, whoever acts on what follows."""
    INCIDENTS[incident]()
    assert len({function for function, _ in used}) >= 3
    assert _lacking(used) == set()


@pytest.mark.slow
def test_no_function_needs_what_its_row_lacks_when_everything_goes_wrong(used: set[tuple[str, str]]) -> None:
    """Under deaths, overlaps and unruly events other functions act than in peace."""
    for seed in range(SEEDS):
        trouble = troubled(seed)
        world = World(instances=5, train_s=TRAIN_S, nemesis=trouble, delivery=Unruly(seed), agents=seed % 2 == 1)
        jobs = [world.submit(), world.submit()]
        trouble.begin(world)
        world.let_pass(20 + seed * 37 % 400)
        world.break_gpu(world.model_instance(seed % 5))
        world.cancel(jobs[0]) if seed % 3 == 0 else world.break_gpu(world.model_instance((seed + 2) % 5))
        for job_id in jobs:
            world.until_end(job_id)
    used -= {each for each in used if each[0] == "overlapping"}  # what comes in between has no name of its own
    assert {function for function, _ in used} == ALLOWED.keys() - {"event_recorder"}  # it acts on nothing
    assert _lacking(used) == set()


def test_whoever_may_stop_a_gang_may_find_the_instances_of_its_tasks() -> None:
    """ECS names only the registration: of a person's task, and of a task that a killed launcher did not record."""
    stops = {name for name, allowed in ALLOWED.items() if P.STOP_TASKS in allowed}
    assert stops and all(P.DESCRIBE_CONTAINER_INSTANCES in ALLOWED[name] for name in stops)

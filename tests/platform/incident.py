"""The one incident that every fault of the platform is tried on, and what its end must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gpu_recovery.core.commands import NotifyOperator

from simulator.cloud.fleet import FleetTimings
from tests.platform.cloud import Fault, nobody_sleeps
from tests.platform.platform_world import PlatformWorld
from tests.simulator.incidents import ADAPTIVE, ending

TRAIN_S = 40.0
PATIENT = replace(ADAPTIVE, launch_timeout_s=3_600)
QUICK = FleetTimings(start_s=5, down_s=5, boot_s=40, check_s=15)
"""Machines that are quicker than life: the reconciler makes a round in every virtual minute, and each costs time."""


@dataclass
class Incident:
    """A healed GPU fault: the world it happened in, and its job."""

    world: PlatformWorld
    job_id: str

    @property
    def ending(self) -> tuple[Any, ...]:
        """What must be the same whatever the platform did."""
        return ending(self.world, self.job_id)

    @property
    def told(self) -> set[tuple[str, str]]:
        """What operators were told, however often: an incident was opened, and it was closed."""
        return {(message.incident_id.removeprefix(self.job_id), message.severity) for message in self.messages}

    @property
    def messages(self) -> list[NotifyOperator]:
        return self.world.messages()

    @property
    def reboots(self) -> list[str]:
        """Every RebootInstances that EC2 heard, by instance."""
        return [step.given["instance"] for step in self.world.calls("RebootInstances")]

    @property
    def running(self) -> int:
        """How many tasks are left that ECS wants to run."""
        return sum(task.is_live for task in self.world.cluster.tasks.values())


Heal = Callable[..., Incident]


def heal(
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault | None = None,
    nnodes: int = 2,
    runs_s: float = 20,
    limit_s: float = 8 * 3600,
    prepare: Callable[[PlatformWorld], None] = lambda world: None,
    **given: Any,
) -> Incident:
    """A gang runs for `runs_s`, a GPU falls off the bus, and the job is brought to its end within `limit_s`.

    That nothing is left behind, and that no GPU has two owners at any time, is asked by the world itself. A launch has
    an hour: one that fails for ten minutes would be given up, which is another end, and no wrong one.
    """
    with nobody_sleeps():
        usual = {"instances": nnodes, "train_s": max(TRAIN_S, 2 * runs_s), "timings": QUICK, "policy": PATIENT}
        world = PlatformWorld(monkeypatch, fault, **{**usual, **given})
        prepare(world)
        job_id = world.submit(nnodes)
        world.until(lambda: len(world.ranks(job_id)) == nnodes, "the gang did not run")
        world.let_pass(runs_s)
        world.break_gpu(world.model_instance(0))
        world.until_end(job_id, limit_s)
        world.check_end()
        return Incident(world, job_id)


def assert_same_end(incident: Incident, undisturbed: Incident, repeats: int = 0) -> None:
    """The same job, machines and reboots; operators told of the same, with `repeats` messages more at most."""
    text = incident.world.transcript.text()
    assert len(incident.world.jobs()) == 1, text
    assert incident.ending == undisturbed.ending, text
    assert incident.reboots == undisturbed.reboots, text
    assert incident.running == 0, text
    assert incident.told == undisturbed.told, text
    assert len(incident.messages) <= len(undisturbed.messages) + repeats, text

"""The functions with records for every kind of event to hit, and what must hold whatever they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.instance.record import CheckRun, InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, OTHER_JOB, A, claim, instance, plan
from tests.lambdas.conftest import Functions, functions
from tests.lambdas.starting_states import gang

__all__ = ["functions"]

EVENT_HANDLERS = ("ecs_task_handler", "dcgm_task_monitor", "ecs_instance_monitor")
READS = ("GetItem", "BatchGetItem", "Query")
ITEM_BYTES_MAX = 400_000
CHECKED = "i-0c0c0c0c0c0c0c0c0"


@dataclass
class World:
    """Two gangs, an instance at work and one under its check; `start` is what both tables hold at the beginning."""

    functions: Functions
    start: dict[str, dict[str, Any]]

    def give(self, name: str, event: Any) -> RecoveryError | None:
        """Call the handler with `event`: it acts, leaves it alone, or raises an error of ours and writes nothing.

        Returns the error. Any other exception passes through and fails the test.
        """
        try:
            self.functions.call(name, event)
        except RecoveryError as refusal:
            assert str(refusal).strip(), "an error that says nothing"
            assert not self.writes(), f"written before {refusal}"
            return refusal
        return None

    def writes(self) -> list[str]:
        """What the latest call did to the tables."""
        done = self.functions.aws.operations("dynamodb")
        return [operation for operation in done if operation not in READS]

    def begin_again(self) -> None:
        """Both tables as at the beginning, once every record that was written since has been read again."""
        for name, item in self.functions.kept().items():
            if item != self.start.get(name):
                self._is_readable(name, item)
        self.functions.restore(self.start)

    def _is_readable(self, name: str, item: dict[str, Any]) -> None:
        """The record can be read again, and has not grown beyond what a table takes."""
        store = self.functions.store
        assert len(repr(item)) < ITEM_BYTES_MAX, name
        if "container_inst_id" in item:
            assert store.load_instance(name) is not None or "status" not in item
        elif "status" in item:
            assert store.load_job(name) is not None
        elif "world" in item:
            assert store.load_progress(item["job_id"]["S"], int(item["attempt"]["N"])) is not None
        elif name.endswith("#plan"):
            assert store.load_plan(item["job_id"]["S"], int(item["attempt"]["N"])) is not None


@pytest.fixture
def world(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> World:
    """Adoption is on, so that a stranger's task can do as much as it ever can."""
    monkeypatch.setenv("ADOPT", "recover")
    functions.chill()
    gang(functions, JOB)
    gang(functions, OTHER_JOB, status=JobStatus.DIAGNOSING, instances=(CHECKED, plan().instances[1]))
    functions.store.save_instance(instance(A, claims={JOB: claim()}))
    run = CheckRun(f"check/{CHECKED}/1", OTHER_JOB, 1, task_id=f"check-{CHECKED}-1", signed=True)
    functions.store.save_instance(instance(CHECKED, status=InstanceStatus.CHECKING, check=run, checks=1))
    left = {"check_id": run.check_id, "outcome": "HEALTHY", "summary": "", "boot_id": "b-1"}
    functions.aws.documents[f"verdicts/{run.check_id}.json"] = left
    return World(functions, functions.kept())

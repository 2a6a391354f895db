"""The tables of both machines: every pair is answered on purpose, and every answer a row declares does occur."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.errors import IllegalTransition
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.record import TERMINAL, JobStatus
from gpu_recovery.core.state_machine import Step, Transition

from tests.core.build import ADAPTIVE, NOW, available, queued, tell

MACHINES = {
    "job": (job_state_machine, JobStatus, events.JOB_EVENTS),
    "instance": (state_machine, InstanceStatus, events.INSTANCE_EVENTS),
}
PAIRS = [(name, *pair) for name, (_, statuses, kinds) in MACHINES.items() for pair in product(statuses, kinds)]
named = pytest.mark.parametrize("name", MACHINES)


@pytest.mark.parametrize(("name", "status", "kind"), PAIRS)
def test_every_pair_is_in_exactly_one_table(name: str, status: Any, kind: type) -> None:
    """A status and an event type are a transition or are ignored for a stated reason, never both and never neither."""
    machine = MACHINES[name][0]
    assert ((status, kind) in machine.TRANSITIONS) + ((status, kind) in machine.IGNORED) == 1


@named
def test_the_tables_speak_of_nothing_else(name: str) -> None:
    """No row is about a status or an event that the machine does not have."""
    machine, statuses, kinds = MACHINES[name]
    rows = set(machine.TRANSITIONS) | set(machine.IGNORED)
    assert rows == set(product(statuses, kinds))


@pytest.mark.parametrize(("base", "listed"), [(events.JobEvent, "job"), (events.InstanceEvent, "instance")])
def test_every_event_class_is_listed(base: type, listed: str) -> None:
    """An event class that is missing from the list would be missing from every test over the product."""
    modules = (events.job, events.instance)
    values = [value for module in modules for value in vars(module).values()]
    defined = {one for one in values if isinstance(one, type) and issubclass(one, base)}
    assert defined - {base} == set(MACHINES[listed][2])


@named
def test_the_reasons_for_ignoring_are_sentences(name: str) -> None:
    """They are read by people, after a status and an event: some words, and no full stop."""
    for pair, reason in MACHINES[name][0].IGNORED.items():
        assert len(reason.split()) >= 3 and not reason.endswith("."), pair


@named
def test_a_missing_row_is_illegal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair that neither table knows is a mistake of ours and says so, naming status and event."""
    machine = MACHINES[name][0]
    if name == "job":
        record, event = queued(), events.CancelRequested(at=NOW, attempt=0, by="ada")
        monkeypatch.delitem(machine.TRANSITIONS, (record.status, type(event)))
    else:
        record, event = available(), events.ReleaseRequested(at=NOW, by="ada")
        monkeypatch.delitem(machine.IGNORED, (record.status, type(event)))
    with pytest.raises(IllegalTransition, match=f"{type(event).__name__} in {record.status}"):
        tell(record, event)


def test_a_row_that_strays_from_its_targets_is_illegal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function may decide only for what its row declares."""
    pair = (JobStatus.QUEUED, events.CancelRequested)
    stray = Transition.to(lambda *_: Step(JobStatus.SUCCEEDED, "strayed"), JobStatus.CANCELED)
    monkeypatch.setitem(job_state_machine.TRANSITIONS, pair, stray)
    with pytest.raises(IllegalTransition, match="may not lead to SUCCEEDED"):
        tell(queued(), events.CancelRequested(at=NOW, attempt=0, by="ada"))


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_an_ended_job_is_moved_by_a_person_only(status: JobStatus) -> None:
    """The only row that leads out of an end is the one for tasks that a person started anew."""
    rows = job_state_machine.TRANSITIONS.items()
    assert {kind for (before, kind), row in rows if before is status and row.targets != {status}} == {
        events.NewerTaskSeen
    }


def test_a_submitted_job_that_has_ended_stays_so() -> None:
    """Newer tasks open an attempt of adopted jobs only: what we were given to run, nobody else starts."""
    ended = replace(queued(), status=JobStatus.FAILED)
    decision = tell(ended, events.NewerTaskSeen(at=NOW, attempt=0, created_at=NOW.replace(year=2030)), ADAPTIVE)
    assert decision.record is ended

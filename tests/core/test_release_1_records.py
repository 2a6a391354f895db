"""Records as release 1 wrote them, without needs, holds, brakes and incidents: every event is answered safely."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.item_codec import decode, encode
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.instance.repair_proof import proves_reboot
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import EventOutcome

from tests.core import all_events
from tests.core.build import (
    ADAPTIVE,
    FLEET,
    NOW,
    applied,
    available,
    checking,
    claimed,
    later,
    observed,
    orders,
    rebooting,
    tell,
    verdict_of,
    verifying,
)
from tests.core.job.test_recovering import MAKE

ON = replace(ADAPTIVE, replace=True)
WROTE: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "aws" / "items_schema_1.json").read_text(encoding="utf-8")
)
"""An item of each kind with everything in it that release 1 knew."""
_S = InstanceStatus


def _as_of_release_1(kind: type, record: Any) -> Any:
    """`record` read back from what release 1 would have written of it."""
    written = _known(encode(replace(record, commands=(), history=())), WROTE[kind.__name__.lower()])
    return decode(kind, written)


def _known(data: Mapping[str, Any], pattern: Mapping[str, Any]) -> dict[str, Any]:
    """Of `data` what `pattern` has too, also within what is nested in it by fields and not by names."""
    kept = {key: value for key, value in data.items() if key in pattern}
    nested = [key for key in ("check", "reboot", "spec") if isinstance(kept.get(key), Mapping) and pattern.get(key)]
    return {**kept, **{key: _known(kept[key], pattern[key]) for key in nested}, "commands": [], "history": []}


def _quarantined() -> Instance:
    return applied(tell(claimed(), events.QuarantineRequested(at=NOW, by="ada")))


INSTANCES: dict[InstanceStatus, Any] = {
    _S.AVAILABLE: claimed,
    _S.CHECKING: checking,
    _S.REBOOTING: rebooting,
    _S.VERIFYING: verifying,
    _S.QUARANTINED: _quarantined,
    _S.GONE: lambda: applied(tell(available(), observed(2, ecs_status="INACTIVE"))),
}
"""The statuses that release 1 had."""


@pytest.mark.parametrize("status", INSTANCES)
@pytest.mark.parametrize("policy", [ADAPTIVE, ON, replace(ON, observe_only=True)], ids=["off", "on", "observe"])
def test_every_event_is_answered_on_an_old_instance(status: InstanceStatus, policy: Any) -> None:
    """None is illegal; nothing works without proof, and nothing in motion is left without a deadline."""
    record = _as_of_release_1(Instance, INSTANCES[status]())
    assert record.status is status and (record.need, record.held) == (None, None)
    for at, event in all_events.anything_for_instance(record, NOW):
        decision = tell(record, event, policy, at)
        after = decision.record
        if decision.outcome is not EventOutcome.APPLIED:
            assert after is record
            continue
        if after.status not in (_S.AVAILABLE, _S.GONE):
            assert after.deadline_at is not None
        if record.reboot is not None and after.status is _S.AVAILABLE:
            assert isinstance(event, events.CheckEnded) and proves_reboot(record.reboot, event.verdict)


@pytest.mark.parametrize("status", list(JobStatus))
@pytest.mark.parametrize("policy", [ADAPTIVE, replace(ADAPTIVE, observe_only=True)], ids=["acting", "observe"])
def test_every_event_is_answered_on_an_old_job(status: JobStatus, policy: Any) -> None:
    """Without the time of its incident and of its start, it goes on as it would have."""
    record = _as_of_release_1(Job, MAKE[status]())
    assert (record.incident_at, record.running_at, record.quick_ends) == (None, None, 0)
    assert (record.first_ends, record.suspicions) == ((), ())
    for at, event in all_events.anything_for_job(record, NOW):
        decision = tell(record, event, policy, at)
        after = decision.record
        if after.status in (JobStatus.STOPPING, JobStatus.DIAGNOSING, JobStatus.RECOVERING):
            assert after.deadline_at is not None
        if after.status in (JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.CANCELED):
            assert after.incident_at is None


def test_an_old_reboot_that_heals_tells_its_job_and_uses_up_nobodys_budget() -> None:
    """The brakes never heard of it: leaving them takes nothing from those who are in."""
    record = _as_of_release_1(Instance, verifying())
    busy = Fleet(gpu_instances=10, repairing=frozenset({"i-other"}))
    decision = tell(record, verdict_of(record, CheckOutcome.HEALTHY, "boot-2"), ADAPTIVE, NOW, busy)
    assert decision.record.status is _S.AVAILABLE and decision.fleet is None
    told = orders(decision, commands.TellJob)
    assert [(one.job_id, one.event.attempt, one.event.healed) for one in told] == [("sft-1", 1, True)]


@pytest.mark.parametrize("outcome", [CheckOutcome.REBOOT, CheckOutcome.REPLACE])
def test_an_old_reboot_that_did_not_heal_goes_to_a_person(outcome: CheckOutcome) -> None:
    """What it was rebooted for is not in the record: nothing is tried on a guess, and its job hears so."""
    record = _as_of_release_1(Instance, verifying())
    for decision in (
        tell(record, verdict_of(record, outcome, "boot-2"), ON),
        tell(rebooting_old := _as_of_release_1(Instance, rebooting()), _deadline(rebooting_old), ON, later(9_999)),
    ):
        assert decision.record.status is _S.QUARANTINED
        assert [one.event.healed for one in orders(decision, commands.TellJob)] == [False]
        assert not orders(decision, commands.ReplaceInstance) and not orders(decision, commands.RebootInstance)


def _deadline(record: Instance) -> events.InstanceDeadlineReached:
    assert record.deadline_at is not None
    return events.InstanceDeadlineReached(at=record.deadline_at, deadline_at=record.deadline_at)


def test_an_old_order_to_reboot_that_the_second_look_holds_back_ends_with_its_deadline() -> None:
    """There is no need to hold; the machine is not touched, and a person has it in half an hour."""
    record = _as_of_release_1(Instance, rebooting())
    held = events.RepairHeld(at=NOW, epoch=record.epoch, sentence="kept back")
    assert tell(record, held, ADAPTIVE, NOW, FLEET).outcome is EventOutcome.IGNORED
    assert record.deadline_at == later(ADAPTIVE.reboot_timeout_s)

"""The check `evidence` of the verb doctor: node agents that are missing or silent, and an account without any."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.liveness import Liveness
from gpu_recovery_client.account.evidence import check_evidence
from gpu_recovery_client.account.findings import Finding, Settings

SEEN_AT = "2026-11-27T09:00:00Z"


def view(name: str, liveness: str | None = "HEARD", status: str = "AVAILABLE", **more: Any) -> dict[str, Any]:
    """An instance as the API lists it. `liveness` None: no agent has ever reported."""
    agent = None if liveness is None else {"seen_at": SEEN_AT, "liveness": liveness}
    return {"instance_id": name, "status": status, "node_agent": agent, "health": {}, **more}


def found(*views: dict[str, Any], **settings: Any) -> list[Finding]:
    """The findings about these instances."""
    return [*check_evidence(Settings(settings, "settings/lab.toml"), views)]


def test_agents_that_report_are_no_finding() -> None:
    """Nor is a cluster without instances."""
    assert found(view("i-1"), view("i-2", "SUSPECT"), view("i-3", "UNREACHABLE")) == [] == found()


def test_an_instance_that_a_user_drained_has_no_finding() -> None:
    """ECS stops the daemon there, and starts it again when the instance is ACTIVE."""
    assert (
        found(view("i-1"), view("i-2", "LOST", ecs_status="DRAINING"), view("i-3", None, ecs_status="DRAINING")) == []
    )
    assert len(found(view("i-1"), view("i-2", "LOST", ecs_status="ACTIVE"))) == 1


def test_an_account_without_any_agent_gets_one_note() -> None:
    """It may be a choice. The note says what is not noticed, and which setting changes that."""
    (note,) = found(view("i-1", None), view("i-2", None, "CHECKING"))
    assert note.is_note and (note.check, note.subject) == ("evidence", "2 instance(s)")
    assert note.sentence == "no node agent reports from any of them; ECS has reported no GPU of them, either"
    assert note.command == 'in settings/lab.toml: node_agent = "daemon"; then make deploy NAME=lab'
    reported = {"ACCELERATED_COMPUTE": {"status": "OK"}}
    (note,) = found(view("i-1", None, health=reported), view("i-2", None))
    assert "ECS reports the GPUs of 1 of them" in note.sentence


def test_a_missing_agent_beside_others_is_found() -> None:
    """The daemon did not start there, or the image of the instance lacks the agent."""
    for settings, fix in (
        ({"node_agent": "daemon", "cluster_name": "gpus"}, "aws ecs list-services --cluster gpus"),
        ({}, "install the agent on the instance"),
    ):
        (one,) = found(view("i-1"), view("i-2", None), view("i-3"), **settings)
        assert (one.subject, one.is_note) == ("i-2", False) and "2 other instance(s) have one" in one.sentence
        assert one.command.startswith(fix)


def test_an_agent_that_has_fallen_silent_is_found() -> None:
    """From the time at which its heartbeat counts as lost."""
    assert {liveness: len(found(view("i-1", liveness))) for liveness in Liveness} == {
        Liveness.HEARD: 0,
        Liveness.SUSPECT: 0,
        Liveness.UNREACHABLE: 0,
        Liveness.LOST: 1,
    }
    (one,) = found(view("i-1", "LOST"), view("i-2"))
    assert one.subject == "i-1" and one.sentence == f"the node agent has not reported since {SEEN_AT}"


@pytest.mark.parametrize("status", [status for status in InstanceStatus if status not in ("AVAILABLE", "CHECKING")])
def test_an_instance_under_repair_may_be_silent(status: InstanceStatus) -> None:
    """Its agent reports again after the repair."""
    assert found(view("i-1", "LOST", status), view("i-2", None, status), view("i-3")) == []


def test_an_api_that_lists_no_agents_leads_to_no_claim() -> None:
    """A deployment of an earlier release."""
    old = {name: value for name, value in view("i-1").items() if name != "node_agent"}
    assert found(old) == []

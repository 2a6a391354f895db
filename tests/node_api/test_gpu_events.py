"""GPU Operational Events from the report of an agent to the history of its instance."""

from __future__ import annotations

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance.record import InstanceStatus

from tests.aws.records import later
from tests.core.build import applied, tell
from tests.node_api.test_report_to_tables import agent
from tests.node_api.test_router import BEAT, REPORTS, Agent

__all__ = ["agent"]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_the_events_stand_beside_the_xid_that_decides(agent: Agent) -> None:
    """The XID leads to a check at once. The events of the same occurrence come with the next report."""
    functions = agent.functions
    functions.now = later(15)
    lost = {"xid": 79, "gpu": "GPU-0", "count": 1, "age_s": 0.5}
    assert agent.call(REPORTS, BEAT | {"sequence": 1, "xids": [lost]}).status == 200
    assert functions.instance().status is InstanceStatus.CHECKING
    functions.now = later(16)
    recovered = {"gpu": "GPU-0", "module": "GPU-BUS", "code": 3, "category": 3, "severity": 40}
    event = recovered | {"attributes": 32, "group_attributes": 1, "xid": 79}
    assert agent.call(REPORTS, BEAT | {"sequence": 2, "gpu_events": [event]}).status == 200
    found = functions.instance()
    assert found.status is InstanceStatus.CHECKING
    last = found.history[-1]
    assert last.event == "GpuEventsReported"
    assert "would have decided nothing; the XIDs decide a health check and a reboot" in last.reason


def test_the_record_says_whether_the_agent_reads_events_and_each_report_does_not_write_it(agent: Agent) -> None:
    """An empty list says that they are read. No list, as from an agent without the preview, says that they are not."""
    functions = agent.functions

    def told(sequence: int, **more: object) -> tuple[bool, int]:
        functions.now = later(15 + sequence)
        assert agent.call(REPORTS, BEAT | {"sequence": sequence} | more).status == 200
        found = functions.instance()
        return found.reads_gpu_events, found.revision

    off, first = told(1)
    on, second = told(2, gpu_events=[])
    still, third = told(3, gpu_events=[])
    over, fourth = told(4)
    assert (off, on, still, over) == (False, True, True, False)
    assert first < second == third < fourth
    assert told(5) == (False, fourth)
    assert not any(entry.event == "GpuEventsReported" for entry in functions.instance().history)


def test_a_fault_without_an_event_is_recorded_as_such(agent: Agent) -> None:
    """The XID leads to a check, and the agent that reads events had none."""
    functions = agent.functions
    functions.now = later(15)
    lost = {"xid": 79, "gpu": "GPU-0", "count": 1, "age_s": 0.5}
    assert agent.call(REPORTS, BEAT | {"sequence": 1, "xids": [lost], "gpu_events": []}).status == 200
    record = functions.instance()
    assert record.status is InstanceStatus.CHECKING and record.check is not None and record.reads_gpu_events
    verdict = Verdict(CheckOutcome.REBOOT, "GPU 0 has fallen off the bus")
    ended = events.CheckEnded(at=later(90), check_id=record.check.check_id, verdict=verdict)
    checked = applied(tell(record, ended, now=later(90)))
    told = [entry.reason for entry in checked.history if entry.event == "GpuEventsReported"]
    assert told == [
        "no GPU Operational Event (preview) was read: the events would have decided nothing; the check found REBOOT"
    ]

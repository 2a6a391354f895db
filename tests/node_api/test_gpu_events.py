"""GPU Operational Events from the report of an agent to the history of its instance."""

from __future__ import annotations

import pytest
from gpu_recovery.core.instance.record import InstanceStatus

from tests.aws.records import later
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

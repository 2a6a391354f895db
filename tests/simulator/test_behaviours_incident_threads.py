"""What operators hear of whole incidents: each a thread that is opened once and ends where the records say it ends."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.core.notifications.test_incident_threads import Thread
from tests.simulator.incidents import INCIDENTS


@pytest.mark.parametrize("name", INCIDENTS)
def test_the_messages_of_an_incident_are_threads(name: str) -> None:
    """In the order in which they were really sent; what is still open at the end is open in a record."""
    world, _ = INCIDENTS[name]()
    threads: defaultdict[str, Thread] = defaultdict(Thread)
    for message in world.messages():
        threads[message.instance_id or message.job_id or "the fleet"].hears([message])
    assert not [thread.wrong for thread in threads.values() if thread.wrong]
    records = {one.instance_id: one.incident_id for one in world.instances()}
    records |= {one.job_id: one.incident_id or "" for one in world.jobs()}
    records["the fleet"] = world.store.load_fleet().incident_id
    assert {who: thread.open_id for who, thread in threads.items()} == {who: records[who] for who in threads}

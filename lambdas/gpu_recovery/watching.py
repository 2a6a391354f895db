"""Words about machines from outside, to the instances they are about. Most machines of an account are not ours."""

from __future__ import annotations

from .core import events
from .core.signals import MachineState
from .recovery import Recovery


def warned(recovery: Recovery, instance_id: str, event: events.InstanceEvent) -> bool:
    """Tell the instance what a watcher says; False if we hold no record of it."""
    if recovery.store.load_instance(instance_id) is None:
        return False
    recovery.tell(instance_id, event)
    return True


def machine_moved(recovery: Recovery, instance_id: str, state: str) -> bool:
    """Tell the instance what a fresh look at its machine shows, which EC2 says came to be in `state`.

    EC2's words arrive late, twice and out of order; the look does not. Only `terminated` is never taken back, so it
    stands where EC2 has forgotten the machine meanwhile. False if we hold no record of it.
    """
    if recovery.store.load_instance(instance_id) is None:
        return False
    now = recovery.clock()
    machine = recovery.actions.machines((instance_id,)).get(instance_id)
    if machine is not None:
        recovery.tell(instance_id, events.MachineSeen(at=now, state=machine.state))
    elif state == MachineState.TERMINATED:
        recovery.tell(instance_id, events.MachineSeen(at=now, state=MachineState.TERMINATED))
    return True

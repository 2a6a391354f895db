"""Behaviour: a permission that the deployment lacks holds the queue, fails no job, and is told once."""

from __future__ import annotations

from gpu_recovery.core.job.record import JobStatus

from simulator.world import World
from simulator.world_builder import TRAINING_FAMILY
from tests.simulator import incidents

ROLE = "arn:aws:iam::123456789012:role/training-task"
DENIAL = (
    "User: arn:aws:sts::123456789012:assumed-role/r/scheduler is not authorized to perform: iam:PassRole on resource: "
    f"{ROLE} because no identity-based policy allows the iam:PassRole action"
)


def test_a_queue_waits_for_a_permission_and_goes_on_by_itself_once_it_is_granted() -> None:
    """Five gangs on one pair of instances, no permission for three hours: every gang runs, none was counted."""
    world = World(train_s=incidents.TRAIN_S)
    world.cluster.denied_families[TRAINING_FAMILY] = DENIAL
    names = [world.submit() for _ in range(5)]
    world.let_pass(3 * 3600)
    assert {world.job(name).status for name in names} == {JobStatus.PENDING_RESOURCES}
    tried = {call.given["startedBy"].rpartition("--")[0] for call in world.calls("RunTask")}
    assert tried == {names[0]}
    (told,) = [message for message in world.messages() if ROLE in message.body]
    assert "training_role_arns" in told.body
    world.cluster.denied_families.clear()
    for name in names:
        world.until_end(name)
        job = world.job(name)
        assert (job.status, job.attempts_counted) == (JobStatus.SUCCEEDED, 0)
    assert len([message for message in world.messages() if ROLE in message.body]) == 1

"""What every store promises about the tasks of the agent's service."""

from __future__ import annotations

from gpu_recovery.ports.store import Store

from tests.aws.records import NOW, A, B, later


def test_the_instance_of_a_task_is_known_until_its_end(store: Store) -> None:
    """DynamoDB may delete the item days late."""
    assert store.load_agent_task("task", NOW) is None
    store.save_agent_task("task", A, later(60))
    assert store.load_agent_task("task", later(59)) == (A, later(60))
    assert store.load_agent_task("task", later(60)) is None and store.load_agent_task("other", NOW) is None


def test_a_later_end_counts_and_an_earlier_one_does_not(store: Store) -> None:
    """Two functions may write it in either order; a task has one instance for ever."""
    for seconds in (60, 120, 30):
        store.save_agent_task("task", A, later(seconds))
    store.save_agent_task("another", B, later(10))
    assert store.load_agent_task("task", NOW) == (A, later(120))
    assert store.instance_of("task") is None, "a task is no container instance"

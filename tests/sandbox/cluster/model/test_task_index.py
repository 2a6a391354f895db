"""The index of tasks answers what a look at every task would."""

from copy import copy
from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from sandbox.cluster.model.records import Task
from sandbox.cluster.model.statuses import ProcessState
from sandbox.cluster.model.task_index import TaskIndex

NAMES = (None, "alice", "job--a01", "job--a02")
ACTS = st.lists(
    st.tuples(st.sampled_from(["add", "move", "move", "drop", "again"]), st.integers(0, 2), st.integers(0, 3)),
    max_size=30,
)


def task(number, started_by):
    known = {"task_id": f"task-{number}", "started_by": started_by, "containers": []}
    return Task(**{f.name: known.get(f.name, "") for f in fields(Task) if f.name not in {"process"}})


def agrees(tasks):
    """Every answer of the index against a look at all tasks."""
    every = list(tasks.values())
    for name in NAMES:
        mine = [one for one in every if one.started_by == name]
        assert tasks.started_by(name) == mine
        assert tasks.running_of(name) == [one for one in mine if one.process is ProcessState.RUNNING]
        assert tasks.count_running_of(name) == len(tasks.running_of(name))
    assert tasks.running() == [one for one in every if one.process is ProcessState.RUNNING]
    assert set(tasks.launches_running()) == {one.started_by for one in tasks.running()}


@given(ACTS)
def test_the_index_agrees_with_the_tasks_whatever_happens_to_them(acts):
    """Tasks are made, made again, moved and forgotten in any order: every answer is that of a look at all of them."""
    tasks = TaskIndex()
    for act, number, way in acts:
        key = f"task-{number}"
        if (act == "add" and key not in tasks) or (act == "again" and key in tasks):
            tasks[key] = task(number, NAMES[way])
        elif act == "move" and key in tasks:
            tasks[key].process = list(ProcessState)[way]
            tasks.moved(tasks[key])
        elif act == "drop" and key in tasks:
            del tasks[key]
        agrees(tasks)


def test_a_copy_is_an_index_of_its_own():
    """What happens to the tasks of one says nothing of the other."""
    tasks = TaskIndex({f"task-{n}": task(n, NAMES[n % 4]) for n in range(4)})
    other = copy(tasks)
    for number in range(4):
        tasks[f"task-{number}"].process = ProcessState.RUNNING
        tasks.moved(tasks[f"task-{number}"])
    tasks.clear()
    assert tasks == {}
    assert list(other) == [f"task-{n}" for n in range(4)]
    assert [one.task_id for one in other.started_by("alice")] == ["task-1"]
    assert other.running() == []


def test_whoever_wants_the_news_gets_whose_process_has_moved():
    """The news hold the task until they are emptied."""
    tasks = TaskIndex({"task-1": task(1, "alice")})
    tasks.news = {}
    tasks["task-1"].process = ProcessState.RUNNING
    tasks.moved(tasks["task-1"])
    assert list(tasks.news) == ["task-1"]


def test_a_task_that_was_forgotten_moves_nothing():
    """ECS forgets a task whose process may still end on a machine that was cut off."""
    gone = task(1, "alice")
    tasks = TaskIndex({"task-1": gone})
    del tasks["task-1"]
    gone.process = ProcessState.RUNNING
    tasks.moved(gone)
    agrees(tasks)

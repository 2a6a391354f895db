"""Index of a cluster's tasks by launch and by running process, so that a search does not read every task."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar


class Indexed(Protocol):
    """The properties of a task that the index needs."""

    @property
    def task_id(self) -> str:
        """Id of the task."""

    @property
    def started_by(self) -> str | None:
        """`startedBy` of the task's RunTask call, which names the launch; None if the call had none."""

    @property
    def runs(self) -> bool:
        """Whether the task's process really runs."""


Task = TypeVar("Task", bound=Indexed)


class TaskIndex(dict[str, Task]):
    """Tasks by id, in order of creation. The code that changes a task's `process` must call `moved`."""

    def __init__(self, tasks: Mapping[str, Task] | Iterable[tuple[str, Task]] = ()) -> None:
        super().__init__()
        self._launches: dict[str | None, dict[str, Task]] = {}
        self._running: dict[str | None, dict[str, Task]] = {}
        self._numbers: dict[str, int] = {}
        self._made = 0
        self.news: dict[str, Task] | None = None
        """Tasks with a changed process, by id. None turns this record off; its reader empties the dict."""
        self.update(tasks)

    def __copy__(self) -> "TaskIndex[Task]":
        return TaskIndex(self)

    def __setitem__(self, task_id: str, task: Task) -> None:
        if task_id in self:
            self._drop(task_id)
        super().__setitem__(task_id, task)
        if task_id not in self._numbers:
            self._made += 1
            self._numbers[task_id] = self._made
        self._launches.setdefault(task.started_by, {})[task_id] = task
        self.moved(task)

    def __delitem__(self, task_id: str) -> None:
        self._drop(task_id)
        del self._numbers[task_id]
        super().__delitem__(task_id)

    def _drop(self, task_id: str) -> None:
        task = self[task_id]
        for index in (self._launches, self._running):
            launch = index.get(task.started_by)
            if launch is not None and launch.pop(task_id, None) is not None and not launch:
                del index[task.started_by]

    def update(self, *tasks: Any, **named: Any) -> None:
        """Add tasks as `dict.update` does, and index each task."""
        for task_id, task in dict(*tasks, **named).items():
            self[task_id] = task

    def clear(self) -> None:
        """Remove every task."""
        for task_id in list(self):
            del self[task_id]

    def moved(self, task: Task) -> None:
        """Update the index after the task's process has started, ended, or failed to start."""
        if self.get(task.task_id) is not task:
            return  # the cluster forgot the task before its process ended
        if self.news is not None:
            self.news[task.task_id] = task
        launch = self._running.get(task.started_by)
        if task.runs:
            if launch is None:
                launch = self._running[task.started_by] = {}
            launch[task.task_id] = task
        elif launch is not None and launch.pop(task.task_id, None) is not None and not launch:
            del self._running[task.started_by]

    def started_by(self, name: str | None) -> list[Task]:
        """Return the tasks that `name` started, in order of creation."""
        return self.in_order(self._launches.get(name, {}).values())

    def running(self) -> list[Task]:
        """Return the tasks with a running process, in order of creation."""
        return self.in_order(task for launch in self._running.values() for task in launch.values())

    def running_of(self, name: str | None) -> list[Task]:
        """Return the tasks of `running` that `name` started."""
        return self.in_order(self._running.get(name, {}).values())

    def count_running_of(self, name: str | None) -> int:
        """Return the number of tasks that `running_of` returns."""
        return len(self._running.get(name, ()))

    def launches_running(self) -> Iterator[str | None]:
        """Iterate over each `started_by` that has a task with a running process."""
        return iter(self._running)

    def of(self, task_ids: Iterable[str]) -> list[Task]:
        """Return the tasks with these ids, in order of creation."""
        return [self[task_id] for task_id in sorted(task_ids, key=self._numbers.__getitem__)]

    def in_order(self, tasks: Iterable[Task]) -> list[Task]:
        """Return `tasks` in order of creation."""
        numbers = self._numbers
        return sorted(tasks, key=lambda task: numbers[task.task_id])

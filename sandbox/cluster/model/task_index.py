"""The tasks of a cluster, and where to find those of one launch, or those that run, without looking at every task."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar


class Indexed(Protocol):
    """What must be known of a task to find it again."""

    @property
    def task_id(self) -> str: ...

    @property
    def started_by(self) -> str | None: ...

    @property
    def runs(self) -> bool:
        """Whether its process really runs."""


Task = TypeVar("Task", bound=Indexed)


class TaskIndex(dict[str, Task]):
    """Tasks by id, in order of creation. Whoever changes a task's `process` says so with `moved`."""

    def __init__(self, given: Mapping[str, Task] | Iterable[tuple[str, Task]] = ()) -> None:
        super().__init__()
        self._launches: dict[str | None, dict[str, Task]] = {}
        self._running: dict[str | None, dict[str, Task]] = {}
        self._numbers: dict[str, int] = {}
        self._made = 0
        self.news: dict[str, Task] | None = None
        """Whose processes have moved, for whoever wants to know it and empties it."""
        self.update(given)

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
            mine = index.get(task.started_by)
            if mine is not None and mine.pop(task_id, None) is not None and not mine:
                del index[task.started_by]

    def update(self, *given: Any, **named: Any) -> None:
        """As a dict's, one by one."""
        for task_id, task in dict(*given, **named).items():
            self[task_id] = task

    def clear(self) -> None:
        """No task is left."""
        for task_id in list(self):
            del self[task_id]

    def moved(self, task: Task) -> None:
        """The task's process has begun, ended, or failed to begin."""
        if self.get(task.task_id) is not task:
            return  # forgotten before its process ended
        if self.news is not None:
            self.news[task.task_id] = task
        mine = self._running.get(task.started_by)
        if task.runs:
            if mine is None:
                mine = self._running[task.started_by] = {}
            mine[task.task_id] = task
        elif mine is not None and mine.pop(task.task_id, None) is not None and not mine:
            del self._running[task.started_by]

    def started_by(self, name: str | None) -> list[Task]:
        """The tasks that were started by `name`, in order of creation."""
        return self.in_order(self._launches.get(name, {}).values())

    def running(self) -> list[Task]:
        """The tasks whose process really runs, in order of creation."""
        return self.in_order(task for mine in self._running.values() for task in mine.values())

    def running_of(self, name: str | None) -> list[Task]:
        """Those of `running` that were started by `name`."""
        return self.in_order(self._running.get(name, {}).values())

    def count_running_of(self, name: str | None) -> int:
        """How many `running_of` would answer."""
        return len(self._running.get(name, ()))

    def launches_running(self) -> Iterator[str | None]:
        """Each `started_by` of which some task really runs."""
        return iter(self._running)

    def of(self, task_ids: Iterable[str]) -> list[Task]:
        """The tasks of these ids, in order of creation."""
        return [self[task_id] for task_id in sorted(task_ids, key=self._numbers.__getitem__)]

    def in_order(self, found: Iterable[Task]) -> list[Task]:
        """`found`, in order of creation."""
        numbers = self._numbers
        return sorted(found, key=lambda task: numbers[task.task_id])

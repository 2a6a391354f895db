"""Read tracking: records the places of the state that an invocation reads through the store and the AWS actions.

A call of a method that is not listed here counts as a read of everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpu_recovery.core.state_machine import QuotaChange

Place = tuple[str, str]
"""A shelf or "field", and the name of a record or field in it; "" for the whole shelf."""
JOBS: Place = ("jobs", "")
FLEET: Place = ("field", "fleet")
COUNTS: tuple[Place, ...] = (("field", "used"), ("field", "run_times"))
"""Places that a change of the used quota writes."""
_OF_JOBS = {
    "load_job",
    "remove_finished_job_commands",
    "load_plan",
    "load_progress",
    "add_running",
    "add_stopped",
    "add_checked",
    "record_task",
    "record_tasks",
}
"""Methods of the store that read and write only the shelf of jobs."""
_OF_ONE = {"load_instance", "remove_finished_instance_commands", "claim_instance", "release_instance"}
"""Methods of the store that read and write only the record of their first argument: an instance or its id."""
_OF_NOTHING = {"load_last_pass"}
"""Methods of the store that read no part of a state.

Only the scheduler reads the result of its latest pass. The result is no part of a state: each pass has a term of its
own and ends before the next action.
"""
_OF_ORDERS: dict[str, tuple[Place, ...]] = {
    "publish": (),
    "poke_scheduler": (),
    "notify": (("field", "announced"),),
    "load_verdict": (("field", "bucket"),),
}
"""Places that the listed AWS actions read or write."""


class Reads:
    """Places read since `begin`, in the order of their first read. `is_everything`: every place may have been read."""

    def __init__(self) -> None:
        self.places: dict[Place, None] = {}
        self.is_everything = True

    def begin(self) -> None:
        """Begin with no place read."""
        self.places, self.is_everything = {}, False

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """Context in which reads do not count, because the invocation does not cause them."""
        saved = self.places, self.is_everything
        self.begin()
        try:
            yield
        finally:
            self.places, self.is_everything = saved

    def note(self, *places: Place) -> None:
        """Record a read or write of `places`. A write counts as a read, because it compares the revision."""
        if not self.is_everything:
            for place in places:
                self.places[place] = None

    def note_everything(self) -> None:
        """Record that every place may have been read."""
        self.is_everything = True


class ReadTrackingStore:
    """Store that records in `reads` the places that its methods read."""

    def __init__(self, store: Any, reads: Reads) -> None:
        self._store, self._reads = store, reads

    def __getattr__(self, name: str) -> Any:
        method = self._tracked(name)
        setattr(self, name, method)
        return method

    def _tracked(self, name: str) -> Callable[..., Any]:
        method, reads = getattr(self._store, name), self._reads
        if name in _OF_NOTHING:
            return method  # type: ignore[no-any-return]

        def tracked(*arguments: Any, **keywords: Any) -> Any:
            if name in _OF_JOBS:
                reads.note(JOBS)
            elif name == "save_job" and not keywords and all(map(_has_no_term, arguments[1:])):
                reads.note(JOBS, *(COUNTS if any(arguments[1:]) else ()))
            elif name in _OF_ONE:
                reads.note(("machines", arguments[0] if isinstance(arguments[0], str) else arguments[0].instance_id))
            elif name == "load_instances":
                arguments = (tuple(arguments[0]), *arguments[1:])
                reads.note(*(("machines", instance_id) for instance_id in arguments[0]))
            elif name == "save_instance":
                reads.note(
                    ("machines", arguments[0].instance_id), *((FLEET,) if any(arguments[1:]) or keywords else ())
                )
            elif name == "load_fleet":
                reads.note(FLEET)
            else:
                reads.note_everything()
            return method(*arguments, **keywords)

        return tracked


def _has_no_term(quota: QuotaChange | None) -> bool:
    """Whether the quota change does not depend on a term of the scheduler."""
    return quota is None or quota.term is None


class ReadTrackingActions:
    """AWS actions that record their reads. Most answers depend on instances and tasks, so they read everything."""

    def __init__(self, actions: Any, reads: Reads) -> None:
        self._actions, self._reads = actions, reads

    def __getattr__(self, name: str) -> Any:
        places = _OF_ORDERS.get(name)
        if places is None:
            self._reads.note_everything()
        else:
            self._reads.note(*places)
        return getattr(self._actions, name)

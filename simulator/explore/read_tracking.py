"""What an invocation reads of the state of the world: noted at the store's door and at that of AWS.

Whoever goes through a door that is not in `_OF_JOBS`, `_OF_ONE` or `_OF_NOTHING` may have read everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Place = tuple[str, str]
"""A shelf or "field", and the name of one of its records or fields; "" for all of a shelf."""
JOBS: Place = ("jobs", "")
FLEET: Place = ("field", "fleet")
COUNTS: tuple[Place, ...] = (("field", "used"), ("field", "run_times"))
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
_OF_ONE = {"load_instance", "remove_finished_instance_commands", "claim_instance", "release_instance"}
"""Those that read and write the record of the instance that they are given, by id or as a record."""
_OF_NOTHING = {"load_last_pass"}
"""The scheduler alone heeds what its last pass has left, and that is no part of a state: its passes are told apart by
terms, and each is over before the next action."""
_OF_ORDERS: dict[str, tuple[Place, ...]] = {
    "publish": (),
    "poke_scheduler": (),
    "notify": (("field", "announced"),),
    "load_verdict": (("field", "bucket"),),
}


class Reads:
    """The places read since `begin`, in the order of the first time."""

    def __init__(self) -> None:
        self.places: dict[Place, None] = {}
        self.is_everything = True

    def begin(self) -> None:
        """Nothing has been read yet."""
        self.places, self.is_everything = {}, False

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """What is read in here is read by others than the invocation."""
        before = self.places, self.is_everything
        self.begin()
        try:
            yield
        finally:
            self.places, self.is_everything = before

    def note(self, *places: Place) -> None:
        """These are read, or written: who writes a record says which one was read."""
        if not self.is_everything:
            for place in places:
                self.places[place] = None

    def note_everything(self) -> None:
        """Anything may have been read."""
        self.is_everything = True


class ReadTrackingStore:
    """A store that notes in `reads` what is asked of it."""

    def __init__(self, store: Any, reads: Reads) -> None:
        self._store, self._reads = store, reads

    def __getattr__(self, name: str) -> Any:
        made = self._noting(name)
        setattr(self, name, made)
        return made

    def _noting(self, name: str) -> Callable[..., Any]:
        do, reads = getattr(self._store, name), self._reads
        if name in _OF_NOTHING:
            return do  # type: ignore[no-any-return]

        def noted(*given: Any, **named: Any) -> Any:
            if name in _OF_JOBS:
                reads.note(JOBS)
            elif name == "save_job" and not named and all(quota is None or quota.term is None for quota in given[1:]):
                reads.note(JOBS, *(COUNTS if any(given[1:]) else ()))
            elif name in _OF_ONE:
                reads.note(("machines", given[0] if isinstance(given[0], str) else given[0].instance_id))
            elif name == "load_instances":
                given = (tuple(given[0]), *given[1:])
                reads.note(*(("machines", one) for one in given[0]))
            elif name == "save_instance":
                reads.note(("machines", given[0].instance_id), *((FLEET,) if any(given[1:]) or named else ()))
            elif name == "load_fleet":
                reads.note(FLEET)
            else:
                reads.note_everything()
            return do(*given, **named)

        return noted


class ReadTrackingActions:
    """The same of orders to AWS: whatever they answer depends on machines and tasks."""

    def __init__(self, actions: Any, reads: Reads) -> None:
        self._actions, self._reads = actions, reads

    def __getattr__(self, name: str) -> Any:
        places = _OF_ORDERS.get(name)
        if places is None:
            self._reads.note_everything()
        else:
            self._reads.note(*places)
        return getattr(self._actions, name)

"""How a state becomes files of a shard: the interface, and plain pickled states for programs without PyTorch."""

from __future__ import annotations

import pickle
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

State = MutableMapping[str, Any]
PICKLED = "state.pickle"


class Shards(Protocol):
    """The shards of the generation that is loaded."""

    @property
    def own(self) -> Path:
        """The folder of the own shard. All its files are intact."""

    def open(self, shard: int, name: str) -> BinaryIO:
        """Open a file of any shard, from this instance or from the process that saved it."""


class States(Protocol):
    """Writes and reads the part of a state that belongs to this process. All processes call each method together."""

    def size(self, state: State) -> int:
        """Return about how many bytes `stage` will write."""

    def prepare(self, state: State) -> None:
        """Do now what saves of such a state need only once, so that the first save is not slow."""

    def stage(self, state: State, folder: Path) -> Callable[[], None]:
        """Copy the state now. The returned function, called in another thread, ends when it is in `folder`."""

    def read(self, state: State, shards: Shards) -> None:
        """Fill `state` with what was saved."""


class PickledStates:
    """A state is a dictionary of values that pickle can write. Each process gets back what it saved itself."""

    def size(self, state: State) -> int:
        """Return the bytes of the pickled state."""
        return len(pickle.dumps(dict(state)))

    def prepare(self, state: State) -> None:
        """There is nothing to prepare."""

    def stage(self, state: State, folder: Path) -> Callable[[], None]:
        """Pickle the state now, and write it later."""
        raw = pickle.dumps(dict(state))

        def write() -> None:
            folder.mkdir(parents=True)
            (folder / PICKLED).write_bytes(raw)

        return write

    def read(self, state: State, shards: Shards) -> None:
        """Replace the values of `state`."""
        saved = pickle.loads((shards.own / PICKLED).read_bytes())
        state.clear()
        state.update(saved)

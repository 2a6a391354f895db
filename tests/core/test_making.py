"""A record that is quickly made is the record that `dataclasses` makes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import FrozenInstanceError, dataclass, field, replace
from inspect import signature
from typing import Any

import pytest
from gpu_recovery.core.making import quickly_made


@dataclass(frozen=True)
class Plain:
    """Keeps its fields in a dict."""

    name: str
    size: int = 3
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Slotted:
    """Keeps them in slots."""

    name: str
    size: int = 3
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class At:
    """What others are made of."""

    size: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherits(At):
    """Has a slot of its own and one of another's, and is made by names only."""

    name: str
    known: Mapping[str, int] = field(default_factory=dict)


KINDS: list[type[Any]] = [Plain, Slotted, Inherits]


def copied(kind: type[Any]) -> type[Any]:
    """The same class once more, so that one of the two can be changed."""
    members = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    for name in getattr(kind, "__slots__", ()):
        members.pop(name)
    return type(kind.__name__, kind.__bases__, members)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_made_as_before(kind: type[Any]) -> None:
    """With every field given and with its defaults, which are made anew each time."""
    quick = quickly_made(copied(kind))
    assert [(one.name, one.kind) for one in signature(quick).parameters.values()] == [
        (one.name, one.kind) for one in signature(kind).parameters.values()
    ]
    for given in ({"name": "a"}, {"name": "a", "size": 4}, {"name": "a", "known": {"b": 1}}):
        mine, usual = quick(**given), kind(**given)
        assert (mine.name, mine.size, mine.known) == (usual.name, usual.size, usual.known)
        assert repr(mine) == repr(usual) and mine == quick(**given) and copy(mine) == mine
    assert quick(name="a").known is not quick(name="a").known


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_as_frozen_as_before(kind: type[Any]) -> None:
    """It is changed by making another."""
    record = quickly_made(copied(kind))(name="a")
    assert replace(record, size=5).size == 5 and record.size == 3
    with pytest.raises(FrozenInstanceError):
        record.size = 4


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_or_unknown_is_a_mistake(kind: type[Any]) -> None:
    """As for every function."""
    quick = quickly_made(copied(kind))
    with pytest.raises(TypeError, match="name"):
        quick()
    with pytest.raises(TypeError, match="colour"):
        quick(name="a", colour="red")


def test_a_record_that_does_more_is_refused() -> None:
    """What it does once it is made would be passed over; so would what it is not given."""

    @dataclass(frozen=True)
    class Even:
        number: int

        def __post_init__(self) -> None:
            raise ValueError(self.number)

    @dataclass(frozen=True)
    class Counted:
        number: int = field(init=False, default=0)

    for kind in (Even, Counted):
        with pytest.raises(TypeError, match=kind.__name__):
            quickly_made(kind)

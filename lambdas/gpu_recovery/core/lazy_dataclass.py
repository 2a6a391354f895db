"""Frozen dataclasses whose methods are generated at first use, so that importing them is cheap.

`dataclasses.dataclass` compiles the methods of each class at import. The package has 300 such classes, and one
invocation uses a tenth of them. This took half of an event function's own time at a cold start (`make bench`).
With `frozen_dataclass` the standard module generates `__init__`, but when the class is first used. The methods that
compare, hash and show an instance do the same as those of the standard module, and need no generated code.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")
_GENERATING = RLock()
"""Held while methods are generated. Commands are executed in several threads."""
_COPIED = ("__match_args__", "__dataclass_params__", "__replace__", "__init__", "__dataclass_fields__")
"""What a class gets from its model, in this order: who sees the fields sees the other members, too."""
_PSEUDO_FIELDS = ("ClassVar", "InitVar", "KW_ONLY")
"""Names in the annotations of attributes that are no fields."""


def _refuse_set(self: object, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Fields:
    """The attribute `__dataclass_fields__` until the methods exist: a read of it generates them."""

    def __init__(self, generate: Callable[[], None]) -> None:
        self.generate = generate

    def __get__(self, instance: object, owner: type) -> Any:
        self.generate()
        return owner.__dataclass_fields__  # type: ignore[attr-defined]


def _model(cls: type, kw_only: bool) -> type:
    """Return a dataclass with the fields of `cls`, own and inherited, and with no base class.

    Its `__init__` works on instances of `cls`, because it names no class. It is not generated on `cls` itself: another
    thread could then see the class without `__init__`.
    """
    annotations: dict[str, Any] = {}
    # Without a docstring `dataclass` makes one of the signature. Nobody reads it, and it takes time.
    members: dict[str, Any] = {"__annotations__": {}, "__doc__": cls.__name__}
    members |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    for base in reversed(cls.__mro__[1:]):
        if "__dataclass_fields__" in base.__dict__:
            for inherited in fields(base):
                annotations[inherited.name] = inherited.type
                members["__annotations__"][inherited.name] = object
                members[inherited.name] = copy(inherited)  # another thread may read that of the base class
    annotations |= get_annotations(cls)
    for name in get_annotations(cls):
        # `dataclass` searches an annotation that is a text for the names of pseudo-fields, which takes time.
        is_field = not any(word in str(annotations[name]) for word in _PSEUDO_FIELDS)
        members["__annotations__"][name] = object if is_field else annotations[name]
        members.pop(name, None)
        if name in cls.__dict__:
            members[name] = cls.__dict__[name]
    if hasattr(cls, "__post_init__"):
        members["__post_init__"] = None
    model: type = dataclass(frozen=True, repr=False, eq=False, kw_only=kw_only)(type(cls.__name__, (), members))
    for declared in fields(model):
        declared.type = annotations[declared.name]
        if declared.init:
            vars(model)["__init__"].__annotations__[declared.name] = declared.type
    model.__dataclass_params__.repr = model.__dataclass_params__.eq = True  # type: ignore[attr-defined]
    return model


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the attributes of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _add_comparisons(cls: type) -> None:
    """Give a class `__eq__`, `__hash__` and `__repr__` as the standard module makes them, unless it has its own."""
    compared: Callable[[Any], tuple[Any, ...]] | None = None
    in_hash: Callable[[Any], tuple[Any, ...]] | None = None

    def equals(self: Any, other: object) -> Any:
        nonlocal compared
        if other.__class__ is not self.__class__:
            return NotImplemented
        if compared is None:
            compared = _values([one.name for one in fields(cls) if one.compare])
        return compared(self) == compared(other)

    def hashed(self: Any) -> int:
        nonlocal in_hash
        if in_hash is None:
            chosen = (one for one in fields(cls) if (one.compare if one.hash is None else one.hash))
            in_hash = _values([one.name for one in chosen])
        return in_hash(self).__hash__()

    @recursive_repr()
    def shown(self: Any) -> str:
        parts = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(cls) if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(parts)})"

    has_hash = cls.__dict__.get("__hash__") is not None
    for name, method in (("__eq__", equals), ("__repr__", shown)):
        if name not in cls.__dict__:
            setattr(cls, name, method)
    if not has_hash:
        cls.__hash__ = hashed  # type: ignore[method-assign, assignment]


def _show_default(cls: type, name: str, declared: Field[Any]) -> None:
    """Replace the attribute `name = field(...)` of a class by its default, as `dataclass` does."""
    if declared.default is MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, declared.default)


def _defer(cls: type, kw_only: bool) -> None:
    """Give a class an `__init__` that generates the real one and then calls it, and the other methods."""

    def generate() -> None:
        with _GENERATING:
            if not isinstance(cls.__dict__["__dataclass_fields__"], _Fields):
                return
            model = _model(cls, kw_only)
            for name in _COPIED:
                if name in model.__dict__:
                    setattr(cls, name, model.__dict__[name])
            for name, value in list(cls.__dict__.items()):
                if isinstance(value, Field):
                    _show_default(cls, name, value)

    def deferred_init(self: Any, *args: Any, **named: Any) -> None:
        generate()
        cls.__init__(self, *args, **named)  # type: ignore[misc]

    cls.__init__ = deferred_init  # type: ignore[misc]
    _add_comparisons(cls)
    cls.__setattr__ = _refuse_set  # type: ignore[method-assign, assignment]
    cls.__delattr__ = _refuse_delete  # type: ignore[method-assign, assignment]
    cls.__dataclass_fields__ = _Fields(generate)  # type: ignore[attr-defined]


@dataclass_transform(frozen_default=True, field_specifiers=(field, Field))
def frozen_dataclass(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass. Its methods are generated when the class is first used.

    Differences from `dataclass(frozen=True)`: an error in the declaration of the fields is raised at the first use, and
    an attribute that is not a field cannot be set either.

    Args:
        kw_only: the fields are keyword-only arguments.
    """

    def decorate(cls: type[T]) -> type[T]:
        _defer(cls, kw_only)
        return cls

    return decorate

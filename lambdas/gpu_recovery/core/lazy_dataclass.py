"""Frozen dataclasses whose methods are generated at first use, so that importing them is cheap.

`dataclasses.dataclass` compiles the methods of each class at import. The package has 300 such classes, and one
invocation uses a tenth of them. This took half of an event function's own time at a cold start (`make bench`).
With `frozen_dataclass` the standard module generates the same methods, but when the class is first used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import get_annotations
from threading import RLock
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")
_GENERATING = RLock()
"""Held while methods are generated. Commands are executed in several threads."""
_METHODS = ("__eq__", "__hash__", "__repr__")
_COPIED = ("__match_args__", "__dataclass_params__", "__replace__", *_METHODS, "__init__", "__dataclass_fields__")
"""What a class gets from its model, in this order: who sees the fields sees the other members, too."""


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

    Its methods work on instances of `cls`, because generated methods name no class. The methods are not generated on
    `cls` itself: another thread could then see the class without `__init__`.
    """
    # Without a docstring `dataclass` makes one of the signature. Nobody reads it, and it takes time.
    members: dict[str, Any] = {"__annotations__": {}, "__doc__": cls.__name__}
    members |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    for base in reversed(cls.__mro__[1:]):
        if "__dataclass_fields__" in base.__dict__:
            for inherited in fields(base):
                members["__annotations__"][inherited.name] = inherited.type
                members[inherited.name] = inherited
    for name, annotation in get_annotations(cls).items():
        members["__annotations__"][name] = annotation
        members.pop(name, None)
        if name in cls.__dict__:
            members[name] = cls.__dict__[name]
    if hasattr(cls, "__post_init__"):
        members["__post_init__"] = None
    return dataclass(frozen=True, kw_only=kw_only)(type(cls.__name__, (), members))


def _show_default(cls: type, name: str, declared: Field[Any]) -> None:
    """Replace the attribute `name = field(...)` of a class by its default, as `dataclass` does."""
    if declared.default is MISSING:
        delattr(cls, name)
    else:
        setattr(cls, name, declared.default)


def _defer(cls: type, kw_only: bool) -> None:
    """Give a class methods that generate the real methods and then call them."""
    own = [name for name in _METHODS if name not in cls.__dict__ or (name == "__hash__" and cls.__hash__ is None)]

    def generate() -> None:
        with _GENERATING:
            if not isinstance(cls.__dict__["__dataclass_fields__"], _Fields):
                return
            model = _model(cls, kw_only)
            for name in _COPIED:
                if name in model.__dict__ and (name not in _METHODS or name in own):
                    setattr(cls, name, model.__dict__[name])
            for name, value in list(cls.__dict__.items()):
                if isinstance(value, Field):
                    _show_default(cls, name, value)

    def deferred(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **named: Any) -> Any:
            generate()
            return getattr(cls, name)(self, *args, **named)

        return method

    for name in ("__init__", *own):
        setattr(cls, name, deferred(name))
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

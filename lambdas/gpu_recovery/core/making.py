"""Frozen records that are made quickly, where there are several for each event of each rank of a large gang.

A frozen dataclass sets one field after the other by way of `object.__setattr__`, which takes two to three times as long
as putting the same values where they belong: into the record's dict, or into its slots.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

Record = TypeVar("Record")


def quickly_made(cls: type[Record]) -> type[Record]:
    """The frozen dataclass `cls` with another `__init__` of the same signature and effect.

    TypeError for one that does more when it is made, or that has fields which are not given to it.
    """
    if hasattr(cls, "__post_init__"):
        raise TypeError(f"{cls.__name__} does more than keep its fields")
    given: tuple[Field[Any], ...] = fields(cls)  # type: ignore[arg-type]
    if not all(one.init for one in given):
        raise TypeError(f"{cls.__name__} has a field that is not given to it")
    names: dict[str, Any] = {"MISSING": MISSING}
    parameters: list[str] = []
    named_only: list[str] = []
    lines: list[str] = []
    for one in given:
        value = one.name
        if one.default is not MISSING:
            names[f"_default_{one.name}"] = one.default
            parameter = f"{one.name}=_default_{one.name}"
        elif one.default_factory is not MISSING:
            names[f"_make_{one.name}"] = one.default_factory
            parameter, value = f"{one.name}=MISSING", f"_make_{one.name}() if {one.name} is MISSING else {one.name}"
        else:
            parameter = one.name
        (named_only if one.kw_only else parameters).append(parameter)
        slot = getattr(cls, one.name, None)
        if hasattr(slot, "__set__"):
            names[f"_set_{one.name}"] = slot.__set__  # type: ignore[union-attr]
            lines.append(f"    _set_{one.name}(self, {value})")
        else:
            lines.append(f"    kept[{one.name!r}] = {value}")
    if any(line.startswith("    kept") for line in lines):
        lines.insert(0, "    kept = self.__dict__")
    signature = ", ".join(["self", *parameters, *(["*", *named_only] if named_only else [])])
    made: dict[str, Any] = {}
    exec(f"def __init__({signature}):\n" + "\n".join(lines), names, made)
    init = made["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = dict(cls.__init__.__annotations__)
    cls.__init__ = init  # type: ignore[method-assign]
    return cls

"""Frozen dataclasses whose methods are generated at first use, compared with those of the standard library."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from inspect import signature
from pkgutil import walk_packages
from threading import Barrier
from typing import Any

import gpu_recovery
import pytest
from gpu_recovery.core.lazy_dataclass import _refuse_set, frozen_dataclass

from tests.markdown import ROOT

Decorator = Callable[[type], type]
STANDARD = dataclass(frozen=True)
LAZY = frozen_dataclass()


@frozen_dataclass()
class Point:
    x: int
    y: int = 2


@frozen_dataclass(kw_only=True)
class Named(Point):
    name: str
    tags: list[str] = field(default_factory=list)


def family(decorator: Decorator, named: Decorator) -> tuple[Any, Any]:
    """The classes `Base` and `Derived`, decorated."""

    class Base:
        __qualname__ = "Base"
        a: int
        b: int = 5
        hidden: str = field(default="h", repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("a is negative")

        def doubled(self) -> int:
            return 2 * self.a

    base = decorator(Base)

    class Middle(base):  # type: ignore[misc, valid-type]
        __qualname__ = "Middle"
        a: int | bool

    class Derived(decorator(Middle)):  # type: ignore[misc]
        __qualname__ = "Derived"
        b: int = 7
        c: list[int] = field(default_factory=list)

        def doubled(self) -> int:
            return super().doubled() + self.b  # type: ignore[no-any-return]

    return base, named(Derived)


FAMILIES = {
    "standard": family(STANDARD, dataclass(frozen=True, kw_only=True)),
    "lazy": family(LAZY, frozen_dataclass(kw_only=True)),
}


def observed(base: Any, derived: Any) -> list[Any]:
    """What a user of the classes can see."""

    def error(call: Callable[[], Any]) -> tuple[type, str] | None:
        try:
            call()
        except (TypeError, ValueError, AttributeError) as raised:
            return type(raised), str(raised)
        return None

    one, two = base(1), derived(1, c=[3])
    return [
        repr(one),
        repr(two),
        one == base(1),
        one == base(1, hidden="other"),
        one == base(2),
        one == derived(1),
        hash(one) == hash(base(1, 5)),
        error(lambda: hash(two)),
        two.doubled(),
        asdict(two),
        replace(two, a=4).doubled(),
        [(f.name, f.type, f.kw_only, f.compare) for f in fields(derived)],
        base.b,
        base.hidden,
        hasattr(derived, "c"),
        derived.__match_args__,
        is_dataclass(base),
        copy.copy(two) == two,
        copy.deepcopy(two) == two,
        error(lambda: base(-1)),
        error(lambda: setattr(one, "a", 2)),
        error(lambda: delattr(one, "a")),
        error(base),
        error(lambda: base(1, unknown=2)),
        derived(1).c is derived(1).c,
        signature(base),
        signature(derived),
        repr(derived.__dataclass_params__),
    ]


def test_a_lazy_dataclass_behaves_as_one_of_the_standard_library() -> None:
    """The other code may use either: the standard library sets the expectation."""
    assert observed(*FAMILIES["lazy"]) == observed(*FAMILIES["standard"])


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: cls(1),
        fields,
        lambda cls: repr(cls(1)),
        lambda cls: cls(1) == cls(1),
        lambda cls: hash(cls(1)),
    ],
)
def test_any_use_generates_the_methods(use: Callable[[Any], Any]) -> None:
    """Before the use there are none; else the import would be expensive."""

    @frozen_dataclass()
    class Fresh:
        a: int

    assert "__match_args__" not in vars(Fresh)
    use(Fresh)
    assert vars(Fresh)["__match_args__"] == ("a",)


def test_an_attribute_that_is_no_field_cannot_be_set() -> None:
    """The records have no slots, so a misspelt name would otherwise be accepted."""
    with pytest.raises(FrozenInstanceError):
        Point(1).z = 3  # type: ignore[attr-defined]


def test_a_method_of_the_class_is_kept() -> None:
    """A class with a secret has a `__repr__` of its own."""

    @frozen_dataclass()
    class Secret:
        value: str

        def __repr__(self) -> str:
            return "***"

    assert repr(Secret("s")) == "***" and Secret("s") == Secret("s")


def test_an_instance_of_another_process_is_compared_by_its_fields() -> None:
    """Unpickling calls no `__init__`, so nothing has generated the methods before the comparison."""
    program = f"""
import pickle, sys
from tests.core.test_lazy_dataclass import Named
one, two = (pickle.loads({pickle.dumps(Named(1, name="n"))!r}) for _ in "ab")
assert "__match_args__" not in vars(Named)
print(one == two)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "lambdas")])}
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert (made.stdout, made.stderr) == ("True\n", "")


def test_threads_may_use_a_class_first_at_the_same_time() -> None:
    """Thread pools execute commands. No thread may see a class whose methods are half generated."""

    @frozen_dataclass()
    class Base:
        a: int

    @frozen_dataclass()
    class Shared(Base):
        b: int = 2

    barrier = Barrier(16)

    def use(_: int) -> bool:
        barrier.wait()
        return Shared(1) == Shared(1, 2) and Base(1) == Base(1)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(use, range(16)))


def test_the_fields_of_every_class_are_declared_without_an_error() -> None:
    """An error in a declaration is raised at the first use, which may be in a rare incident."""
    modules = [import_module(found.name) for found in walk_packages(gpu_recovery.__path__, "gpu_recovery.")]
    classes = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    lazy = [one for one in classes if "__dataclass_fields__" in vars(one) and one.__setattr__ is _refuse_set]
    assert len(lazy) > 250 and all(isinstance(fields(one), tuple) for one in lazy)


MODULES = ("ecs_task_handler", "dcgm_task_monitor", "ecs_instance_monitor", "node_api", "reconciler", "scheduler")
GENERATED = """
import json, sys
from gpu_recovery.core import lazy_dataclass
generate, generated = lazy_dataclass._model, []
lazy_dataclass._model = lambda cls, kw_only: generated.append(cls.__name__) or generate(cls, kw_only)
import {module}
print(json.dumps(generated))
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_cold_start_generates_the_methods_of_few_classes(module: str) -> None:
    """A module-level constant generates the methods of its class. Few classes have one."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "lambdas"),
        "POWERTOOLS_METRICS_NAMESPACE": "GpuRecovery",
        "POWERTOOLS_SERVICE_NAME": "gpu-recovery",
    }
    program = GENERATED.format(module=module)
    made = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert len(json.loads(made.stdout)) <= 25, made.stdout

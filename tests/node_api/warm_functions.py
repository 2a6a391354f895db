"""Several warm functions of the node API. Each has caches of its own, as the containers of Lambda have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module

from tests.lambdas.conftest import Functions


class WarmFunctions:
    """So many node APIs beside each other."""

    def __init__(self, functions: Functions, count: int = 2) -> None:
        self._functions, self._module = functions, import_module("node_api")
        self._apis = [self._module.api.__wrapped__() for _ in range(count)]

    def each(self, seconds: int = 1) -> Iterator[int]:
        """Have one function after the other answer all calls; so many seconds pass before each."""
        first = self._module.api
        for number, api in enumerate(self._apis):
            self._functions.now += timedelta(seconds=seconds)
            self._module.__dict__["api"] = lambda api=api: api
            yield number
        self._module.__dict__["api"] = first

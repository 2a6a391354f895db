"""The fixtures of the tests of the scheduler."""

from tests.recovery.conftest import store

__all__ = ["store"]

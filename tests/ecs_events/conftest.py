"""The fixtures of the tests of the event handlers."""

from tests.lambdas.conftest import functions

__all__ = ["functions"]

"""The fixtures of the tests of the node API."""

from tests.lambdas.conftest import functions
from tests.recovery.conftest import scene, store

__all__ = ["functions", "scene", "store"]

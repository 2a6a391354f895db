"""What the tests of the loop start from: either store, and four instances that work for one job."""

from __future__ import annotations

import pytest
from gpu_recovery.ports.store import Store

from simulator.dynamodb.double import DynamoDb
from simulator.memory_store.store import MemoryStore
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.recovery.heartbeat_world import IDS, Scene


@pytest.fixture(params=["memory", "dynamodb"])
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of either kind."""
    return MemoryStore() if request.param == "memory" else dynamo_store(DoubleClient(DynamoDb()))


@pytest.fixture
def scene(store: Store) -> Scene:
    """Four instances that work for one job, each of them heard of."""
    found = Scene(store, IDS[:4])
    found.beats()
    return found

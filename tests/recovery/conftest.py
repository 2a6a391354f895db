"""What the tests of the loop start from: either store, and four instances that work for one job."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from gpu_recovery.ports.store import Store

from simulator.memory_store.store import MemoryStore
from tests.aws.conftest import dynamo_store
from tests.aws.quick_moto import quick_moto
from tests.recovery.heartbeat_world import IDS, Scene

KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
CLIENT = boto3.client("dynamodb", region_name="us-east-1", **KEYS)


@pytest.fixture(params=["memory", "moto"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of either kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    with quick_moto():
        yield dynamo_store(CLIENT)


@pytest.fixture
def scene(store: Store) -> Scene:
    """Four instances that work for one job, each of them heard of."""
    found = Scene(store, IDS[:4])
    found.beats()
    return found

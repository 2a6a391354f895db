"""The stores under test: in memory, on the DynamoDB double, if slow on MiniStack, and in the tier `full` on moto.

moto parses each expression anew, so a test on moto takes four times as long as on MiniStack. In the default tier
`test_stores_agree.py` and `test_heartbeat_stores_agree.py` use every operation of the stores on moto. EC2 has stubs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.ports.store import Store
from moto import mock_aws

from simulator.dynamodb.capacity_meter import CapacityMeter
from simulator.dynamodb.double import DynamoDb
from simulator.memory_store.store import MemoryStore
from tests.aws import user_agents  # noqa: F401 - importing it is what it is for
from tests.aws.deployed_tables import create_tables
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.aws.records import NOW
from tests.sandbox.ministack_server import PLAIN, serve

_numbers = count(1)


def dynamo_store(client: Any) -> DynamoStore:
    """A store on two new, empty tables."""
    number = next(_numbers)
    jobs, instances = f"jobs-{number}", f"instances-{number}"
    create_tables(client, jobs, instances)
    return DynamoStore(client, jobs, instances)


@pytest.fixture(scope="session")
def moto_client() -> Any:
    """A DynamoDB client that reaches nobody but moto."""
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client("dynamodb", region_name="us-east-1", **keys)


@pytest.fixture
def moto_store(moto_client: Any) -> Iterator[DynamoStore]:
    """The production store on moto."""
    with mock_aws():
        yield dynamo_store(moto_client)


@pytest.fixture
def double_store() -> DynamoStore:
    """The production store on the DynamoDB double."""
    return dynamo_store(DoubleClient(DynamoDb()))


@pytest.fixture
def metered() -> DynamoDb:
    """An empty account on the DynamoDB double, whose read and write units are counted."""
    account = DynamoDb()
    account.meter = CapacityMeter()
    return account


@pytest.fixture
def new_double() -> Callable[[], DynamoStore]:
    """A function that makes the production store on a new DynamoDB double."""
    return lambda: dynamo_store(DoubleClient(DynamoDb()))


@pytest.fixture(scope="session")
def ministack_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A DynamoDB client of a MiniStack that lives as long as the tests."""
    with serve(tmp_path_factory.mktemp("ministack"), PLAIN) as cloud:
        yield cloud.client("dynamodb")


@pytest.fixture(
    params=[
        "memory",
        "double",
        pytest.param("moto", marks=pytest.mark.full),
        pytest.param("ministack", marks=pytest.mark.slow),
    ]
)
def store(request: pytest.FixtureRequest) -> Store:
    """One implementation of `ports.Store`, empty."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "double":
        return request.getfixturevalue("double_store")
    if request.param == "moto":
        return request.getfixturevalue("moto_store")
    return dynamo_store(request.getfixturevalue("ministack_client"))


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Ec2:
    """The wrapper whose calls are all stubbed. A stub answers in order, so the calls are made in order, too."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Ec2, "each", lambda self, work, items: [work(item) for item in items])
    return Ec2(("team", "healed"), lambda: NOW)


@pytest.fixture
def told(ec2: Ec2) -> Iterator[Stubber]:
    """EC2, answering what a test tells it, in order."""
    with Stubber(ec2.client) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def groups(ec2: Ec2) -> Iterator[Stubber]:
    """Auto Scaling, answering what a test tells it, in order."""
    with Stubber(ec2.groups) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def actions(monkeypatch: pytest.MonkeyPatch) -> AwsActions:
    """The actions of a function whose calls are all stubbed."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return AwsActions(LambdaSettings.from_environment(FUNCTION), lambda: NOW)

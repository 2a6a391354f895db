"""AWS in this process, behind the real botocore: its serialisers, parsers and retries, but no socket.

ECS and EC2 are the cluster model behind the sandbox's own wire layer, DynamoDB is the simulator's double, and SNS, SQS,
EventBridge and S3 are moto's. Every HTTP request passes one place, where a `Fault` may refuse it, lose its answer or
falsify it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import RLock
from typing import Any, Protocol
from urllib.parse import parse_qsl

import boto3
import botocore.endpoint
import moto.backends
from botocore import UNSIGNED
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from moto.core.botocore_stubber import MockRawResponse
from moto.core.model_instances import reset_model_data
from moto.core.request import normalize_request

from sandbox import payload_limits
from sandbox.cluster.api import Ec2Api, EcsApi
from sandbox.cluster.aws_protocol import JSON_1_1, AwsProtocol, _ec2_error, _ecs_error
from sandbox.cluster.model.cluster import AwsApiError, ClusterModel
from sandbox.cluster.task_definitions import MemoryDefinitions
from simulator.cloud.fleet import VirtualFleet
from simulator.dynamodb.botocore_handler import respond
from simulator.dynamodb.double import DynamoDb
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.environment import ACCOUNT, REGION

MUTATING = {
    "RunTask",
    "StopTask",
    "UpdateContainerInstancesState",
    "RebootInstances",
    "PutItem",
    "UpdateItem",
    "TransactWriteItems",
    "Publish",
    "PutEvents",
    "SendMessage",
}
"""The calls of the product that change something."""
BY_MOTO = {"sns": "sns", "sqs": "sqs", "eventbridge": "events", "s3": "s3"}
REAL_CLIENT = boto3.client


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        """The body of a JSON service."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Request:
    """One HTTP request. `call` is the number of the product's call, the same for each of botocore's tries.

    service: as botocore hyphenates it: `ecs`, `ec2`, `dynamodb`, `sns`, `sqs`, `eventbridge`, `s3`.
    asked:   the parameters, nested as JSON services nest them, flat for the query services.
    """

    call: int
    tried: int
    service: str
    operation: str
    asked: dict[str, Any]

    @property
    def mutates(self) -> bool:
        return self.operation in MUTATING


Carry = Callable[[], Answer]


class Fault(Protocol):
    """What stands between the product and AWS. It may answer itself, or raise what botocore's transport raises."""

    def meets(self, request: Request, carry_out: Carry) -> Answer: ...


class FairWeather:
    """Nothing goes wrong."""

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        return carry_out()


class VirtualDriver:
    """What the sandbox's API needs of a driver, on a fleet in virtual time. `shown`: the cluster that reads see."""

    def __init__(self, fleet: VirtualFleet, shown: ClusterModel) -> None:
        self.fleet, self.cluster, self.lock = fleet, shown, RLock()
        self.change = fleet.change

    def now(self) -> datetime:
        """The virtual time."""
        return self.fleet.timeline.now


class VirtualPower:
    """RebootInstances on a fleet in virtual time."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.fleet = fleet

    def reboot(self, instance_ids: list[str]) -> None:
        """As the sandbox's `PowerControl`."""
        for instance_id in instance_ids:
            self.fleet.reboot(instance_id)


class Cloud:
    """`client` stands in for `boto3.client`; `quiet_client` reaches the same AWS past every fault, uncounted.

    happened: told of each mutating request that took effect.
    shown:    which past of the cluster a read sees, in seconds.
    dynamodb: the tables.
    """

    def __init__(self) -> None:
        self.fault: Fault = FairWeather()
        self.requests: list[Request] = []
        self.happened: Callable[[Request], None] = lambda request: None
        self.shown: Callable[[Request], float] = lambda request: 0.0
        self._calls: dict[str, list[int]] = {}
        self._clients: dict[Any, Any] = {}
        self._past: list[tuple[datetime, ClusterModel]] = []
        self.dynamodb = DynamoDb()
        self._moto = {service: _backend(name) for service, name in BY_MOTO.items()}

    def connect(self, fleet: VirtualFleet, definitions: MemoryDefinitions) -> None:
        """Let ECS and EC2 be this fleet."""
        self._fleet, self._definitions = fleet, definitions
        self._present = self._wire(fleet.cluster)

    def _wire(self, cluster: ClusterModel) -> AwsProtocol:
        driver: Any = VirtualDriver(self._fleet, cluster)
        power: Any = VirtualPower(self._fleet)
        apis = {"ecs": EcsApi(driver, self._definitions), "ec2": Ec2Api(driver, power)}
        return AwsProtocol(apis, lambda *asked: {})

    def remember_the_past(self) -> None:
        """From now on keep what the cluster was before each change, for reads that lag."""
        change = self._fleet.change

        def remembered(operation: Any) -> Any:
            self._past.append((self._fleet.timeline.now, copy.deepcopy(self._fleet.cluster)))
            return change(operation)

        self._fleet.change = remembered  # type: ignore[method-assign]
        self._present = self._wire(self._fleet.cluster)

    # -- clients -------------------------------------------------------------------------------------------------------

    def client(self, service: str, config: Config | None = None) -> Any:
        """A client of the product."""
        return self._made(service, config, lambda request, event_name, **_: self._send(request, event_name))

    def quiet_client(self, service: str) -> Any:
        """A client of the test."""
        if service == "dynamodb":
            return DoubleClient(self.dynamodb)

        def send(request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
            return _response(request, self._carry_out(_read(request, event_name, 0, 0), request))

        return self._made(service, Config(request_checksum_calculation="when_required"), send)

    def _made(self, service: str, config: Config | None, send: Callable[..., AWSResponse]) -> Any:
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        config = config or Config()
        if service not in BY_MOTO.values():  # signing takes time; moto finds the region in the signature
            config = config.merge(Config(signature_version=UNSIGNED))
        made = REAL_CLIENT(service, config=config, region_name=REGION, **keys)
        made.meta.events.register_first("before-send", send)
        return made

    # -- one request ---------------------------------------------------------------------------------------------------

    def _send(self, prepared: AWSPreparedRequest, event_name: str) -> AWSResponse:
        name = _text(prepared.headers["amz-sdk-invocation-id"])
        call = self._calls.setdefault(name, [len(self._calls), 0])
        call[1] += 1
        request = _read(prepared, event_name, call[0], call[1])
        self.requests.append(request)

        def carry_out() -> Answer:
            answer = self._carry_out(request, prepared)
            if request.mutates and answer.status < 300:
                self.happened(request)
            return answer

        return _response(prepared, self.fault.meets(request, carry_out))

    def _carry_out(self, request: Request, prepared: AWSPreparedRequest) -> Answer:
        if request.operation == "PutEvents" and (refusal := payload_limits.entries_refusal(request.asked["Entries"])):
            return Answer(400, json.dumps({"__type": refusal[0], "message": refusal[1]}).encode())
        if request.service in self._moto:
            return self._by_moto(request.service, prepared)
        body = _text(prepared.body).encode()
        if request.service == "dynamodb":
            return Answer(*respond(self.dynamodb, _text(prepared.headers["X-Amz-Target"]), body))
        wire = self._present if request.mutates else self._wire_shown(request)
        try:
            if request.service == "ecs":
                target = _text(prepared.headers["X-Amz-Target"])
                return Answer(200, wire.ecs(target, body), {"Content-Type": JSON_1_1})
            return Answer(200, wire.ec2(body), {"Content-Type": "text/xml"})
        except AwsApiError as error:
            return Answer(error.status, (_ecs_error if request.service == "ecs" else _ec2_error)(error))

    def _wire_shown(self, request: Request) -> AwsProtocol:
        ago = self.shown(request)
        if not ago:
            return self._present
        then = self._fleet.timeline.now - timedelta(seconds=ago)
        later = [cluster for at, cluster in self._past if at > then]
        return self._wire(later[0]) if later else self._present

    def _by_moto(self, service: str, prepared: AWSPreparedRequest) -> Answer:
        url = prepared.url.split("?")[0]
        work = next(work for pattern, work in self._moto[service] if pattern.match(url))
        normalized = normalize_request(prepared)
        status, headers, body = work(normalized, normalized.raw_url, normalized.headers)
        return Answer(status, body if isinstance(body, bytes) else body.encode(), headers)


def _backend(service: str) -> list[tuple[re.Pattern[str], Any]]:
    """moto's routes of an empty `service`."""
    regions = moto.backends.get_backend(service)[ACCOUNT]  # type: ignore[call-overload]
    backend = regions[REGION if REGION in regions else "aws"]
    backend.reset()
    reset_model_data()  # `reset` leaves every object in a list of all objects
    return [(re.compile(url), work) for url, work in backend.urls.items()]


def _read(prepared: AWSPreparedRequest, event_name: str, call: int, tried: int) -> Request:
    _, service, operation = event_name.split(".")
    asked: dict[str, Any] = {}
    if service in ("ec2", "sns"):
        asked = dict(parse_qsl(_text(prepared.body), keep_blank_values=True))
    elif service != "s3":
        asked = json.loads(prepared.body)
    return Request(call, tried, service, operation, asked)


def _response(prepared: AWSPreparedRequest, answer: Answer) -> AWSResponse:
    raw: Any = MockRawResponse(answer.body)
    return AWSResponse(prepared.url, answer.status, answer.headers, raw)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass
class Sleeps:
    """botocore's waits between its tries: counted, never slept."""

    seconds: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        """Take note."""
        self.seconds.append(seconds)


@contextmanager
def nobody_sleeps() -> Iterator[Sleeps]:
    """botocore's retries without their waits."""
    real, noted = botocore.endpoint.time, Sleeps()
    botocore.endpoint.time = noted  # type: ignore[attr-defined]
    try:
        yield noted
    finally:
        botocore.endpoint.time = real  # type: ignore[attr-defined]

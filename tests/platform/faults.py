"""What a platform does to its callers. Each is a `cloud.Fault`; a seed makes the same faults in every run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from tests.platform.cloud import Answer, Carry, Fault, Request

THROTTLES = {
    "ecs": "ThrottlingException",
    "ec2": "RequestLimitExceeded",
    "sns": "Throttled",
    "sqs": "RequestThrottled",
    "eventbridge": "ThrottlingException",
    "s3": "SlowDown",
    "dynamodb": "ProvisionedThroughputExceededException",
}
STATUS = {"ec2": 503, "s3": 503, "sns": 429}
LOST = "the answer was lost"


def refusal(request: Request, code: str, message: str = "", status: int | None = None, **members: object) -> Answer:
    """An error of the request's service, in its own protocol."""
    status = status or STATUS.get(request.service, 400)
    if request.service == "ec2":
        inner = f"<Code>{code}</Code><Message>{message}</Message>"
        text = f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>r</RequestID></Response>"
    elif request.service == "sns":
        inner = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
        text = f"<ErrorResponse><Error>{inner}</Error><RequestId>r</RequestId></ErrorResponse>"
    elif request.service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    else:
        text = json.dumps({"__type": f"com.amazonaws.{request.service}#{code}", "message": message} | members)
    return Answer(status, text.encode())


def throttle(request: Request) -> Answer:
    """What the request's service says to one who asks too often: that nothing was done."""
    return refusal(request, THROTTLES[request.service], "Rate exceeded")


def answer_lost(request: Request) -> Exception:
    """What botocore raises when no answer came."""
    return ReadTimeoutError(endpoint_url=request.service, error=LOST)


@dataclass
class Throttling:
    """A share of all requests is refused because too many are made. `only` picks the requests this is about."""

    seed: int
    share: float = 0.3
    only: Callable[[Request], bool] = lambda request: True
    met: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(f"throttling {self.seed}")

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        if self.only(request) and self._random.random() < self.share:
            self.met += 1
            return throttle(request)
        return carry_out()


@dataclass
class At:
    """Something happens to one call of the product: the `number`-th of those that `only` picks, from 0.

    tries: to how many of botocore's tries of this call.
    """

    number: int
    happen: Callable[[Request, Carry], Answer]
    only: Callable[[Request], bool] = lambda request: request.mutates
    tries: int = 99
    met: list[Request] = field(default_factory=list)
    _calls: dict[int, int] = field(default_factory=dict)

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        if not self.only(request):
            return carry_out()
        number = self._calls.setdefault(request.call, len(self._calls))
        if number != self.number or request.tried > self.tries:
            return carry_out()
        self.met.append(request)
        return self.happen(request, carry_out)


def lose_answer(request: Request, carry_out: Carry) -> Answer:
    """It takes effect, and nobody hears of it."""
    carry_out()
    raise answer_lost(request)


def reset(request: Request, carry_out: Carry) -> Answer:
    """The connection is closed before the request arrives."""
    raise ConnectionClosedError(endpoint_url=request.service)


def refuse(code: str, status: int | None = None, **members: object) -> Callable[[Request, Carry], Answer]:
    """An error answer, and nothing done."""
    return lambda request, carry_out: refusal(request, code, "", status, **members)


@dataclass
class Sometimes:
    """A share of the requests that `only` picks meets `happen`; with `for_good`, every further try of that call too."""

    seed: int
    share: float
    happen: Callable[[Request, Carry], Answer]
    only: Callable[[Request], bool] = lambda request: True
    for_good: bool = False
    met: list[Request] = field(default_factory=list)
    _doomed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._random = random.Random(f"sometimes {self.seed}")

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        draws = self.only(request) and (request.tried == 1 or not self.for_good)
        if draws and self._random.random() < self.share:
            self._doomed.add(request.call)
        elif not (self.for_good and request.call in self._doomed):
            return carry_out()
        self.met.append(request)
        return self.happen(request, carry_out)


@dataclass
class AllAtOnce:
    """Several faults, each behind the one before it."""

    faults: list[Fault]

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        def through(left: list[Fault]) -> Answer:
            return left[0].meets(request, lambda: through(left[1:])) if left else carry_out()

        return through(self.faults)


def of(*operations: str) -> Callable[[Request], bool]:
    """Requests of these operations."""
    return lambda request: request.operation in operations


# -- answers with HTTP 200 that are no yes -----------------------------------------------------------------------------


def says_no(reason: str) -> Callable[[Request, Carry], Answer]:
    """RunTask and UpdateContainerInstancesState as they refuse one of the things they were asked for."""

    def happen(request: Request, carry_out: Carry) -> Answer:
        done = "tasks" if request.operation == "RunTask" else "containerInstances"
        failures = [{"arn": "arn:aws:ecs:us-east-1:123456789012:container-instance/c/1", "reason": reason}]
        return Answer(200, json.dumps({done: [], "failures": failures}).encode())

    return happen


def bus_says_no(code: str) -> Callable[[Request, Carry], Answer]:
    """PutEvents as it takes the request and not the event."""
    entries = [{"ErrorCode": code, "ErrorMessage": "try again"}]
    return lambda request, carry_out: Answer(200, json.dumps({"FailedEntryCount": 1, "Entries": entries}).encode())


def some_are_missing(request: Request, carry_out: Carry) -> Answer:
    """DescribeTasks and DescribeContainerInstances as they know nothing of what they are asked about."""
    found, asked = ("tasks", "tasks") if request.operation == "DescribeTasks" else ("containerInstances",) * 2
    failures = [{"arn": one, "reason": "MISSING"} for one in request.asked[asked]]
    return Answer(200, json.dumps({found: [], "failures": failures}).encode())


def runs(prefix: str) -> Callable[[Request], bool]:
    """RunTask for tasks whose `startedBy` begins so."""
    return lambda request: request.operation == "RunTask" and request.asked["startedBy"].startswith(prefix)

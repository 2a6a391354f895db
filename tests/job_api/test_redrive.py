"""Dead letters given back: to whom, in what case not, and that none is lost on the way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from gpu_recovery.core.event_origin import EventOrigin
from gpu_recovery.job_api.redrive import (
    BATCH_MAX,
    HELD_S,
    DeadLetter,
    DeadLetterQueue,
    DeadLetterRefused,
    preview_redrive,
    redrive,
    redrive_target_of,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.aws.ecs_events import ours
from tests.aws.environment import ACCOUNT, REGION
from tests.aws.records import JOB, A

FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:gpu-recovery-ecs_task_handler"
EVENT = ours({"detail-type": "ECS Task State Change", "detail": {"taskArn": "t"}})


@dataclass
class Graveyard:
    """The queues in memory, as SQS keeps them: what is received is hidden until its time is over."""

    letters: list[DeadLetter] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    refused: tuple[str, ...] = ()
    dies: bool = False
    done: list[tuple[str, Any]] = field(default_factory=list)
    origin: EventOrigin = field(default_factory=lambda: EventOrigin(ACCOUNT, REGION))
    executor_function: str = "gpu-recovery-command_executor"
    recorder_function: str = "gpu-recovery-event_recorder"

    def depth(self, queue: DeadLetterQueue) -> int:
        return sum(one.queue is queue for one in self.letters)

    def receive(self, queue: DeadLetterQueue, most: int, held_s: int) -> list[DeadLetter]:
        assert 1 <= most <= BATCH_MAX
        found = [one for one in self.letters if one.queue is queue and one.message_id not in self.hidden][:most]
        self.hidden |= {one.message_id for one in found} if held_s else set()
        return found

    def invoke(self, function_arn: str, payload: str) -> None:
        if self.dies:
            raise ConnectionError("no answer")
        if function_arn in self.refused:
            raise DeadLetterRefused("Lambda does not take it (ResourceNotFoundException)")
        self.done.append((function_arn, json.loads(payload)))

    def call_scheduler(self, letter: DeadLetter) -> None:
        self.done.append(("scheduler", letter.body))

    def delete(self, letter: DeadLetter) -> None:
        assert self.done, "deleted before it was accepted"
        self.letters.remove(letter)


def failed(number: int = 1, arn: Any = f"{FUNCTION}:$LATEST", event: Any = None, body: str | None = None) -> DeadLetter:
    """What Lambda sends to the on-failure destination."""
    document = {
        "version": "1.0",
        "timestamp": "2026-11-21T03:00:00.000Z",
        "requestContext": {
            "requestId": "r",
            "functionArn": arn,
            "condition": "RetriesExhausted",
            "approximateInvokeCount": 3,
        },
        "requestPayload": event or EVENT,
        "responseContext": {"statusCode": 200, "functionError": "Unhandled"},
        "responsePayload": {"errorMessage": "broken"},
    }
    return DeadLetter(DeadLetterQueue.FAILED, f"m-{number}", body if body is not None else json.dumps(document))


def undelivered(target: str, number: int = 1, body: str | None = None) -> DeadLetter:
    """What EventBridge puts into a rule's dead-letter queue."""
    attributes = {"TARGET_ARN": target, "RULE_ARN": "arn:aws:events:us-east-1:123456789012:rule/r", "ERROR_CODE": "X"}
    return DeadLetter(
        DeadLetterQueue.UNDELIVERED, f"u-{number}", body if body is not None else json.dumps(EVENT), attributes
    )


ALL = tuple(DeadLetterQueue)


def test_a_failed_event_goes_to_its_function_again_without_what_lambda_put_around_it() -> None:
    """The handler reads events of EventBridge, not reports about them; a version of the function is none of ours."""
    yard = Graveyard([failed()])
    (fate,) = list(redrive(yard, ALL, 10))
    assert (fate.target, fate.why) == ("gpu-recovery-ecs_task_handler", "")
    assert yard.done == [(FUNCTION, EVENT)]
    assert yard.letters == []


def test_an_undelivered_event_goes_to_the_target_it_was_for() -> None:
    """A function by its ARN; the scheduler's queue by its own way, which knows its message group."""
    yard = Graveyard(
        [undelivered(FUNCTION), undelivered("arn:aws:sqs:us-east-1:123456789012:Scheduler-x.fifo", 2, "{}")]
    )
    list(redrive(yard, ALL, 10))
    assert yard.done == [(FUNCTION, EVENT), ("scheduler", "{}")]
    assert yard.letters == []


def test_a_call_for_the_scheduler_is_made_again_whatever_it_says() -> None:
    """The scheduler reads nothing in it."""
    yard = Graveyard([DeadLetter(DeadLetterQueue.SCHEDULER, "s-1", "not even JSON")])
    list(redrive(yard, ALL, 10))
    assert (yard.done, yard.letters) == ([("scheduler", "not even JSON")], [])


UNREADABLE = {
    "no JSON": failed(body="{"),
    "half a surrogate": failed(body='"\\ud800"'),
    "no object": failed(body="[1]"),
    "no event": failed(body=json.dumps({"requestContext": {"functionArn": FUNCTION}})),
    "no context": failed(body=json.dumps({"requestPayload": EVENT})),
    "a context that is none": failed(body=json.dumps({"requestPayload": EVENT, "requestContext": []})),
    "a queue for a function": failed(arn="arn:aws:sqs:us-east-1:123456789012:q"),
    "a number for a function": failed(arn=7),
    "an ARN with more behind it": failed(arn=f"{FUNCTION}:1:2"),
    "no target": undelivered(""),
    "a topic": undelivered("arn:aws:sns:us-east-1:123456789012:t"),
    "an event that is none": undelivered(FUNCTION, body="x"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_nobody_can_read_stays_and_is_listed(what: str) -> None:
    """Deleted it would be lost; kept in silence nobody would know."""
    yard = Graveyard([UNREADABLE[what], failed(99)])
    fates = list(redrive(yard, ALL, 10))
    assert [bool(fate.why) for fate in sorted(fates, key=lambda fate: fate.dead_letter.message_id == "m-99")] == [
        True,
        False,
    ]
    assert yard.letters == [UNREADABLE[what]]
    assert yard.done == [(FUNCTION, EVENT)]


FOREIGN = {
    "another account": {"account": "999999999999"},
    "another region": {"region": "eu-west-1"},
    "a program's own source": {"source": "my.app"},
    "our own source, for a function that acts": {"source": "gpu.recovery"},
    "a partner's source": {"source": "aws.partner/example.com/ecs"},
    "no source": {"source": None},
    "a list of sources": {"source": ["aws.ecs"]},
    "no account": {"account": None},
    "a number for an account": {"account": 123456789012},
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("queue", ["failed", "undelivered"])
def test_an_event_that_no_rule_of_ours_delivers_is_not_invoked(what: str, queue: str) -> None:
    """A principal may send to the queue; the letter stays, is listed with the reason, and keeps no other waiting."""
    event = {name: value for name, value in (EVENT | FOREIGN[what]).items() if value is not None}
    letter = failed(event=event) if queue == "failed" else undelivered(FUNCTION, body=json.dumps(event))
    yard = Graveyard([letter, failed(99)])
    found = {fate.dead_letter.message_id: fate for fate in redrive(yard, ALL, 10)}
    fate = found[letter.message_id]
    assert "no rule of this deployment delivers its event" in fate.why
    assert (yard.letters, yard.done) == ([letter], [(FUNCTION, EVENT)])
    assert preview_redrive(Graveyard([letter]), ALL)[letter.queue][1] == [fate]


RECORDER = FUNCTION.replace("ecs_task_handler", "event_recorder")


def test_an_event_of_our_own_is_redriven_to_the_event_recorder_alone() -> None:
    """It fills the gap in the event history. An event of AWS is none that the rule of the recorder delivers."""
    ours_ = EVENT | {"source": "gpu.recovery", "detail-type": "Job State Changed"}
    yard = Graveyard([failed(1, f"{RECORDER}:$LATEST", ours_), failed(2, f"{RECORDER}:$LATEST")])
    fates = {fate.dead_letter.message_id: fate.why for fate in redrive(yard, ALL, 10)}
    assert fates["m-1"] == "" and "no rule of this deployment delivers its event" in fates["m-2"]
    assert yard.done == [(RECORDER, ours_)]


EXECUTOR = FUNCTION.replace("ecs_task_handler", "command_executor")
REQUESTS = [{"job_id": JOB}, {"instance_id": A}]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_to_the_command_executor_is_redriven_although_it_is_no_event(request_: dict[str, str]) -> None:
    """The API functions invoke it with the id of a record; no rule delivers anything to it."""
    yard = Graveyard([failed(arn=f"{EXECUTOR}:$LATEST", event=request_)])
    assert [fate.why for fate in redrive(yard, ALL, 10)] == [""]
    assert (yard.done, yard.letters) == ([(EXECUTOR, request_)], [])


@pytest.mark.parametrize(
    ("arn", "request_"),
    [
        (FUNCTION, REQUESTS[0]),
        (FUNCTION, REQUESTS[1]),
        (EXECUTOR, {"job_id": JOB, "instance_id": A}),
        (EXECUTOR, {"job_id": JOB, "detail": {}}),
        (EXECUTOR, {"job_id": ""}),
        (EXECUTOR, {"job_id": "a job\n"}),
        (EXECUTOR, {"job_id": 7}),
        (EXECUTOR, {"instance_id": JOB}),
        (EXECUTOR, {"instance_id": [A]}),
        (EXECUTOR, {"user_id": "ana"}),
    ],
)
def test_only_a_request_that_names_one_record_is_redriven_to_the_command_executor(
    arn: str, request_: dict[str, Any]
) -> None:
    """Anything else is compared with the origin of events, as for every other function."""
    yard = Graveyard([failed(arn=arn, event=request_)])
    (fate,) = redrive(yard, ALL, 10)
    assert "no rule of this deployment delivers its event" in fate.why
    assert yard.done == [] and len(yard.letters) == 1


def test_an_operator_sees_where_an_event_comes_from() -> None:
    """Before the redrive and after it; the messages of the scheduler are read by nobody."""
    yard = Graveyard(
        [failed(), failed(2, event=EVENT | {"account": "9" * 900}), DeadLetter(DeadLetterQueue.SCHEDULER, "s-1", "{}")]
    )
    shown = [fate for _, fates in preview_redrive(yard, ALL).values() for fate in fates]
    origins = [("aws.ecs", ACCOUNT), ("aws.ecs", "9" * 100), ("", "")]
    assert [(fate.source, fate.account) for fate in shown] == origins
    assert [(fate.source, fate.account) for fate in redrive(yard, ALL, 10)] == origins


def test_a_tick_of_the_reconciler_is_given_again() -> None:
    """Its schedule is a rule of ours as well."""
    tick = ours({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}})
    yard = Graveyard([failed(event=tick)])
    list(redrive(yard, ALL, 10))
    assert yard.done == [(FUNCTION, tick)]


@given(body=st.text(max_size=200), queue=st.sampled_from([DeadLetterQueue.FAILED, DeadLetterQueue.UNDELIVERED]))
def test_no_body_makes_a_redrive_fail(body: str, queue: DeadLetterQueue) -> None:
    """One bad letter must not keep the others waiting."""
    (fate,) = list(redrive(Graveyard([DeadLetter(queue, "m", body)]), ALL, 10))
    assert fate.why


def test_a_letter_that_its_function_refuses_stays() -> None:
    """A function that is not there any more, or not one that we may call."""
    yard = Graveyard([failed(), undelivered(f"{FUNCTION}2")], refused=(FUNCTION,))
    fates = list(redrive(yard, ALL, 10))
    assert [fate.why for fate in fates] == ["Lambda does not take it (ResourceNotFoundException)", ""]
    assert [one.message_id for one in yard.letters] == ["m-1"]


def test_a_letter_is_deleted_only_after_it_was_accepted() -> None:
    """Whoever dies in between has it done twice, never not at all."""
    yard = Graveyard([failed()], dies=True)
    with pytest.raises(ConnectionError):
        list(redrive(yard, ALL, 10))
    assert len(yard.letters) == 1


def test_a_redrive_stops_at_its_limit_and_takes_a_stubborn_letter_once() -> None:
    """A letter that stays is hidden for a while, else the same ten would be met for ever."""
    yard = Graveyard([failed(n) for n in range(25)])
    assert len(list(redrive(yard, ALL, 13))) == 13
    assert len(yard.letters) == 12
    stubborn = Graveyard([failed(n, body="{") for n in range(25)])
    assert len(list(redrive(stubborn, ALL, 100))) == 25
    assert HELD_S > 0 and len(stubborn.letters) == 25


def test_only_the_queues_that_were_asked_for_are_touched() -> None:
    """An operator who has mended one cause redrives one queue."""
    yard = Graveyard([failed(), undelivered(FUNCTION)])
    list(redrive(yard, (DeadLetterQueue.UNDELIVERED,), 10))
    assert [one.queue for one in yard.letters] == [DeadLetterQueue.FAILED]


def test_a_look_takes_nothing() -> None:
    """It says what would happen, and hides no letter from the redrive that follows."""
    yard = Graveyard([failed(), UNREADABLE["no event"]])
    found = preview_redrive(yard, ALL)
    depth, fates = found[DeadLetterQueue.FAILED]
    assert (depth, [(fate.target, bool(fate.why)) for fate in fates]) == (
        2,
        [("gpu-recovery-ecs_task_handler", False), ("", True)],
    )
    assert found[DeadLetterQueue.UNDELIVERED] == found[DeadLetterQueue.SCHEDULER] == (0, [])
    assert (yard.done, yard.hidden, len(yard.letters)) == ([], set(), 2)


def test_the_errand_of_a_letter_in_china_is_one_too() -> None:
    """Another partition, another region."""
    arn = FUNCTION.replace("arn:aws:", "arn:aws-cn:").replace("us-east-1", "cn-north-1")
    assert redrive_target_of(failed(arn=arn)).function_arn == arn

"""The HTTP API for operators: taking instances out of use, the fleet limits, dead letters."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_signals import HealthStatus
from gpu_recovery.core.instance.record import (
    HealthReport,
    InstanceStatus,
    RankOnInstance,
    RepairHold,
    RepairLevel,
    RepairNeed,
)

from sandbox.payload_limits import PAYLOAD_BYTES_MAX
from tests.aws.ecs_events import ours
from tests.aws.environment import ACCOUNT, FUNCTION, QUEUE_URL, TOPIC
from tests.aws.records import NOW, A, B, claim, instance
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
OPEN = Fleet(
    gpu_instances=4,
    opened_at=NOW,
    opened_because="3 of 4 instances were suspected within 300 s",
    incident_id="breaker/x",
    blamed={A: NOW, B: NOW},
)
ARN = "arn:aws:lambda:us-east-1:123456789012:function:gpu-recovery-ecs_task_handler"
LETTER = {"requestContext": {"functionArn": f"{ARN}:$LATEST"}, "requestPayload": ours({"detail": {}})}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def spoil(api: Api, instance_id: str) -> None:
    """Leave the instance's record as a newer release might have written it."""
    kept = api.functions.kept()
    kept[instance_id]["schema"] = {"N": "999"}
    api.functions.restore(kept)


# -- instances ---------------------------------------------------------------------------------------------------------


def test_an_instance_is_taken_out_of_use_and_its_job_goes_on(api: Api) -> None:
    """ECS places nothing new on it; what runs there is left alone, and operators hear who did it and why."""
    api.functions.store.save_instance(instance(claims={"sft-1": claim()}))
    body = api.post(f"/instances/{A}/quarantine", {"because": "smells of smoke"}).body
    assert body["status"] == "QUARANTINED"
    assert body["reason"] == "quarantined by an operator: smells of smoke"
    (mail,) = api.functions.aws.asked("Publish")
    api.functions.wake()
    assert [asked["status"] for asked in api.functions.aws.asked("UpdateContainerInstancesState")] == ["DRAINING"]
    assert "StopTask" not in api.functions.aws.operations()
    assert "smells of smoke" in mail["Message"]


def test_a_quarantine_needs_no_reason(api: Api) -> None:
    """At three in the morning it must be possible with one word."""
    api.functions.store.save_instance(instance())
    assert api.post(f"/instances/{A}/quarantine").body["reason"] == "quarantined by an operator"
    assert "already" in refused(api.post(f"/instances/{A}/quarantine"), 409)


def test_an_instance_that_is_not_known_cannot_be_taken_out_of_use(api: Api) -> None:
    """404, and nothing is written."""
    assert A in refused(api.post(f"/instances/{A}/quarantine"), 404)


@pytest.mark.parametrize("raw", ["[]", "7", '"why"', "{", '{"because": "a", "because": "b"}'])
def test_a_reason_in_another_form_is_refused(api: Api, raw: str) -> None:
    """Before anything is done with it."""
    api.functions.store.save_instance(instance())
    refused(api.post(f"/instances/{A}/quarantine", raw=raw), 422, "body")
    assert api.functions.instance().status is InstanceStatus.AVAILABLE


@pytest.mark.parametrize("because", [7, "x" * 501, "a\nb", "\u001b[2J", {}, [], 0, False])
def test_a_reason_is_one_printable_line(api: Api, because: Any) -> None:
    """It goes into e-mails and terminals. An empty value of another type is no missing reason."""
    api.functions.store.save_instance(instance())
    refused(api.post("/fleet/pause", {"because": because}), 422, "because")
    refused(api.post(f"/instances/{A}/quarantine", {"because": because}), 422, "because")
    assert api.functions.instance().status is InstanceStatus.AVAILABLE


def test_another_field_beside_a_reason_is_refused(api: Api) -> None:
    """By its name."""
    api.functions.store.save_instance(instance())
    refused(api.post(f"/instances/{A}/quarantine", {"because": "x", "by": "me"}), 422, "by")
    assert api.functions.instance().status is InstanceStatus.AVAILABLE


def test_an_instance_shows_why_it_takes_no_work(api: Api) -> None:
    """What it needs, what holds that back, and the incident to follow it by."""
    held = instance(
        status=InstanceStatus.QUARANTINED,
        need=RepairNeed(RepairLevel.REBOOT, "XID 79", NOW),
        held=RepairHold(NOW, "sft-2 must leave it"),
        drained=True,
        incident_id=f"{A}/7",
    )
    api.functions.store.save_instance(held)
    body = api.get(f"/instances/{A}").body
    assert body["need"] == {
        "rung": "REBOOT",
        "evidence": "XID 79",
        "seen_at": "2026-11-21T09:00:00.000Z",
        "job_id": None,
    }
    assert body["held"] == {"since": "2026-11-21T09:00:00.000Z", "because": "sft-2 must leave it"}
    assert (body["drained"], body["incident_id"]) == (True, f"{A}/7")


@pytest.mark.parametrize(("waits", "shown"), [("sft-2", "sft-2"), ("", "sft-1")])
def test_an_instance_names_whom_it_is_repaired_for(api: Api, waits: str, shown: str) -> None:
    """The job that waits, or else the one that is over and whose rank the repair is to end."""
    need = RepairNeed(
        RepairLevel.REBOOT, "a rank cannot be stopped", NOW, job_id=waits, attempt=1, ends=RankOnInstance("sft-1", 1)
    )
    api.functions.store.save_instance(instance(status=InstanceStatus.REBOOTING, need=need))
    assert api.get(f"/instances/{A}").body["need"]["job_id"] == shown


# -- the fleet ---------------------------------------------------------------------------------------------------------


def test_the_fleet_shows_its_brakes_and_whom_they_hold(api: Api) -> None:
    """Budget x of y, the breaker with its reason and its next try, and who waits for what."""
    api.functions.store.save_fleet(OPEN)
    held = {
        "need": RepairNeed(RepairLevel.REBOOT, "XID 79", NOW),
        "held": RepairHold(NOW, "the circuit breaker is open"),
    }
    api.functions.store.save_instance(instance(status=InstanceStatus.QUARANTINED, **held))
    api.functions.store.save_instance(instance(B, status=InstanceStatus.QUARANTINED, reason="it did not come back"))
    body = api.get("/fleet").body
    assert (body["repairing"], body["repairs_at_once_max"], body["gpu_instances"]) == ([], 1, 4)
    assert (body["breaker"]["state"], body["breaker"]["because"]) == ("OPEN", OPEN.opened_because)
    assert body["breaker"]["probe_at"] == "2026-11-21T09:15:00.000Z"
    assert [one["instance_id"] for one in body["held"]] == [A]
    assert [one["because"] for one in body["for_a_person"]] == ["it did not come back"]
    assert body["unreadable"] == []


def test_the_fleet_lists_every_instance_that_gets_no_job(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """An impaired, a lost and a drained instance read AVAILABLE elsewhere: here each has its cause and since when."""
    sick = {"NODE_AGENT": HealthReport(HealthStatus.IMPAIRED, NOW, "XID 48")}
    api.functions.store.save_instance(instance(A, silent_since=NOW, health=sick))
    api.functions.store.save_instance(instance(B, ecs_status="DRAINING"))
    api.functions.store.save_instance(instance("i-0cccccccccccccccc"))
    api.functions.store.save_instance(instance("i-0dddddddddddddddd", status=InstanceStatus.GONE))
    body = api.get("/fleet").body
    shown = [(one["instance_id"], one["kind"], one["since"]) for one in body["out_of_use"]]
    since = "2026-11-21T09:00:00.000Z"
    assert shown == [(A, "impaired", since), (A, "lost", since), (B, "draining", None)]
    assert body["out_of_use"][0]["because"] == "NODE_AGENT is IMPAIRED: XID 48" and body["out_of_use_more"] == 0
    monkeypatch.setattr("gpu_recovery.wire.fleet.OUT_OF_USE_MAX", 2)
    body = api.get("/fleet").body
    assert (len(body["out_of_use"]), body["out_of_use_more"]) == (2, 1)


def test_before_the_reconciler_has_counted_the_fleet_does_not_claim_to_know(api: Api) -> None:
    """The first minute of a deployment: a count of 0 of a cluster that has instances."""
    api.functions.store.save_instance(instance(A))
    assert api.get("/fleet").body["gpu_instances_counted"] is False
    api.functions.call("reconciler", {})
    body = api.get("/fleet").body
    assert body["gpu_instances_counted"] is True


def test_the_fleet_names_an_instance_that_nobody_can_read(api: Api) -> None:
    """Whoever looks for what is held must not take the list for a whole one."""
    api.functions.store.save_instance(instance(status=InstanceStatus.QUARANTINED))
    api.functions.store.save_instance(instance(B, status=InstanceStatus.QUARANTINED))
    spoil(api, B)
    body = api.get("/fleet").body
    assert [one["instance_id"] for one in body["for_a_person"]] == [A]
    (why,) = body["unreadable"]
    assert B in why and "newer release" in why


def test_recovery_is_paused_with_a_reason_and_goes_on_again(api: Api) -> None:
    """Whoever finds it so at night must know whom to ask."""
    for body in (None, {"because": "  "}):
        assert "reason is required" in refused(api.post("/fleet/pause", body), 422, "because")
    assert api.functions.store.load_fleet().pause is None
    body = api.post("/fleet/pause", {"because": "new driver"}).body
    assert body["pause"] == {"by": "an operator", "because": "new driver", "at": "2026-11-21T09:00:00.000Z"}
    assert api.get("/fleet").body["pause"]["because"] == "new driver"
    assert api.post("/fleet/unpause").body["pause"] is None


def test_the_breaker_is_reset_and_operators_hear_that_its_incident_is_over(api: Api) -> None:
    """Told before it is done: the fleet's record keeps no commands, so nobody would say it later."""
    api.functions.store.save_fleet(OPEN)
    assert api.post("/fleet/reset-breaker").body["breaker"]["state"] == "CLOSED"
    order = [name for _, name, _ in api.functions.aws.calls if name in ("Publish", "PutItem")]
    assert order == ["Publish", "PutItem"]
    (mail,) = api.functions.aws.asked("Publish")
    assert mail["MessageAttributes"]["incident_id"]["StringValue"] == "breaker/x"
    assert mail["MessageAttributes"]["event_type"]["StringValue"] == "resolved"
    api.post("/fleet/reset-breaker")
    assert api.functions.aws.asked("Publish") == []


def test_a_reset_that_could_not_be_told_is_not_done(api: Api) -> None:
    """The operator gets an error, and the breaker is as it was: the next reset tells it."""
    api.functions.store.save_fleet(OPEN)

    def down(asked: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("no topic")

    api.functions.aws.answers["Publish"] = down
    refused(api.post("/fleet/reset-breaker"), 500)
    assert "not every channel" in api.functions.logged("failed")[0]["exception"]
    assert api.functions.store.load_fleet().opened_at == NOW


def test_with_a_chat_both_topics_hear_of_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mail as text, the chat in its schema."""
    monkeypatch.setenv("CHAT_TOPIC_ARN", f"{TOPIC}-chat")
    api.functions.chill()
    api.functions.store.save_instance(instance())
    api.post(f"/instances/{A}/quarantine")
    mail, chat = api.functions.aws.asked("Publish")
    assert (mail["TopicArn"], chat["TopicArn"]) == (TOPIC, f"{TOPIC}-chat")
    assert (
        json.loads(chat["Message"])["metadata"]["threadId"] == mail["MessageAttributes"]["incident_id"]["StringValue"]
    )


def test_a_chat_that_cannot_be_reached_costs_no_mail_and_repeats_none(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the chat's own command is left over, and only it is tried again."""
    monkeypatch.setenv("CHAT_TOPIC_ARN", f"{TOPIC}-chat")
    api.functions.chill()
    api.functions.store.save_instance(instance())
    sent: list[str] = []

    def publish(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["TopicArn"] != TOPIC:
            raise ConnectionError("no chat")
        sent.append(asked["Subject"])
        return {"MessageId": "m"}

    api.functions.aws.answers["Publish"] = publish
    assert "tried again" in refused(api.post(f"/instances/{A}/quarantine"), 502)
    assert api.functions.instance().status is InstanceStatus.QUARANTINED
    api.functions.wake()
    left = [one.command for one in api.functions.instance().commands]
    assert [(type(one).__name__, one.channel) for one in left] == [("NotifyOperator", "chat")]
    api.functions.now += timedelta(seconds=200)
    with pytest.raises(ExceptionGroup):
        api.functions.call("reconciler", {})
    assert len(sent) == 1


# -- dead letters ------------------------------------------------------------------------------------------------------


class Sqs:
    """One failed event, and one that nobody can read, behind the SQS of the tests."""

    def __init__(self, functions: Functions) -> None:
        self.bodies = {"m-1": json.dumps(LETTER), "m-2": "no JSON"}
        self.hidden: set[str] = set()
        functions.aws.answers |= {
            "GetQueueAttributes": self._depth,
            "ReceiveMessage": self._receive,
            "DeleteMessage": self._delete,
        }

    def _depth(self, asked: dict[str, Any]) -> dict[str, Any]:
        number = len(self.bodies) if asked["QueueUrl"] == FUNCTION["FAILED_QUEUE_URL"] else 0
        return {"Attributes": {"ApproximateNumberOfMessages": str(number)}}

    def _receive(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["QueueUrl"] != FUNCTION["FAILED_QUEUE_URL"]:
            return {}
        found = [name for name in self.bodies if name not in self.hidden]
        self.hidden |= set(found) if asked["VisibilityTimeout"] else set()
        return {"Messages": [{"MessageId": n, "ReceiptHandle": n, "Body": self.bodies[n]} for n in found]}

    def _delete(self, asked: dict[str, Any]) -> dict[str, Any]:
        del self.bodies[asked["ReceiptHandle"]]
        return {}


def test_dead_letters_are_counted_and_shown_without_taking_any(api: Api) -> None:
    """Whom each is for, and which of them nobody can read."""
    sqs = Sqs(api.functions)
    queues = api.get("/dead-letters").body["queues"]
    assert [(one["queue"], one["letters"]) for one in queues] == [("failed", 2), ("undelivered", 0), ("scheduler", 0)]
    shown = [(one["for"], one["source"], one["account"]) for one in queues[0]["shown"]]
    assert shown == [("gpu-recovery-ecs_task_handler", "aws.ecs", ACCOUNT), (None, None, None)]
    assert not sqs.hidden and "Invoke" not in api.functions.aws.operations()


def test_dead_letters_are_given_again_and_what_stays_is_named(api: Api) -> None:
    """Asynchronously, with the event as it was; the log says so too."""
    sqs = Sqs(api.functions)
    body = api.post("/dead-letters/redrive").body
    assert [(one["message_id"], one["kept_because"]) for one in body["letters"]] == [
        ("m-1", None),
        ("m-2", "its body is not JSON"),
    ]
    (asked,) = api.functions.aws.asked("Invoke")
    assert (asked["FunctionName"], asked["InvocationType"]) == (ARN, "Event")
    assert json.loads(asked["Payload"]) == LETTER["requestPayload"]
    assert list(sqs.bodies) == ["m-2"]
    assert body["left"] == {"failed": 1, "undelivered": 0, "scheduler": 0}
    assert body["stopped_because"] is None
    assert [line["message_id"] for line in api.functions.logged("redriven")] == ["m-1", "m-2"]


def test_a_dead_letter_of_another_account_stays_and_is_not_invoked(api: Api) -> None:
    """Any principal with SQS rights may write one: the operator's redrive does not carry it out."""
    sqs = Sqs(api.functions)
    foreign = LETTER | {"requestPayload": LETTER["requestPayload"] | {"account": "999999999999"}}
    sqs.bodies = {"m-1": json.dumps(foreign)}
    (letter,) = api.post("/dead-letters/redrive").body["letters"]
    assert (letter["account"], letter["kept_because"]) == (
        "999999999999",
        f"no rule of this deployment delivers its event: it is of account '999999999999', not {ACCOUNT}",
    )
    assert not api.functions.aws.asked("Invoke") and list(sqs.bodies) == ["m-1"]


def test_a_dead_letter_that_is_too_large_for_lambda_stays_and_the_next_is_sent(api: Api) -> None:
    """Any principal with SQS rights may write such a letter, and it must not hold up the letters behind it."""
    sqs = Sqs(api.functions)
    large = LETTER | {"requestPayload": ours({"detail": {"text": "x" * PAYLOAD_BYTES_MAX}})}
    sqs.bodies = {"m-1": json.dumps(large), "m-2": json.dumps(LETTER)}
    body = api.post("/dead-letters/redrive").body
    assert [(one["message_id"], one["kept_because"]) for one in body["letters"]] == [
        ("m-1", "Lambda does not take it (RequestEntityTooLargeException)"),
        ("m-2", None),
    ]
    assert body["stopped_because"] is None and list(sqs.bodies) == ["m-1"]


def third_fails(sqs: Sqs, operation: str) -> Any:
    """The third call of `operation` on a queue of letters for a function fails."""
    sqs.bodies = {f"m-{n}": json.dumps(LETTER) for n in range(4)}
    calls: list[Any] = []
    usual = {"Invoke": lambda asked: {"StatusCode": 202}, "DeleteMessage": sqs._delete}[operation]

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        calls.append(asked)
        if len(calls) == 3:
            raise ConnectionError(f"no answer to {operation}")
        return usual(asked)

    return answer


@pytest.mark.parametrize(("operation", "done"), [("Invoke", ["m-0", "m-1"]), ("DeleteMessage", ["m-0", "m-1", "m-2"])])
def test_a_redrive_that_breaks_off_tells_what_it_has_done(api: Api, operation: str, done: list[str]) -> None:
    """In the answer and line by line in the log: a letter that was given again is nowhere else to be seen."""
    sqs = Sqs(api.functions)
    api.functions.aws.answers[operation] = third_fails(sqs, operation)
    answer = api.post("/dead-letters/redrive")
    assert answer.status == 200
    assert [one["message_id"] for one in answer.body["letters"]] == done
    assert answer.body["stopped_because"] == f"ConnectionError: no answer to {operation}"
    assert list(sqs.bodies) == ["m-2", "m-3"]
    assert [line["message_id"] for line in api.functions.logged("redriven")] == done
    assert len(api.functions.logged("the redrive stopped before the end")) == 1


def test_a_redrive_whose_count_at_the_end_fails_tells_what_it_has_done(api: Api) -> None:
    """The letters are given by then."""
    Sqs(api.functions)

    def depth(asked: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("no count")

    api.functions.aws.answers["GetQueueAttributes"] = depth
    body = api.post("/dead-letters/redrive").body
    assert [one["message_id"] for one in body["letters"]] == ["m-1", "m-2"]
    assert (body["left"], body["stopped_because"]) == ({}, "ConnectionError: no count")


def test_a_redrive_that_cannot_begin_is_an_error(api: Api) -> None:
    """There is nothing to tell but the failure."""

    def down(asked: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("no queue")

    Sqs(api.functions)
    api.functions.aws.answers["ReceiveMessage"] = down
    refused(api.post("/dead-letters/redrive"), 500)
    assert "no queue" in api.functions.logged("failed")[0]["exception"]


@pytest.mark.parametrize(("name", "value"), [("queue", "mine"), ("limit", "0"), ("limit", "101"), ("limit", "many")])
def test_a_redrive_that_is_asked_for_wrongly_is_refused(api: Api, name: str, value: str) -> None:
    """Before a letter is touched."""
    refused(api.post("/dead-letters/redrive", **{name: value}), 400, name)
    assert api.functions.aws.count("sqs") == 0


def test_one_queue_alone_is_redriven(api: Api) -> None:
    """As many as were asked for, at most."""
    Sqs(api.functions)
    assert api.post("/dead-letters/redrive", queue="scheduler", limit="5").body["left"] == {"scheduler": 0}
    asked = api.functions.aws.asked("ReceiveMessage")
    assert {one["QueueUrl"] for one in asked} == {FUNCTION["SCHEDULER_DEAD_LETTERS_URL"]}
    assert {one["MaxNumberOfMessages"] for one in asked} == {5} and QUEUE_URL

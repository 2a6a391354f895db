"""Verdicts read from S3, and what is sent: messages to operators, events, and pokes of the scheduler."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from botocore.stub import Stubber
from gpu_recovery.aws.actions import AwsActions, EventRefused, VerdictUnreadable
from gpu_recovery.core.commands import Channel, NotifyOperator, PublishEvent
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.job.record import JobStatus

from tests.aws.environment import CLUSTER, QUEUE_URL, TOPIC
from tests.aws.records import A, later

CHECK = f"check/{A}/1"
KEY_OF_CHECK = f"verdicts/{CHECK}/{'0123456789abcdef' * 2}.json"


def document(**changes: Any) -> bytes:
    """A verdict as the check leaves it."""
    left = {
        "schema_version": 1,
        "check_id": CHECK,
        "outcome": "REBOOT",
        "summary": "GPU 3 fell off",
        "boot_id": "b-1",
        "booted_at": "2026-11-21T09:00:10Z",
        "findings": [],
    }
    return json.dumps(left | changes).encode()


def read(actions: AwsActions, body: bytes) -> Verdict | None:
    """What is made of a document with this text."""
    with Stubber(actions._s3) as s3:
        asked = {"Bucket": "verdicts-of-checks", "Key": KEY_OF_CHECK}
        s3.add_response("get_object", {"Body": StreamingBody(io.BytesIO(body), len(body))}, asked)
        return actions.load_verdict(CHECK, KEY_OF_CHECK)


def test_a_verdict_is_read_from_its_document(actions: AwsActions) -> None:
    """Outcome, summary and the boot it saw."""
    assert read(actions, document()) == Verdict(CheckOutcome.REBOOT, "GPU 3 fell off", "b-1", later(10))
    assert read(actions, document(boot_id=None, booted_at=None)) == Verdict(CheckOutcome.REBOOT, "GPU 3 fell off")


def test_the_document_of_another_check_is_none(actions: AwsActions) -> None:
    """An old verdict proves nothing."""
    assert read(actions, document(check_id=f"check/{A}/0")) is None


NO_VERDICTS = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    *(document(outcome=outcome) for outcome in ("FINE", None, [1])),
]


@pytest.mark.parametrize("body", NO_VERDICTS)
def test_a_document_that_is_no_verdict_is_an_error(actions: AwsActions, body: bytes) -> None:
    """It is neither passed off as healthy nor as missing."""
    with pytest.raises(VerdictUnreadable):
        read(actions, body)


def test_a_check_that_left_no_document_has_no_verdict(actions: AwsActions) -> None:
    """NoSuchKey is an answer; any other error of S3 is raised."""
    with Stubber(actions._s3) as s3:
        s3.add_client_error("get_object", "NoSuchKey", http_status_code=404)
        assert actions.load_verdict(CHECK, KEY_OF_CHECK) is None
        s3.add_client_error("get_object", "AccessDenied", http_status_code=403)
        with pytest.raises(ClientError):
            actions.load_verdict(CHECK, KEY_OF_CHECK)


def test_a_task_without_a_key_has_no_verdict(actions: AwsActions) -> None:
    """S3 is not asked: every key that could be guessed belongs to nobody."""
    with Stubber(actions._s3):
        assert actions.load_verdict(CHECK, "") is None


def test_operators_hear_with_the_incident_and_severity_as_attributes(actions: AwsActions) -> None:
    """So that a subscription can filter; what does not apply is left out, for SNS refuses what is empty."""
    values = {
        "incident_id": "sft-1--a01",
        "correlation_id": "sft-1--a01",
        "severity": "SEV3",
        "cluster": CLUSTER,
        "event_type": "opened",
        "job_id": "sft-1",
    }
    attributes = {name: {"DataType": "String", "StringValue": value} for name, value in values.items()}
    with Stubber(actions._sns) as sns:
        asked = {"TopicArn": TOPIC, "Subject": "s", "Message": "b", "MessageAttributes": attributes}
        sns.add_response("publish", {"MessageId": "m"}, asked)
        actions.notify(NotifyOperator("sft-1--a01", "SEV3", "s", "b", "opened", "sft-1"))
        sns.assert_no_pending_responses()


def sent(actions: AwsActions, message: NotifyOperator) -> str:
    """Text of what SNS is asked to publish for the message."""
    asked: list[dict[str, Any]] = []
    actions._sns.meta.events.register("provide-client-params.sns.Publish", lambda params, **_: asked.append(params))
    with Stubber(actions._sns) as sns:
        sns.add_response("publish", {"MessageId": "m"})
        actions.notify(message)
    return str(asked[0]["Message"])


CONSOLE = "https://api.example/console"
ABOUT_JOB = NotifyOperator("team/sft 1--a01", "SEV3", "s", "YOU\nnothing", "opened", "team/sft 1")


def test_a_message_has_the_link_of_its_incident_in_the_console(actions: AwsActions) -> None:
    """As the last line of an e-mail and the last next step in the chat. The id is percent-encoded."""
    link = f"Console: {CONSOLE}#/incidents/team%2Fsft%201--a01"
    actions.settings = replace(actions.settings, console_url=CONSOLE, chat_topic_arn=f"{TOPIC}-chat")
    assert sent(actions, ABOUT_JOB) == f"{ABOUT_JOB.body}\n{link}"
    told = json.loads(sent(actions, replace(ABOUT_JOB, channel=Channel.CHAT)))
    assert told["content"]["nextSteps"] == ["nothing", link]


@pytest.mark.parametrize(
    ("console_url", "message"),
    [("", ABOUT_JOB), (CONSOLE, replace(ABOUT_JOB, phase="noted")), (CONSOLE, replace(ABOUT_JOB, job_id=""))],
    ids=["no console", "a note", "about no record"],
)
def test_a_message_without_a_page_in_the_console_has_no_link(
    actions: AwsActions, console_url: str, message: NotifyOperator
) -> None:
    """No console, or no incident of a job or an instance."""
    actions.settings = replace(actions.settings, console_url=console_url)
    assert sent(actions, message) == message.body


def test_a_message_for_the_chat_goes_to_the_second_topic_alone(actions: AwsActions) -> None:
    """And to nobody where a deployment has given that topic up since the message was saved."""
    message = NotifyOperator("sft-1--a01", "SEV3", "s", "b", "opened", "sft-1", channel=Channel.CHAT)
    asked: list[dict[str, Any]] = []
    actions._sns.meta.events.register("provide-client-params.sns.Publish", lambda params, **_: asked.append(params))
    with Stubber(actions._sns) as sns:
        actions.notify(message)
        actions.settings = replace(actions.settings, chat_topic_arn=f"{TOPIC}-chat")
        sns.add_response("publish", {"MessageId": "m"})
        actions.notify(message)
    assert [one["TopicArn"] for one in asked] == [f"{TOPIC}-chat"]
    assert json.loads(asked[0]["Message"])["metadata"]["threadId"] == "sft-1--a01"


def test_an_event_of_ours_goes_to_our_bus(actions: AwsActions) -> None:
    """With its data, its schema's version and our source."""
    data = {"job_id": "sft-1", "before": None, "after": JobStatus.RUNNING, "attempt": 2}
    metadata = {"schema_version": 1, "correlation_id": "sft-1/4", "causation_id": "sft-1/4"}
    detail = json.dumps({"metadata": metadata, "data": data | {"after": "RUNNING"}})
    entry = {
        "EventBusName": "gpu-recovery",
        "Source": "gpu.recovery",
        "DetailType": "Job State Changed",
        "Detail": detail,
    }
    with Stubber(actions._events) as bus:
        bus.add_response("put_events", {"FailedEntryCount": 0, "Entries": [{"EventId": "e"}]}, {"Entries": [entry]})
        actions.publish(PublishEvent("Job State Changed", data), "sft-1/4")
        bus.assert_no_pending_responses()


def test_an_event_that_the_bus_did_not_take_is_an_error(actions: AwsActions) -> None:
    """PutEvents answers 200 even then."""
    refused = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure", "ErrorMessage": "try again"}]}
    with Stubber(actions._events) as bus:
        bus.add_response("put_events", refused)
        with pytest.raises(EventRefused, match="InternalFailure"):
            actions.publish(PublishEvent("Job State Changed", {}), "sft-1/4")


def test_the_scheduler_is_poked_once_for_the_same_key(actions: AwsActions) -> None:
    """One group, and a deduplication id that is the same whoever repeats the order."""
    asked: list[dict[str, Any]] = []
    events = actions._sqs.meta.events
    events.register("provide-client-params.sqs.SendMessage", lambda params, **_: asked.append(params))
    with Stubber(actions._sqs) as sqs:
        sqs.add_response("send_message", {"MessageId": "m"})
        sqs.add_response("send_message", {"MessageId": "m"})
        actions.poke_scheduler("sft-1/2")
        actions.poke_scheduler("sft-1/2")
    first, second = asked
    assert first == second
    assert (first["QueueUrl"], first["MessageGroupId"]) == (QUEUE_URL, "scheduler")
    assert len(first["MessageDeduplicationId"]) <= 128

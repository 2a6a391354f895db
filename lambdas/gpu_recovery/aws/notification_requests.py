"""How what we say becomes calls to AWS: a message to operators a Publish for mail or for a chat, an event a PutEvents.

Three ids make one story findable. The *correlation id* is the incident's id where there is one, else that of the
decision; the *causation id* is the decision's (`<record>/<version>`), as the log and the history have it. AWS's own
event ids are good for looking something up in its logs and for nothing else: the same event may come twice under two.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.item_codec import encode
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.notifications.template import Part, parts_of

SOURCE = "gpu.recovery"
SCHEMA_VERSION = 1
"""Of the events on the bus; raised when a consumer that knows the old form would misread the new one."""
CHAT_TITLE_CHARACTERS_MAX = 250
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def event_entry(event: PublishEvent, causation_id: str, bus_name: str) -> dict[str, Any]:
    """The entry of PutEvents for an event of ours, which the decision `causation_id` has ordered."""
    correlation_id = event.data.get("incident_id") or causation_id
    metadata = {"schema_version": SCHEMA_VERSION, "correlation_id": correlation_id, "causation_id": causation_id}
    detail = {"metadata": metadata, "data": encode(event.data)}
    return {
        "EventBusName": bus_name,
        "Source": SOURCE,
        "DetailType": event.detail_type,
        "Detail": json.dumps(detail),
    }


def mail_request(message: NotifyOperator, topic_arn: str, cluster: str) -> dict[str, Any]:
    """Publish for people's mailboxes: plain text."""
    return {
        "TopicArn": topic_arn,
        "Subject": message.subject,
        "Message": message.body,
        "MessageAttributes": _attributes(message, cluster),
    }


def chat_request(message: NotifyOperator, topic_arn: str, cluster: str) -> dict[str, Any]:
    """Publish for Amazon Q Developer in chat applications, which drops everything but its own schema without a word.

    Source: Amazon Q Developer in chat applications, custom notifications (schema version 1.0).
    """
    return {
        "TopicArn": topic_arn,
        "Message": json.dumps(chat_document(message, topic_arn, cluster)),
        "MessageAttributes": _attributes(message, cluster),
    }


def chat_document(message: NotifyOperator, topic_arn: str, cluster: str) -> dict[str, Any]:
    """The message in that schema. What programs wrote can neither call people by name there nor make links."""
    parts = parts_of(message.body)
    title = _plain(message.subject)[:CHAT_TITLE_CHARACTERS_MAX]
    told = [_paragraph(part, parts.get(part, [])) for part in (Part.WHAT, Part.EVIDENCE, Part.DONE, Part.NEXT)]
    context = {"severity": message.severity, "cluster": cluster, "correlation_id": message.incident_id}
    context |= {key: value for key, value in _about(message).items() if value}
    content = {
        "textType": "client-markdown",
        "title": title,
        "description": "\n\n".join(told),
        "nextSteps": [_step(line) for line in parts.get(Part.YOU, [])],
        "keywords": [word for word in (message.severity, message.phase, *_about(message).values()) if word],
    }
    metadata = {
        "threadId": message.incident_id,
        "summary": _plain(message.subject),
        "eventType": message.phase,
        "relatedResources": _resources(message, topic_arn, cluster),
        "additionalContext": context,
    }
    message_id = ecs_requests.token(message.incident_id, message.phase, message.subject, message.body)
    return {"version": "1.0", "source": "custom", "id": message_id, "content": content, "metadata": metadata}


def _attributes(message: NotifyOperator, cluster: str) -> dict[str, dict[str, str]]:
    """What subscriptions may filter by. SNS refuses an attribute that is empty."""
    values = {
        "severity": message.severity,
        "event_type": message.phase,
        "cluster": cluster,
        "incident_id": message.incident_id,
        "correlation_id": message.incident_id,
        **_about(message),
    }
    return {name: {"DataType": "String", "StringValue": value} for name, value in values.items() if value}


def _about(message: NotifyOperator) -> dict[str, str]:
    return {"job_id": message.job_id, "instance_id": message.instance_id}


def _resources(message: NotifyOperator, topic_arn: str, cluster: str) -> list[str]:
    """ARNs in the account and region that the topic is in."""
    _, partition, _, region, account, _ = topic_arn.split(":", 5)
    found = [f"arn:{partition}:ecs:{region}:{account}:cluster/{cluster}"]
    if message.instance_id:
        found.append(f"arn:{partition}:ec2:{region}:{account}:instance/{message.instance_id}")
    return found


def _paragraph(heading: str, lines: Iterable[str]) -> str:
    return "\n".join([f"*{heading.capitalize()}*", *(_plain(line) for line in lines)])


def _step(line: str) -> str:
    """A command is shown as code, its comment after it."""
    if not line.startswith("  "):
        return _plain(line)
    command, _, what_for = line.strip().partition(" # ")
    return f"`{command}`" + (f" {_plain(what_for)}" if what_for else "")


def _plain(text: str) -> str:
    return text.translate(_MARKUP)

"""Builders of notification requests: SNS Publish for e-mail and chat, EventBridge PutEvents for events.

Two ids connect the messages of one incident. The *correlation id* is the id of the incident, or of the decision if
there is no incident. The *causation id* is the id of the decision (`<record>/<version>`), as in the log and history.
AWS's own event ids only help to search AWS's logs: the same event may arrive twice with different ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.item_codec import encode
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.event_origin import OWN_SOURCE
from gpu_recovery.core.notifications.template import Part, Phase, parts_of

SCHEMA_VERSION = 1
"""Schema version of the events on the bus. Raise it if a consumer of the old form would misread the new form."""
CHAT_TITLE_CHARACTERS_MAX = 250
"""Upper bound of characters in the title of a chat message."""
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def event_entry(event: PublishEvent, causation_id: str, bus_name: str) -> dict[str, Any]:
    """Build the PutEvents entry of an event.

    Args:
        event: the event.
        causation_id: the decision that ordered the event, as `<record>/<version>`.
        bus_name: the event bus.
    """
    correlation_id = event.data.get("incident_id") or causation_id
    metadata = {"schema_version": SCHEMA_VERSION, "correlation_id": correlation_id, "causation_id": causation_id}
    detail = {"metadata": metadata, "data": encode(event.data)}
    return {
        "EventBusName": bus_name,
        "Source": OWN_SOURCE,
        "DetailType": event.detail_type,
        "Detail": json.dumps(detail),
    }


def mail_request(message: NotifyOperator, topic_arn: str, cluster: str, console_url: str = "") -> dict[str, Any]:
    """Build the Publish request of an e-mail in plain text, with the link of its incident if there is a console."""
    link = _console_line(message, console_url)
    return {
        "TopicArn": topic_arn,
        "Subject": message.subject,
        "Message": f"{message.body}\n{link}" if link else message.body,
        "MessageAttributes": _attributes(message, cluster),
    }


def chat_request(message: NotifyOperator, topic_arn: str, cluster: str, console_url: str = "") -> dict[str, Any]:
    """Build the Publish request for Amazon Q Developer in chat applications.

    The service drops messages that do not follow its own schema, and reports no error.

    Source: Amazon Q Developer in chat applications, custom notifications (schema version 1.0).
    """
    return {
        "TopicArn": topic_arn,
        "Message": json.dumps(chat_document(message, topic_arn, cluster, console_url)),
        "MessageAttributes": _attributes(message, cluster),
    }


def chat_document(message: NotifyOperator, topic_arn: str, cluster: str, console_url: str = "") -> dict[str, Any]:
    """Return the message in the schema of custom notifications (version 1.0).

    Markup in the texts is escaped, so output of programs can neither mention users of the chat nor create links. The
    last of the next steps is the link of the incident, if there is a console.
    """
    link = _console_line(message, console_url)
    parts = parts_of(message.body)
    title = _plain(message.subject)[:CHAT_TITLE_CHARACTERS_MAX]
    paragraphs = [_paragraph(part, parts.get(part, [])) for part in (Part.WHAT, Part.EVIDENCE, Part.DONE, Part.NEXT)]
    context = {"severity": message.severity, "cluster": cluster, "correlation_id": message.incident_id}
    context |= {key: value for key, value in _about(message).items() if value}
    content = {
        "textType": "client-markdown",
        "title": title,
        "description": "\n\n".join(paragraphs),
        "nextSteps": [_step(line) for line in [*parts.get(Part.YOU, []), *([link] if link else [])]],
        "keywords": [keyword for keyword in (message.severity, message.phase, *_about(message).values()) if keyword],
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
    """Return the attributes by which subscriptions may filter. SNS refuses an empty attribute."""
    values = {
        "severity": message.severity,
        "event_type": message.phase,
        "cluster": cluster,
        "incident_id": message.incident_id,
        "correlation_id": message.incident_id,
        **_about(message),
    }
    return {name: {"DataType": "String", "StringValue": value} for name, value in values.items() if value}


def _console_line(message: NotifyOperator, console_url: str) -> str:
    """Return the line with the address of the message's incident in the console.

    Returns:
        "" without a console, and for a message about no incident of a job or an instance, which has no page.
    """
    if not console_url or message.phase == Phase.NOTED or not any(_about(message).values()):
        return ""
    return f"Console: {console_url}#/incidents/{quote(message.incident_id, safe='')}"


def _about(message: NotifyOperator) -> dict[str, str]:
    return {"job_id": message.job_id, "instance_id": message.instance_id}


def _resources(message: NotifyOperator, topic_arn: str, cluster: str) -> list[str]:
    """Return the ARNs of the cluster and the instance. Account and region are those of the topic."""
    _, partition, _, region, account, _ = topic_arn.split(":", 5)
    arns = [f"arn:{partition}:ecs:{region}:{account}:cluster/{cluster}"]
    if message.instance_id:
        arns.append(f"arn:{partition}:ec2:{region}:{account}:instance/{message.instance_id}")
    return arns


def _paragraph(heading: str, lines: Iterable[str]) -> str:
    return "\n".join([f"*{heading.capitalize()}*", *(_plain(line) for line in lines)])


def _step(line: str) -> str:
    """Return a line of the next steps as markdown. An indented line is a command: code, then its comment."""
    if not line.startswith("  "):
        return _plain(line)
    command, _, comment = line.strip().partition(" # ")
    return f"`{command}`" + (f" {_plain(comment)}" if comment else "")


def _plain(text: str) -> str:
    return text.translate(_MARKUP)

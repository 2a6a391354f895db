"""Endpoints besides e-mail that the operators' topic notifies: HTTPS addresses and SQS queues."""

import hashlib
import re
from typing import Any
from urllib.parse import urlsplit

from infra.setting_readers import text

_URL = text(
    r"https://[A-Za-z0-9.-]+(:\d{1,5})?(/[^\s,]*)?", "an address that begins with https:// or the ARN of an SQS queue"
)
_QUEUE = re.compile(
    r"arn:(?P<partition>[a-z-]+):sqs:(?P<region>[a-z]{2}(-[a-z]+)+-\d):\d{12}:(?P<name>[A-Za-z0-9_-]{1,80}(\.fifo)?)"
)
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
"""Partition by the beginning of the region's name; of all other regions `aws`."""
_NO_SNS = {"hooks.slack.com": "Slack's webhooks do not read messages of SNS: set chat_topic, for Amazon Q"}
"""Hosts that never confirm a subscription, with the way that works."""


def alert_endpoint(raw: Any) -> str:
    """Read an endpoint: an HTTPS address, or the ARN of a standard SQS queue.

    Raises:
        ValueError: the value is neither, SNS cannot deliver to it, or it has a user name, a query or a fragment. The
            template shows the endpoint to everyone who may read the stack.
    """
    if not isinstance(raw, str) or not raw.startswith("arn:"):
        return _address(raw)
    queue = _QUEUE.fullmatch(raw)
    if queue is None:
        raise ValueError(f"{raw!r} is not the ARN of an SQS queue")
    partition = next((name for start, name in _PARTITIONS.items() if queue["region"].startswith(start)), "aws")
    if queue["partition"] != partition:
        raise ValueError(f"{raw!r}: region {queue['region']} is in partition {partition}, not {queue['partition']}")
    if queue["name"].endswith(".fifo"):
        raise ValueError(f"{raw!r}: SNS delivers messages of a standard topic to no FIFO queue")
    return raw


def protocol(endpoint: str) -> str:
    """Return the protocol of SNS for an endpoint that `alert_endpoint` accepts."""
    return "sqs" if endpoint.startswith("arn:") else "https"


def subscription_id(endpoint: str) -> str:
    """Return the construct id of the subscription. It depends only on the endpoint, not on the order of the setting."""
    return f"Endpoint{hashlib.sha256(endpoint.encode()).hexdigest()[:8]}"


def _address(raw: Any) -> str:
    if isinstance(raw, str) and raw.startswith("https://"):
        parts = urlsplit(raw)
        if "@" in parts.netloc or parts.query or parts.fragment:
            # The value is left out of the message, which is printed and logged.
            raise ValueError(
                f"the address at {parts.netloc.rpartition('@')[2]} has a password, a query or a fragment, which the "
                "template would show: subscribe it with `aws sns subscribe`"
            )
        if parts.hostname in _NO_SNS:
            raise ValueError(f"{raw!r}: {_NO_SNS[parts.hostname]}")
    return str(_URL(raw))

"""The AWS of the tests refuses payloads that are too large for AWS."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox.payload_limits import PAYLOAD_BYTES_MAX, SYNCHRONOUS_BYTES_MAX
from tests.aws.counted_aws import CountedAws
from tests.platform.cloud import Cloud


def entry(detail_bytes: int) -> dict[str, Any]:
    """An entry of about `detail_bytes`, in characters of two bytes."""
    return {
        "Source": "s" * 5,
        "DetailType": "t" * 5,
        "Detail": json.dumps({"text": "é" * (detail_bytes // 2)}, ensure_ascii=False),
    }


@pytest.mark.parametrize("aws", [CountedAws, Cloud])
def test_the_aws_of_the_tests_refuses_entries_that_are_too_large(aws: type[CountedAws | Cloud]) -> None:
    """All entries of a request count together, in bytes."""
    events = aws().client("events")
    half = entry(PAYLOAD_BYTES_MAX // 2)
    assert events.put_events(Entries=[half])["FailedEntryCount"] == 0
    with pytest.raises(ClientError, match="Total size of the entries in the request is over the limit"):
        events.put_events(Entries=[half, half])


def test_the_aws_of_the_tests_refuses_payloads_that_are_too_large() -> None:
    """A synchronous payload may be larger: up to 6 MB."""
    invoke = CountedAws().client("lambda").invoke
    payload = b"x" * (PAYLOAD_BYTES_MAX + 1)
    invoke(FunctionName="f", InvocationType="Event", Payload=payload[1:])
    invoke(FunctionName="f", Payload=payload)
    with pytest.raises(ClientError, match="262145 byte payload is too large for the Event invocation type"):
        invoke(FunctionName="f", InvocationType="Event", Payload=payload)
    invoke(FunctionName="f", Payload=b"x" * SYNCHRONOUS_BYTES_MAX)
    with pytest.raises(ClientError, match="6291457 byte payload is too large for the RequestResponse invocation type"):
        invoke(FunctionName="f", Payload=b"x" * (SYNCHRONOUS_BYTES_MAX + 1))

"""Connection of boto3 clients to the DynamoDB double, in place of HTTP.

botocore validates the parameters of a call, runs the other handlers of the client and raises its own errors as usual.
"""

from __future__ import annotations

import json
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from simulator.dynamodb.double import DynamoDb
from simulator.dynamodb.errors import DynamoError

_CONTENT_TYPE = "application/x-amz-json-1.0"


def answer(service: DynamoDb, model: Any, asked: dict[str, Any]) -> tuple[AWSResponse, dict[str, Any]]:
    """Answer a call in a handler of botocore's event `before-call`.

    Args:
        service: the double.
        model: botocore's model of the operation.
        asked: the parameters of the call, as botocore's event `before-parameter-build` gives them.

    Returns:
        The HTTP response without a body, and the parsed response.
    """
    status, parsed = 200, dict[str, Any]()
    try:
        parsed = {**service.call(model.name, asked)}
    except DynamoError as error:
        status = 400
        parsed = {"Error": {"Code": error.code, "Message": error.message}, **error.details}
    parsed["ResponseMetadata"] = {"HTTPStatusCode": status, "RetryAttempts": 0, "HTTPHeaders": {}}
    return AWSResponse("", status, HTTPHeaders(), None), parsed


def respond(service: DynamoDb, target: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Answer an HTTP request.

    Args:
        service: the double.
        target: the header `X-Amz-Target`.
        body: the body of the request.

    Returns:
        Status, body and headers of the response.
    """
    try:
        status, content = 200, service.call(target.rsplit(".", 1)[-1], json.loads(body))
    except DynamoError as error:
        kind = f"com.amazonaws.dynamodb.v20120810#{error.code}"
        status, content = 400, {"__type": kind, "message": error.message, **error.details}
    return status, json.dumps(content).encode(), {"Content-Type": _CONTENT_TYPE}

"""A client whose answers are written down beforehand, behind botocore's own retries."""

from __future__ import annotations

from typing import Any

from botocore.awsrequest import AWSResponse
from moto.core.botocore_stubber import MockRawResponse

from tests.platform.cloud import Answer, Request
from tests.platform.faults import refusal


class Scripted:
    """Answers the requests of a client one after the other, the last one for ever. An exception is raised."""

    def __init__(self, made: Any, *script: tuple[str, int] | Exception | Answer) -> None:
        self.script, self.asked = list(script), 0
        made.meta.events.register_first("before-send", self.send)

    def send(self, request: Any, event_name: str, **_: Any) -> AWSResponse:
        """The next answer of the script."""
        _, service, operation = event_name.split(".")
        now = self.script[min(self.asked, len(self.script) - 1)]
        self.asked += 1
        if isinstance(now, Exception):
            raise now
        answer = now if isinstance(now, Answer) else refusal(Request(0, 0, service, operation, {}), now[0], "", now[1])
        raw: Any = MockRawResponse(answer.body)
        return AWSResponse(request.url, answer.status, {}, raw)

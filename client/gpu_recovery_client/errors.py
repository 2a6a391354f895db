"""Errors of the client. No message ever holds a token.

ClientError
├── SettingsMissing      the API address or the token is missing or unusable
├── ServiceUnreachable   no response: name, connection, TLS or timeout
├── RequestRefused       the API responded with an error status
├── AnswerUnreadable     the API responded with something unexpected
└── ListIncomplete       the list lacks records that the API cannot read
"""

from __future__ import annotations


class ClientError(Exception):
    """Base class of the errors that this package raises on purpose."""


class SettingsMissing(ClientError):
    """The API address or the token is missing, or has an unusable form."""


class ServiceUnreachable(ClientError):
    """No response came. The service may have received a request that changes something, or not.

    `local` says whether the address is on this host, such as a sandbox's.
    """

    def __init__(self, text: str, *, local: bool = False) -> None:
        super().__init__(text)
        self.local = local


class AnswerUnreadable(ClientError):
    """A response with a success status and a body that is not the JSON object of the API."""


class ListIncomplete(ClientError):
    """The list lacks records that the API cannot read. Raised after the last readable record."""


class RequestRefused(ClientError):
    """A refusal of the API, from its problem document (RFC 9457).

    Args:
        status: HTTP status.
        title: the kind of error in words.
        detail: what is wrong.
        field: the name of the wrong field, if there is one.
        more: (field, detail) of each further error.
        code: a stable identifier of the kind of refusal, "" if the API gives none.
        retry_after_s: seconds until a retry is welcome, if the API says so.
        path: the requested path below the version of the API.
        api_url: the address that answered.
        is_read: whether the request only reads.
        is_problem: whether the answer has the form of the API's errors. Gateways and other servers answer otherwise.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str = "",
        field: str | None = None,
        *,
        more: tuple[tuple[str, str], ...] = (),
        code: str = "",
        retry_after_s: float | None = None,
        path: str = "",
        api_url: str = "",
        is_read: bool = False,
        is_problem: bool = True,
    ) -> None:
        parts = [f"{title} ({status})", field or "", detail]
        super().__init__(": ".join(part for part in parts if part))
        self.status = status
        self.title = title
        self.detail = detail
        self.field = field
        self.more = more
        self.code = code
        self.retry_after_s = retry_after_s
        self.path = path
        self.api_url = api_url
        self.is_read = is_read
        self.is_problem = is_problem

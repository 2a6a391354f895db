"""What can go wrong on the user's side. No text here ever holds a token.

ClientError
├── SettingsMissing      the API address or the token is not known, or cannot be used
├── ServiceUnreachable   no answer: name, connection, TLS or time
├── RequestRefused       the API answered with an error status
├── AnswerUnreadable     the API answered with something that is not what it promises
└── ListIncomplete       the API has records in the list that it cannot read
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of everything this package raises on purpose."""


class SettingsMissing(ClientError):
    """The API address or the token is not given, or has a form that cannot be used."""


class ServiceUnreachable(ClientError):
    """No answer came. A request that changes something may or may not have been heard.

    local: whether the address is on this machine, as a sandbox's is.
    """

    def __init__(self, text: str, *, local: bool = False) -> None:
        super().__init__(text)
        self.local = local


class AnswerUnreadable(ClientError):
    """An answer with a success status whose body is not the JSON object that the API promises."""


class ListIncomplete(ClientError):
    """The list lacks records that the API cannot read. Raised after the last of those that it can."""


class RequestRefused(ClientError):
    """The API's refusal, as its problem document (RFC 9457) states it.

    field:         names the culprit, if one is named.
    more:          (field, detail) of each further thing that is wrong.
    code:          a stable word for the kind of refusal, "" if the API gives none.
    retry_after_s: when the API wants to be asked again, if it says so.
    path:          what was asked for, below the version of the API.
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

"""The tokens of instances and of users as text, without their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery_client.render.formats import clock, since, until
from gpu_recovery_client.render.table import table
from gpu_recovery_client.render.text import line as line_of
from gpu_recovery_client.texts import heads, tr

View = Mapping[str, Any]


def line(view: View, now: datetime) -> str:
    """Return one token in a sentence."""
    return tr("{token} of {holder}: {state}", token=_id(view), holder=_owner(view), state=_state(view, now))


def tokens(view: View, now: datetime, width: int | None = None) -> str:
    """Return the tokens of an instance or of a user as a table."""
    if not view["tokens"]:
        return line_of(tr("{holder} has no tokens", holder=_owner(view)))
    of_user = "user" in view
    header = heads("TOKEN ID", *(["ROLE"] if of_user else ()), "ISSUED", "BY", "STATE", "NOTE")
    rows = [
        (
            _id(token),
            *([str(token.get("role") or "-")] if of_user else ()),
            clock(token.get("issued_at")),
            str(token.get("issued_by") or "-"),
            _state(token, now),
            str(token.get("note") or ""),
        )
        for token in view["tokens"]
    ]
    return table(header, rows, width, optional=(3, 2) if of_user else (2, 1))


def _id(view: View) -> str:
    return str(view.get("token_id") or view.get("id"))


def _owner(view: View) -> str:
    if "instance_id" in view:
        return str(view["instance_id"])
    return f"{view['user']} ({view['role']})" if view.get("role") else str(view["user"])


def _state(view: View, now: datetime) -> str:
    if view.get("revoked_at"):
        return tr("revoked {time} ago", time=since(view["revoked_at"], now))
    if view.get("live", True):
        return tr("ends {time}", time=until(view["expires_at"], now))
    return tr("expired at {time}", time=clock(view["expires_at"]))

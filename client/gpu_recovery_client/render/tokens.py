"""The tokens of instances and of users as text, without their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpu_recovery_client.render.formats import clock, since, until
from gpu_recovery_client.render.table import line as line_of
from gpu_recovery_client.render.table import table

View = Mapping[str, Any]


def line(view: View, now: datetime) -> str:
    """Return one token in a sentence."""
    return f"{_id(view)} of {_owner(view)}: {_state(view, now)}"


def tokens(view: View, now: datetime, width: int | None = None) -> str:
    """Return the tokens of an instance or of a user as a table."""
    if not view["tokens"]:
        return line_of(f"{_owner(view)} has no tokens")
    of_user = "user" in view
    header = ("TOKEN ID", *(["ROLE"] if of_user else ()), "ISSUED", "BY", "STATE", "NOTE")
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
    return table(header, rows, width)


def _id(view: View) -> str:
    return str(view.get("token_id") or view.get("id"))


def _owner(view: View) -> str:
    if "instance_id" in view:
        return str(view["instance_id"])
    return f"{view['user']} ({view['role']})" if view.get("role") else str(view["user"])


def _state(view: View, now: datetime) -> str:
    if view.get("revoked_at"):
        return f"revoked {since(view['revoked_at'], now)} ago"
    return (
        f"ends {until(view['expires_at'], now)}"
        if view.get("live", True)
        else f"expired at {clock(view['expires_at'])}"
    )

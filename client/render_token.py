"""The tokens of nodes as text. The token itself is never among it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .render import clock, since, until
from .table import line as line_of
from .table import table

View = Mapping[str, Any]


def line(view: View, now: datetime) -> str:
    """One token in a sentence."""
    return f"{view['token_id']} of {view['instance_id']}: {_state(view, now)}"


def tokens(view: View, now: datetime, width: int | None = None) -> str:
    """The tokens of an instance as a table."""
    rows = [
        (one["token_id"], clock(one["issued_at"]), one["issued_by"], _state(one, now), one["note"])
        for one in view["tokens"]
    ]
    if not rows:
        return line_of(f"{view['instance_id']} has no tokens")
    return table(("TOKEN ID", "ISSUED", "BY", "STATE", "NOTE"), rows, width)


def _state(view: View, now: datetime) -> str:
    if view["revoked_at"]:
        return f"revoked {since(view['revoked_at'], now)} ago"
    return f"ends {until(view['expires_at'], now)}" if view["live"] else f"expired at {clock(view['expires_at'])}"

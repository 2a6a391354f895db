"""The sandbox as text: its status and its mailbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_recovery_client.render.formats import clock
from gpu_recovery_client.render.table import cleaned, printable, table

View = Mapping[str, Any]


def mailbox(mails: Iterable[Mapping[str, str]]) -> str:
    """Every mail, oldest first, as its reader sees it."""
    shown = [f"{clock(one['at'])}  {cleaned(one['subject'])}\n\n{printable(one['body'])}" for one in mails]
    return "\n".join(shown) if shown else "no mail\n"


def sandbox_status(view: View) -> str:
    """Whether the sandbox runs, where, and which of its servers do; never its tokens."""
    servers = [(name, "runs" if alive else "has ended") for name, alive in view["servers"].items()]
    if not view["running"]:
        return "not running\n" + (table(None, servers, None) if servers else "")
    reach = [(name, str(view["sandbox"][name])) for name in ("api_url", "endpoint_url", "ecs_endpoint_url", "cluster")]
    return table(None, [("sandbox", "running"), *reach, *servers], None)

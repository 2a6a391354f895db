"""The sandbox as text: its status and its mailbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpu_recovery_client.render.formats import clock
from gpu_recovery_client.render.table import table
from gpu_recovery_client.render.text import cleaned, printable
from gpu_recovery_client.texts import tr

View = Mapping[str, Any]


def mailbox(mails: Iterable[Mapping[str, str]]) -> str:
    """Every mail, oldest first, as its reader sees it."""
    shown = [f"{clock(one['at'])}  {cleaned(one['subject'])}\n\n{printable(one['body'])}" for one in mails]
    return "\n".join(shown) if shown else tr("no e-mail") + "\n"


def sandbox_status(view: View) -> str:
    """Whether the sandbox runs, where, and which of its servers do; never its tokens."""
    servers = [(name, tr("runs") if alive else tr("has ended")) for name, alive in view["servers"].items()]
    if not view["running"]:
        return tr("not running") + "\n" + (table(None, servers, None) if servers else "")
    reach = [(name, str(view["sandbox"][name])) for name in ("api_url", "endpoint_url", "ecs_endpoint_url")]
    reach.append(("cluster name", str(view["sandbox"]["cluster"])))
    return table(None, [(tr("sandbox"), tr("running")), *reach, *servers], None)

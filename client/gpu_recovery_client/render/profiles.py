"""Saved deployments as text, without their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery_client.render.table import paragraph, table
from gpu_recovery_client.render.text import line
from gpu_recovery_client.texts import heads, tr


def profile_list(view: Mapping[str, Any], width: int | None = None) -> str:
    """Return the profiles as a table, in which a star marks the default, and the deployment that is used here."""
    used = view["used"]
    here = tr("used here: {api_url} ({source})", **used) if used else tr("used here: none")
    last = paragraph(here, width)
    if not view["profiles"]:
        return line(tr("no deployment is saved; `gpu-recovery login` saves one")) + last
    rows = [
        (
            f"{one['name']}{' *' if one['default'] else ''}",
            one["auth"],
            one["token_store"] or "-",
            one["api_url"],
        )
        for one in view["profiles"]
    ]
    return table(heads("PROFILE", "AUTH", "TOKEN IN", "API"), rows, width) + last

"""The committed file of stored and public names, `tests/stored_names.json`, and how the code is compared with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any

from tests.stored_names import messages, programs, surfaces
from tests.stored_names.items import items
from tests.stored_names.records import enums, records
from tests.stored_names.spellings import spellings

FILE = Path(__file__).parents[1] / "stored_names.json"
TEMPLATES = "templates"
"""The section that needs a synthesis; `tests/infra/test_template_names.py` compares it."""
WIDTH = 120
SECTIONS: Mapping[str, Callable[[], Any]] = {
    "stored records": records,
    "stored items": items,
    "enum values": enums,
    "metrics": surfaces.metrics,
    "job API": surfaces.api,
    "node API": surfaces.node_api,
    "refusals": surfaces.refusals,
    "events": surfaces.events,
    "settings": surfaces.settings,
    "requests": messages.requests,
    "messages": messages.messages,
    "commands": programs.commands,
    "exit statuses": programs.exit_statuses,
    "Python API": programs.python_api,
    "spellings": spellings,
}
"""What is pinned, by its name in the file, and the function that reads it from the code."""


def pinned() -> dict[str, Any]:
    """What the file says."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def difference(section: str, now: Any) -> str:
    """A unified diff from the file's section to `now`; empty if they are the same."""
    before, after = (text(one).splitlines() for one in (pinned().get(section), json.loads(json.dumps(now))))
    return "\n".join(unified_diff(before, after, f"{FILE.name}: {section}", f"the code: {section}", lineterm=""))


def text(value: Any, indent: int = 0) -> str:
    """JSON with sorted keys, where what fits into a line is in one."""
    flat = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(flat) + indent <= WIDTH - 40 or not value or not isinstance(value, dict | list):
        return flat
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [f"{inner}{json.dumps(key)}: {text(value[key], indent + 1)}" for key in sorted(value)]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(inner + text(one, indent + 1) for one in value) + "\n" + " " * indent + "]"

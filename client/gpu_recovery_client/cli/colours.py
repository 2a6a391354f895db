"""Colours of statuses on a terminal. The variable NO_COLOR turns colours off (no-color.org)."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

STYLES = {
    "red": ("FAILED", "LOST", "QUARANTINED", "IMPAIRED", "UNREACHABLE"),
    "yellow": (
        "CHECKING",
        "DIAGNOSING",
        "DRAINING",
        "PENDING_RESOURCES",
        "REBOOTING",
        "RECOVERING",
        "REPLACING",
        "RESETTING",
        "SILENT",
        "STOPPING",
        "SUSPECT",
        "SUSPENDED",
        "SUSPENDING",
        "VERIFYING",
    ),
    "green": ("RUNNING", "SUCCEEDED", "AVAILABLE", "HEARD"),
    "cyan": ("QUEUED", "SUBMITTING", "SUBMITTED"),
    "bright_black": ("CANCELED", "GONE"),
}
"""Statuses of jobs, instances and agents, by their style."""


def coloured(text: str) -> Text:
    """Return the text with the style of each status in it. Brackets are text, not markup."""
    shown = Text(text)
    for style, words in STYLES.items():
        shown.highlight_regex(rf"\b(?:{'|'.join(words)})\b", style)
    return shown


def print_coloured(text: str) -> None:
    """Print the text on stdout as it is laid out, in colours if the terminal shows them."""
    Console(highlight=False).print(coloured(text), end="", soft_wrap=True)

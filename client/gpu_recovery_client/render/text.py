"""Text that cannot control a terminal."""

from __future__ import annotations

GAP = "  "
"""What separates pieces of a line and columns of a table."""


def line(*pieces: str) -> str:
    """Return the non-empty pieces on one line, two spaces apart."""
    return GAP.join(cleaned(piece) for piece in pieces if piece) + "\n"


def cleaned(text: str) -> str:
    """Return `text` on one line without control characters: text of a task or a user must not control a terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return `text` with a question mark for each character that is not printable; tabs and line breaks stay."""
    return "".join(character if character.isprintable() or character in "\t\n" else "?" for character in text)

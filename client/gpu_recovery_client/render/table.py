"""Plain text in columns, for any width and any content: no colour, and no id is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

UNBOUNDED = 100_000
"""A width that never folds."""
SENTENCE_MIN = 40
"""Smallest width of the last column."""
GAP, INDENT = "  ", "    "


def line(*pieces: str) -> str:
    """Return the non-empty pieces on one line, two spaces apart."""
    return GAP.join(cleaned(piece) for piece in pieces if piece) + "\n"


def table(header: Sequence[str] | None, rows: Iterable[Sequence[str]], width: int | None) -> str:
    """Return columns two spaces apart. Only the last column, a sentence, is folded to fit into `width` characters.

    If the other columns leave too little space, the sentence gets its own lines below its row.
    """
    cells = [[cleaned(str(cell)) for cell in row] for row in rows]
    sentences = [row[-1] for row in cells]
    others = [row[:-1] for row in ([list(header)] if header else []) + cells]
    taken = sum(max(map(cell_len, column)) + len(GAP) for column in zip(*others, strict=True))
    room = (width or UNBOUNDED) - taken
    if room >= min(SENTENCE_MIN, max(map(cell_len, sentences))):
        return _grid(header, cells, room)
    lines = _grid(header and header[:-1], [row[:-1] for row in cells], UNBOUNDED).splitlines()
    below = ["\n".join(INDENT + part for part in _folded(s, (width or UNBOUNDED) - len(INDENT))) for s in sentences]
    top = lines[: len(lines) - len(cells)]
    mixed = [part for pair in zip(lines[len(top) :], below, strict=True) for part in pair if part]
    return "".join(f"{part}\n" for part in top + mixed)


def _grid(header: Sequence[str] | None, cells: Sequence[Sequence[str]], last_width: int) -> str:
    grid = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), show_header=header is not None)
    last = len(cells[0]) - 1
    for number in range(last + 1):
        width = last_width if number == last else None
        grid.add_column(header[number] if header else "", max_width=width, overflow="fold")
    for row in cells:
        grid.add_row(*map(Text, row))
    out = StringIO()
    Console(file=out, width=UNBOUNDED, color_system=None, force_terminal=False).print(grid)
    return "".join(f"{part.rstrip()}\n" for part in out.getvalue().splitlines())


def _folded(sentence: str, width: int) -> list[str]:
    """Return the lines of a sentence; none for an empty one."""
    if not sentence:
        return []
    console = Console(file=StringIO(), width=UNBOUNDED, color_system=None, force_terminal=False)
    return [part.plain.rstrip() for part in Text(sentence).wrap(console, max(width, SENTENCE_MIN))]


def cleaned(text: str) -> str:
    """Return `text` on one line without control characters: text of a task or a user must not control a terminal."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return `text` with a question mark for each character that is not printable; tabs and line breaks stay."""
    return "".join(character if character.isprintable() or character in "\t\n" else "?" for character in text)

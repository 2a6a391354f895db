"""Plain text in columns, for any width and any content: no colour, and no id is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_recovery_client.render.text import GAP, cleaned

UNBOUNDED = 100_000
"""A width that never folds."""
SENTENCE_MIN = 40
"""Smallest width of the last column."""
INDENT = "    "


def table(
    header: Sequence[str] | None,
    rows: Iterable[Sequence[str]],
    width: int | None,
    optional: Sequence[int] = (),
) -> str:
    """Return columns two spaces apart, at most `width` characters wide.

    The last column is a sentence and is folded. If the other columns leave too little space, the sentence gets its own
    lines below its row. If the other columns alone are too wide, the `optional` columns are left out one by one, and
    then each row is folded. Only a single word, such as an id, may be wider than `width`.

    Args:
        header: headings; None for lines of `name  value`.
        rows: cells, at least one row.
        width: characters of a line; None if no line is folded and no column left out.
        optional: numbers of the columns that may be left out, the least important first.
    """
    cells = [[cleaned(str(cell)) for cell in row] for row in rows]
    heads = None if header is None else list(header)
    columns = list(range(len(cells[0])))
    for number in optional:
        if width is not None and _width(heads, cells, columns[:-1]) > width:
            columns.remove(number)
    cells = [[row[number] for number in columns] for row in cells]
    heads = None if heads is None else [heads[number] for number in columns]
    taken = _width(heads, cells, range(len(columns) - 1))
    if heads is not None and width is not None and taken > width:
        return _stacked(heads, cells, width)
    sentences = [row[-1] for row in cells]
    room = (width or UNBOUNDED) - taken - len(GAP)
    if room >= min(SENTENCE_MIN, max(map(cell_len, sentences))):
        return _grid(heads, cells, room)
    lines = _grid(heads and heads[:-1], [row[:-1] for row in cells], UNBOUNDED).splitlines()
    below = ["\n".join(INDENT + part for part in _folded(s, (width or UNBOUNDED) - len(INDENT))) for s in sentences]
    top = lines[: len(lines) - len(cells)]
    mixed = [part for pair in zip(lines[len(top) :], below, strict=True) for part in pair if part]
    return "".join(f"{part}\n" for part in top + ([INDENT + heads[-1]] if heads else []) + mixed)


def paragraph(sentence: str, width: int | None) -> str:
    """Return a sentence on lines of at most `width` characters; None if it is not folded."""
    return "".join(f"{part}\n" for part in _folded(cleaned(sentence), width or UNBOUNDED))


def _width(heads: Sequence[str] | None, cells: Sequence[Sequence[str]], columns: Iterable[int]) -> int:
    """Return the width of these columns side by side."""
    shown = [*cells, heads] if heads else cells
    widths = [max(cell_len(row[number]) for row in shown) for number in columns]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _stacked(heads: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> str:
    """Return each row as its first cell, and below it the other cells with their headings."""
    text = ""
    for row in cells:
        pairs = [f"{head} {cell}" for head, cell in zip(heads[1:-1], row[1:-1], strict=True) if cell not in ("", "-")]
        parts = [*_packed(pairs, width - len(INDENT)), *_folded(row[-1], width - len(INDENT))]
        text += "".join(f"{part}\n" for part in (row[0], *(INDENT + part for part in parts)))
    return text


def _packed(pairs: Sequence[str], width: int) -> list[str]:
    """Return lines of as many pairs as fit."""
    lines: list[str] = []
    for pair in pairs:
        if lines and cell_len(lines[-1]) + len(GAP) + cell_len(pair) <= width:
            lines[-1] += GAP + pair
        else:
            lines.append(pair)
    return lines


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

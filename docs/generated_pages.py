"""Writes the generated pages of this folder, or compares them with their source."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_or_check(pages: Mapping[Path, str], arguments: Sequence[str]) -> int:
    """Write the pages, or with `--check` only compare them.

    Args:
        pages: the text of each page.
        arguments: the arguments of the program.

    Returns:
        The exit code: 1 if `--check` finds a page that is not up to date, 2 for other arguments.
    """
    if [*arguments] == ["--check"]:
        stale = [path for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text]
        for path in stale:
            print(f"{path.name} is not up to date: run {Path(sys.argv[0]).name}", file=sys.stderr)
        return 1 if stale else 0
    if arguments:
        print(f"usage: {Path(sys.argv[0]).name} [--check]", file=sys.stderr)
        return 2
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
    return 0

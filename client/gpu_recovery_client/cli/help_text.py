"""Help of the command line: plain placeholders for values, in the language of the user."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import typer

from gpu_recovery_client.texts import Language, language, tr

PLACEHOLDERS = {
    "<int>": "NUMBER",
    "<int range>": "NUMBER",
    "<str>": "TEXT",
    "<path>": "PATH",
    "<seconds>": "TIME",
}
"""Names of types in the help, for readers who do not know Python."""
KEPT = "\b\n"
"""Mark before lines that are not wrapped."""
MORE = re.compile(r"  (\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\])$")
"""What click adds to the help of an option: its default, its range, and whether it is required."""


def _formatter() -> Any:
    """Return click's class of formatters, which typer may bring with it."""
    return typer.Context.formatter_class


class HelpText(_formatter()):  # type: ignore[misc]
    """Help of a command. Each paragraph and each help of an option is a text of its own."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the line with the usage."""
        plain = re.sub(r"\{([^{}]*)\}|\[(\[[^\[\]]*\])\]", lambda found: found[1] or found[2], args)
        super().write_usage(prog, plain, tr("Usage: ") if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        super().write_heading(tr(heading))

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        self.write("\n".join(self._lines(part, self.width, self.current_indent) for part in self._translated(text)))

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Write verbs or options with their explanations."""
        shown = [(plain_name(first), _translated_help(second)) for first, second in rows]
        if language() is Language.ENGLISH:
            super().write_dl(shown, col_max, col_spacing)
            return
        first_column = min(max(len(first) for first, _ in shown), col_max) + col_spacing
        for first, second in shown:
            begin = " " * self.current_indent + first
            folded = self._lines(second, self.width - first_column, first_column + self.current_indent).rstrip("\n")
            fits = len(first) <= first_column - col_spacing
            gap = first_column + self.current_indent
            self.write(begin.ljust(gap) + folded[gap:] + "\n" if fits else f"{begin}\n{folded}\n")

    def _translated(self, text: str) -> list[str]:
        return [_translated_paragraph(part) for part in text.split("\n\n")]

    def _lines(self, paragraph: str, width: int, indent: int) -> str:
        """Return a paragraph as indented lines of at most `width` columns."""
        if paragraph.startswith(KEPT):
            lines = paragraph.removeprefix(KEPT).split("\n")
        elif language() is Language.ENGLISH:
            lines = import_module("textwrap").wrap(" ".join(paragraph.split()), width - indent)
        else:
            lines = _folded(paragraph, width - self.current_indent)
        return "".join(f"{' ' * indent}{line}".rstrip() + "\n" for line in lines)


def _folded(text: str, width: int) -> list[str]:
    """Return lines of a text whose characters may be two columns wide."""
    console = import_module("rich.console").Console(width=width)
    return [line.plain.rstrip() for line in import_module("rich.text").Text(text).wrap(console, width)]


def plain_name(first: str) -> str:
    """Return an argument or option as the help shows it, without names of Python types."""
    if not first.startswith("-"):
        return first.partition(" <")[0]
    for shown, name in PLACEHOLDERS.items():
        first = first.replace(shown, name)
    return first


def _translated_help(text: str) -> str:
    found = MORE.search(text)
    if found is None:
        return tr(text)
    more = "; ".join(map(_translated_extra, found[1][1:-1].split("; ")))
    return f"{tr(text[: found.start()])}  [{more}]"


def _translated_extra(part: str) -> str:
    """Return a part of what typer adds, in words: `1<=x<=9` is `1 to 9`."""
    if part == "required":
        return tr("required")
    if part.startswith("default: "):
        return tr("default: {value}", value=part.removeprefix("default: "))
    bounds = re.fullmatch(r"(?:(-?\d+)<=)?x(?:>=|<=)(-?\d+)", part)
    if bounds is None:
        return part
    least, last = bounds.groups()
    return tr("at least {least}", least=last) if least is None else tr("{least} to {most}", least=least, most=last)


def _translated_paragraph(paragraph: str) -> str:
    if paragraph.startswith(KEPT):
        first, _, rest = paragraph.removeprefix(KEPT).partition("\n")
        return f"{KEPT}{tr(first)}\n{rest}"
    return tr(" ".join(paragraph.split()))

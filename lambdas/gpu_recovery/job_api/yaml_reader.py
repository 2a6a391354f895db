"""YAML reader for job specifications: a small subset of YAML; all other YAML is rejected.

The Lambda runtime has no YAML library, and a specification needs only a part of the language: mappings, lists, quoted
and plain values, `[flow, lists]` on one line, and text blocks. The reader rejects anchors, aliases, tags and merges, so
a small text cannot expand to a large value. Plain values that YAML 1.1 and 1.2 read differently (`yes`, `0777`, `1:30`,
`2026-01-01`) must be quoted. So an accepted text has the same value for every YAML reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

DEPTH_MAX = 20
"""Upper bound of the nesting depth."""
_KEY = re.compile(r"(?P<key>[A-Za-z_/.][\w./@-]*|'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\") *:(?: +(?P<rest>.*)|$)", re.ASCII)
_COMMENT = re.compile(r" +(#.*)?|")
_DOCUMENT_START = re.compile(r"---( +#.*| *)")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+][0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)
_AMBIGUOUS = re.compile(
    r"yes|no|on|off|=|<<"
    r"|[-+]?0[xob]?[0-9a-f_]*|[-+]?[0-9][0-9_]*"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]*)?"
    r"|[-+]?\.(inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([t ].*)?",
    re.IGNORECASE | re.ASCII,
)
"""Plain values that some readers take for a number, a date or a boolean, and other readers for a text."""
_FORBIDDEN_FIRST = "&*!|>%@`,[]{}#'\""
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "0": "\0",
    " ": " ",
}
_ESCAPE_DIGITS = {"x": 2, "u": 4, "U": 8}
_FORBIDDEN_CHARACTER = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


class YamlInvalid(ValueError):
    """A text that is not YAML, or that uses a part of YAML outside the subset."""


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text: mappings, lists, texts, integers, floats, booleans and None.

    Raises:
        YamlInvalid: the text is not in the subset. The message names the line.
    """
    return _Reader(text.replace("\r\n", "\n").split("\n")).document()


@dataclass
class _Reader:
    """Parser that reads the lines once.

    rows:  the lines. A list item that begins on the line of its dash is rewritten as an indented line.
    at:    index of the line that is read next.
    depth: nesting depth of the present block.
    """

    rows: list[str]
    at: int = 0
    depth: int = 0

    def document(self) -> Any:
        """Return the value of the whole text."""
        for number, row in enumerate(self.rows):
            forbidden = _FORBIDDEN_CHARACTER.search(row)
            if forbidden:
                self.at = number
                self.refuse(
                    f"the character U+{ord(forbidden[0]):04X} may only be written as an escape in double quotes"
                )
        if self.peek() is not None and _DOCUMENT_START.fullmatch(self.rows[self.at]):
            self.at += 1
        for number in range(self.at, len(self.rows)):
            if self.rows[number].startswith(("---", "...", "%")):
                self.at = number
                self.refuse("only one document without directives is understood")
        value = self.node(0)
        if self.peek() is not None:
            self.refuse("this line belongs to nothing above it")
        return value

    # -- lines -------------------------------------------------------------------------------------------------------

    def peek(self) -> tuple[int, str] | None:
        """Return (indentation, text) of the next line that is not empty and not a comment; None at the end."""
        while self.at < len(self.rows):
            row = self.rows[self.at]
            text = row.lstrip(" ")
            if text and not text.startswith("#"):
                return len(row) - len(text), text.rstrip(" ")
            self.at += 1
        return None

    def refuse(self, why: str) -> NoReturn:
        """Raise YamlInvalid for the present line."""
        raise YamlInvalid(f"line {min(self.at, len(self.rows) - 1) + 1}: {why}")

    # -- blocks ------------------------------------------------------------------------------------------------------

    def node(self, least: int) -> Any:
        """Return the value that begins on the next line; None if that line is indented by less than `least`."""
        next_line = self.peek()
        if next_line is None or next_line[0] < least:
            return None
        indent, text = next_line
        self.depth += 1
        if self.depth > DEPTH_MAX:
            self.refuse(f"is nested more than {DEPTH_MAX} deep")
        if _is_item(text):
            value: Any = self.items(indent)
        elif _KEY.fullmatch(text):
            value = self.mapping(indent)
        else:
            value = self.inline(text)
            self.at += 1
        self.depth -= 1
        return value

    def mapping(self, indent: int) -> dict[str, Any]:
        """Return the block mapping with keys at the indentation `indent`."""
        entries: dict[str, Any] = {}
        while (line := self.peek()) is not None and line[0] == indent and not _is_item(line[1]):
            matched = _KEY.fullmatch(line[1])
            if matched is None:
                self.refuse("must be written `key: value`")
            key = self.inline(matched["key"])
            if not isinstance(key, str):
                self.refuse(f"the key {matched['key']} must be quoted")
            if key in entries:
                self.refuse(f"the key {key[:80]!r} is given twice")
            entries[key] = self.value(matched["rest"] or "", indent, may_list=True)
        self.check_indentation(indent)
        return entries

    def items(self, indent: int) -> list[Any]:
        """Return the block list with dashes at the indentation `indent`."""
        values: list[Any] = []
        while (line := self.peek()) is not None and line[0] == indent and _is_item(line[1]):
            rest = line[1][1:].lstrip(" ")
            if rest and (_is_item(rest) or _KEY.fullmatch(rest)):
                # The rest of the line is a nested block. Its indentation is its column in the line.
                self.rows[self.at] = " " * (indent + len(line[1]) - len(rest)) + rest
                values.append(self.node(indent + 1))
            else:
                values.append(self.value(rest, indent, may_list=False))
        self.check_indentation(indent)
        return values

    def value(self, rest: str, indent: int, *, may_list: bool) -> Any:
        """Return the value of a key or dash at the indentation `indent`.

        Args:
            rest: rest of the line after the key or dash. If it is empty, the value is on the next lines.
            indent: indentation of the key or dash.
            may_list: whether a list at the same indentation is the value. YAML permits this after a key.
        """
        if rest[:1] in ("|", ">"):
            return self.text_block(rest, indent)
        if rest and not rest.startswith("#"):
            value = self.inline(rest)
            self.at += 1
            self.check_indentation(indent)
            return value
        self.at += 1
        next_line = self.peek()
        if may_list and next_line is not None and next_line[0] == indent and _is_item(next_line[1]):
            return self.items(indent)
        return self.node(indent + 1)

    def check_indentation(self, indent: int) -> None:
        """Reject a next line that is indented by more than `indent`."""
        next_line = self.peek()
        if next_line is not None and next_line[0] > indent:
            self.refuse("is indented deeper than what it belongs to; a longer value is quoted, or a block after `|`")

    def text_block(self, rest: str, indent: int) -> str:
        """Return the text of a `|` or `>` block. `rest` is the indicator with its comment."""
        matched = re.fullmatch(r"([|>])(-?)(?: +#.*)?", rest)
        if matched is None:
            self.refuse("a text block begins with |, |-, > or >-")
        self.at += 1
        lines: list[str] = []
        block_indent = 0
        while self.at < len(self.rows):
            row = self.rows[self.at]
            content = row.lstrip(" ")
            row_indent = len(row) - len(content)
            block_indent = block_indent or (row_indent if content else 0)
            if content and (row_indent <= indent or row_indent < block_indent):
                break
            if (row_indent and not content) or (matched[1] == ">" and row_indent > block_indent):
                self.refuse("a text block has lines of one indentation, and empty ones are quite empty")
            lines.append(row[block_indent:])
            self.at += 1
        has_break = self.at < len(self.rows) or not self.rows[-1]  # the last line of the text may have no line break
        while lines and not lines[-1]:
            lines.pop()
        if not lines:
            self.refuse("a text block without text")
        if not lines[0]:
            self.refuse("a text block begins with text")
        joined = "\n".join(lines) if matched[1] == "|" else _folded(lines)
        return joined + ("\n" if has_break and not matched[2] else "")

    # -- values of one line ------------------------------------------------------------------------------------------

    def inline(self, text: str) -> Any:
        """Return the value of a text on one line. Only a comment may follow the value."""
        if text[0] in "'\"[{":
            value, end = self.flow(text, 0, 0)
            if not _COMMENT.fullmatch(text[end:]):
                self.refuse(f"nothing may follow {text[end - 1]} but a comment")
            return value
        cut = text.find(" #")
        return self.plain((text if cut < 0 else text[:cut]).strip(" "))

    def plain(self, word: str) -> Any:
        """Return the value of an unquoted word."""
        if word in _WORDS:
            return _WORDS[word]
        if word[0] in _FORBIDDEN_FIRST or (word[0] in "-?:" and (len(word) == 1 or word[1] == " ")):
            self.refuse(
                f"a text that begins with {word[0]} must be quoted: anchors, aliases and tags are not understood"
            )
        if ": " in word or word.endswith(":"):
            self.refuse("a text with a colon and a space in it must be quoted")
        if _INTEGER.fullmatch(word):
            return int(word)
        if _DECIMAL.fullmatch(word):
            return float(word)
        if _AMBIGUOUS.fullmatch(word):
            self.refuse(f"{word[:40]} means one thing to some and another to others: quote it")
        return word

    def flow(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        """Return (value, end index) of the value at index `at`.

        The value is a quoted text, a list, a mapping, or a plain value inside a list or mapping.
        """
        if depth > DEPTH_MAX:
            self.refuse(f"is nested more than {DEPTH_MAX} deep")
        first = text[at : at + 1]
        if first == "'":
            return self.single(text, at + 1)
        if first == '"':
            return self.double(text, at + 1)
        if first == "[":
            return self.flow_list(text, at + 1, depth)
        if first == "{":
            return self.flow_mapping(text, at + 1, depth)
        end = at
        while end < len(text) and text[end] not in ",[]{}\"'#":
            end += 1
        word = text[at:end].strip(" ")
        if not word or "?" in word[:1] or end == len(text) or text[end] not in ",]}":
            self.refuse("a list or mapping in brackets must be whole on its line, with texts in quotes where in doubt")
        return self.plain(word), end

    def flow_list(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        """Return (list, end index) of a `[list]`. `at` is the index after the opening bracket."""
        values: list[Any] = []
        at = _past_spaces(text, at)
        while text[at : at + 1] != "]":
            value, at = self.flow(text, at, depth + 1)
            values.append(value)
            at = self.separator(text, at, "]")
        return values, at + 1

    def flow_mapping(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        """Return (mapping, end index) of a `{mapping}`. `at` is the index after the opening brace."""
        entries: dict[str, Any] = {}
        at = _past_spaces(text, at)
        while text[at : at + 1] != "}":
            matched = re.compile(r"([A-Za-z_][\w./-]*|'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"): +", re.ASCII).match(
                text, at
            )
            if matched is None:
                self.refuse("a mapping in braces is written {key: value, key: value}")
            key = self.inline(matched[1])
            if not isinstance(key, str) or key in entries:
                self.refuse(f"the key {matched[1][:80]} is given twice, or must be quoted")
            entries[key], at = self.flow(text, matched.end(), depth + 1)
            at = self.separator(text, at, "}")
        return entries, at + 1

    def separator(self, text: str, at: int, end: str) -> int:
        """Return the index of the next entry, or of the closing bracket `end`."""
        at = _past_spaces(text, at)
        if text[at : at + 1] == end:
            return at
        if text[at : at + 1] != ",":
            self.refuse(f"a comma or {end} must follow here")
        return _past_spaces(text, at + 1)

    def single(self, text: str, at: int) -> tuple[str, int]:
        """Return (text, end index) of a text in single quotes. `at` is the index after the opening quote."""
        matched = re.compile(r"(?:[^']|'')*'").match(text, at)
        if matched is None:
            self.refuse("the quote is not closed on its line")
        return matched[0][:-1].replace("''", "'"), matched.end()

    def double(self, text: str, at: int) -> tuple[str, int]:
        """Return (text, end index) of a text in double quotes. `at` is the index after the opening quote."""
        characters: list[str] = []
        while at < len(text) and text[at] != '"':
            if text[at] != "\\":
                characters.append(text[at])
                at += 1
                continue
            kind = text[at + 1 : at + 2]
            length = _ESCAPE_DIGITS.get(kind, 0)
            code = text[at + 2 : at + 2 + length]
            if kind in _ESCAPES:
                characters.append(_ESCAPES[kind])
            elif length and re.fullmatch(f"[0-9a-fA-F]{{{length}}}", code) and _is_character(int(code, 16)):
                characters.append(chr(int(code, 16)))
            else:
                self.refuse(f"\\{kind} is no escape that is understood")
            at += 2 + length
        if at >= len(text):
            self.refuse("the quote is not closed on its line")
        return "".join(characters), at + 1


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _is_character(code: int) -> bool:
    return code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def _past_spaces(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _folded(lines: list[str]) -> str:
    """Return the text of a `>` block: a line break becomes a space, and each empty line a line break."""
    folded = lines[0]
    empty_lines = 0
    for line in lines[1:]:
        if not line:
            empty_lines += 1
            continue
        folded += "\n" * empty_lines if empty_lines else " "
        folded += line
        empty_lines = 0
    return folded

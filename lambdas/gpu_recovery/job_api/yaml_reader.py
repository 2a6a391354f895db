"""Reads the YAML that a job specification is written in, and refuses every other.

Lambda brings no YAML library, and a specification needs little of the language: mappings, lists, quoted and plain
values, `[flow, lists]` on one line, and text blocks. There are no anchors, aliases, tags or merges, so a small text
cannot stand for a large value. What YAML 1.1 and 1.2 understand differently (`yes`, `0777`, `1:30`, `2026-01-01`) is
refused until it is quoted. Whatever is accepted means the same to every reader of YAML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn

DEPTH_MAX = 20
_KEY = re.compile(r"(?P<key>[A-Za-z_/.][\w./@-]*|'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\") *:(?: +(?P<rest>.*)|$)", re.ASCII)
_COMMENT = re.compile(r" +(#.*)?|")
_START = re.compile(r"---( +#.*| *)")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)\.[0-9]+([eE][-+][0-9]+)?")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)
_DOUBTFUL = re.compile(
    r"yes|no|on|off|=|<<"
    r"|[-+]?0[xob]?[0-9a-f_]*|[-+]?[0-9][0-9_]*"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?"
    r"|[-+]?(\.[0-9_]+|[0-9][0-9_]*(\.[0-9_]*)?)(e[-+]?[0-9]*)?"
    r"|[-+]?\.(inf|nan)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([t ].*)?",
    re.IGNORECASE | re.ASCII,
)
"""Plain words that are a number, a date or a truth value to some readers and a text to others."""
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
_CODE_LENGTHS = {"x": 2, "u": 4, "U": 8}
_ODD = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


class YamlInvalid(ValueError):
    """A text that is no YAML, or more of YAML than is understood here."""


def read_yaml(text: str) -> Any:
    """The value that `text` spells: mappings, lists, texts, whole numbers, decimals, truth values and None.

    Raises YamlInvalid, which names the line.
    """
    return _Reader(text.replace("\r\n", "\n").split("\n")).document()


@dataclass
class _Reader:
    """Goes through the lines once. `at` is the index of the line that is read next."""

    rows: list[str]
    at: int = 0
    depth: int = 0

    def document(self) -> Any:
        for number, row in enumerate(self.rows):
            odd = _ODD.search(row)
            if odd:
                self.at = number
                self.refuse(f"the character U+{ord(odd[0]):04X} may only be written as an escape in double quotes")
        if self.peek() is not None and _START.fullmatch(self.rows[self.at]):
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
        """(indentation, text) of the next line that says something; None at the end."""
        while self.at < len(self.rows):
            row = self.rows[self.at]
            text = row.lstrip(" ")
            if text and not text.startswith("#"):
                return len(row) - len(text), text.rstrip(" ")
            self.at += 1
        return None

    def refuse(self, why: str) -> NoReturn:
        raise YamlInvalid(f"line {min(self.at, len(self.rows) - 1) + 1}: {why}")

    # -- blocks ------------------------------------------------------------------------------------------------------

    def node(self, least: int) -> Any:
        """The value that begins on the next line, if that is indented by `least` at least; else None."""
        found = self.peek()
        if found is None or found[0] < least:
            return None
        indent, text = found
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
        found: dict[str, Any] = {}
        while (line := self.peek()) is not None and line[0] == indent and not _is_item(line[1]):
            matched = _KEY.fullmatch(line[1])
            if matched is None:
                self.refuse("must be written `key: value`")
            key = self.inline(matched["key"])
            if not isinstance(key, str):
                self.refuse(f"the key {matched['key']} must be quoted")
            if key in found:
                self.refuse(f"the key {key[:80]!r} is given twice")
            found[key] = self.value(matched["rest"] or "", indent, may_list=True)
        self.no_deeper(indent)
        return found

    def items(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while (line := self.peek()) is not None and line[0] == indent and _is_item(line[1]):
            rest = line[1][1:].lstrip(" ")
            if rest and (_is_item(rest) or _KEY.fullmatch(rest)):
                # What follows the dash is a block of its own, indented by where it stands.
                self.rows[self.at] = " " * (indent + len(line[1]) - len(rest)) + rest
                found.append(self.node(indent + 1))
            else:
                found.append(self.value(rest, indent, may_list=False))
        self.no_deeper(indent)
        return found

    def value(self, rest: str, indent: int, *, may_list: bool) -> Any:
        """What a key or dash at `indent` is followed by: `rest` of its line, or the lines below it."""
        if rest[:1] in ("|", ">"):
            return self.text_block(rest, indent)
        if rest and not rest.startswith("#"):
            value = self.inline(rest)
            self.at += 1
            self.no_deeper(indent)
            return value
        self.at += 1
        below = self.peek()
        if may_list and below is not None and below[0] == indent and _is_item(below[1]):
            return self.items(indent)
        return self.node(indent + 1)

    def no_deeper(self, indent: int) -> None:
        below = self.peek()
        if below is not None and below[0] > indent:
            self.refuse("is indented deeper than what it belongs to; a longer value is quoted, or a block after `|`")

    def text_block(self, rest: str, indent: int) -> str:
        matched = re.fullmatch(r"([|>])(-?)(?: +#.*)?", rest)
        if matched is None:
            self.refuse("a text block begins with |, |-, > or >-")
        self.at += 1
        lines: list[str] = []
        deep = 0
        while self.at < len(self.rows):
            row = self.rows[self.at]
            bare = row.lstrip(" ")
            own = len(row) - len(bare)
            deep = deep or (own if bare else 0)
            if bare and (own <= indent or own < deep):
                break
            if (own and not bare) or (matched[1] == ">" and own > deep):
                self.refuse("a text block has lines of one indentation, and empty ones are quite empty")
            lines.append(row[deep:])
            self.at += 1
        ended = self.at < len(self.rows) or not self.rows[-1]  # the last line of a text may lack its break
        while lines and not lines[-1]:
            lines.pop()
        if not lines:
            self.refuse("a text block without text")
        if not lines[0]:
            self.refuse("a text block begins with text")
        joined = "\n".join(lines) if matched[1] == "|" else _folded(lines)
        return joined + ("\n" if ended and not matched[2] else "")

    # -- values of one line ------------------------------------------------------------------------------------------

    def inline(self, text: str) -> Any:
        """The value of a text on one line; nothing but a comment may follow it."""
        if text[0] in "'\"[{":
            value, end = self.flow(text, 0, 0)
            if not _COMMENT.fullmatch(text[end:]):
                self.refuse(f"nothing may follow {text[end - 1]} but a comment")
            return value
        cut = text.find(" #")
        return self.plain((text if cut < 0 else text[:cut]).strip(" "))

    def plain(self, word: str) -> Any:
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
        if _DOUBTFUL.fullmatch(word):
            self.refuse(f"{word[:40]} means one thing to some and another to others: quote it")
        return word

    def flow(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        """(value, where it ends) of what begins at `at`: quoted, a list, a mapping, or plain inside one of these."""
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
        found: list[Any] = []
        at = _past_spaces(text, at)
        while text[at : at + 1] != "]":
            value, at = self.flow(text, at, depth + 1)
            found.append(value)
            at = self.separator(text, at, "]")
        return found, at + 1

    def flow_mapping(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = _past_spaces(text, at)
        while text[at : at + 1] != "}":
            matched = re.compile(r"([A-Za-z_][\w./-]*|'(?:[^']|'')*'|\"(?:[^\"\\]|\\.)*\"): +", re.ASCII).match(
                text, at
            )
            if matched is None:
                self.refuse("a mapping in braces is written {key: value, key: value}")
            key = self.inline(matched[1])
            if not isinstance(key, str) or key in found:
                self.refuse(f"the key {matched[1][:80]} is given twice, or must be quoted")
            found[key], at = self.flow(text, matched.end(), depth + 1)
            at = self.separator(text, at, "}")
        return found, at + 1

    def separator(self, text: str, at: int, end: str) -> int:
        """Where the next entry begins, or the bracket `end` is."""
        at = _past_spaces(text, at)
        if text[at : at + 1] == end:
            return at
        if text[at : at + 1] != ",":
            self.refuse(f"a comma or {end} must follow here")
        return _past_spaces(text, at + 1)

    def single(self, text: str, at: int) -> tuple[str, int]:
        matched = re.compile(r"(?:[^']|'')*'").match(text, at)
        if matched is None:
            self.refuse("the quote is not closed on its line")
        return matched[0][:-1].replace("''", "'"), matched.end()

    def double(self, text: str, at: int) -> tuple[str, int]:
        made: list[str] = []
        while at < len(text) and text[at] != '"':
            if text[at] != "\\":
                made.append(text[at])
                at += 1
                continue
            kind = text[at + 1 : at + 2]
            length = _CODE_LENGTHS.get(kind, 0)
            code = text[at + 2 : at + 2 + length]
            if kind in _ESCAPES:
                made.append(_ESCAPES[kind])
            elif length and re.fullmatch(f"[0-9a-fA-F]{{{length}}}", code) and _is_character(int(code, 16)):
                made.append(chr(int(code, 16)))
            else:
                self.refuse(f"\\{kind} is no escape that is understood")
            at += 2 + length
        if at >= len(text):
            self.refuse("the quote is not closed on its line")
        return "".join(made), at + 1


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _is_character(code: int) -> bool:
    return code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def _past_spaces(text: str, at: int) -> int:
    while text[at : at + 1] == " ":
        at += 1
    return at


def _folded(lines: list[str]) -> str:
    """Lines of a `>` block: one break is a space, each empty line a break."""
    made = lines[0]
    empty = 0
    for line in lines[1:]:
        if not line:
            empty += 1
            continue
        made += "\n" * empty if empty else " "
        made += line
        empty = 0
    return made

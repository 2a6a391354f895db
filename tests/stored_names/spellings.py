"""Names that the code spells in string literals: JSON keys, variables of the environment, codes, key formats, paths.

This is the wide net under the sections that read one surface each. It reads the source alone, and keeps one set for
each place, so the name of a module, a class or a function may change freely. A name that is spelled twice and renamed
once stays in the set: the other sections are for that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = ("lambdas", "agent", "client", "health_check", "image_builder", "ray_runner", "infra", "sandbox", "simulator")
WORD = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|[A-Z][A-Z0-9_]{2,}|--[a-z][a-z-]+|/[\w./{}-]*[a-z][\w./{}-]*")
"""What is a name wherever it stands: snake_case, CAPITALS, an option, a path."""
KEY = re.compile(r"[A-Za-z$@][\w.:/@-]+")
"""What is a name where a mapping is written or read."""
FORMAT = re.compile(r"(?!:)[\w#/.:@{}-]*[A-Za-z#][\w#/.:@{}-]*", re.ASCII)
"""What is a name with gaps, an f-string without blanks: `{}#lock#{}`."""
TEXTS = "texts"
"""Folder of translations: their keys are texts for people, not names."""
READERS = ("get", "pop", "setdefault")
OF_PYTHON = ("getattr", "setattr", "hasattr", "delattr", "TypeVar", "ParamSpec", "NewType", "attrgetter")
"""Calls whose strings are names of Python."""


def spellings() -> dict[str, dict[str, list[str]]]:
    """The names of each place, as `keys`, `words` and `formats`."""
    return {place: _of_place(place) for place in PLACES}


@cache
def trees(place: str) -> list[ast.Module]:
    """The syntax trees of every module of a place."""
    found = (path for path in (ROOT / place).rglob("*.py") if path.parent.name != TEXTS)
    paths = [path for path in found if path.resolve() == path]  # a link's module is read once
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def _of_place(place: str) -> dict[str, list[str]]:
    keys, words, formats = set[str](), set[str](), set[str]()
    for tree in trees(place):
        skipped = set(_of_python(tree))
        for node in ast.walk(tree):
            keys |= {text for text in _strings(_keys(node)) if KEY.fullmatch(text)}
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(part) for part in node.values}
                skipped |= {id(part.format_spec) for part in node.values if isinstance(part, ast.FormattedValue)}
                if id(node) in skipped:
                    continue
                text = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                formats |= {text} if FORMAT.fullmatch(text) else set()
            elif id(node) not in skipped:
                words |= {text for text in _strings([node]) if WORD.fullmatch(text)}
    return {"keys": sorted(keys), "words": sorted(words - keys), "formats": sorted(formats)}


def _strings(nodes: list[ast.AST]) -> Iterator[str]:
    return (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _keys(node: ast.AST) -> list[ast.AST]:
    """The expressions that name an entry of a mapping."""
    match node:
        case ast.Dict() | ast.MatchMapping():
            return [key for key in node.keys if key is not None]
        case ast.Subscript():
            return [node.slice]
        case ast.Call(func=ast.Attribute(attr=reader), args=[first, *_]) if reader in READERS:
            return [first]
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return [node.left]
    return []


def _of_python(tree: ast.Module) -> Iterator[int]:
    """The ids of the string nodes that name something of Python, or are prose."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as prose):
                yield id(prose)
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.FunctionDef(name="__getattr__"):
                yield from map(id, ast.walk(node))
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called)) if called in OF_PYTHON:
                yield from map(id, node.args)

"""Texts that people read contain no words that the project has replaced by plain terms of the field."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.markdown import FENCE, ROOT
from tests.source_files import below, path_in_repository, syntax_tree

REPLACED = {
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"brakes?": "fleet limits, repair budget, circuit breaker",
    r"witness(?:es)?": "evidence",
    r"rungs?": "repair level",
    r"h(?:eld|olds?|olding) back": "blocked",
    r"(?:is|are|was|were|been|be) (?:not )?heard(?: of)?|last heard|never heard|heard from": "reports, does not report",
    r"deaf": "reporting outage",
    r"silent(?!(?: data)? corruption)|falls? silent|silence": "does not report, missing heartbeat",
    r"(?:is|are|was|were|not) to blame|blam(?:e|es|ed|ing)": "faulty, suspected",
    r"(?:for|needs|by|of|from) a person|a person(?:'s)? (?:is|must|acts?|stop\w*|started|word)": "operator, user",
    r"wh(?:o|at|om|ich)ever": "the noun",
    r"(?:no|some|any)body": "the noun",
    r"speaks? (?:for|against|of)": "is evidence for, is evidence against",
    r"says? nothing|tells? nothing|knows? nothing": "is no evidence, has no data",
    r"(?:put|puts|putting) aside": "moved aside, stored",
    r"afresh|anew": "again",
    r"passed over|in vain|to the letter|for good": "ignored, without result, exactly, permanently",
    r"look(?:s|ed)? bad": "suspected",
    r"give(?:n|s)? back|gave back|handed over": "released, tagged",
    r"what (?:is|are) held|what goes on|what became of|what opens": "the noun",
    r"without a word|all the same": "without a message, nevertheless",
}
"""Patterns that no text may contain, each with the plain words for it."""
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(REPLACED)})\b", re.IGNORECASE)
CHINESE = {"决策": "决定", "预热备用|热备用(?!于)": "热备"}
"""Chinese words with a second form that no text may contain, each with the term of the project."""
PROGRAMS = (*("lambdas", "agent", "client", "health_check", "infra", "image_builder", "ray_runner"),)
"""Folders whose messages are read: e-mails, reasons, API errors, the command line, the agent, alarms."""
UNREVIEWED = {
    "CHANGELOG.md": "quotes former words",
    "docs/upgrading.md": "quotes former names of alarms and subjects",
    "docs/seeds.md": "quotes the specifications",
    "docs/glossary.md": "lists former words",
}
"""Markdown pages that the test does not read, each with the reason."""


def violations(text: str) -> list[str]:
    """Return the forbidden words of a text, with the words around them."""
    plain = " ".join(text.split())
    return [plain[max(0, found.start() - 30) : found.end() + 30] for found in FORBIDDEN.finditer(plain)]


def _pages() -> list[Path]:
    """Return the English pages of the root and of docs that are read."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    english = [path for path in sorted(found) if not re.search(r"\bzh\b", path.name)]
    return [path for path in english if str(path.relative_to(ROOT)) not in UNREVIEWED]


def _prose(path: Path) -> str:
    """Return a page without blocks of code and code spans, and without the column Not of CONTRIBUTING.md."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    if path.name == "CONTRIBUTING.md":
        text = text.partition("| Not | But |")[0] + text.partition("\n## Commits")[2]
    return re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


@cache
def _messages(folder: str) -> tuple[tuple[str, str], ...]:
    """Return (place, text) of each text of three or more words that the programs of a folder contain.

    Docstrings are left out, and so are regular expressions, which describe texts of other programs.
    """
    return tuple(
        (f"{path_in_repository(path)}:{line}", text)
        for path in below(folder)
        for line, text in _texts(syntax_tree(path))
        if len(text.split()) >= 3 and not re.search(r"\\[bsdw]|\(\?|\]\{|\[\^|= :\w", text)
    )


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each text constant below `node`; the values inside f-strings become `_`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        if isinstance(child, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "_" for part in child.values]
            yield child.lineno, "".join(parts)
        elif isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.lineno, child.value
        yield from _texts(child)


def _descriptions(node: object) -> Iterator[str]:
    """Yield the summaries and descriptions of the OpenAPI document."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("summary", "description") and isinstance(value, str):
                yield value
            else:
                yield from _descriptions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _descriptions(value)


@pytest.mark.parametrize("path", _pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_uses_plain_words(path: Path) -> None:
    """Pages of the root and of docs, runbooks and decisions among them, without code."""
    assert violations(_prose(path)) == []


@pytest.mark.parametrize("folder", PROGRAMS)
def test_messages_use_plain_words(folder: str) -> None:
    """E-mails, reasons, API errors, the command line, messages of the agent and of the health check, alarms."""
    assert [(place, found) for place, text in _messages(folder) for found in violations(text)] == []


@pytest.mark.parametrize("word", CHINESE)
def test_chinese_texts_have_one_word_for_a_term(word: str) -> None:
    """Chinese pages, and the Chinese texts of the command line and of the settings."""
    pages = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if re.search(r"\bzh\b", path.name)]
    texts = [*(ROOT / "client/gpu_recovery_client/texts").glob("zh*.py"), *(ROOT / "docs").glob("*.zh.toml")]
    assert pages and texts
    found = [str(path.relative_to(ROOT)) for path in (*pages, *texts) if re.search(word, path.read_text("utf-8"))]
    assert found == [], f"write {CHINESE[word]}"


def test_the_description_of_the_api_uses_plain_words() -> None:
    """Summaries and descriptions of docs/openapi.json."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
    assert [found for text in _descriptions(document) for found in violations(text)] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Mend the cause first.",
        "its reboot is held back: the brakes are on",
        "its node agent is silent, not the machine",
        "the agent is heard of again",
        "no instance is to blame",
        "quarantined, needs a person",
        "Messages that nobody could handle",
        "must say why, for whoever finds it so at night",
    ],
)
def test_a_replaced_word_is_noticed(sentence: str) -> None:
    """Sentences of former releases."""
    assert violations(sentence)


@pytest.mark.parametrize("sentence", ["suspected silent data corruption", "the job continues", "needs an operator"])
def test_a_plain_sentence_passes(sentence: str) -> None:
    """Silent data corruption is the standard term."""
    assert violations(sentence) == []

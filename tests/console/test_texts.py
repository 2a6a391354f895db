"""The texts of the console: both languages say the same, with the terms of docs/glossary.md. Read from the source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "console/src"
BEGINNING = re.compile(r"\b(en|zh): \{")
ENTRY = re.compile(r'\s*(?:(\w+)|"((?:[^"\\]|\\.)*)"): "((?:[^"\\]|\\.)*)",?(?:\s*//[^\n]*)?')
PLACE = re.compile(r"\{\w+\}")
SHARED = ("id", "rank", "worker", "rank {ranks}", "agent {name}")
"""Texts that are the same in both languages."""


@dataclass(frozen=True)
class Text:
    """A text in both languages."""

    where: str
    en: str
    zh: str


def entries(text: str, start: int) -> dict[str, str]:
    """Return the entries of an object of texts that begins at `start`."""
    found: dict[str, str] = {}
    while (entry := ENTRY.match(text, start)) is not None:
        found[entry[1] or entry[2]] = entry[3]
        start = entry.end()
    assert text[start:].lstrip()[:1] == "}", text[start : start + 80]
    return found


@cache
def catalogue() -> tuple[Text, ...]:
    """Return every text of the console."""
    found: list[Text] = []
    for path in sorted(SOURCE.rglob("*.ts*")):
        text = path.read_text(encoding="utf-8")
        objects = [(each[1], entries(text, each.end())) for each in BEGINNING.finditer(text)]
        for (first, english), (second, chinese) in zip(objects[::2], objects[1::2], strict=True):
            assert (first, second) == ("en", "zh") and english.keys() == chinese.keys(), path
            found += [Text(f"{path.relative_to(SOURCE)}: {key}", english[key], chinese[key]) for key in english]
    return tuple(found)


def terms() -> dict[str, str]:
    """Return the Chinese term of each English word of the table."""
    page = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    section = page.partition("## Chinese terms")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in section.splitlines() if row.startswith("| ")][1:]
    return {word: chinese for words, chinese in rows for word in words.split(", ")}


def wrong_terms(texts: tuple[Text, ...]) -> list[str]:
    """Return the texts whose Chinese lacks a term of the table that the English has, or has 任务 for another thing."""
    found = []
    for text in texts:
        said = PLACE.sub("", text.en).lower()
        for word, chinese in terms().items():
            if re.search(rf"\b{word}s?\b", said) and chinese not in text.zh:
                found.append(f"{text.where}: {word} is {chinese}, not {text.zh!r}")
        if "任务" in text.zh and not re.search(r"\b(tasks?|daemon)\b", said) and "ECS" not in text.zh:
            found.append(f"{text.where}: 任务 is a task, not {text.en!r}")
    return found


def test_the_whole_catalogue_is_read() -> None:
    """Every page and part has texts, and the codes of the API are among them."""
    assert len(catalogue()) > 800
    places = {each.where for each in catalogue()}
    assert {"parts/codes.tsx: GPU_FAULT", "app.tsx: jobs", "pages/overview.tsx: lost"} <= places


def test_both_languages_have_the_same_values() -> None:
    """Each `{name}` of a text is in its translation."""
    differ = [each for each in catalogue() if sorted(PLACE.findall(each.en)) != sorted(PLACE.findall(each.zh))]
    assert differ == []


def test_a_chinese_text_has_the_terms_of_the_glossary() -> None:
    """A job is 作业, and an ECS task is 任务."""
    assert wrong_terms(catalogue()) == []


@pytest.mark.parametrize(
    "planted", [Text("planted", "No job runs.", "没有任务在运行。"), Text("planted", "The quotas", "限额")]
)
def test_another_word_for_a_term_is_found(planted: Text) -> None:
    """Else an empty list would say nothing."""
    assert wrong_terms((planted,))


def test_a_chinese_text_is_translated() -> None:
    """A text with words has Chinese characters, unless it is a name that both languages share."""
    same = [each for each in catalogue() if each.en == each.zh and re.search(r"[a-z]{3}", PLACE.sub("", each.en))]
    assert [each for each in same if each.en not in SHARED] == []

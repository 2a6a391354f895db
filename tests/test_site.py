"""The web site of the documents: every page has its place, and every link is one that the site can follow."""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from types import ModuleType

import pytest

from tests.markdown import ROOT

NAVIGATION = (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
LISTED_ELSEWHERE = re.compile(r"(decisions|runbooks)/.+(?<!index)\.md")
"""Pages that the page of the decisions and the page of the runbooks list."""


@cache
def builder() -> ModuleType:
    """Return the module that builds the site."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "docs/site/build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = [source for source in builder().site_places() if source.endswith(".md")]


def test_every_page_is_in_the_navigation() -> None:
    """In the order in which people come: try, deploy, submit, train, operate, understand, change."""
    listed = re.findall(r"[\w/-]+\.md", NAVIGATION)
    english = {place for place in builder().site_places().values() if not place.endswith(".zh.md")}
    assert len(listed) == len(set(listed))
    assert set(listed) == {place for place in english if not LISTED_ELSEWHERE.fullmatch(place)}
    tabs = re.findall(r"^  - (\w+):", NAVIGATION, re.MULTILINE)
    assert tabs == ["Home", "Try", "Deploy", "Submit", "Train", "Operate", "Understand", "Change"]


@pytest.mark.parametrize("source", SOURCES)
def test_every_relative_link_of_a_page_leads_to_a_page_of_the_site(source: str) -> None:
    """Links to files of the code become text; the rest are pages, anchors and pictures that are there."""
    places = builder().site_places()
    text = builder().FENCE.sub("", builder().page(source, places))
    here = places[source].rpartition("/")[0]
    known = set(places.values()) | {"decisions/index.md"}
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:|#", target):
            continue
        place = builder().os.path.normpath(f"{here}/{target.partition('#')[0]}" if here else target.partition("#")[0])
        assert place in known or (ROOT / "docs" / place).is_file(), f"{source}: {target}"


def test_a_link_to_nothing_stops_the_build() -> None:
    """The name of the page and of the target are in the message."""
    with pytest.raises(ValueError, match=r"docs/try.md has a link to gone.md"):
        builder()._links("[a page](gone.md)", "docs/try.md", builder().site_places())


def test_a_link_to_the_code_becomes_text() -> None:
    """The site has no source files."""
    places = builder().site_places()
    assert builder()._links("[the rules](../lambdas/)", "docs/try.md", places) == "the rules (`lambdas`)"
    assert builder()._links("[main](../app.py#x)", "docs/try.md", places) == "main (`app.py`)"


def test_a_chinese_page_has_the_anchors_of_the_english_page() -> None:
    """A link with an anchor works in both languages."""
    made = builder().with_anchors("# 一\n\n## 二\n", "# One\n\n## Two words\n")
    assert made == "# 一 { #one }\n\n## 二 { #two-words }\n"


def test_the_site_loads_nothing_from_elsewhere() -> None:
    """No font, no script: both that the theme would load are among the files with a recorded hash."""
    settings = (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in settings and "assets/iframe-worker-shim.js" in settings
    assert all(len(digest) == 64 for _, _, digest in builder().SCRIPTS.values())

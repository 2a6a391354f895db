"""Every number with a unit in the documents has its source: a measurement, a threshold, the code, or a stated reason.

`tests/figures.toml` lists the numbers that the other rules do not cover. A number that is new or changed fails here
until its source is named. Decisions are left out, because they are dated records. Runbooks are left out as orders.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from gpu_recovery.core.policy import PRESETS, Preset

from benchmarks import results
from tests.markdown import DOCS, FENCE, OTHERS, README, ROOT, Page

LISTED = tomllib.loads((ROOT / "tests/figures.toml").read_text(encoding="utf-8"))
GENERATED = {f"docs/{name}.md" for name in ("states", "permissions", "cli-options", "settings", "thresholds", "api")}
"""Pages that are made from the code as a whole. A test of each compares it with its source."""
COMPARED = {
    "docs/statuses.md": "tests/test_docs.py::test_the_statuses_of_jobs_and_how_long_they_wait",
    "docs/limits.md": "tests/test_docs.py::test_the_fleet_limits_have_the_values_of_the_policy",
}
"""Pages whose numbers a test compares with the policy."""
UNITS = r"h|ms|µs|s|min|minutes?|seconds?|hours?|days?|%|MB|MiB|GiB|GB|kB|KB|KiB|USD|points"
FIGURE = re.compile(rf"(?<![\w.,/^-])\d[\d,]*(?:\.\d+)?(?: to \d[\d.,]*)? ?(?:{UNITS})(?![\w-])")
BLOCK = re.compile(r"<!-- (?!Generated)([a-z ]+) -->.*?<!-- end of \1 -->", re.DOTALL)
SECONDS = {"s": 1, "h": 3_600, "second": 1, "min": 60, "minute": 60, "hour": 3_600, "day": 86_400, "%": 1}
PAGES = [
    page
    for page in (README, *DOCS.values(), *OTHERS)
    if page.name not in GENERATED and page.name != "CHANGELOG.md" and not page.name.endswith(".zh.md")
]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _paragraphs(page: Page) -> Iterator[str]:
    """Yield each paragraph, item and row outside of code and of blocks that a program writes."""
    text = FENCE.sub("", BLOCK.sub("", page.text))
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:[-|]|\d+\.) ?)", text):
        yield " ".join(part.split())


def _is_threshold(figure: str, paragraph: str) -> bool:
    """Whether the paragraph names a threshold of the policy that has this value."""
    number, unit = re.fullmatch(r"([\d.,]+)(?: to [\d.,]+)? ?(\S+)", figure).groups()  # type: ignore[union-attr]
    factor = SECONDS.get(unit.removesuffix("s") or unit)
    if factor is None:
        return False
    value = float(number.replace(",", "")) * factor
    policy = PRESETS[Preset.ADAPTIVE]
    named = re.findall(r"`([a-z_0-9]+)`", paragraph)
    return any(getattr(policy, name, None) == value for name in named if name.endswith(("_s", "_percent")))


def _expected(page: Page) -> list[str]:
    """Return the texts of the page that quote `benchmarks/results.json`, as they must be now."""
    figures = results.read()
    return [one["text"].format(**figures) for one in LISTED["measured"] if one["page"] == page.name]


def untied(page: Page) -> list[str]:
    """Return the numbers of a page for which no rule names a source."""
    measured = _expected(page)
    allowed = {figure for figures in LISTED.get(page.name, {}).values() for figure in figures}
    found = []
    for paragraph in _paragraphs(page):
        rest = paragraph
        for text in measured:
            rest = rest.replace(text, "")
        # A paragraph with a link to a public source quotes it.
        if re.search(r"\]\(https?://", rest) or page.name in COMPARED:
            continue
        for match in FIGURE.finditer(rest):
            if match.group() not in allowed and not _is_threshold(match.group(), paragraph):
                found.append(f"{match.group()} in: {paragraph[:90]}")
    return found


@each_page
def test_every_number_with_a_unit_has_a_source(page: Page) -> None:
    """Tie it to results.json, name its threshold beside it, link its source, or list it in tests/figures.toml."""
    assert untied(page) == []


@pytest.mark.parametrize("one", LISTED["measured"], ids=lambda one: f"{one['page']}: {one['text'][:40]}")
def test_a_measurement_is_the_one_that_is_recorded(one: dict[str, Any]) -> None:
    """`make bench` writes benchmarks/results.json, and the text follows."""
    page = " ".join((ROOT / one["page"]).read_text(encoding="utf-8").split())
    assert one["text"].format(**results.read()) in page


def test_every_listed_number_is_still_in_its_page() -> None:
    """An entry without its number would allow another one some day."""
    pages = {page.name: page for page in PAGES}
    for name, reasons in LISTED.items():
        if name == "measured":
            continue
        used = {match.group() for paragraph in _paragraphs(pages[name]) for match in FIGURE.finditer(paragraph)}
        for reason, figures in reasons.items():
            assert len(reason) >= 12, f"{name}: {reason}"
            assert set(figures) <= used, f"{name}: {set(figures) - used}"
            assert figures == sorted(set(figures), key=figures.index)


def test_a_file_that_is_a_source_has_the_numbers() -> None:
    """A reason that begins with `code:` names files. The digits of each of its numbers are in one of them."""
    for name, reasons in LISTED.items():
        for reason, figures in reasons.items() if name != "measured" else ():
            if not reason.startswith("code: "):
                continue
            text = "".join((ROOT / path).read_text(encoding="utf-8") for path in reason[6:].split(", "))
            plain = set(re.findall(r"\d+(?:\.\d+)?", text.replace("_", "")))
            for figure in figures:
                number, unit = re.fullmatch(r"([\d.,]+) ?(\S+)", figure).groups()  # type: ignore[union-attr]
                value = float(number.replace(",", ""))
                forms = {value, value * SECONDS.get(unit.removesuffix("s") or unit, 1), value * 1_000, value / 100}
                forms |= {value * 1024 if unit in ("KiB", "MiB") else value, value * 1000 if unit == "kB" else value}
                assert forms & {float(one) for one in plain}, f"{name}: {figure} is not in {reason}"


def test_a_changed_number_is_found() -> None:
    """One digit more or less is another number."""
    page = next(page for page in PAGES if page.name == "docs/queue.md")
    changed = Page(page.path)
    changed.text = page.text.replace("0.05 s", "0.06 s")
    assert changed.text != page.text and any("0.06 s" in one for one in untied(changed))


def test_a_number_beside_its_threshold_needs_its_value() -> None:
    """The name alone is no source."""
    assert _is_threshold("900 s", "hangs for `progress_timeout_s` (900 s)")
    assert _is_threshold("15 minutes", "`progress_timeout_s`, 15 minutes")
    assert not _is_threshold("800 s", "hangs for `progress_timeout_s` (800 s)")
    assert not _is_threshold("900 s", "hangs for 900 s")

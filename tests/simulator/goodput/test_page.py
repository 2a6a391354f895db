"""The tables of docs/simulator.md and its Chinese page are those of the results, and no figure is below the bound."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import goodput, results
from benchmarks.goodput_page import CHINESE_PAGE, PAGE, TITLES, pages, tables
from benchmarks.goodput_page_zh import CELLS

FIGURES = results.read()["goodput"]


@pytest.mark.parametrize("page", [PAGE, CHINESE_PAGE], ids=lambda page: page.name)
def test_the_tables_are_those_of_the_results(page: Path) -> None:
    """`python -m benchmarks.goodput` writes both pages."""
    text = page.read_text(encoding="utf-8")
    for name in tables(FIGURES):
        assert text.count(f"<!-- {name} -->\n") == text.count(f"<!-- end of {name} -->") == 1, name
    assert pages(FIGURES)[page] == text


def test_every_text_of_the_tables_has_its_chinese_form() -> None:
    """Names of policies, runs and improvements, with or without spares."""
    cells = {cell.strip() for table in tables(FIGURES).values() for cell in table.replace("\n", "|").split("|")}
    words = {re.sub(r", \d+ spares$", "", cell) for cell in cells if re.search("[a-z]{4}", cell)}
    assert words - {"llama3", "small"} <= set(CELLS)


def test_the_results_are_of_the_present_table_of_facts() -> None:
    """A changed condition makes them old. The product's own runs take longer: they keep the table that they had."""
    assert FIGURES["facts"] == goodput.FACTS.digest
    assert FIGURES["seeds"] == [1, 5]
    assert all(set(run) >= {"facts", "seeds", "policies"} for run in FIGURES["product"].values())


@pytest.mark.parametrize("part", ["models", "product"])
def test_no_published_figure_is_above_the_bound(part: str) -> None:
    """Mean, smallest and largest of every policy; and every overhead is at least that of the bound's episodes."""
    for name, run in FIGURES[part].items():
        policies = run["policies"] if part == "product" else run
        assert {each.removesuffix(", 4 spares") for each in policies} <= set(TITLES)
        for policy, one in policies.items():
            bound = policies["bound, memory checkpoints" if "memory" in policy else "bound"]
            assert one["min"] <= one["ettr"] <= one["max"], (name, policy)
            assert all(one[key] <= bound[key] for key in ("min", "ettr", "max")), (name, policy)
            assert one["overhead"] >= 1.0, (name, policy)


@pytest.mark.slow
def test_a_recorded_figure_is_measured_again() -> None:
    """One of the models, as the command does it."""
    assert goodput.of_models(goodput.MODELS["small"], goodput.SEEDS) == FIGURES["models"]["small"]

"""docs/costs.md says what the calls cost that the production code really makes."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from simulator.faults.delivery import prompt
from tests.aws import cost_page
from tests.aws.cost_page import COLUMNS, PAGE, PRICES, VOLUMES, counting_world
from tests.markdown import READMES, Page

pytestmark = pytest.mark.slow
LARGE = 110
"""Instances of a gang that no transaction of a hundred actions could hold."""


@pytest.fixture(scope="module")
def rows() -> dict[str, Counter[str]]:
    """What everything on the page costs, counted anew."""
    return cost_page.measured()


def test_the_tables_are_what_was_counted(rows: dict[str, Counter[str]]) -> None:
    """If not: `python -m tests.aws.cost_page` writes them again, and the diff says what has become dearer."""
    text = PAGE.read_text(encoding="utf-8")
    assert cost_page.written(text, rows) == text
    assert all(f"| {name} |" in text for name in rows)


@pytest.mark.parametrize("readme", READMES, ids=lambda page: page.name)
def test_the_readmes_say_the_same(readme: Page, rows: dict[str, Counter[str]]) -> None:
    """The few rows that they show, and the sum of the month."""
    assert cost_page.summarised(readme.text, rows) == readme.text
    for name, chinese in cost_page.IN_READMES.items():
        assert f"| {name} |" in readme.text or f"| {chinese} |" in readme.text
    assert re.search(r"About \d+ USD a month for 20|每月约 \d+ 美元", readme.text)


def test_what_is_not_ours_costs_no_more_than_a_look(rows: dict[str, Counter[str]]) -> None:
    """A busy account must not pay for a cluster that it hardly knows."""
    foreign = [counted for name, counted in rows.items() if "somebody else" in name]
    assert len(foreign) == 2
    for counted in foreign:
        assert counted["Lambda"] == 1 and counted["reads"] <= 1
        assert sum(counted[column] for column in COLUMNS if column not in ("Lambda", "reads", "read units")) == 0


def test_a_minute_makes_as_many_calls_whatever_the_cluster(rows: dict[str, Counter[str]]) -> None:
    """Only what the answers weigh grows with the instances."""
    minutes = [rows[f"a minute in which nothing happens, {number} instances"] for number in (2, 8, 20)]
    assert len({tuple(each[column] for column in COLUMNS if column != "read units") for each in minutes}) == 1
    assert all(each["writes"] == 0 for each in minutes)


def test_every_price_has_its_volume_and_every_volume_is_counted(rows: dict[str, Counter[str]]) -> None:
    """A line without a price would be free."""
    assert set(cost_page.volumes(rows)) == set(PRICES)
    assert set(VOLUMES) <= set(rows)


def test_a_gang_larger_than_any_transaction_is_launched() -> None:
    """DynamoDB takes a hundred actions at once: a gang's claims must not need to fit into one transaction."""
    with counting_world(prompt, instances=LARGE) as world:
        job_id = world.submit(LARGE)
        world.until(lambda: len(world.ranks(job_id)) == LARGE, "the gang did not run", 1800)
        assert {len(one.claims) for one in world.instances()} == {1}
        made = [one.asked for one in world.cloud.requests if one.operation == "TransactWriteItems"]
        assert made and max(len(asked["TransactItems"]) for asked in made) <= 3

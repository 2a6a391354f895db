"""docs/costs.md says what the calls cost that the production code really makes."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from simulator.faults.delivery import prompt
from tests.aws import cost_page
from tests.aws.call_counting import counting_world
from tests.aws.cost_page import COLUMNS, PAGE, PRICES, VOLUMES
from tests.markdown import READMES, Page

pytestmark = pytest.mark.slow
LARGE = 110
"""Instances of a gang that no transaction of a hundred actions could hold."""
MANY = 12
"""Instances of a gang of which each transaction that grows with the gang would have more than three actions."""


@pytest.fixture(scope="module")
def counted() -> dict[str, Counter[str]]:
    """What most of what is on the page costs, counted anew."""
    return cost_page.measured(whole=False)


@pytest.fixture(scope="module")
def rows() -> dict[str, Counter[str]]:
    """What everything costs, as the page says."""
    return cost_page.shown()


def test_the_rows_are_what_was_counted(counted: dict[str, Counter[str]]) -> None:
    """If not: `python -m tests.aws.cost_page` writes the tables again, and the diff says what has become dearer."""
    text = PAGE.read_text(encoding="utf-8")
    assert [row for row in cost_page.table_of_calls(counted).splitlines() if row not in text] == []
    assert len(counted) >= 10


@pytest.mark.full
def test_the_tables_are_what_was_counted() -> None:
    """Every row: the longest jobs and incidents too."""
    text = PAGE.read_text(encoding="utf-8")
    assert cost_page.written(text, cost_page.measured()) == text


def test_the_tables_follow_from_the_rows(rows: dict[str, Counter[str]]) -> None:
    """The month and the heartbeats are reckoned from what was counted. The Chinese page has the same tables."""
    for page in (PAGE, cost_page.CHINESE_PAGE):
        text = page.read_text(encoding="utf-8")
        assert cost_page.written(text, rows, chinese=page == cost_page.CHINESE_PAGE) == text
    assert "instance" not in cost_page.in_chinese(cost_page.table_of_calls(rows))


@pytest.mark.parametrize("readme", READMES, ids=lambda page: page.name)
def test_the_readmes_say_the_same(readme: Page, rows: dict[str, Counter[str]]) -> None:
    """The sum of the month with 20 instances."""
    assert cost_page.summarised(readme.text, rows) == readme.text
    assert re.search(r"about \d+ USD a month|每月约 \d+ 美元", readme.text)


def test_what_is_not_ours_costs_no_more_than_a_look(counted: dict[str, Counter[str]]) -> None:
    """A busy account must not pay for a cluster that it hardly knows."""
    foreign = [each for name, each in counted.items() if "another user" in name or "outside the cluster" in name]
    assert len(foreign) == 2
    for each in foreign:
        assert each["Lambda"] == 1 and each["reads"] <= 1
        assert sum(each[column] for column in COLUMNS if column not in ("Lambda", "reads", "read units")) == 0


def test_a_minute_makes_as_many_calls_whatever_the_cluster(counted: dict[str, Counter[str]]) -> None:
    """Only what the answers weigh grows with the instances."""
    minutes = [counted[f"a minute in which nothing happens, {number} instances"] for number in (2, 8, 20)]
    assert len({tuple(each[column] for column in COLUMNS if column != "read units") for each in minutes}) == 1
    assert all(each["writes"] == 0 for each in minutes)


def test_every_price_has_its_volume_and_every_volume_is_counted(rows: dict[str, Counter[str]]) -> None:
    """A line without a price would be free."""
    assert set(cost_page.volumes(rows)) == set(PRICES)
    assert set(VOLUMES) <= set(rows)


@pytest.mark.parametrize("ranks", [MANY, pytest.param(LARGE, marks=pytest.mark.full)])
def test_a_gang_larger_than_any_transaction_is_launched(ranks: int) -> None:
    """DynamoDB takes a hundred actions at once: a gang's claims must not need to fit into one transaction."""
    with counting_world(prompt, instances=ranks) as world:
        job_id = world.submit(ranks)
        world.until(lambda: len(world.ranks(job_id)) == ranks, "the gang did not run", 1800)
        assert {len(one.claims) for one in world.instances()} == {1}
        made = [one.asked for one in world.cloud.requests if one.operation == "TransactWriteItems"]
        assert made and max(len(asked["TransactItems"]) for asked in made) <= 3

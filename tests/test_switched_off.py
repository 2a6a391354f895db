"""The page of what is off by default: its table has every switch that is off, with the default of the code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from enum import StrEnum
from typing import Any

import pytest
from gpu_recovery.core.policy import PRESETS, RecoveryPolicy

from infra.settings import DeploymentSettings
from tests.markdown import DOCS, READMES, Page

PAGES = [DOCS["switched-off"], DOCS["switched-off.zh"]]
POLICY = "policy."
NO_FEATURES = {
    "policy.diagnose_exit_code_1_only": "a rule of the preset `classic`",
    "policy.relaunch_on_same_instances": "a rule of the preset `classic`",
    "policy.observe_only": "set by the setting `observe_only`",
    "policy.replace": "set by the setting `replace`",
    "policy.tag_repairs": "set by the setting `tag_repairs`",
    "policy.record_attempts": "set by the setting `record_attempts`, which is on",
    "build_agent_image": "builds an image, and runs nothing",
    "log_retention_days": "0 stands for the days of the profile",
    "reserved_concurrency": "a quota of AWS, and no feature",
}
"""Settings whose default looks as if something were off, and why they are not in the table."""


def default_of(name: str) -> Any:
    """The default of the code for a name of the table."""
    if name.startswith(POLICY):
        value = getattr(PRESETS[DeploymentSettings().preset], name.removeprefix(POLICY))
        return value.value if isinstance(value, StrEnum) else value
    value = getattr(DeploymentSettings(), name)
    return list(value) if isinstance(value, tuple) else value


def rows(page: Page) -> dict[str, list[str]]:
    """The rows of the table by their names, without the code marks of the first two columns."""
    [table] = page.tables()
    return {row[0].strip("`"): [row[1].strip("`"), *row[2:]] for row in table[1:]}


def switches_that_are_off() -> set[str]:
    """The names of settings and thresholds whose default is false, 0 or `off`."""
    settings = [(field.name, default_of(field.name)) for field in fields(DeploymentSettings)]
    policy = [(name, default_of(name)) for name in (f"{POLICY}{field.name}" for field in fields(RecoveryPolicy))]
    return {name for name, value in (*settings, *policy) if value == "off" or (isinstance(value, int) and not value)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_defaults_of_the_table_are_those_of_the_code(page: Page) -> None:
    """In both languages. A setting that does not exist has no default."""
    assert {name: json.loads(row[0]) for name, row in rows(page).items()} == {
        name: default_of(name) for name in rows(page)
    }


def test_the_table_has_every_switch_that_is_off() -> None:
    """A new one must be in the table, or have a reason here why it is no feature."""
    listed = set(rows(PAGES[0]))
    assert switches_that_are_off() - listed == NO_FEATURES.keys() & switches_that_are_off()
    assert not listed & NO_FEATURES.keys() and NO_FEATURES.keys() <= switches_that_are_off()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_says_what_it_does_why_it_is_off_and_what_must_be_shown(page: Page) -> None:
    """No cell is empty, and a link leads to the page of the feature wherever there is one."""
    for name, row in rows(page).items():
        assert len(row) == 4 and all(len(cell) > 1 for cell in row[1:]), name


def test_both_readmes_lead_to_the_page() -> None:
    """A newcomer finds it beside the features."""
    for readme, page in zip(READMES, PAGES, strict=True):
        assert page.name in {re.sub(r"#.*", "", link) for link in readme.links()}

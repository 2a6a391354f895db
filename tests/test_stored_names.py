"""Names that are stored or public stay as they are, whatever is moved or renamed around them.

`tests/stored_names.json` holds them. A name that is to change is changed with `python -m tests.stored_names --write`,
and its old form is read for one minor version (CONTRIBUTING.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stored_names.golden import FILE, SECTIONS, TEMPLATES, difference, pinned, text
from tests.stored_names.spellings import PLACES, trees


@pytest.fixture(scope="module", autouse=True)
def parsed() -> None:
    """Every module is parsed once, which takes seconds."""
    for place in PLACES:
        trees(place)


@pytest.mark.parametrize("section", SECTIONS)
def test_no_stored_or_public_name_has_changed(section: str) -> None:
    """What tables, deployments, users and dashboards know by name is still called so."""
    changed = difference(section, SECTIONS[section]())
    assert not changed, f"\n{changed}"


def test_every_section_of_the_file_is_compared() -> None:
    """A section that no test reads would pin nothing."""
    assert set(pinned()) == {*SECTIONS, TEMPLATES}


@pytest.fixture(autouse=True, scope="module")
def _forget_trees() -> Iterator[None]:
    """The syntax trees take 75 MB of the worker."""
    yield
    trees.cache_clear()


@pytest.mark.slow
def test_the_file_is_as_the_command_writes_it() -> None:
    """Written in another way, the next honest diff would be lost in the layout."""
    assert FILE.read_text(encoding="utf-8") == text(pinned()) + "\n"

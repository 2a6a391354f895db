"""docs/permissions.md names every action that the synthesised roles allow, and no other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from infra.functions import FUNCTIONS
from infra.permissions import Permission
from tests.infra.deployment import Deployment, listed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script that writes the page."""
    spec = importlib.util.spec_from_file_location("generate_permissions", ROOT / "docs" / "generate_permissions.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


def test_the_page_of_permissions_is_fresh(generator: ModuleType) -> None:
    """It says what the tables say; `make docs` rewrites it."""
    assert (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8") == generator.page()


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_a_function_may_do_what_its_page_says(production: Deployment, generator: ModuleType, row: object) -> None:
    """With every optional part on: the actions of the role are those of the page."""
    role = f"Functions{row.construct_id}Role"  # type: ignore[attr-defined]
    granted = {
        action
        for policy in production.of_type("AWS::IAM::Policy").values()
        if role in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in listed(statement["Action"])
    }
    assert generator.actions_of(row) == granted


def test_every_permission_has_its_reason(generator: ModuleType) -> None:
    """A reader must be able to disagree with it."""
    assert set(generator.WHY) == set(Permission)
    assert all(len(reason.split()) > 1 for reason in generator.WHY.values())

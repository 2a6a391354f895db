"""The permission for the tag that says who ordered a repair: this tag alone, and only where the setting wants it."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import Any

from gpu_recovery.core.repair_record import TAG_KEY

from infra.functions import FUNCTIONS
from infra.permissions import Permission, statements
from tests.source_files import ROOT


def words() -> Any:
    """ARNs of a deployment, as the page of the permissions shows them."""
    spec = importlib.util.spec_from_file_location("generate_permissions", ROOT / "docs" / "generate_permissions.py")
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for their module there
    spec.loader.exec_module(module)
    return module.WORDS


def test_only_the_tag_of_repairs_may_be_written_and_only_on_what_was_handed_over() -> None:
    """IAM refuses every other key: the opt-in tag itself could be written otherwise."""
    reach = words()
    (statement,) = statements(Permission.TAG_INSTANCES, replace(reach, may_tag=True))
    assert (statement.actions, statement.resources) == (["ec2:CreateTags"], [reach.ec2_instances])
    key, value = reach.managed_tag
    assert statement.conditions == {
        "StringEquals": {f"aws:ResourceTag/{key}": value},
        "ForAllValues:StringEquals": {"aws:TagKeys": TAG_KEY},
    }
    assert statements(Permission.TAG_INSTANCES, replace(reach, may_tag=False)) == []


def test_the_functions_that_reboot_may_write_the_tag() -> None:
    """No other function writes it."""
    by_permission = [
        {row.name for row in FUNCTIONS if permission in row.permissions}
        for permission in (Permission.TAG_INSTANCES, Permission.REBOOT_INSTANCES)
    ]
    assert by_permission[0] == by_permission[1] != set()

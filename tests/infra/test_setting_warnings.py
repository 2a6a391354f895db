"""Warnings at synthesis: a setting has its former name or belongs to an upgrade, or no agent could report."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from infra.settings import DeploymentSettings
from tests.infra.contexts import EVERYTHING, PLANTED

pytestmark = pytest.mark.slow


def test_a_former_name_is_warned_of_at_synthesis(validated: dict[str, Path]) -> None:
    """`cdk synth` and `cdk deploy` print the warning with both names, and no other warning."""
    metadata = json.loads((validated[PLANTED] / "GpuRecovery.metadata.json").read_text())
    warnings = [one["data"] for entries in metadata.values() for one in entries if one["type"] == "aws:cdk:warning"]
    assert [warning.split(";")[0] for warning in warnings] == ["gpu-recovery:policy: look_s is now poll_interval_s"]


@pytest.mark.parametrize(
    ("overrides", "warned"),
    [
        ({}, False),
        ({"gpu-recovery:node_role_arns": []}, True),
        ({"gpu-recovery:node_role_arns": [], "gpu-recovery:node_agent": "daemon"}, False),
        ({"gpu-recovery:api_auth": "token"}, False),
    ],
)
def test_iam_without_roles_of_nodes_is_warned_of(overrides: dict[str, Any], warned: bool) -> None:
    """With IAM only the roles of the setting may report. A deployment without agents is possible, so it is no error."""
    cdk = import_module("aws_cdk")  # the CDK takes a second
    roles = {} if overrides.get("gpu-recovery:api_auth") == "token" else EVERYTHING["gpu-recovery:api_roles"]
    app = import_module("app").build(cdk.App(context={**EVERYTHING, "gpu-recovery:api_roles": roles, **overrides}))
    (stack,) = (each for each in app.node.children if each.node.id == "GpuRecovery")
    warnings = [entry.data for entry in stack.node.metadata if entry.type == "aws:cdk:warning"]
    assert ["no agent can report" in warning for warning in warnings] == [True] * warned


@pytest.mark.parametrize("upgrade_from", ["", "0.1"])
def test_the_setting_of_an_upgrade_is_warned_of(upgrade_from: str) -> None:
    """It is meant for one deployment: while it stays, writes of large gangs are throttled."""
    warnings = DeploymentSettings(upgrade_from=upgrade_from).warnings
    assert [text for text in warnings.values() if "gpu-recovery:upgrade_from" in text] == list(warnings.values())
    assert len(warnings) == bool(upgrade_from)

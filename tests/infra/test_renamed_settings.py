"""A deployment whose context still has a former name of a setting is warned at synthesis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.infra.contexts import PLANTED

pytestmark = pytest.mark.slow


def test_a_former_name_is_warned_of_at_synthesis(validated: dict[str, Path]) -> None:
    """`cdk synth` and `cdk deploy` print the warning with both names, and no other warning."""
    metadata = json.loads((validated[PLANTED] / "GpuRecovery.metadata.json").read_text())
    warnings = [one["data"] for entries in metadata.values() for one in entries if one["type"] == "aws:cdk:warning"]
    assert [warning.split(";")[0] for warning in warnings] == ["gpu-recovery:policy: look_s is now poll_interval_s"]

"""A deployment whose context still has a former name of a setting is warned at synthesis."""

from __future__ import annotations

from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk.assertions import Annotations, Match

from app import build
from infra.settings import NAMESPACE

pytestmark = pytest.mark.slow


def test_a_former_name_is_warned_of_at_synthesis(tmp_path: Path) -> None:
    """`cdk synth` and `cdk deploy` print the warning with both names."""
    context = {f"{NAMESPACE}policy": {"look_s": 60, "attempts_max": 2}}
    app = build(cdk.App(context=context, outdir=str(tmp_path)))
    stack = app.node.find_child("GpuRecovery")
    assert isinstance(stack, cdk.Stack)
    warnings = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("is now"))
    assert [str(warning.entry.data).split(";")[0] for warning in warnings] == [
        "gpu-recovery:policy: look_s is now poll_interval_s"
    ]

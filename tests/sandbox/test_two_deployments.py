"""Two deployments in one account: `init` gives the second names of its own, and `cdk deploy` keeps them apart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.account.access import Account
from gpu_recovery_client.account.deployment import deployments
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli import app
from typer.testing import CliRunner

from infra.deploy import __main__ as deploy
from sandbox import deployment, sandbox

pytestmark = [pytest.mark.slow, pytest.mark.full]
OPTIONS = ("--method=direct", "--require-approval=never", "--no-notices", "--progress=events")
SHARED = {"ClusterName", "ApiUrl"}
"""Outputs that need not differ: the cluster of the sandbox, and addresses of MiniStack."""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A sandbox, with its credentials in the environment."""
    try:
        up = sandbox.up(tmp_path / "sandbox", instances=1)
        for name, value in {
            "AWS_ENDPOINT_URL": up["endpoint_url"],
            "AWS_ENDPOINT_URL_ECS": up["ecs_endpoint_url"],
            "AWS_ENDPOINT_URL_EC2": up["ec2_endpoint_url"],
            "AWS_ACCESS_KEY_ID": up["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": up["aws_secret_access_key"],
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
        }.items():
            monkeypatch.setenv(name, value)
        yield up
    finally:
        sandbox.down(tmp_path / "sandbox")


def test_a_second_deployment_shares_nothing_with_the_first(
    state: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its settings file is read by the CDK; the first deployment still answers, and the next steps name the second."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdk.json").write_text("{}")
    run = CliRunner()
    assert run.invoke(app.app, ["init", "prod"]).exit_code == 0
    settings = ["--set", 'health_check_image=""', "--set", "profile=dev", "--set", "adopt=recover"]
    made = run.invoke(app.app, ["init", "lab", "--cluster", state["cluster"], *settings])
    assert made.exit_code == 0, made.output
    (tmp_path / "settings/prod.toml").unlink()  # its cluster is that of `lab` here: the sandbox has only one
    file = tmp_path / "settings/lab.toml"
    monkeypatch.setattr(deploy, "OUTPUTS", tmp_path / "outputs")
    options = ["--app", f"{sys.executable} app.py", "--output", str(tmp_path / "cdk.out"), *OPTIONS]
    assert deploy.main(["--name", str(file), *options], deployment.ROOT) == 0, capfd.readouterr()
    shown = capfd.readouterr().out
    first, second = sorted(deployments(Account()), key=lambda one: one.name)
    assert (first.name, second.name) == ("GpuRecovery", "GpuRecovery-lab")
    assert [key for key in first.outputs if key not in SHARED and first.outputs[key] == second.outputs[key]] == []
    assert second.environment["ADOPT"] == "recover" and first.environment["ADOPT"] == "off"
    assert "gpu-recovery login lab --api-url" in shown and second.outputs["OperatorTokenSecretArn"] in shown
    with RecoveryClient(state["api_url"], state["operator_token"]) as client:
        assert [one["status"] for one in client.instances()] == ["AVAILABLE"]

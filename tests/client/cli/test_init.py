"""The verb init where there is no account: what is missing, and what cannot be written. See also tests/sandbox."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from gpu_recovery_client.account.access import Account
from gpu_recovery_client.cli import init
from typer.testing import Result

Run = Callable[..., Result]


@pytest.mark.parametrize("words", [("init", "prod"), ("doctor", "prod")], ids=" ".join)
def test_without_botocore_the_package_to_install_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """The command line alone does not need botocore."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "cdk.json").write_text("{}")
    if words[0] == "doctor":
        (tmp_path / "settings/prod.toml").write_text('cluster_name = "my-gpus"\n')
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    result = run(*words)
    assert result.exit_code == 2 and "pip install 'gpu-recovery[iam]'" in result.stderr


def test_a_deployment_without_a_file_is_answered_with_the_command_that_writes_it(run: Run) -> None:
    """A misspelt name must not examine the defaults."""
    result = run("doctor", "prdo")
    assert result.exit_code == 2 and "gpu-recovery init prdo" in result.stderr


def test_a_check_that_does_not_exist_cannot_be_left_out(run: Run) -> None:
    """A script would believe that it leaves something out."""
    result = run("doctor", "--skip", "quota")
    assert result.exit_code == 2 and "quota is no check; the checks are credentials, " in " ".join(
        result.stderr.split()
    )


def test_a_setting_needs_a_value(run: Run) -> None:
    """Before the account is read."""
    result = run("init", "prod", "--set", "adopt")
    assert result.exit_code == 2 and "KEY=VALUE" in result.stderr


def test_the_settings_of_every_file_of_the_cdk_context_are_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value that the CDK would take is the value of the file. Each file is named, because its value must go."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    settings = {"adopt": "off", "profile": "dev", "preset": "classic"}
    prefixed = {f"gpu-recovery:{name}": value for name, value in settings.items()}
    (tmp_path / "home/.cdk.json").write_text(json.dumps({"context": prefixed}))
    (tmp_path / "cdk.context.json").write_text(json.dumps({"gpu-recovery:adopt": "observe", "other": 1}))
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"gpu-recovery:profile": "prod"}}))
    assert init._of_context(tmp_path) == {"adopt": "observe", "profile": "prod", "preset": "classic"}
    told = capsys.readouterr().err
    assert all(f"The settings of {name} are" in told for name in ("~/.cdk.json", "cdk.context.json", "cdk.json"))


def test_a_file_that_leaves_a_setting_at_its_default_keeps_the_default(run: Run, settings_file: Path) -> None:
    """`observe` and `prod` are for new deployments: here they would change one that runs."""
    assert run("init", "prod", "--email", "a@example.com", "--yes").exit_code == 0
    written = tomllib.loads(settings_file.read_text())
    assert (written["alert_emails"], written["adopt"], written["profile"]) == (["a@example.com"], "off", "dev")


def test_a_deployment_without_a_file_is_found_beside_one_with_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both are for the cluster, and the other file is for the first of them."""
    account = SimpleNamespace(account_id="111122223333", region="us-east-1")
    found = [SimpleNamespace(name=name, outputs={"ClusterName": "my-gpus"}) for name in ("GpuRecovery", "Second")]
    monkeypatch.setattr(init, "deployments", lambda _: found)
    (tmp_path / "prod.toml").write_text('cluster_name = "my-gpus"\n')
    answers = init._Answers(cast(Account, account), tmp_path / "second.toml", {}, {}, yes=True)
    assert answers._running("my-gpus") is found[1]
    (tmp_path / "third.toml").write_text('cluster_name = "my-gpus"\nstack_name = "Second"\n')
    assert answers._running("my-gpus") is None

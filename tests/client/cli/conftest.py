"""What the tests of several verbs share: a checkout, and an account that the verb `init` finds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_recovery_client.cli import init


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file `prod` of the checkout `tmp_path`. The account has one cluster and no deployment."""
    account = SimpleNamespace(account_id="111122223333", region="us-east-1")
    survey = SimpleNamespace(
        clusters=lambda _: {"my-gpus": 1},
        instances_of=lambda *_: ([], set()),
        families=lambda *_: [],
        default_families=lambda found: found,
    )
    for name, value in {"Account": lambda _: account, "survey": survey, "deployments": lambda _: []}.items():
        monkeypatch.setattr(init, name, value)
    (tmp_path / "settings").mkdir()
    (tmp_path / "cdk.json").write_text("{}")
    path = tmp_path / "settings/prod.toml"
    path.write_text('cluster_name = "my-gpus"\n')  # it exists, so that the account is not searched for names
    return path

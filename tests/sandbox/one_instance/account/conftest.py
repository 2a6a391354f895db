"""The credentials of a user of the account that the sandbox is deployed in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader


@pytest.fixture(scope="package", autouse=True)
def parsed_once() -> Iterator[None]:
    """Each run of a verb has a session of its own. Let the descriptions of the services be parsed once for all."""
    plain = JSONFileLoader.load_file

    @cache
    def parsed(path: str) -> Any:
        return plain(JSONFileLoader(), path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _loader, path: parsed(path))
        yield


@pytest.fixture
def account_folder(state: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory of a user who has the AWS credentials of the sandbox in the environment."""
    for name, value in {
        "AWS_ENDPOINT_URL": state["endpoint_url"],
        "AWS_ENDPOINT_URL_ECS": state["ecs_endpoint_url"],
        "AWS_ENDPOINT_URL_EC2": state["ec2_endpoint_url"],
        "AWS_ACCESS_KEY_ID": state["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": state["aws_secret_access_key"],
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    return tmp_path

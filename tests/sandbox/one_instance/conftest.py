"""One deployment for all tests of this folder: a sandbox with one instance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.api_clients import operator
from tests.sandbox.patience import wait_until
from tests.sandbox.tables import tables


@pytest.fixture(scope="package")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sandbox."""
    return tmp_path_factory.mktemp("one-instance")


@pytest.fixture(scope="package")
def state(directory: Path) -> Iterator[dict[str, Any]]:
    """The state of the sandbox, once its instance is known."""
    try:
        up = sandbox.up(directory, instances=1)
        with RecoveryClient(up["api_url"], up["operator_token"]) as client:
            wait_until(lambda: list(client.instances()))
        # The first round of the reconciler writes down how many instances there are; the next ones find nothing new.
        wait_until(lambda: any(name.endswith(" fleet") for name in tables(up)))
        yield up
    finally:
        sandbox.down(directory)


@pytest.fixture(scope="package")
def tokens(state: dict[str, Any]) -> dict[str, str]:
    """By whose they are; all but the first three open nothing here."""
    with operator(state) as client:
        made = {role: client.post(f"/users/{role}-1/tokens", json={"role": role}).json() for role in ("user", "viewer")}
    own = {role: str(one["token"]) for role, one in made.items()}
    foreign = f"gru_{'0' * 12}_{'A' * 43}"
    return {
        "operator": state["operator_token"],
        **own,
        "node": state["node_token"],
        "foreign": foreign,
        "half": own["user"][:-5],
        "none": "",
    }

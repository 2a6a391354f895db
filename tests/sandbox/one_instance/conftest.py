"""One deployment for all tests of this folder: a sandbox with one instance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.ministack_server import wait_for
from tests.sandbox.tables import tables


@pytest.fixture(scope="package")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The state of the sandbox, once its instance is known."""
    directory = tmp_path_factory.mktemp("one-instance")
    try:
        up = sandbox.up(directory, instances=1)
        with RecoveryClient(up["api_url"], up["operator_token"]) as client:
            wait_for(lambda: list(client.instances()))
        # The first round of the reconciler writes down how many instances there are; the next ones find nothing new.
        wait_for(lambda: any(name.endswith(" fleet") for name in tables(up)))
        yield up
    finally:
        sandbox.down(directory)

"""A node, and an API that it reports to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.paths import SOCKET
from gpu_recovery_agent.sensors.training_socket import TrainingSocket

from tests.agent.api import Api, serving
from tests.agent.node import Node

NOW_S = 1_000.0
"""Uptime at which the agent polls its socket."""


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(Api()) as found:
        yield found


@pytest.fixture
def node(tmp_path: Path, api: Api) -> Iterator[Node]:
    found = Node(tmp_path, api.url)
    try:
        yield found
    finally:
        found.end()


@pytest.fixture
def ear(node: Node) -> Iterator[TrainingSocket]:
    """The agent's end of the socket, on a node."""
    node.running.mkdir()
    found = TrainingSocket(node.running / SOCKET, AgentLog())
    found.poll(NOW_S)
    yield found
    found.close()

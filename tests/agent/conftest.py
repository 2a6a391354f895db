"""A node, and an API that it reports to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.api import Api, serving
from tests.agent.node import Node


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

"""One Ray head for all tests of this folder, and everything of ours around it with a clock that tests move."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ray_runner.head import ON_LOOPBACK, Head, serve


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """A Ray head with eight GPUs that are not there."""
    os.environ.update(ON_LOOPBACK)  # Ray's clients read it, too
    with serve(tmp_path_factory.mktemp("ray")) as found:
        yield found


@pytest.fixture
def end(tmp_path: Path) -> Iterator[Path]:
    """The file that ends the drivers of a test; they end with it in any case."""
    path = tmp_path / "end"
    yield path
    path.touch()

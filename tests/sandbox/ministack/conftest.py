"""MiniStack without and with the patches of the sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.ministack import command
from tests.sandbox.ministack_server import PLAIN, Cloud, image_stand_in, serve


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """MiniStack as it is published."""
    with serve(tmp_path_factory.mktemp("plain"), PLAIN) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """MiniStack with every patch."""
    folder = tmp_path_factory.mktemp("whole")
    with serve(folder, command.COMMAND, image_stand_in(folder / "image.zip")) as cloud:
        yield cloud

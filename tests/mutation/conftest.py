"""A small tree with a product of three files, as the mutation run reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutation.mutants import PRODUCT

FILES = {
    "core/limits.py": """\
from __future__ import annotations

LIMIT = 3


def over(count: int | None) -> bool:
    return count is not None and count > LIMIT
""",
    "core/__init__.py": "",
    "recovery.py": """\
from __future__ import annotations

from .core.limits import LIMIT, over


def save(store, count):
    if over(
        count,
    ):
        store.put(LIMIT)
        return True
    return False
""",
    "node_api/router.py": "def reply():\n    return 1\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The root of the tree."""
    for name, text in FILES.items():
        path = tmp_path / PRODUCT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path

"""Binaries in a layer that this interpreter cannot load."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def test_a_package_for_another_processor_is_left_out(tmp_path: Path) -> None:
    """So that the interpreter's own release is imported. Packages without binaries, and those that fit, stay."""
    from sandbox.ministack.worker_processes import leave_out_foreign_binaries  # noqa: PLC0415  # imports MiniStack

    for name in (
        "pydantic_core/_pydantic_core.cpython-31-mips-linux-gnu.so",
        "pydantic_core/__init__.py",
        "fitting/speedups" + EXTENSION_SUFFIXES[0],
        "plain/__init__.py",
    ):
        path = tmp_path / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    leave_out_foreign_binaries(tmp_path)
    assert sorted(path.name for path in (tmp_path / "python").iterdir()) == ["fitting", "plain"]

"""Files that are written whole: their temporary names cannot be guessed or prepared by another user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_recovery_agent import files
from gpu_recovery_agent.files import write_whole


def test_a_file_prepared_under_a_process_number_does_not_become_the_result(tmp_path: Path) -> None:
    """Another user who creates a temporary file first would own the final file and could change it later."""
    prepared = tmp_path / f".100.json.{os.getpid()}"
    prepared.write_text("prepared")
    write_whole(tmp_path / "100.json", {"code": 0})
    assert (tmp_path / "100.json").stat().st_ino != prepared.stat().st_ino
    assert prepared.read_text() == "prepared"


def test_two_temporary_names_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was seen once says nothing about the next name."""
    names, opened = [], os.open

    def record(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            names.append(Path(path).name)
        return opened(path, flags, mode)

    monkeypatch.setattr(files.os, "open", record)
    for _ in range(2):
        write_whole(tmp_path / "100.json", {})
    assert len(set(names)) == 2 and all(name.startswith(".100.json.") for name in names)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_an_existing_temporary_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Even a name that was guessed is never opened, followed or truncated."""
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "guessed")
    other, prepared = tmp_path / "other", tmp_path / ".100.json.guessed"
    other.write_text("untouched")
    prepared.symlink_to(other) if kind == "link" else prepared.write_text("untouched")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "100.json", {})
    assert prepared.read_text() == other.read_text() == "untouched"
    assert not (tmp_path / "100.json").exists()

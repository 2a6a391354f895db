"""The folder of the ranks, in which every user may create files: one look stays bounded, and nobody is displaced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors import rank_folder
from gpu_recovery_agent.sensors.rank_folder import BYTES_MAX, FILES_MAX, FileSignature, list_files

ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files to another user")
STRANGER = 65_534


def fill(folder: Path, count: int, *, user: int | None = None, prefix: str = "f") -> list[str]:
    """Create files of ranks, the newest last, and return their names."""
    names = [f"{prefix}{number:05}.json" for number in range(count)]
    for name in names:
        (folder / name).write_text("{}")
        if user is not None:
            os.chown(folder / name, user, -1)
    return names


def listed(folder: Path, *running: str) -> dict[str, FileSignature]:
    return list_files(folder, AgentLog(), running)


def test_a_look_reads_the_newest_files_and_says_that_there_are_more(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files of killed containers stay for ever, and must not keep a new rank out."""
    log, names = AgentLog(), fill(tmp_path, FILES_MAX + 44)
    for number, name in enumerate(names):
        os.utime(tmp_path / name, (9e9 - number, 9e9 - number))  # a time that the owner sets decides nothing
    last = names[0]
    (tmp_path / last).write_text('{"changed": 1}')
    for _ in range(3):
        found = list_files(tmp_path, log, ())
        assert len(found) == FILES_MAX and last in found
    assert capfd.readouterr().err.count("has more than 256 files") == 1
    for name in names[FILES_MAX:]:
        (tmp_path / name).unlink()
    assert len(list_files(tmp_path, log, ())) == FILES_MAX
    assert capfd.readouterr().err.count("is read completely again") == 1


@ROOT_ONLY
def test_the_files_of_a_user_displace_no_file_of_another_user(tmp_path: Path) -> None:
    """A user who creates files without end fills no more than the places that the others leave."""
    ours = fill(tmp_path, 40, prefix="ours")
    fill(tmp_path, 3 * FILES_MAX, user=STRANGER, prefix="a")
    found = listed(tmp_path)
    assert len(found) == FILES_MAX and set(ours) <= set(found)


def test_the_file_of_a_running_rank_stays_whatever_is_new(tmp_path: Path) -> None:
    """Users of containers are often the same user, root."""
    (tmp_path / "z.json").write_text("{}")
    fill(tmp_path, 3 * FILES_MAX)
    assert "z.json" not in listed(tmp_path) and "z.json" in listed(tmp_path, "z.json")


def test_a_look_reads_a_bounded_number_of_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of any kind count; a running rank is found among any number of them."""
    monkeypatch.setattr(rank_folder, "NAMES_MAX", 50)
    for number in range(150):
        (tmp_path / f"{number}.other").touch()
    (tmp_path / "z.json").write_text("{}")
    looked = []
    is_file = rank_folder._file
    monkeypatch.setattr(rank_folder, "_file", lambda path, log: looked.append(path) or is_file(path, log))
    (tmp_path / "0.other").rename(tmp_path / "y.json")
    assert "z.json" in listed(tmp_path, "z.json", "gone.json")
    assert len(looked) <= 3


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "large"])
def test_what_is_no_small_file_is_not_opened(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The status says enough."""
    path, log = tmp_path / "1.json", AgentLog()
    (tmp_path / "small").write_text("{}")
    make = {"folder": path.mkdir, "pipe": lambda: os.mkfifo(path), "link": lambda: path.symlink_to(tmp_path / "small")}
    make.get(kind, lambda: path.write_bytes(b" " * (BYTES_MAX + 1)))()
    monkeypatch.delattr(rank_folder, "read_object")
    for _ in range(2):
        assert list_files(tmp_path, log, ()) == {}
    assert capfd.readouterr().err.count("is ignored") == 1


def test_a_file_that_is_replaced_after_the_listing_is_not_read_as_the_listed_file(tmp_path: Path) -> None:
    """Its content would count under the wrong owner."""
    (tmp_path / "1.json").write_text('{"a": 1}')
    (found,) = listed(tmp_path).values()
    assert rank_folder.read_file(tmp_path / "1.json", found) == {"a": 1}
    (tmp_path / "2.json").write_text('{"a": 2}')
    (tmp_path / "2.json").replace(tmp_path / "1.json")
    with pytest.raises(rank_folder.FileChanged):
        rank_folder.read_file(tmp_path / "1.json", found)

"""Which folders several instances may share, and which dumps of such a folder an instance reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_recovery_agent.rank import flight_dumps, shared_folder
from gpu_recovery_agent.rank.shared_folder import is_shared

from tests.agent.flight_recorder.dumps import hung, write
from tests.agent.rank.test_flight_dumps import FIRST, SECOND, dumps_of

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 0:25 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/a
28 27 0:40 / /fsx rw,relatime - lustre 10.0.0.1@tcp:/fsx rw
29 28 0:41 / /fsx/my\040local rw,relatime shared:3 - xfs /dev/nvme1n1 rw
30 27 0:42 / /mnt rw - ext4 /dev/nvme2n1 rw
31 27 0:43 / /mnt rw - nfs4 fs-1.efs:/ rw,vers=4.1
a broken line
"""


@pytest.mark.parametrize(
    ("folder", "shared"),
    [
        ("/tmp/dumps", False),
        ("/fsx", True),
        ("/fsx/run/dumps", True),
        ("/fsx-not", False),
        ("/fsx/my local/dumps", False),
        ("/mnt/dumps", True),
    ],
)
def test_the_innermost_mount_says_whether_a_folder_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, shared: bool
) -> None:
    """Of two mounts at one place the later hides the earlier."""
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    monkeypatch.setattr(shared_folder, "MOUNTS", tmp_path / "mountinfo")
    assert is_shared(Path(folder)) is shared
    monkeypatch.setattr(shared_folder, "MOUNTS", tmp_path / "nothing")
    assert not is_shared(Path(folder))


def on_a_file_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that several instances have mounted."""
    folder = tmp_path / "shared"
    folder.mkdir()
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"27 1 0:25 / / rw - overlay overlay rw\n28 27 0:40 / {folder} rw - nfs4 fs-1.efs:/ rw\n")
    monkeypatch.setattr(shared_folder, "MOUNTS", mounts)
    return folder


def test_dumps_of_another_instance_alone_are_not_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own processes have not dumped. Two instances that claim a rank hide its place."""
    folder = on_a_file_server(tmp_path, monkeypatch)
    dumps = dumps_of(folder)
    write(folder, {rank: content for rank, content in hung(16, (12,)).items() if rank >= 8}, "rank_")
    assert dumps.reports(FIRST) == []
    assert {one["rank"] for one in dumps.reports(SECOND)} == set(range(8, 16))


def test_without_the_number_of_processes_no_dump_of_a_shared_folder_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen ranks on three instances."""
    folder, said = on_a_file_server(tmp_path, monkeypatch), list[str]()
    dumps = dumps_of(folder, said, NNODES="3")
    write(folder, hung(16, (12,)), "rank_")
    assert dumps.reports(FIRST) == []
    assert [line.rpartition(": ")[2] for line in said] == ["they are not read"]


def test_the_dumps_of_others_in_a_shared_folder_do_not_count_as_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of many instances has more dumps than an instance reads."""
    monkeypatch.setattr(flight_dumps, "DUMPS_MAX", 8)
    said: list[str] = []
    dumps = dumps_of(tmp_path, said)
    write(tmp_path, hung(16, (12,)), "rank_")
    assert {one["rank"] for one in dumps.reports(SECOND)} == set(range(8, 16))
    assert said == []

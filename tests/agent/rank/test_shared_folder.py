"""Which folders several instances may share."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_recovery_agent.rank import shared_folder
from gpu_recovery_agent.rank.shared_folder import is_shared

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

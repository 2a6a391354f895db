"""The image holds what the program reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import health_check

FOLDER = Path(health_check.__file__).parent
NOT_IN_THE_IMAGE = {"Dockerfile", "README.md"}


def copied() -> set[Path]:
    """The files that the Dockerfile copies from the repository."""
    (line,) = re.findall(r"^COPY (.*)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    *sources, target = line.split()
    assert target == "health_check/"
    return {path for source in sources for path in FOLDER.parent.glob(source)}


def test_every_file_of_the_program_is_in_the_image() -> None:
    """A table that is forgotten would be missed at the first check only."""
    files = {path for path in FOLDER.iterdir() if path.is_file() and path.name not in NOT_IN_THE_IMAGE}
    assert copied() == files


def test_the_program_starts_from_what_the_image_holds(tmp_path: Path) -> None:
    """As the build itself tries it."""
    (tmp_path / "health_check").mkdir()
    for path in copied():
        shutil.copy(path, tmp_path / "health_check")
    command = [sys.executable, "-c", "import health_check.check; print(health_check.__file__)"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={"PATH": ""})
    assert found.stdout.strip() == str(tmp_path / "health_check" / "__init__.py")

"""The image holds what the program reads."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import health_check

FOLDER = Path(health_check.__file__).parent
IMAGES = sorted(path.parent.name for path in FOLDER.parent.glob("*/Dockerfile"))
NOT_IN_THE_IMAGE = {"Dockerfile", "README.md"}


def copied() -> set[Path]:
    """The files that the Dockerfile copies from the repository."""
    (line,) = re.findall(r"^COPY (.*)$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    *sources, target = line.split()
    assert target == "health_check/"
    return {path for source in sources for path in FOLDER.parent.glob(source)}


PYTHON_OF_UBUNTU = {"24.04": "3.12"}
"""The Python that each release of Ubuntu has in its main archive, with security updates. 22.04 has 3.10."""
MAINTAINED = {"3.11", "3.12", "3.13", "3.14"}
"""Releases of Python that had security updates in November 2026.

Source: Python Developer's Guide, "Status of Python versions".
"""


@pytest.mark.parametrize("image", IMAGES)
def test_a_base_image_can_be_given_by_digest(image: str) -> None:
    """Every stage is built on the argument `BASE_IMAGE`, which has a default."""
    text = (FOLDER.parent / image / "Dockerfile").read_text()
    stages = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert stages and set(stages) == {"${BASE_IMAGE}"}
    before, _, _ = text.partition("FROM ")
    assert re.search(r"^ARG BASE_IMAGE=\S+$", before, re.MULTILINE)


def test_the_program_runs_with_a_python_that_is_maintained() -> None:
    """The Python of Ubuntu's universe archive may be a release candidate without security updates."""
    text = (FOLDER / "Dockerfile").read_text()
    (release,) = re.findall(r"^ARG BASE_IMAGE=\S+-ubuntu([\d.]+)(?:@\S+)?$", text, re.MULTILINE)
    assert set(re.findall(r"\bpython(3\.\d+)", text)) == {PYTHON_OF_UBUNTU[release]}


@pytest.mark.parametrize("image", IMAGES)
def test_the_python_of_each_image_is_in_the_list(image: str) -> None:
    """The default of the base image decides the release. The list is of November 2026."""
    text = (FOLDER.parent / image / "Dockerfile").read_text()
    (release,) = set(re.findall(r"\bpython:?(3\.\d+)", text))
    assert release in MAINTAINED, f"{image}/Dockerfile needs a later Python"


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

"""What a tag lacks for a release."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from release import version
from release.base_images import DOCKERFILES
from release.readiness import missing_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A repository whose version can be released."""
    changes = re.sub(r"- Unreleased$", "- 2026-11-30", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    (tmp_path / "CHANGELOG.md").write_text(changes)
    for name in DOCKERFILES:
        (tmp_path / name).parent.mkdir()
        tagged = re.sub(r"@sha256:\w+", "", (ROOT / name).read_text())
        pinned = re.sub(r"^(ARG BASE_IMAGE=\S+)", rf"\1@sha256:{64 * '1'}", tagged, flags=re.MULTILINE)
        (tmp_path / name).write_text(pinned)
    return tmp_path


def test_the_tag_of_the_version_is_ready(ready: Path) -> None:
    """With a dated section of the changelog and a digest of each base image."""
    assert missing_for(f"v{version()}", ready) == []


@pytest.mark.parametrize("tag", ["", "v9.9.9", version()])
def test_the_tag_of_another_version_is_not(ready: Path, tag: str) -> None:
    """The index would get the version of pyproject.toml under the tag of another."""
    (line,) = missing_for(tag, ready)
    assert line.startswith(f"the tag is {tag or 'missing'}, and pyproject.toml says v{version()}")


def test_a_base_image_by_tag_is_not_released(ready: Path) -> None:
    """The same Dockerfile would build another image tomorrow."""
    shutil.copy(ROOT / "ray_runner/Dockerfile", ready / "ray_runner/Dockerfile")
    text = (ready / "ray_runner/Dockerfile").read_text()
    (ready / "ray_runner/Dockerfile").write_text(re.sub(r"@sha256:\w+", "", text))
    assert [line for line in missing_for(f"v{version()}", ready) if "has no digest" in line] != []


def test_a_version_without_a_date_in_the_changelog_is_not_released(ready: Path) -> None:
    """The page of the release refers to it."""
    (ready / "CHANGELOG.md").write_text(f"# Changelog\n\n## [{version()}] - Unreleased\n")
    assert missing_for(f"v{version()}", ready) == [f"CHANGELOG.md has no section {version()} with a date"]

"""`python -m release.wheels`: build the three wheels into dist/, without a network.

The wheels are built of a copy of the repository's folders in which the links lead to the same files. Modes and times
are fixed, so two builds of a commit have the same bytes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from posixpath import normpath

from release import ROOT
from release.wheel_metadata import RELATIVE_LINK, metadata_errors

PROJECTS = (".", "agent", "agent/run")
"""The folder of each project, in this repository."""
COPIED = ("pyproject.toml", "LICENSE", "client", "lambdas/gpu_recovery/core", "agent", "health_check")
"""What the three projects are built of."""
IGNORED = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
OFFLINE = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", "--quiet")
FILE_TIME_S = 315_619_200
"""Time of the files without a commit, in seconds since 1970: 2 January 1980. ZIP cannot hold a time before 1980."""


def source_time_s() -> int:
    """Return the time of every file of a wheel: SOURCE_DATE_EPOCH, else that of the commit, else a fixed one."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else FILE_TIME_S


def copy_sources(folder: Path) -> None:
    """Copy what the projects are built of to `folder`, with the same modes on every computer."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=IGNORED, symlinks=True)
        else:
            shutil.copy(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)


def add_repository(folder: Path, project: str, repository: str) -> None:
    """Add the address of the repository to the metadata of a project, and to the relative links of its page.

    An index shows the page without the repository beside it, so a relative link would lead nowhere.

    Args:
        folder: copy of the repository, which is changed.
        project: folder of the project.
        repository: address of the repository. The tag `v<version>` is that of the release.
    """
    settings = folder / project / "pyproject.toml"
    described = tomllib.loads(settings.read_text())["project"]
    files = f"{repository}/blob/v{described['version']}"
    addresses = {
        "Repository": repository,
        "Changelog": f"{files}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    lines = "".join(f'{name} = "{address}"\n' for name, address in addresses.items())
    settings.write_text(f"{settings.read_text()}\n[project.urls]\n{lines}")
    page = Path(project) / described["readme"]

    def absolute(match: re.Match[str]) -> str:
        return f"]({files}/{normpath((page.parent / match[1]).as_posix())})"

    (folder / page).write_text(RELATIVE_LINK.sub(absolute, (folder / page).read_text()))


def build(into: Path, repository: str = "", projects: Iterable[str] = PROJECTS) -> list[Path]:
    """Build the wheels into a folder, where they replace all other wheels. Return their paths.

    Args:
        into: folder, which is made if it does not exist.
        repository: address of the repository for the metadata; "" leaves it out.
        projects: the folders of the projects to build.

    Raises:
        CalledProcessError: a wheel could not be built.
    """
    into.mkdir(parents=True, exist_ok=True)
    for old in into.glob("*.whl"):
        old.unlink()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source_time_s()), "PIP_CONFIG_FILE": os.devnull}
    for project in projects:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            copy_sources(folder)
            if repository:
                add_repository(folder, project, repository)
            command = [sys.executable, "-m", "pip", "wheel", f"./{project}", *OFFLINE, "-w", str(into.resolve())]
            subprocess.run(command, cwd=folder, env=environment, umask=0o022, check=True)
    return sorted(into.glob("*.whl"))


def main() -> int:
    """Build the wheels and check their metadata. Return 1 if an index would refuse a wheel or show it badly."""
    parser = argparse.ArgumentParser(prog="python -m release.wheels", description="Build the three wheels into dist/.")
    parser.add_argument("--repository", default="", help="address of the repository, for links of the metadata")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="folder of the wheels")
    given = parser.parse_args()
    wheels = build(given.into, given.repository.rstrip("/"))
    errors = [f"{path.name}: {error}" for path in wheels for error in metadata_errors(path)]
    print("\n".join(errors or [str(path) for path in wheels]))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())

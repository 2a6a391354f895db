"""The three wheels: built with the same bytes each time, installed side by side, used, and removed one at a time."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from release import try_wheels, wheels
from release.wheel_metadata import metadata_errors
from tests.tiers import sampled

ROOT = Path(__file__).parents[2]
NAMES = ["gpu-recovery", "gpu-recovery-agent", "gpu-recovery-run"]
PROGRAM = ROOT / "release/try_wheels.py"
RELEASES = ("3.9", "3.10", "3.12", "3.13")
"""Releases of Python beside the one of this environment. The wheel for trainings admits the first two."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels."""
    folder = tmp_path_factory.mktemp("wheels")
    wheels.build(folder)
    return folder


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with links to what the wheels need, as it is installed here, so that no index is asked."""
    folder = tmp_path_factory.mktemp("packages")
    pending = [name for project in NAMES for name in _needed(distribution(project))]
    linked: set[str] = set()
    while pending:
        found = distribution(pending.pop())
        if found.name not in linked:
            linked.add(found.name)
            pending += _needed(found)
            for top in {str(path).split("/")[0] for path in found.files or ()} - {"..", "__pycache__"}:
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
    return folder


def _needed(found: Distribution) -> list[str]:
    """The projects that a project needs on this computer, without its extras."""
    asked = [Requirement(each) for each in found.requires or ()]
    return [each.name for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]


def _read(folder: Path) -> list[try_wheels.Wheel]:
    return [try_wheels.Wheel(path) for path in sorted(folder.glob("*.whl"))]


@pytest.mark.slow
def test_no_file_belongs_to_two_wheels(built: Path) -> None:
    """`pip uninstall` removes the files of a wheel, whoever else needs them."""
    found = _read(built)
    assert [wheel.name for wheel in found] == NAMES
    assert [
        path for path, number in Counter(path for wheel in found for path in wheel.files).items() if number > 1
    ] == []
    scripts = Counter(script for wheel in found for script in wheel.scripts)
    assert set(scripts) >= set(NAMES) and set(scripts.values()) == {1}


@pytest.mark.slow
def test_the_wheel_of_the_command_line_holds_no_function_and_no_sandbox(built: Path) -> None:
    """A user's computer needs the client and the core, which judges logs and dumps there."""
    client = _read(built)[0]
    modules = [path for path in client.files if ".dist-info/" not in path]
    assert {path.split("/")[0] for path in modules} == {"gpu_recovery", "gpu_recovery_client"}
    assert {path.split("/")[1] for path in modules if path.startswith("gpu_recovery/")} == {"core"}


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """A user can build the wheels of a release again and compare them. The second user has another umask."""
    program = f"import pathlib, release.wheels as w; w.build(pathlib.Path({str(tmp_path)!r}), projects=['agent/run'])"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, umask=0o077)
    (again,) = tmp_path.iterdir()
    assert again.read_bytes() == (built / again.name).read_bytes()


@pytest.mark.slow
def test_the_metadata_of_a_release_is_complete_and_its_links_are_absolute(tmp_path: Path) -> None:
    """An index refuses wrong metadata, and shows the page of a project without the repository beside it."""
    for path in wheels.build(tmp_path, "https://git.example.com/gpu-recovery"):
        assert metadata_errors(path) == []
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
            text = archive.read(name).decode()
        assert "Project-URL: Repository, https://git.example.com/gpu-recovery\n" in text
        linked = [
            line.split("/blob/v0.2.0/")[1].split(")")[0].split("#")[0]
            for line in text.split("](")[1:]
            if "/blob/" in line.split(")")[0]
        ]
        assert linked and [each for each in linked if not (ROOT / each).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("Requires-Dist: httpx>=0.27", "Requires-Dist: httpx==0.27", "httpx==0.27 needs a lower bound and no pin"),
        ("Requires-Dist: httpx>=0.27", "Requires-Dist: httpx", "httpx needs a lower bound and no pin"),
        ("Requires-Python: >=3.11", "Requires-Python: >=3.10", ">=3.10 admits Python 3.10, which no classifier names"),
        ("Requires-Python: >=3.11", "Requires-Python: >=3.12", "the classifier of Python 3.11 is outside >=3.12"),
        ("Description-Content-Type: text/markdown\n", "", "the page is None, not text/markdown"),
        ("License-File: LICENSE", "License-File: COPYING", "the licence file COPYING is not in the wheel"),
        ("Summary: ", "Maintainer: ", "summary is missing"),
        ("Summary: ", "Project-URL: Repository, https://git.example.com\nSummary: ", "a relative link: ../docs/cli.md"),
        ("Version: 0.2.0", "Version: zero", "'zero' is invalid for 'version'"),
    ],
)
def test_wrong_metadata_is_found(built: Path, tmp_path: Path, old: str, new: str, error: str) -> None:
    """Each thing that an index would refuse or show badly."""
    found, wrong = next(built.glob("gpu_recovery-*.whl")), tmp_path / "wrong.whl"
    with zipfile.ZipFile(found) as archive, zipfile.ZipFile(wrong, "w") as other:
        for name in archive.namelist():
            raw = archive.read(name)
            other.writestr(name, raw.replace(old.encode(), new.encode(), 1) if name.endswith("/METADATA") else raw)
    assert error in metadata_errors(wrong)


@pytest.mark.slow
def test_the_wheels_are_installed_side_by_side_and_each_is_removed_alone(built: Path, packages: Path) -> None:
    """In a fresh environment, without an index: every module is imported, and every command starts."""
    assert [line.split(":")[1] for line in _try(sys.executable, built, packages)] == [" works"] * len(NAMES)


@pytest.mark.full
def test_a_file_that_a_wheel_lacks_is_found(built: Path, packages: Path, tmp_path: Path) -> None:
    """The trial is worth nothing if it passes for every wheel."""
    for path in built.glob("gpu_recovery_run-*.whl"):
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / path.name, "w") as other:
            for name in archive.namelist():
                if name != "gpu_recovery_run/rank/guard.py":
                    lines = [
                        line for line in archive.read(name).splitlines(keepends=True) if b"rank/guard.py" not in line
                    ]
                    other.writestr(name, b"".join(lines) if name.endswith("/RECORD") else archive.read(name))
    command = [sys.executable, str(PROGRAM), str(tmp_path), "--packages", str(packages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "No module named 'gpu_recovery_run.rank.guard'" in done.stderr


def _interpreter(release: str) -> str | None:
    """An interpreter of this release of Python that can be started, if this computer has any."""
    kept = (Path.home() / ".pyenv/versions").glob(f"{release}.*/bin/python{release}")
    found = [path for path in (shutil.which(f"python{release}"), *map(str, kept)) if path]
    tried = (
        path for path in found if subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
    )
    return next(tried, None)


@pytest.mark.parametrize("release", sampled(RELEASES, default=1))
def test_the_wheels_work_with_other_releases_of_python(
    built: Path, packages: Path, release: str, tmp_path: Path
) -> None:
    """A release that the computer lacks is skipped; CI has them all. The wheel for trainings needs no package."""
    interpreter = _interpreter(release)
    if interpreter is None:
        pytest.skip(f"this computer has no Python {release}")
    has_all = release in ("3.12", "3.13")
    verdicts = [line.rpartition(": ")[2] for line in _try(interpreter, built, packages if has_all else tmp_path)]
    assert verdicts == (["works"] * 3 if has_all else ["needs Python 3.11"] * 2 + ["works"])


def _try(interpreter: str, folder: Path, packages: Path) -> list[str]:
    command = [interpreter, str(PROGRAM), str(folder), "--packages", str(packages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()

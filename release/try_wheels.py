"""`python release/try_wheels.py dist`: install the wheels into a fresh environment, use them, and remove each alone.

The Python that runs this program is the one that is tried, from 3.9 on. Wheels that need a newer Python are left out.
The program needs the standard library only. Without `--packages` pip installs what the wheels need.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from email import message_from_string
from pathlib import Path

NO_VERSION = {"gpu-recovery-record": "--help"}
"""Commands that do not know `--version`, with the option that shows that they start."""


NEED_TORCH = (
    "gpu_recovery_run.memory_checkpoint.host_memory",
    "gpu_recovery_run.memory_checkpoint.tensor_files",
)
"""Modules that only a training with PyTorch imports. The wheels do not require PyTorch."""


class Wheel:
    """A built wheel: its project (`name`), `version`, oldest Python, `modules`, `scripts` and installed `files`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.files = archive.namelist()
            told = message_from_string(self._read(archive, "METADATA"))
            entries = self._read(archive, "entry_points.txt")
        self.name, self.version = told["Name"], told["Version"]
        oldest = re.match(r">=(\d+)\.(\d+)$", told["Requires-Python"])
        assert oldest, told["Requires-Python"]
        self.oldest = (int(oldest[1]), int(oldest[2]))
        self.scripts = re.findall(r"^(\S+) = \S+$", entries, re.MULTILINE)

    def _read(self, archive: zipfile.ZipFile, name: str) -> str:
        (found,) = (each for each in self.files if each.endswith(f".dist-info/{name}"))
        return archive.read(found).decode()

    @property
    def modules(self) -> list[str]:
        """Dotted names of the modules, without the programs `__main__` and without NEED_TORCH."""
        paths = [Path(each).with_suffix("") for each in self.files if each.endswith(".py")]
        names = [".".join(path.parts).replace(".__init__", "") for path in paths if path.name != "__main__"]
        return [name for name in names if name not in NEED_TORCH]


class Environment:
    """A fresh virtual environment in `folder`. A `.pth` file puts `packages`, if given, on its path."""

    def __init__(self, folder: Path, packages: Path | None) -> None:
        venv.create(folder, with_pip=True)
        self.python = folder / "bin/python"
        self.offline = ["--no-index", "--no-deps"] if packages else []
        if packages:
            told = self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
            (Path(told.strip()) / "packages_of_the_test.pth").write_text(f"{packages}\n")

    def run(self, *arguments: str) -> str:
        """Run the environment's Python in isolation, and return what it prints.

        Raises:
            SystemExit: the program failed; the message has its output.
        """
        command = [str(self.python), "-I", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(arguments[:2])}\n{done.stdout}{done.stderr}")
        return done.stdout

    def pip(self, *arguments: str) -> None:
        """Run pip in the environment."""
        self.run("-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)

    def install(self, *wheels: Wheel) -> None:
        """Install wheels, with what they need unless there is a folder of packages."""
        self.pip("install", *self.offline, *(str(wheel.path) for wheel in wheels))

    def load(self, wheel: Wheel) -> None:
        """Import each module of a wheel, in one process."""
        self.run("-c", "import sys, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)", *wheel.modules)

    def start(self, wheel: Wheel) -> None:
        """Start each command of a wheel."""
        for script in wheel.scripts:
            option = NO_VERSION.get(script, "--version")
            command = [str(self.python.parent / script), option]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode or (option == "--version" and f"{script} {wheel.version}" not in done.stdout):
                sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def try_wheels(wheels: list[Wheel], folder: Path, packages: Path | None) -> None:
    """Install all wheels side by side and load them. Then remove each, start the others, and install it again.

    Raises:
        SystemExit: a step failed.
    """
    environment = Environment(folder, packages)
    environment.install(*wheels)
    environment.pip("check")
    for wheel in wheels:
        environment.load(wheel)
        environment.start(wheel)
    for removed in wheels:
        environment.pip("uninstall", "--yes", removed.name)
        leftover = [each for each in removed.scripts if (environment.python.parent / each).exists()]
        if leftover:
            sys.exit(f"{removed.name} leaves {leftover}")
        for wheel in wheels:
            if wheel is not removed:
                environment.start(wheel)
        environment.install(removed)
    for wheel in wheels:
        environment.load(wheel)


def main() -> None:
    """Try the wheels of a folder with the Python that runs this program."""
    parser = argparse.ArgumentParser(description="Try the wheels of a folder in a fresh environment.")
    parser.add_argument("folder", type=Path, help="folder of the wheels")
    parser.add_argument("--packages", type=Path, help="folder with what the wheels need; without it pip installs that")
    given = parser.parse_args()
    found = [Wheel(path) for path in sorted(given.folder.glob("*.whl"))]
    wheels = [wheel for wheel in found if wheel.oldest <= sys.version_info[:2]]
    if not wheels:
        sys.exit(f"no wheel for this Python in {given.folder}")
    with tempfile.TemporaryDirectory() as folder:
        try_wheels(wheels, Path(folder), given.packages)
    release = ".".join(map(str, sys.version_info[:3]))
    for wheel in found:
        verdict = "works" if wheel in wheels else f"needs Python {wheel.oldest[0]}.{wheel.oldest[1]}"
        print(f"{wheel.name} {wheel.version}, Python {release}: {verdict}")


if __name__ == "__main__":
    main()

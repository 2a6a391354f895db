"""`python -m infra.layer.build`: build the Lambda layer of the functions, unless it is built already.

pip downloads the wheels for the functions' platform and compares their hashes. Two builds have the same files, so the
hash of the asset stays the same and a deployment without changes updates nothing.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.layer import BUILT, PLATFORM, PYTHON, REQUIREMENTS, layer_folder

OF_THIS_MACHINE = ("bin", "*.dist-info/RECORD", "*.dist-info/INSTALLER", "*.dist-info/REQUESTED")
"""Files that pip writes about the machine of the build. The licences beside them stay."""
FILE_TIME_S = 315_619_200
"""Modification time of every file, in seconds since 1970: 2 January 1980. ZIP cannot hold a time before 1980."""


def build(folder: Path) -> None:
    """Install the packages of the layer into the folder `python` of `folder`, which must not exist.

    Raises:
        CalledProcessError: pip could not download a wheel, or a wheel has another hash.
    """
    packages = folder / "python"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    wheels = [
        "--no-deps",
        "--require-hashes",
        "--only-binary=:all:",
        "--platform",
        PLATFORM,
        "--python-version",
        PYTHON,
    ]
    subprocess.run([*command, *wheels, "--target", str(packages), "--requirement", str(REQUIREMENTS)], check=True)
    for pattern in OF_THIS_MACHINE:
        for path in packages.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (FILE_TIME_S, FILE_TIME_S))


def main() -> None:
    """Build the layer into its folder. A build that fails leaves nothing there."""
    built = layer_folder()
    if built.exists():
        return
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as draft:
        build(Path(draft) / "layer")
        (Path(draft) / "layer").rename(built)


if __name__ == "__main__":
    main()

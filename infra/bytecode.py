"""Byte code of the functions and their layer, compiled before the upload.

Lambda mounts the code read-only, so Python cannot keep the byte code that it compiles. Without byte code in the
package, each cold start compiles every module again (`benchmarks/results.json`, key `cold_start`). Only a Python of the
functions' release can compile the package. Without such a Python the sources are uploaded alone.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from infra.layer import PYTHON

LEFT_OUT = ("__pycache__", "*.pyc", ".*")
"""Names of files and folders that no asset contains: what Python and editors write beside the sources."""
MISSING = (
    f"There is no python{PYTHON} on the PATH, so the functions are uploaded without byte code. They work, but each cold"
    f" start compiles all of their modules. For faster starts install Python {PYTHON} and deploy again."
)


def interpreter() -> str | None:
    """Return the path of a Python of the functions' release: this one, or one on the PATH. None if there is none.

    The program on the PATH is tried: version managers put programs there that end with an error.
    """
    if f"{sys.version_info.major}.{sys.version_info.minor}" == PYTHON:
        return sys.executable
    found = shutil.which(f"python{PYTHON}")
    if found is None or subprocess.run([found, "-I", "-c", ""], capture_output=True, check=False).returncode:
        return None
    return found


def compile_modules(folder: Path, mounted_at: str, python: str) -> None:
    """Write the byte code of each module of a folder beside it, as `__pycache__/<module>.cpython-313.pyc`.

    Python uses the byte code without a look at the source (`unchecked-hash`), because an upload changes the time of
    every file. A module that does not compile is left to fail at its import, as without byte code.

    Args:
        folder: the folder, whose content is uploaded.
        mounted_at: where Lambda mounts the content. The byte code names paths below it, and none of this machine.
        python: path of the interpreter that compiles.
    """
    options = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", mounted_at]
    subprocess.run([python, "-I", "-m", "compileall", *options, str(folder)], check=False)

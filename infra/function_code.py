"""Assets of the functions' package and layer: the sources, with byte code where this machine can compile it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import BundlingOptions, DockerImage, IgnoreMode, ILocalBundling
from aws_cdk import aws_lambda as lambda_

from infra.bytecode import LEFT_OUT, compile_modules, interpreter
from infra.layer import PYTHON


@jsii.implements(ILocalBundling)
class _Compiled:
    """The content of a folder with its byte code, made on this machine."""

    def __init__(self, folder: Path, mounted_at: str, python: str) -> None:
        self.folder, self.mounted_at, self.python = folder, mounted_at, python

    def try_bundle(self, output_dir: str, *_: Any, **__: Any) -> bool:
        """Write the content into `output_dir`. Return that it is written."""
        shutil.copytree(self.folder, output_dir, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
        compile_modules(Path(output_dir), self.mounted_at, self.python)
        return True


def code_of(folder: Path, mounted_at: str) -> lambda_.Code:
    """Return the asset of a folder, with byte code if this machine has a Python of the functions' release.

    The hash of the asset is that of the sources, and of whether there is byte code. So a deployment without changes
    updates nothing.

    Args:
        folder: the folder with the sources.
        mounted_at: where Lambda mounts the content: `/var/task` for a function, `/opt` for a layer.
    """
    python = interpreter()
    bundling = BundlingOptions(
        image=DockerImage.from_registry("unused"),  # the CDK asks for an image, and needs it only if `local` fails
        command=["compileall", "unchecked-hash", PYTHON],  # nothing runs it: the hash of the asset contains it
        local=None if python is None else _Compiled(folder, mounted_at, python),
    )
    return lambda_.Code.from_asset(
        str(folder),
        exclude=[f"**/{name}" for name in LEFT_OUT] + ["**/__pycache__/**"],
        ignore_mode=IgnoreMode.GLOB,
        bundling=None if python is None else bundling,
    )

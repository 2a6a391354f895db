"""Byte code in the assets of the functions: a cold start compiles no module, and no hash depends on the machine."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra import bytecode
from infra.functions import FUNCTIONS, PACKAGE
from infra.layer import PYTHON
from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.infra.conftest import run

START = """
import importlib, importlib.machinery, sys
compiled = []
def refuse(self, data, path, *, _optimize=-1):
    compiled.append(path)
    return compile(data, path, "exec", dont_inherit=True)
importlib.machinery.SourceFileLoader.source_to_code = refuse
for handler in sys.argv[2:]:
    importlib.import_module(handler)
print(*(path for path in compiled if path.startswith(sys.argv[1])), sep="\\n")
"""
"""Import handlers, and print the modules below a folder that Python compiled."""
SYNTHESISE = """
import os, sys
import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from pathlib import Path
from infra.function_code import code_of
os.environ["PATH"] += f":{sys.argv[1]}"
for home in map(Path, sys.argv[2:]):
    app = cdk.App(outdir=str(home / "out"))
    code, runtime = code_of(home / "package", "/var/task"), lambda_.Runtime.PYTHON_3_13
    lambda_.Function(cdk.Stack(app, "S"), "F", code=code, handler="handler.handler", runtime=runtime)
    app.synth()
"""
"""Synthesise the packages of several folders, with the Python of a folder on the PATH."""


def _package(folder: Path) -> Path:
    """A package of two modules, with what Python and an editor left in it."""
    (folder / "inner/__pycache__").mkdir(parents=True)
    (folder / "handler.py").write_text("from inner import value\n")
    (folder / "inner/__init__.py").write_text("value = 1\n")
    (folder / "inner/__pycache__/old.cpython-39.pyc").write_bytes(b"old")
    (folder / ".swap").write_text("swap")
    return folder


def test_python_uses_the_byte_code_without_a_look_at_the_source(tmp_path: Path) -> None:
    """An upload changes the times of the files: byte code that is compared with them would be compiled again."""
    module = tmp_path / "handler.py"
    module.write_text("print('as compiled')\n")
    bytecode.compile_modules(tmp_path, "/var/task", sys.executable)
    compiled = Path(importlib.util.cache_from_source(str(module))).read_bytes()
    assert b"/var/task/handler.py" in compiled and str(tmp_path).encode() not in compiled
    module.write_text("print('as written later')\n")
    command = [sys.executable, "-B", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import handler"]
    assert subprocess.run(command, text=True, capture_output=True, check=True).stdout == "as compiled\n"


def test_a_module_that_does_not_compile_stops_no_deployment(tmp_path: Path) -> None:
    """A template of Powertools or a file for another release of Python may be in the layer."""
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "whole.py").write_text("value = 1\n")
    bytecode.compile_modules(tmp_path, "/opt", sys.executable)
    assert [path.name.split(".")[0] for path in tmp_path.rglob("*.pyc")] == ["whole"]


def test_only_a_python_of_the_functions_release_compiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lambda ignores the byte code of another release."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bytecode, "PYTHON", "3.99")
    assert bytecode.interpreter() is None
    program = tmp_path / "python3.99"
    program.write_text("#!/bin/sh\nexit 127\n")
    program.chmod(0o755)
    assert bytecode.interpreter() is None  # a version manager, in which this release is not active
    program.write_text("#!/bin/sh\nexit 0\n")
    assert bytecode.interpreter() == str(program)
    monkeypatch.setattr(bytecode, "PYTHON", f"{sys.version_info.major}.{sys.version_info.minor}")
    assert bytecode.interpreter() == sys.executable


@pytest.mark.slow
def test_a_cold_start_compiles_no_module_of_the_package(tmp_path: Path) -> None:
    """Each handler as Lambda starts it: the folder cannot be written. Without byte code each module is compiled."""
    task = tmp_path / "task"
    shutil.copytree(PACKAGE, task, ignore=shutil.ignore_patterns(*bytecode.LEFT_OUT))
    environment = {**FUNCTION, **CREDENTIALS, "PYTHONPATH": str(task), "PYTHONDONTWRITEBYTECODE": "1"}

    def compiled() -> list[str]:
        command = [sys.executable, "-c", START, str(tmp_path), *(row.name for row in FUNCTIONS)]
        result = subprocess.run(command, env=environment, text=True, capture_output=True, check=True)
        return result.stdout.split()

    assert len(compiled()) > 100
    bytecode.compile_modules(task, str(task), sys.executable)
    assert compiled() == []


@pytest.mark.slow
def test_an_asset_has_the_sources_and_their_byte_code_and_the_same_hash_each_time(tmp_path: Path) -> None:
    """What a build leaves of its machine or its time would change the asset, and with it every function."""
    homes = [tmp_path / "one", tmp_path / "other"]
    for home in homes:
        _package(home / "package")
    programs = tmp_path / "python"
    programs.mkdir()
    (programs / f"python{PYTHON}").symlink_to(os.path.realpath(sys.executable))
    run(tmp_path, ["-c", SYNTHESISE, str(programs), *map(str, homes)])
    assets = [next(home.glob("out/asset.*")) for home in homes]
    one, other = ({path.relative_to(asset): path for path in asset.rglob("*") if path.is_file()} for asset in assets)
    tag = f"{sys.implementation.cache_tag}.pyc"
    assert {path.as_posix() for path in one} == {
        "handler.py",
        "inner/__init__.py",
        f"__pycache__/handler.{tag}",
        f"inner/__pycache__/__init__.{tag}",
    }
    assert assets[0].name == assets[1].name
    assert {name: path.read_bytes() for name, path in one.items()} == {
        name: path.read_bytes() for name, path in other.items()
    }

"""Each set of settings is synthesised once per run, in a process with an empty environment.

Nothing of the caller's environment reaches it: no credentials, no region, no Docker on the PATH, and proxies that lead
nowhere. That the tests run at all is the proof that synthesis needs none of these.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.infra.contexts import DEV, EVERYTHING, PROD, RAY
from tests.infra.deployment import Deployment
from tests.infra.nag_run import PLANTED

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"


def _context(overrides: dict[str, Any]) -> dict[str, Any]:
    return {**json.loads((ROOT / "cdk.json").read_text())["context"], **overrides}


def _run(folder: Path, arguments: list[str], **variables: str) -> None:
    """Run Python in the repository's root, in an environment of its own."""
    programs = folder / "bin"
    programs.mkdir()
    node = shutil.which("node")
    assert node, "the CDK needs Node"
    (programs / "node").symlink_to(os.path.realpath(node))
    environment = {
        "PATH": str(programs),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        **variables,
    }
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr


def _assembly(folder: Path, overrides: dict[str, Any], *, validated: bool) -> Path:
    """Run app.py as the CDK does, with the context of cdk.json and `overrides`; returns the assembly's folder.

    `validated` runs the CDK's own template rules too, which take as long again as all the rest.
    """
    assembly = folder / "cdk.out"
    _run(
        folder,
        ["app.py"],
        CDK_OUTDIR=str(assembly),
        CDK_CONTEXT_JSON=json.dumps(_context(overrides)),
        CDK_VALIDATION="true" if validated else "false",
    )
    return assembly


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cloud assembly of the default settings."""
    return _assembly(tmp_path_factory.mktemp("default"), {}, validated=True)


@pytest.fixture(scope="session")
def deployment(assembly: Path) -> Deployment:
    """The default settings, in partition aws."""
    return Deployment.read(assembly)


@pytest.fixture(scope="session")
def china(assembly: Path) -> Deployment:
    """The same templates as CloudFormation reads them in Beijing."""
    return Deployment.read(assembly, partition="aws-cn", region="cn-north-1")


@pytest.fixture(scope="session")
def production(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Settings that differ from the default wherever they can."""
    return Deployment.read(_assembly(tmp_path_factory.mktemp("prod"), EVERYTHING, validated=False))


@pytest.fixture(scope="session")
def with_ray(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A Ray cluster beside the defaults."""
    return Deployment.read(_assembly(tmp_path_factory.mktemp("ray"), RAY, validated=True))


@pytest.fixture(scope="session")
def nag_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What cdk-nag says of each set of settings, by its name."""
    folder = tmp_path_factory.mktemp("nag")
    contexts = {"dev": DEV, "prod": PROD, "everything": EVERYTHING, "ray": RAY, PLANTED: DEV}
    complete = {name: _context(overrides) for name, overrides in contexts.items()}
    (folder / "contexts.json").write_text(json.dumps(complete))
    _run(folder, ["-m", "tests.infra.nag_run", str(folder)])
    return {name: json.loads((folder / name / "validation-report.json").read_text()) for name in contexts}

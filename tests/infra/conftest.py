"""Each set of settings is synthesised once per run, in a process with an empty environment.

All tests of this folder are one unit of distribution (`tests/distribution.py`), so one worker makes each assembly once.

Nothing of the caller's environment reaches the process but the folder where jsii keeps the unpacked CDK: no
credentials, no region, no Docker on the PATH, and proxies that lead nowhere. That the tests run at all is the proof
that synthesis needs none of these.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.deployment import jsii_cache
from tests.infra.contexts import SETS
from tests.infra.deployment import Deployment

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"


def _context(overrides: dict[str, Any]) -> dict[str, Any]:
    return {**json.loads((ROOT / "cdk.json").read_text())["context"], **overrides}


def run(folder: Path, arguments: list[str], **variables: str) -> None:
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
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(jsii_cache()),
        # The Makefile warns of Node 20. What a failed assertion shows must begin with the error.
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


def synthesised(folder: Path) -> Path:
    """Return the cloud assembly of the default settings, made in `folder` by app.py as the CDK runs it."""
    assembly = folder / "cdk.out"
    run(
        folder,
        ["app.py"],
        CDK_OUTDIR=str(assembly),
        CDK_CONTEXT_JSON=json.dumps(_context({})),
        CDK_VALIDATION="false",
    )
    return assembly


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cloud assembly of the default settings. Its templates are validated in the set PLANTED."""
    return synthesised(tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="session")
def deployment(assembly: Path) -> Deployment:
    """The default settings, in partition aws."""
    return Deployment.read(assembly)


@pytest.fixture(scope="session")
def china(assembly: Path) -> Deployment:
    """The same templates as CloudFormation reads them in Beijing."""
    return Deployment.read(assembly, partition="aws-cn", region="cn-north-1")


@pytest.fixture(scope="session", params=["cn-north-1", "cn-northwest-1", "us-gov-east-1", "us-gov-west-1"])
def elsewhere(assembly: Path, request: pytest.FixtureRequest) -> Deployment:
    """The same templates in each region of China and of GovCloud."""
    partition = "aws-cn" if request.param.startswith("cn-") else "aws-us-gov"
    return Deployment.read(assembly, partition=partition, region=request.param)


@pytest.fixture(scope="session")
def validated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The cloud assembly of each set of `SETS`, by its name, with what the CDK's rules and cdk-nag find in it."""
    folder = tmp_path_factory.mktemp("nag")
    complete = {name: _context(overrides) for name, overrides in SETS.items()}
    (folder / "contexts.json").write_text(json.dumps(complete))
    run(folder, ["-m", "tests.infra.nag_run", str(folder)])
    return {name: folder / name for name in SETS}


@pytest.fixture(scope="session")
def production(validated: dict[str, Path]) -> Deployment:
    """Settings that differ from the default wherever they can."""
    return Deployment.read(validated["everything"])


@pytest.fixture(scope="session")
def in_china_with_iam(validated: dict[str, Path]) -> Deployment:
    """The templates of `production`, where callers sign their requests, as CloudFormation reads them in Ningxia."""
    return Deployment.read(validated["everything"], partition="aws-cn", region="cn-northwest-1")


@pytest.fixture(scope="session")
def own_images(validated: dict[str, Path]) -> Deployment:
    """Images and a layer of the user: nothing is built."""
    return Deployment.read(validated["own_images"])


@pytest.fixture(scope="session")
def with_ray(validated: dict[str, Path]) -> Deployment:
    """A Ray cluster beside the defaults."""
    return Deployment.read(validated["ray"])

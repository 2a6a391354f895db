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

from tests.infra.deployment import Deployment

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9"
PROD = {
    "gpu-recovery:profile": "prod",
    "gpu-recovery:alert_emails": "ops@example.com,night@example.com",
    "gpu-recovery:log_retention_days": "90",
    "gpu-recovery:powertools_layer": "none",
    "gpu-recovery:policy": '{"attempts_max": 5}',
    "gpu-recovery:preset": "classic",
    "gpu-recovery:adopt": "recover",
    "gpu-recovery:training_task_families": "llm,vision",
    "gpu-recovery:managed_tag_key": "team:healed",
    "gpu-recovery:training_role_arns": ["arn:aws:iam::111122223333:role/training-task"],
    "gpu-recovery:health_check_image": "444455556666.dkr.ecr.eu-west-1.amazonaws.com/checks/gpu:7",
}


def _assembly(folder: Path, overrides: dict[str, Any], *, validated: bool) -> Path:
    """Run app.py as the CDK does, with the context of cdk.json and `overrides`; returns the assembly's folder.

    `validated` runs the CDK's own template rules too, which take as long again as all the rest.
    """
    programs = folder / "bin"
    programs.mkdir()
    node = shutil.which("node")
    assert node, "the CDK needs Node"
    (programs / "node").symlink_to(os.path.realpath(node))
    context = {**json.loads((ROOT / "cdk.json").read_text())["context"], **overrides}
    environment = {
        "PATH": str(programs),
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CDK_OUTDIR": str(folder / "cdk.out"),
        "CDK_CONTEXT_JSON": json.dumps(context),
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
        "CDK_VALIDATION": "true" if validated else "false",
    }
    result = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, text=True, capture_output=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    return folder / "cdk.out"


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
    return Deployment.read(_assembly(tmp_path_factory.mktemp("prod"), PROD, validated=False))

"""Lambda layer with the third-party packages of the functions: what it holds, and where a built layer is.

`make setup` builds the layer from the wheels that `requirements.txt` of this folder names by their hashes. Synthesis
then reads the folder and needs no network.
"""

import hashlib
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
"""Packages of the layer, each with its release and the hash of its wheel."""
BUILT = Path(__file__).parents[2] / ".make/layer"
"""Folder of the built layers. Git ignores it."""
PYTHON = "3.13"
"""Python release of the functions. `infra/lambda_functions.py` names the same runtime.

Why not 3.14, as of November 2026: the Developer Guides of `aws` and `aws-cn` (page `lambda-python.html`) name it. For
`aws-us-gov` no document does: the page `govcloud-lambda.html` lists only what is missing, and once listed 3.12. The
schemas of cfn-lint have one list of runtimes for all regions, so they prove nothing. Lambda ends the support of 3.13
and of 3.14 on the same day, 30 June 2029. A switch changes this line, the runtime, the base image in `ray_runner/`, and
the hash of pydantic-core.
"""
PLATFORM = "manylinux2014_aarch64"
"""Platform of the wheels: Linux on arm64, the architecture of the functions."""


def layer_folder() -> Path:
    """Return the folder of the layer for the present requirements. The folder does not exist before `make setup`."""
    digest = hashlib.sha256(f"{PYTHON} {PLATFORM}\0".encode() + REQUIREMENTS.read_bytes())
    return BUILT / digest.hexdigest()[:16]

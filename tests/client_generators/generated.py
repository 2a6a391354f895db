"""Clients that two generators make of docs/openapi.json, and the program that reads answers with them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.markdown import ROOT

BIN = ROOT / ".make" / "client_generators" / "bin"
"""Programs of the environment that `make setup` builds."""
READ_BACK = Path(__file__).with_name("read_back.py")


def generate(folder: Path) -> None:
    """Write `made_client` (openapi-python-client) and `made_models.py` (datamodel-codegen) into a folder.

    Raises:
        CalledProcessError: A generator refuses the description.
    """
    description = str(ROOT / "docs/openapi.json")
    client = ["generate", "--path", description, "--meta", "none", "--output-path", str(folder / "made_client")]
    models = ["--input", description, "--input-file-type", "openapi", "--output", str(folder / "made_models.py")]
    models += ["--output-model-type", "pydantic_v2.BaseModel"]
    for command in ([str(BIN / "openapi-python-client"), *client], [str(BIN / "datamodel-codegen"), *models]):
        environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONWARNINGS": "ignore"}
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120)


def read_back(folder: Path, answers: Mapping[str, tuple[str, Any]]) -> dict[str, str]:
    """Read answers with the generated clients.

    Args:
        folder: folder of the clients.
        answers: (name of the schema, body) by the name of an operation.

    Returns:
        What is wrong by operation, "" where both clients read the answer without a rest.
    """
    command = [str(BIN / "python"), str(READ_BACK), str(folder)]
    made = subprocess.run(command, input=json.dumps(answers), check=True, capture_output=True, text=True, timeout=120)
    found: dict[str, str] = json.loads(made.stdout)
    return found

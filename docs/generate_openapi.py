"""Generator of the OpenAPI document, from the table of routes, the models and docs/api_examples.json.

python docs/generate_openapi.py            writes docs/openapi.json, and the file that the function serves
python docs/generate_openapi.py --check    exits with 1 if a file differs
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "openapi.json"
EXAMPLES = ROOT / "docs" / "api_examples.json"
sys.path[:0] = [str(ROOT / "lambdas")]

from gpu_recovery.aws.openapi_document import document
from gpu_recovery.job_api.router import OPENAPI_FILE, ROUTES

from docs.generated_pages import write_or_check


def described() -> dict[str, Any]:
    """Return the document. It has the version of the package."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return document(ROUTES, version, json.loads(EXAMPLES.read_text(encoding="utf-8")))


def texts() -> dict[Path, str]:
    """Return the text of each file."""
    made = described()
    return {
        FILE: json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        OPENAPI_FILE: json.dumps(made, separators=(",", ":"), sort_keys=True) + "\n",
    }


if __name__ == "__main__":
    sys.exit(write_or_check(texts(), sys.argv[1:]))

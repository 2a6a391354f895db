"""Generator of docs/openapi.json from the route table in lambdas/gpu_recovery/job_api/router.py.

python docs/generate_openapi.py            writes the file
python docs/generate_openapi.py --check    exits with 1 if the file differs from the route table
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "docs" / "openapi.json"
sys.path[:0] = [str(ROOT / "lambdas")]

from gpu_recovery.job_api.openapi import document
from gpu_recovery.job_api.router import ROUTES


def text() -> str:
    """Return the text of the file."""
    return json.dumps(document(ROUTES), indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write the file, or compare it with the route table. Return the exit code."""
    if "--check" in sys.argv[1:]:
        return int(FILE.read_text(encoding="utf-8") != text())
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes `tests/stored_names.json` anew, for a change that means to change a stored or public name.

python -m tests.stored_names --write              every section but the templates
python -m tests.stored_names --write templates    the templates too, which takes a synthesis (a minute)

Read the diff before it is committed: each line is a name that a table, a deployment, a user or a dashboard knows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.stored_names.golden import FILE, SECTIONS, TEMPLATES, pinned, text
from tests.stored_names.templates import template_names


def main(arguments: list[str]) -> int:
    """Write the file; 2 if that was not asked for."""
    if arguments not in (["--write"], ["--write", TEMPLATES]):
        sys.stderr.write(__doc__ or "")
        return 2
    found: dict[str, Any] = {name: collect() for name, collect in SECTIONS.items()}
    found[TEMPLATES] = _synthesised() if TEMPLATES in arguments else pinned()[TEMPLATES]
    FILE.write_text(text(found) + "\n", encoding="utf-8")
    return 0


def _synthesised() -> dict[str, Any]:
    from tests.infra.conftest import synthesised  # noqa: PLC0415

    with TemporaryDirectory() as folder:
        assembly = synthesised(Path(folder))
        return template_names(
            {
                path.name.removesuffix(".template.json"): json.loads(path.read_text(encoding="utf-8"))
                for path in sorted(assembly.glob("*.template.json"))
            }
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

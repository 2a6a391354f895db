"""Wordings of every signature and how the classifier reads them: the table `wordings.jsonl`.

`python -m tests.core.logs.wordings --write` writes the table again after a deliberate change of a signature. The
difference shows which wordings are read differently.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_recovery.core.logs.classify import SIGNATURES, classify
from gpu_recovery.core.logs.noise import ADVICE, FINE
from gpu_recovery.core.logs.signature import Signature

from tests.core.logs.pattern_texts import wordings

TABLE = Path(__file__).with_name("wordings.jsonl")
EACH = 3
"""Wordings of each signature."""
SETTINGS = {"alone": "{}", "informs": "INFO {}", "warns": "WARNING: {}", "conditional": "this may happen if {}"}
"""How a line says the wording: as a fact, at a level, and as a possibility."""
SPACED = (
    "ecc error was detected",
    "net/ib got completion with error",
    "number of nan iterations: 0",
    "nccl_timeout = 600",
)
"""Wordings of signatures whose words need spaces or a whole line, which the patterns do not say by themselves."""
ROWS: tuple[Signature, ...] = (*SIGNATURES, *FINE, *ADVICE)


def reading(line: str) -> list[str] | None:
    """Return kind and role of a line, and `generic` if it only says that something went wrong; None: no finding."""
    findings = classify([line]).findings
    if not findings:
        return None
    return [findings[0].kind, findings[0].role, *(["generic"] if findings[0].generic else [])]


def readings(text: str) -> dict[str, Any]:
    """Return the reading of a wording in each setting."""
    return {name: reading(setting.format(text)) for name, setting in SETTINGS.items()}


def rows() -> Iterator[dict[str, Any]]:
    """Yield the rows of the table: the first wordings of each signature, spread over its alternatives."""
    for row in ROWS:
        found = [text for text in dict.fromkeys(wordings(row.pattern.pattern)) if row.pattern.search(text)]
        for text in found[:: max(1, len(found) // EACH)][:EACH]:
            yield {"source": row.source, "wording": text, **readings(text)}
    for text in SPACED:
        yield {"source": "spaced", "wording": text, **readings(text)}


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.core.logs.wordings --write")
    TABLE.write_text("".join(f"{json.dumps(row)}\n" for row in rows()), encoding="utf-8")

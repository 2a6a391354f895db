"""Read answers of the API with generated clients. This program runs in the environment of the generators.

It reads `{operation: [schema, body]}` from the standard input, and writes `{operation: what is wrong}`.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def wrong(schema: str, body: Any) -> str:
    """Return what is wrong with a body of a schema, "" for nothing."""
    try:
        client = getattr(import_module("made_client.models"), schema).from_dict(body).to_dict()
        models = getattr(import_module("made_models"), schema).model_validate(body)
    except Exception as error:  # noqa: BLE001  # whatever a client raises is what its user would see
        return f"{type(error).__name__}: {error}"
    back = models.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return "" if set(client) == set(body) == set(back) else f"{sorted(set(client) ^ set(body))} differ"


def main() -> None:
    """Read all answers."""
    sys.path.insert(0, sys.argv[1])
    answers = json.load(sys.stdin)
    json.dump({name: wrong(schema, body) for name, (schema, body) in answers.items()}, sys.stdout)


if __name__ == "__main__":
    main()

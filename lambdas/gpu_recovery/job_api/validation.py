"""Validation of request bodies by their models: all errors at once, each with its field and a sentence.

pydantic is imported when the first body is read: most requests have no body
(docs/decisions/0053-pydantic-where-a-body-is-read.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.wire.json_body import object_of

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

PROBLEMS_MAX = 20
"""Upper bound of the errors of an answer."""
NAME_CHARACTERS_MAX = 80
"""Characters of an unknown field that the answer repeats."""
_BY_TYPE = {
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
}
"""Sentence for each type of error of pydantic without a rule of ours."""


class BodyInvalid(SpecInvalid):
    """A body that breaks rules of its model. `problems` has each field and its sentence, the first one included."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(*problems[0])
        self.problems = tuple(problems[:PROBLEMS_MAX])


def body_of(text: str, name: str) -> Any:
    """Return the instance of a model in `models/requests.py` that a body describes; without a body, that of {}.

    Args:
        text: the body.
        name: name of the model.

    Raises:
        SpecInvalid: the body is not a JSON object, or breaks rules of the model (`BodyInvalid`, with all of them).
    """
    from gpu_recovery.job_api.models import requests  # noqa: PLC0415

    return validated(getattr(requests, name), object_of(text))


def validated(model: type[BaseModel], document: Any, hint: str = "") -> Any:
    """Return the instance of `model` that a decoded JSON `document` describes.

    Args:
        model: model of the body.
        document: the decoded body.
        hint: what a client may do about a field that the model does not have, beginning with a separator.

    Raises:
        BodyInvalid: the document breaks rules of the model.
    """
    from pydantic import ValidationError  # noqa: PLC0415

    if not isinstance(document, Mapping):
        raise BodyInvalid([("body", "must be a JSON object")])
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=True)
    unknown = [entry for entry in found if entry["type"] == "extra_forbidden"]
    others = [entry for entry in found if entry["type"] != "extra_forbidden"]
    problems = [_unknown(model, entry, hint) for entry in unknown] + [_broken(model, entry) for entry in others]
    raise BodyInvalid([*dict.fromkeys(problems)]) from None


def _unknown(model: type[BaseModel], error: ErrorDetails, hint: str) -> tuple[str, str]:
    """Return the problem of a field that the model does not have, with the field that may have been meant."""
    *path, name = error["loc"]
    for part in path:
        nested = model.model_fields[str(part)].annotation
        model = next(each for each in (nested, *get_args(nested)) if hasattr(each, "model_fields"))
    known = [field.alias or field_name for field_name, field in model.model_fields.items()]
    return _joined((*path, name)), f"is unknown; {closest(str(name), known)}{hint}"


def closest(name: str, known: Iterable[str]) -> str:
    """Return which of the `known` names a client may have meant by `name`, as the end of a sentence."""
    from difflib import get_close_matches  # noqa: PLC0415

    names = list(known)
    by_lower = {each.lower(): each for each in names}
    if matches := get_close_matches(name.lower(), by_lower, 1):
        return f"did you mean {by_lower[matches[0]]}?"
    return f"the fields are {', '.join(names)}"


def _broken(model: type[BaseModel], error: ErrorDetails) -> tuple[str, str]:
    """Return the problem of a field whose value breaks a rule."""
    from gpu_recovery.job_api.models.rules import BROKEN_NAME, Checked, Rule  # noqa: PLC0415

    path = [part for part in error["loc"] if part != "[key]" and isinstance(part, str)]
    kind = error["type"]
    if kind == BROKEN_NAME:
        name = str(error["input"])[:40]
        return _joined(path[:-1]), f"{error['msg']}, not {name!r}"
    if kind == "missing":
        marks = model.model_fields[path[0]].metadata
        sentences = [mark.missing for mark in marks if isinstance(mark, Checked)]
        sentences += [mark.sentence for mark in marks if isinstance(mark, Rule)]
        return _joined(path), next(filter(None, sentences), "is needed")
    return _joined(path), _BY_TYPE.get(kind, error["msg"])


def _joined(path: Iterable[str | int]) -> str:
    return ".".join(str(part)[:NAME_CHARACTERS_MAX] or '""' for part in path)

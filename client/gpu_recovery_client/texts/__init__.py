"""Texts of the command line in the language of the user.

The key of a text is its English form, as the code has it. Tables of other languages are beside this file and are
imported when they are used; a test compares their keys with the code. JSON, ids, statuses and the sentences of the API
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from enum import StrEnum
from importlib import import_module


class Language(StrEnum):
    """Languages of the command line."""

    ENGLISH = "en"
    CHINESE = "zh"


LANGUAGE_VARIABLE = "GPU_RECOVERY_LANGUAGE"
_language: ContextVar[Language] = ContextVar("language", default=Language.ENGLISH)


def use_language(language: Language) -> None:
    """Print all further texts in this language."""
    _language.set(language)


def language() -> Language:
    """Return the language in use."""
    return _language.get()


def tr(text: str, /, **values: object) -> str:
    """Return the text in the language in use.

    Args:
        text: the English text, with a name in braces for each value.
        values: values by their names. Without values, braces are part of the text.
    """
    form = _table(language()).get(text, text)
    return form.format(**values) if values else form


def heads(*texts: str) -> tuple[str, ...]:
    """Return the headings of columns in the language in use."""
    return tuple(map(tr, texts))


def _table(language: Language) -> Mapping[str, str]:
    if language is Language.ENGLISH:
        return {}
    table: Mapping[str, str] = import_module(f"gpu_recovery_client.texts.{language}").TEXTS
    return table

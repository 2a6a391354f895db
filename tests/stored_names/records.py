"""How each stored record is written: its fields, the form of each value, and what a missing field is read as.

A record appears under a name that is chosen here. The name of a class appears only where it is itself stored: the
commands and events of `NAMED`.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import Token, TokenKind, TokenList
from gpu_recovery.aws.item_codec import NAMED, SCHEMA, TTL, encode
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.diagnosis.observation_codec import EVERY_KIND
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.state_machine import PendingCommand

from tests.stored_names.modules import classes

RECORDS: Mapping[str, type] = {
    "attempt plan": Plan,
    "attempt progress": AttemptProgress,
    "fleet": Fleet,
    "gpu lock": GpuLockRecord,
    "heartbeat": Heartbeat,
    "instance": Instance,
    "job": Job,
    "pending command": PendingCommand,
    "queue entry": Entry,
}
"""Every record that the codec writes; what the stores write attribute by attribute is in `items`."""
TOKENS = {"instance token": TokenKind.NODE, "user token": TokenKind.USER}
PLAIN = {str: "text", int: "whole number", float: "number", bool: "true or false", datetime: "time"}


def records() -> dict[str, Any]:
    """The records, the observations for a diagnosis, and the named commands and events: field -> stored form."""
    return {
        "schema version": SCHEMA,
        "attribute of the time to live": TTL,
        "records": {name: fields_of(kind) for name, kind in RECORDS.items()}
        | {name: fields_of_token(kind) for name, kind in TOKENS.items()}
        | {f"{name} list": fields_of_list(kind) for name, kind in TOKENS.items()},
        "named commands and events": {name: fields_of(kind) for name, kind in NAMED.items()},
        "observations": {name: fields_of(kind) for name, kind in EVERY_KIND.items()},
    }


def enums() -> list[str]:
    """The values of every enum of `gpu_recovery`, a line each, without the name of its class."""
    kinds = [kind for kind in classes("gpu_recovery") if issubclass(kind, StrEnum | IntEnum)]
    return sorted({_values(kind) for kind in kinds})


def _values(kind: Iterable[Enum]) -> str:
    return "|".join(sorted(str(one.value) for one in kind))


def fields_of(kind: Any) -> dict[str, Any]:
    """The stored form of each field of a dataclass; ` = value` says what an item without the field is read as."""
    hints = typing.get_type_hints(kind)
    return {one.name: _with_default(form_of(hints[one.name]), one) for one in fields(kind)}


def fields_of_token(kind: TokenKind) -> dict[str, Any]:
    """The stored form of each field of a token: the holder has its own name, and only a user's token has a role."""
    forms = fields_of(Token)
    del forms["kind"], forms["role"]
    holder = {kind.holder_field: forms.pop("holder")}
    return forms | holder | ({"role": form_of(Role)} if kind is TokenKind.USER else {})


def fields_of_list(kind: TokenKind) -> dict[str, Any]:
    """The stored form of each field of a holder's list of tokens."""
    forms = fields_of(TokenList)
    del forms["kind"]
    tokens = forms["tokens"] | {"form": ["list of", fields_of_token(kind)]}
    holder = {kind.holder_field: forms.pop("holder")}
    return forms | holder | {"tokens": tokens}


def _with_default(form: Any, one: Field[Any]) -> Any:
    if one.default is not MISSING:
        default = encode(one.default)
    elif one.default_factory is not MISSING:
        default = encode(one.default_factory())
    else:
        return form
    return f"{form} = {default!r}" if isinstance(form, str) else {"form": form, "default": default}


def form_of(hint: Any) -> Any:
    """The stored form of a value of type `hint`: a phrase, or the fields of a nested record."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        kinds = [form_of(one) for one in arguments if one is not type(None)]
        null = ["null"] if type(None) in arguments else []
        return _joined(" or ", [*kinds, *null])
    if origin in (tuple, frozenset):
        return _joined(" ", ["set of" if origin is frozenset else "list of", form_of(arguments[0])])
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return _joined(" ", ["map from", form_of(arguments[0]), "to", form_of(arguments[1])])
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return f"one of {_values(hint)}"
    if hint in PLAIN:
        return PLAIN[hint]
    named = [name for name, kind in NAMED.items() if inspect.isclass(hint) and issubclass(kind, hint)]
    if len(named) == 1 or hint in (Any, object):
        return f"{named[0]} with its name" if len(named) == 1 else "anything"
    return "any of its kind, with its name" if named else fields_of(hint)


def _joined(glue: str, parts: list[Any]) -> Any:
    """One phrase, or the list of the parts where a part is a nested record."""
    return glue.join(parts) if all(isinstance(one, str) for one in parts) else [one for one in parts if one]

"""Readers of settings. A reader converts a raw CDK context value to a typed value.

A reader raises ValueError with a sentence about the value. `cdk.json` gives JSON values and `cdk -c key=value` gives
text, so each reader accepts both. A reader does not know the name of the setting; `infra/settings.py` puts the name in
front of the message.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from gpu_recovery.auth.principals import roles_by_principal

PRINCIPALS_CHARACTERS_MAX = 1_200
"""Bound of the principals as JSON. Lambda allows 4,096 bytes of environment variables; the others take about 2,400."""
BUILD = "build"
"""Value of a setting for an image: the deployment builds the image itself."""
DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")
"""The reference of an image by digest. A tag can be moved to another image, a digest cannot."""
ECS_NAME = r"[A-Za-z0-9_-]{1,255}"
"""Pattern of the name of an ECS cluster and of a task definition family."""
ROLE_ARN = r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+"
"""Pattern of the ARN of an IAM role."""
TAG_VALUE = r"[\w .:/=+@-]{1,256}"
"""Pattern of the value of a tag. An empty value is not matched."""
LOG_GROUP = r"[A-Za-z0-9_./#-]{1,512}"
"""Pattern of the name of a log group."""
EMAIL = r"[^@\s,]+@[^@\s,]+\.[^@\s,]+"
"""Pattern of an e-mail address."""
Reader = Callable[[Any], Any]
"""A function from the raw value to the typed value. It raises ValueError if the raw value is wrong."""


def text(pattern: str, meaning: str) -> Reader:
    """Return a reader of text that matches `pattern` as a whole. The error message calls the text `meaning`."""
    expected = re.compile(pattern)

    def read(raw: Any) -> str:
        if not isinstance(raw, str) or not expected.fullmatch(raw):
            raise ValueError(f"{raw!r} is not {meaning}")
        return raw

    return read


INSTANCE_TYPES = text(r"[a-z0-9.*?-]{1,32}", "an instance type, or a pattern such as p5.*")
"""Reader of an instance type of EC2, or of a pattern with `*` and `?`."""
UNIT = r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,255}"
"""Pattern of the name of a systemd unit: that of the node agent, which a test compares."""
SYSTEMD_UNIT = text(UNIT, "the name of a systemd unit")
"""Reader of the name of a unit."""


def one_of(*allowed: str) -> Reader:
    """Return a reader of text that is a member of `allowed`."""

    def read(raw: Any) -> str:
        if raw not in allowed:
            raise ValueError(f"{raw!r} is none of {', '.join(allowed)}")
        return str(raw)

    return read


def integer(low: int, high: int) -> Reader:
    """Return a reader of whole numbers from `low` to `high`, both included. A boolean is not accepted."""

    def read(raw: Any) -> int:
        value = int(raw) if isinstance(raw, str) and re.fullmatch(r"-?\d+", raw) else raw
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # jsii passes every JSON number as a double
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{raw!r} is not a whole number from {low} to {high}")
        return value

    return read


def integer_of(allowed: tuple[int, ...]) -> Reader:
    """Return a reader of whole numbers that are members of `allowed`."""
    within = integer(min(allowed), max(allowed))

    def read(raw: Any) -> int:
        value = within(raw)
        if value not in allowed:
            raise ValueError(f"{raw!r} is none of {', '.join(map(str, allowed))}")
        return int(value)

    return read


def boolean(raw: Any) -> bool:
    """Read a boolean, or its JSON text.

    Raises:
        ValueError: the value is neither.
    """
    if raw in (True, "true"):
        return True
    if raw in (False, "false"):
        return False
    raise ValueError(f"{raw!r} is neither true nor false")


def items(each: Reader) -> Reader:
    """Return a reader of lists without repetition. The reader returns a tuple.

    The raw value is a list, JSON text of a list, or text with commas between the items. `each` reads an item.
    """

    def read(raw: Any) -> tuple[Any, ...]:
        values = _from_json(raw) if isinstance(raw, str) and raw.lstrip().startswith("[") else raw
        if isinstance(values, str):
            values = [part.strip() for part in values.split(",") if part.strip()]
        if not isinstance(values, list | tuple):
            raise ValueError(f"{raw!r} is not a list")
        read_values = tuple(each(value) for value in values)
        if len(set(read_values)) != len(read_values):
            raise ValueError(f"{raw!r} names something twice")
        return read_values

    return read


def thresholds(raw: Any) -> Mapping[str, Any]:
    """Read an object of policy fields, such as {"attempts_max": 3}. Values are numbers, booleans or text.

    Raises:
        ValueError: the value is not such an object, or a name cannot be the name of a field.
    """
    values = _object(raw)
    for name, value in values.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == "preset":
            raise ValueError(f"{name!r} cannot be the name of a threshold")
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} is {value!r}: a threshold is a number, a boolean or text")
    return dict(sorted((name, _whole(value)) for name, value in values.items()))


def principals(raw: Any) -> Mapping[str, str]:
    """Read an object of roles by the ARN of an IAM role or user. The ARNs are returned without their paths.

    Raises:
        ValueError: the value is not such an object, or is too long for a variable of a function.
    """
    roles = {principal: role.value for principal, role in roles_by_principal(_object(raw)).items()}
    if (length := len(json.dumps(roles))) > PRINCIPALS_CHARACTERS_MAX:
        raise ValueError(f"{length} characters as JSON; at most {PRINCIPALS_CHARACTERS_MAX} fit into the function")
    return dict(sorted(roles.items()))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _object(raw: Any) -> Mapping[str, Any]:
    values = _from_json(raw) if isinstance(raw, str) else raw
    if not isinstance(values, Mapping):
        raise ValueError(f"{raw!r} is not an object")
    return values


def _from_json(raw: str) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"{raw!r} is not JSON ({error})") from error

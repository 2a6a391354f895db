"""Entry of `gpu-recovery fleet what-if`: reads the settings and the records, and returns the report."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.policy import RecoveryPolicy, policy_from, with_present_names

from infra.settings import DeploymentSettings
from infra.settings_error import DeploymentSettingsError, context_key
from infra.settings_file import TARGET
from simulator.goodput.assumptions_file import read
from simulator.replay.records import RecordsInvalid, read_records
from simulator.replay.report import report
from simulator.replay.what_if import what_if, with_settings

ERRORS = (PolicyInvalid, RecordsInvalid, OSError, UnicodeDecodeError)
"""Errors of the options and of the files. Their message is for the user."""
OF_A_DEPLOYMENT = {*TARGET, *(field.name for field in fields(DeploymentSettings))} - {
    field.name for field in fields(RecoveryPolicy)
}
"""Keys that only a settings file of a deployment has."""
SWITCH = {"true": True, "false": False}
"""Values of a setting that is on or off."""


def settings_of(pairs: Iterable[str]) -> dict[str, Any]:
    """Return the policy settings of texts `NAME=VALUE`.

    Raises:
        PolicyInvalid: a text has another form, or a setting does not exist or has a wrong value.
    """
    kinds = {field.name: type(getattr(RecoveryPolicy(), field.name)) for field in fields(RecoveryPolicy)}
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise PolicyInvalid(f"a setting is written NAME=VALUE, not {pair!r}")
        kind = kinds.get(next(iter(with_present_names({name: text}))))
        value: Any = text
        if kind is bool:
            value = SWITCH.get(text, text)
        elif kind is int and text.removeprefix("-").isdecimal():
            value = int(text)
        found[name] = value
    policy_from(found)
    return found


def policy_file(path: Path) -> dict[str, Any]:
    """Return the policy settings in a file: JSON or TOML with `preset` and the thresholds.

    A file with a setting that is no policy setting, such as `cluster_name`, is a settings file of a deployment. Its
    policy is the one that the deployment would have.

    Raises:
        PolicyInvalid: the file has another form, or a setting does not exist or has a wrong value.
        OSError: the file cannot be read.
    """
    text = path.read_text(encoding="utf-8")
    try:
        document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise PolicyInvalid(f"{path.name} cannot be read as a policy: {error}") from error
    if not isinstance(document, dict):
        raise PolicyInvalid(f"{path.name} cannot be read as a policy: it is no table of settings")
    if document.keys() & OF_A_DEPLOYMENT:
        document = _policy_of_deployment(document, path.name)
    policy_from(document)
    return document


def _policy_of_deployment(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the policy settings of a deployment with these settings.

    Raises:
        PolicyInvalid: a setting does not exist or has a wrong value.
    """
    context = {context_key(key): value for key, value in document.items() if key not in TARGET}
    try:
        return DeploymentSettings.from_context(context).recovery_policy
    except DeploymentSettingsError as error:
        raise PolicyInvalid(str(DeploymentSettingsError(error.problems, lambda key: f"{name}: {key}"))) from error


def answer(
    folder: Path,
    settings: Mapping[str, Any],
    policy: Mapping[str, Any] | None = None,
    spares: int | None = None,
    workers: int = 1,
) -> dict[str, Any]:
    """Return the report of a what-if.

    Args:
        folder: the records.
        settings: settings to change; they change the recorded policy, or `policy`.
        policy: the whole policy to try; None: the recorded one.
        spares: spare instances of each course; None: those that the records show.
        workers: processes to use.

    Raises:
        PolicyInvalid: the policy to try is invalid.
        RecordsInvalid: the records cannot be read.
        OSError: a file cannot be read.
    """
    assumptions = read()
    change = with_settings(settings)
    result = what_if(
        read_records(folder),
        change if policy is None else lambda recorded: change(policy_from(policy)),
        assumptions,
        spares=spares,
        workers=workers,
    )
    return report(result, assumptions)

"""Settings files: `settings/<name>.toml` holds the settings of one deployment, and is committed by its users.

`cdk deploy -c gpu-recovery:settings=<name>` reads the file again at each deployment, so no setting is lost between two
deployments. A value of the CDK context (an option `-c`, cdk.json, cdk.context.json or ~/.cdk.json) replaces the value
of the file, and a warning says so. The keys of a file are the fields of `DeploymentSettings` without the prefix, and
`account` and `region`.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from infra.settings import DeploymentSettings, no_such_setting
from infra.settings_error import NAMESPACE, DeploymentSettingsError, Problem, context_key

FILE_SETTING = "settings"
FILE_KEY = f"{NAMESPACE}settings"
"""Context key of the settings file: a name, or a path that ends in `.toml`."""
FOLDER = "settings"
"""Folder of the settings files, in the repository."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
"""Names of deployments."""
TARGET = {"account": "CDK_DEFAULT_ACCOUNT", "region": "CDK_DEFAULT_REGION"}
"""Keys that say where a deployment belongs, with the variables in which the CDK passes account and region of the
credentials. Without credentials the CDK sets none of them."""
UNIQUE = (
    *("cluster_name", "stack_name", "function_name_prefix", "check_family", "topic_name", "bus_name"),
    *("job_table_name", "instance_table_name", "event_history_table_name"),
)
"""Settings that two deployments of an account and region must not share: the cluster, and names of resources."""
_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(DeploymentSettings)}
_READERS: dict[str, Any] = {each.name: each.metadata["read"] for each in fields(DeploymentSettings)}


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One settings file: its path as messages show it, its settings by name, and its target."""

    shown: str
    values: Mapping[str, Any]
    target: Mapping[str, str] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """Return a key of the file as messages name it."""
        return f"{self.shown}: {name}"

    def effective(self, name: str) -> Any:
        """Return a setting of the file, or its default."""
        return self.values.get(name, _DEFAULTS[name])


def settings_of(
    context: Mapping[str, Any], root: Path, environment: Mapping[str, str]
) -> tuple[DeploymentSettings, dict[str, str]]:
    """Return the settings of a deployment, and the warnings about the settings that the context replaces.

    Args:
        context: the CDK context.
        root: folder of the repository.
        environment: variables of the process.

    Raises:
        DeploymentSettingsError: a setting is wrong, or the file is missing, is for another account, or shares names
            with another deployment.
    """
    given = {key: value for key, value in context.items() if key != FILE_KEY}
    name = context.get(FILE_KEY)
    if name is None:
        return DeploymentSettings.from_context(given), {}
    path = path_of(str(name), root)
    file = read(path, root)
    if wrong := [*_wrong_target(file, environment), *_shared(file, path, root)]:
        raise DeploymentSettingsError(wrong, file.key)
    from_file = {f"{NAMESPACE}{key}": value for key, value in file.values.items()}
    try:
        settings = DeploymentSettings.from_context({**from_file, **given})
    except DeploymentSettingsError as error:
        raise DeploymentSettingsError(error.problems, lambda setting: _named(setting, file, given)) from None
    return settings, dict(_replaced(file, from_file, given))


def path_of(name: str, root: Path) -> Path:
    """Return the path of a settings file.

    Raises:
        DeploymentSettingsError: the name cannot be the name of a deployment, or there is no such file.
    """
    if not name.endswith(".toml") and not NAME.fullmatch(name):
        sentence = f"{name!r} is neither the name of a deployment (letters, digits, - and _) nor a .toml file"
        raise DeploymentSettingsError([(FILE_SETTING, sentence)])
    path = root / name if name.endswith(".toml") else root / FOLDER / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(names(root)) or "none"
        sentence = f"there is no {_shown(path, root)} (deployments: {known}). Write it: gpu-recovery init {name}"
        raise DeploymentSettingsError([(FILE_SETTING, sentence)])
    return path


def names(root: Path) -> list[str]:
    """Return the names of all deployments that have a settings file."""
    return sorted(path.stem for path in (root / FOLDER).glob("*.toml"))


def read(path: Path, root: Path) -> SettingsFile:
    """Read a settings file.

    Raises:
        DeploymentSettingsError: the file is not TOML, or has a key that is no setting.
    """
    shown = _shown(path, root)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeploymentSettingsError([("", f"{shown}: cannot be read as TOML: {error}")]) from error
    known = [*_DEFAULTS, *TARGET]
    target = {key: str(document.pop(key)) for key in TARGET if key in document}
    file = SettingsFile(shown, document, target)
    if unknown := [(key, no_such_setting(key.removeprefix(NAMESPACE), known)) for key in document if key not in known]:
        raise DeploymentSettingsError(unknown, file.key)
    return file


def _wrong_target(file: SettingsFile, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem if the credentials are for another account or region than the file."""
    for key, variable in TARGET.items():
        wanted, found = file.target.get(key), environment.get(variable)
        if wanted and found and wanted != found:
            remedy = f"export AWS_REGION={wanted}" if key == "region" else "choose other credentials (AWS_PROFILE)"
            yield key, f"the file is for {wanted}, your credentials are for {found}: {remedy}"


def _shared(file: SettingsFile, path: Path, root: Path) -> Iterator[Problem]:
    """Yield a problem for each setting that the file shares with another deployment of the same target."""
    for other in names(root):
        beside = root / FOLDER / f"{other}.toml"
        if beside.resolve() == path.resolve():
            continue
        second = read(beside, root)
        if any(file.target.get(key, value) != value for key, value in second.target.items()):
            continue
        for name in UNIQUE:
            value = file.effective(name)
            if value == second.effective(name):
                yield (
                    name,
                    f"{value!r} is also in {second.shown}; two deployments of an account and region must not share it",
                )


def _named(setting: str, file: SettingsFile, given: Mapping[str, Any]) -> str:
    """Return the name of a setting: in the file if its value is that of the file, else in the context."""
    of_file = setting in file.values and context_key(setting) not in given
    return file.key(setting) if of_file else context_key(setting)


def _replaced(file: SettingsFile, from_file: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of a warning for each setting of the file that the context replaces."""
    for key in from_file.keys() & given.keys():
        name = key.removeprefix(NAMESPACE)
        read_value = _READERS[name]
        if read_value(given[key]) != read_value(from_file[key]):
            yield (
                f"replaced-setting:{name}",
                f"{key}: {given[key]!r} of the context (-c, cdk.json, cdk.context.json or ~/.cdk.json) replaces "
                f"{from_file[key]!r} of {file.shown}",
            )


def _shown(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

"""Reader and validator of the assumptions table `assumptions.toml`.

A wrong table is rejected with the name of the entry and the reason.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from simulator.goodput.assumptions import (
    Assumption,
    Assumptions,
    AssumptionsInvalid,
    CauseOfFailure,
    Conditions,
    Mark,
    Profile,
    Tuned,
)

TABLE = Path(__file__).with_name("assumptions.toml")
"""Path of the default table."""
CAUSE_CURES = ("restart", "person", "node", "gone")
"""Allowed values of `cure` in a mix. `node`: a reboot or, for a share of the faults, only another instance."""
CAUSE_SHOWS = ("exit", "hang", "either", "gone")
"""Allowed values of `shows` in a mix. `either`: a hang for the share `hang_share` of the faults, else an exit."""


def read(path: Path = TABLE) -> Assumptions:
    """Read the table at `path` and validate it.

    Raises:
        AssumptionsInvalid: the file is not TOML, or an entry is missing, unknown or out of range.
        OSError: the file cannot be read.
    """
    text = path.read_bytes()
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AssumptionsInvalid(f"{path.name} is no TOML: {error}") from error
    for section in ("profiles", "mixes", "conditions", "tuned"):
        if not isinstance(document.get(section), dict):
            raise AssumptionsInvalid(f"the table has no section {section!r}")
    facts: dict[str, Assumption] = {}
    mixes = {name: _mix(f"mixes.{name}", causes, facts) for name, causes in document["mixes"].items()}
    profiles = {name: _profile(name, entry, mixes, facts) for name, entry in document["profiles"].items()}
    conditions = _conditions(document["conditions"], facts)
    tuned = _tuned(document["tuned"], facts)
    return Assumptions(hashlib.sha256(text).hexdigest()[:16], facts, profiles, conditions, tuned)


def _fact(name: str, entry: Any, facts: dict[str, Assumption], also: tuple[str, ...] = ()) -> Assumption:
    """Validate one number with its unit, mark and source, and record it in `facts`.

    Args:
        also: keys that this entry may have besides those of every number.
    """
    if not isinstance(entry, dict):
        raise AssumptionsInvalid(f"{name} must be a table with value, unit, mark and source")
    for key in ("value", "unit", "mark", "source"):
        if key not in entry:
            raise AssumptionsInvalid(f"{name} has no {key}")
    for key in entry:
        if key not in ("value", "unit", "mark", "source", "low", "high", *also):
            raise AssumptionsInvalid(f"{name} has an entry {key!r} that nothing reads")
    for key in ("unit", "source"):
        if not isinstance(entry[key], str) or not entry[key].strip():
            raise AssumptionsInvalid(f"{name}: {key} must be a text that says something")
    if entry["mark"] not in tuple(Mark):
        raise AssumptionsInvalid(f"{name}: mark must be one of {', '.join(Mark)}, not {entry['mark']!r}")
    fact = Assumption(
        name,
        _number(name, entry, "value"),
        entry["unit"],
        Mark(entry["mark"]),
        entry["source"],
        *(_number(name, entry, key) if key in entry else None for key in ("low", "high")),
    )
    _check_range(fact)
    facts[name] = fact
    return fact


def _number(name: str, entry: Mapping[str, Any], key: str) -> float:
    value = entry[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise AssumptionsInvalid(f"{name}: {key} must be a number that is not negative, not {value!r}")
    return value


def _check_range(fact: Assumption) -> None:
    """Reject a range with one end, a value outside its range, and an assumption without a range."""
    if (fact.low is None) != (fact.high is None):
        raise AssumptionsInvalid(f"{fact.name} has one end of a range and not the other")
    if fact.low is not None and fact.high is not None and not fact.low <= fact.value <= fact.high:
        raise AssumptionsInvalid(f"{fact.name}: {fact.value} is not between {fact.low} and {fact.high}")
    if fact.mark is Mark.ASSUMPTION and fact.low is None:
        raise AssumptionsInvalid(f"{fact.name} is an assumption without a range to sweep")


def _mix(name: str, causes: Any, facts: dict[str, Assumption]) -> tuple[CauseOfFailure, ...]:
    if not isinstance(causes, dict) or not causes:
        raise AssumptionsInvalid(f"{name} has no causes")
    mix = []
    for cause, entry in causes.items():
        fact = _fact(f"{name}.{cause}", entry, facts, ("cure", "shows", "seen"))
        for key, allowed in (("cure", CAUSE_CURES), ("shows", CAUSE_SHOWS), ("seen", (True, False))):
            if entry.get(key) not in allowed:
                choices = ", ".join(map(str, allowed))
                raise AssumptionsInvalid(f"{fact.name}: {key} must be one of {choices}, not {entry.get(key)!r}")
        mix.append(CauseOfFailure(cause, fact.value, entry["cure"], entry["shows"], entry["seen"]))
    return tuple(mix)


def _profile(
    name: str, entry: Any, mixes: Mapping[str, tuple[CauseOfFailure, ...]], facts: dict[str, Assumption]
) -> Profile:
    numbers = {}
    for key in ("instances", "gpus", "days", "rate"):
        if key not in entry:
            raise AssumptionsInvalid(f"profiles.{name} has no {key}")
        numbers[key] = _fact(f"profiles.{name}.{key}", entry[key], facts).value
        if not numbers[key]:
            raise AssumptionsInvalid(f"profiles.{name}.{key} must be more than 0")
    if entry.get("mix") not in mixes:
        raise AssumptionsInvalid(f"profiles.{name}: there is no mix {entry.get('mix')!r}")
    instances, gpus = int(numbers["instances"]), int(numbers["gpus"])
    about = str(entry.get("about", ""))
    return Profile(name, about, instances, gpus, numbers["days"], numbers["rate"], mixes[entry["mix"]])


def _conditions(section: Mapping[str, Any], facts: dict[str, Assumption]) -> Conditions:
    names = [field.name for field in fields(Conditions)]
    for name in names:
        if name not in section:
            raise AssumptionsInvalid(f"conditions.{name} is missing")
    for name in section:
        if name not in names:
            raise AssumptionsInvalid(f"conditions.{name} is read by nothing")
    values = {name: _fact(f"conditions.{name}", section[name], facts).value for name in names}
    for name in names:
        is_share = name.endswith("_share") or name.startswith("seen_") or name == "false_alarm"
        if is_share and values[name] > 1:
            raise AssumptionsInvalid(f"conditions.{name} is a share and cannot be {values[name]}")
    for name in ("calls_per_s", "pods_per_s", "checkpoint_s"):
        if not values[name]:
            raise AssumptionsInvalid(f"conditions.{name} must be more than 0")
    return Conditions(**values)


def _tuned(section: Mapping[str, Any], facts: dict[str, Assumption]) -> dict[str, Tuned]:
    known = [field.name for field in fields(Conditions)]
    tuned = {}
    for name, entry in section.items():
        if name not in known:
            raise AssumptionsInvalid(f"tuned.{name}: there is no such condition")
        fact = _fact(f"tuned.{name}", entry, facts, ("by", "about"))
        for key in ("by", "about"):
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                raise AssumptionsInvalid(f"{fact.name}: {key} must be a text that says something")
        tuned[name] = Tuned(fact.value, entry["by"], entry["about"])
    return tuned

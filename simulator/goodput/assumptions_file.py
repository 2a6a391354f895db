"""Read and check `assumptions.toml`. A wrong table is refused with the name of the entry and the reason."""

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
CAUSE_CURES = ("restart", "person", "node", "gone")
CAUSE_SHOWS = ("exit", "hang", "either", "gone")


def read(path: Path = TABLE) -> Assumptions:
    """The table at `path`; AssumptionsInvalid if it is not one."""
    text = path.read_bytes()
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
        raise AssumptionsInvalid(f"{path.name} is no TOML: {wrong}") from wrong
    for section in ("profiles", "mixes", "conditions", "tuned"):
        if not isinstance(document.get(section), dict):
            raise AssumptionsInvalid(f"the table has no section {section!r}")
    facts: dict[str, Assumption] = {}
    mixes = {name: _mix(f"mixes.{name}", causes, facts) for name, causes in document["mixes"].items()}
    profiles = {name: _profile(name, given, mixes, facts) for name, given in document["profiles"].items()}
    conditions = _conditions(document["conditions"], facts)
    tuned = _tuned(document["tuned"], facts)
    return Assumptions(hashlib.sha256(text).hexdigest()[:16], facts, profiles, conditions, tuned)


def _fact(name: str, given: Any, facts: dict[str, Assumption], also: tuple[str, ...] = ()) -> Assumption:
    if not isinstance(given, dict):
        raise AssumptionsInvalid(f"{name} must be a table with value, unit, mark and source")
    for key in ("value", "unit", "mark", "source"):
        if key not in given:
            raise AssumptionsInvalid(f"{name} has no {key}")
    for key in given:
        if key not in ("value", "unit", "mark", "source", "low", "high", *also):
            raise AssumptionsInvalid(f"{name} has an entry {key!r} that nothing reads")
    for key in ("unit", "source"):
        if not isinstance(given[key], str) or not given[key].strip():
            raise AssumptionsInvalid(f"{name}: {key} must be a text that says something")
    if given["mark"] not in tuple(Mark):
        raise AssumptionsInvalid(f"{name}: mark must be one of {', '.join(Mark)}, not {given['mark']!r}")
    fact = Assumption(
        name,
        _number(name, given, "value"),
        given["unit"],
        Mark(given["mark"]),
        given["source"],
        *(_number(name, given, key) if key in given else None for key in ("low", "high")),
    )
    _check_range(fact)
    facts[name] = fact
    return fact


def _number(name: str, given: Mapping[str, Any], key: str) -> float:
    value = given[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise AssumptionsInvalid(f"{name}: {key} must be a number that is not negative, not {value!r}")
    return value


def _check_range(fact: Assumption) -> None:
    if (fact.low is None) != (fact.high is None):
        raise AssumptionsInvalid(f"{fact.name} has one end of a range and not the other")
    if fact.low is not None and fact.high is not None and not fact.low <= fact.value <= fact.high:
        raise AssumptionsInvalid(f"{fact.name}: {fact.value} is not between {fact.low} and {fact.high}")
    if fact.mark is Mark.ASSUMPTION and fact.low is None:
        raise AssumptionsInvalid(f"{fact.name} is an assumption without a range to sweep")


def _mix(name: str, causes: Any, facts: dict[str, Assumption]) -> tuple[CauseOfFailure, ...]:
    if not isinstance(causes, dict) or not causes:
        raise AssumptionsInvalid(f"{name} has no causes")
    found = []
    for cause, given in causes.items():
        fact = _fact(f"{name}.{cause}", given, facts, ("cure", "shows", "seen"))
        for key, allowed in (("cure", CAUSE_CURES), ("shows", CAUSE_SHOWS), ("seen", (True, False))):
            if given.get(key) not in allowed:
                choices = ", ".join(map(str, allowed))
                raise AssumptionsInvalid(f"{fact.name}: {key} must be one of {choices}, not {given.get(key)!r}")
        found.append(CauseOfFailure(cause, fact.value, given["cure"], given["shows"], given["seen"]))
    return tuple(found)


def _profile(
    name: str, given: Any, mixes: Mapping[str, tuple[CauseOfFailure, ...]], facts: dict[str, Assumption]
) -> Profile:
    numbers = {}
    for key in ("instances", "gpus", "days", "rate"):
        if key not in given:
            raise AssumptionsInvalid(f"profiles.{name} has no {key}")
        numbers[key] = _fact(f"profiles.{name}.{key}", given[key], facts).value
        if not numbers[key]:
            raise AssumptionsInvalid(f"profiles.{name}.{key} must be more than 0")
    if given.get("mix") not in mixes:
        raise AssumptionsInvalid(f"profiles.{name}: there is no mix {given.get('mix')!r}")
    instances, gpus = int(numbers["instances"]), int(numbers["gpus"])
    about = str(given.get("about", ""))
    return Profile(name, about, instances, gpus, numbers["days"], numbers["rate"], mixes[given["mix"]])


def _conditions(given: Mapping[str, Any], facts: dict[str, Assumption]) -> Conditions:
    wanted = [field.name for field in fields(Conditions)]
    for name in wanted:
        if name not in given:
            raise AssumptionsInvalid(f"conditions.{name} is missing")
    for name in given:
        if name not in wanted:
            raise AssumptionsInvalid(f"conditions.{name} is read by nothing")
    found = {name: _fact(f"conditions.{name}", given[name], facts).value for name in wanted}
    for name in wanted:
        is_share = name.endswith("_share") or name.startswith("seen_") or name == "false_alarm"
        if is_share and found[name] > 1:
            raise AssumptionsInvalid(f"conditions.{name} is a share and cannot be {found[name]}")
    for name in ("calls_per_s", "checkpoint_s"):
        if not found[name]:
            raise AssumptionsInvalid(f"conditions.{name} must be more than 0")
    return Conditions(**found)


def _tuned(given: Mapping[str, Any], facts: dict[str, Assumption]) -> dict[str, Tuned]:
    known = [field.name for field in fields(Conditions)]
    found = {}
    for name, entry in given.items():
        if name not in known:
            raise AssumptionsInvalid(f"tuned.{name}: there is no such condition")
        fact = _fact(f"tuned.{name}", entry, facts, ("by", "about"))
        for key in ("by", "about"):
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                raise AssumptionsInvalid(f"{fact.name}: {key} must be a text that says something")
        found[name] = Tuned(fact.value, entry["by"], entry["about"])
    return found

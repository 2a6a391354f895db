"""Replay of recorded incidents: the control repeats every decision; another policy has the counts of its own run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from gpu_recovery.core.policy import RecoveryPolicy

from simulator.replay.player import Played
from simulator.replay.report import report
from simulator.replay.what_if import WhatIf, what_if, with_settings
from tests.simulator.replay.recorded_runs import ASSUMPTIONS, direct, policy, records_of, run_of, trace_of
from tests.tiers import sampled

SEEDS = sampled(range(1, 4), fast=1, default=1)


def same(recorded: RecoveryPolicy) -> RecoveryPolicy:
    """The recorded policy itself."""
    return recorded


def replayed(texts: tuple[str, ...], until: Any, new: Callable[[RecoveryPolicy], RecoveryPolicy] = same) -> WhatIf:
    """The what-if of these stored events."""
    return what_if(records_of(texts, until), new, ASSUMPTIONS)


@cache
def replay_of(seed: int, agents: bool = False, **settings: Any) -> WhatIf:
    """The what-if of a recorded run, under its policy with these settings changed. Tests share it unchanged."""
    recorded = run_of(seed, agents)
    return replayed(recorded.texts, recorded.course.ends_at, with_settings(settings) if settings else same)


def counts(played: Played) -> tuple[int, int, int]:
    """Reboots, replacements and checks of a run."""
    return len(played.run.reboots), played.run.replacements, played.checks


@pytest.mark.slow
@pytest.mark.parametrize("agents", [False, True], ids=["without agents", "with agents"])
@pytest.mark.parametrize("seed", SEEDS)
def test_under_the_recorded_policy_every_decision_is_the_recorded_one(seed: int, *, agents: bool) -> None:
    """Statuses, outcomes, sure diagnoses and instances, in the same order for every record; and all the counts."""
    recorded, found = run_of(seed, agents), replay_of(seed, agents)
    told = report(found, ASSUMPTIONS)
    assert told["not_reproduced"] == [] and told["not_replayable"] == []
    number = len(recorded.course.interruptions)
    assert told["interruptions"] == {"recorded": number, "replayed": number, "reproduced": number}
    [course] = found.replayed
    assert counts(course.control) == counts(recorded) == counts(course.new)
    assert told["ettr_change"]["points"] == 0 and all(line["difference"] is None for line in told["incidents"])
    control = told["control"]
    assert {name: told["recorded"][name] for name in ("interruptions", "reboots", "replacements", "checks")} == {
        name: control[name] for name in ("interruptions", "reboots", "replacements", "checks")
    }


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"replace": False}, {"check_in_background": False}], ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_another_policy_has_the_counts_of_its_own_run_on_the_same_faults(seed: int, settings: dict[str, Any]) -> None:
    """Recorded under one policy, replayed under another: as if the simulator had run the other one in the first place.

    The control keeps the counts of the recorded policy: it is not replayed under the policy to try.
    """
    recorded, found = run_of(seed), replay_of(seed, **settings)
    [course] = found.replayed
    own = direct(trace_of(seed), policy(**settings))
    assert counts(course.new) == counts(own)
    assert counts(course.control) == counts(recorded)
    assert report(found, ASSUMPTIONS)["not_reproduced"] == []


@pytest.mark.slow
def test_the_figures_of_incidents_add_up_to_those_of_the_run() -> None:
    """No reboot, replacement or check is lost between the incidents."""
    told = report(replay_of(1, replace=False), ASSUMPTIONS)
    for name in ("interruptions", "reboots", "replacements", "checks", "wrongful_evictions"):
        for place, of_run in enumerate((told["control"], told["new"])):
            assert sum(line[name][place] for line in told["incidents"]) == of_run[name], name
    assert any(line["difference"] for line in told["incidents"])
    assert told["control"]["replacements"] > told["new"]["replacements"] == 0 < told["new"]["quarantines"]


def _tampered(texts: tuple[str, ...], event: str, change: Callable[[dict[str, Any]], None]) -> tuple[str, ...]:
    """The texts, with the data of the first event that names `event` changed."""
    documents = [json.loads(text) for text in texts]
    chosen = next(one for one in documents if (one["data"].get("replay") or {}).get("event") == event)
    change(chosen["data"])
    return tuple(json.dumps(one) for one in documents)


@pytest.mark.slow
def test_an_incident_that_is_not_reproduced_is_listed_with_its_first_difference() -> None:
    """And is counted as recorded and replayed, and marked in the list of incidents."""
    recorded = run_of(1)
    texts = _tampered(recorded.texts, "CheckEnded", lambda data: data.update(after="QUARANTINED"))
    told = report(replayed(texts, recorded.course.ends_at), ASSUMPTIONS)
    listed = told["not_reproduced"]
    number = len(recorded.course.interruptions)
    assert told["interruptions"] == {"recorded": number, "replayed": number, "reproduced": number - len(listed)}
    assert "-> QUARANTINED" in listed[0]["recorded"] and "QUARANTINED" not in listed[0]["replayed"]
    assert [one["incident"] for one in told["incidents"] if not one["reproduced"]] == [
        line["incident"] for line in listed
    ]


@pytest.mark.slow
def test_an_interruption_that_the_replay_lacks_is_listed() -> None:
    """Such as a stop by a rule that the simulator does not know: here a failure at a time at which none was."""
    recorded, found = run_of(1), replay_of(1)
    [course] = found.replayed
    played = course.control.course
    control = replace(course.control, course=replace(played, interruptions=played.interruptions[1:]))
    told = report(replace(found, replayed=(replace(course, control=control),)), ASSUMPTIONS)
    [line] = told["not_reproduced"]
    assert line["incident"] == recorded.course.interruptions[0].name
    assert line["recorded"].startswith("an interruption: ") and line["replayed"] is None
    assert told["interruptions"]["reproduced"] == len(recorded.course.interruptions) - 1


@pytest.mark.slow
def test_an_interruption_of_an_older_release_is_listed_with_the_reason() -> None:
    """Its events have no replay facts, and the others are replayed."""
    recorded = run_of(1)
    texts = _tampered(recorded.texts, "RankFailed", lambda data: data.pop("replay"))
    told = report(replayed(texts, recorded.course.ends_at), ASSUMPTIONS)
    [line] = told["not_replayable"]
    assert line["why"] == "it was recorded by a release that wrote no replay facts"
    number = len(recorded.course.interruptions)
    assert told["interruptions"]["recorded"] == number == told["interruptions"]["replayed"] + 1
    assert line["incident"] not in {one["incident"] for one in told["incidents"]}


def test_records_of_an_older_release_alone_are_listed_with_the_reason() -> None:
    """No launch has its policy, so nothing is replayed, and every job is named."""
    recorded = run_of(1)
    documents = [json.loads(text) for text in recorded.texts]
    for document in documents:
        document["data"].pop("replay", None)
    texts = tuple(json.dumps(document) for document in documents)
    told = report(replayed(texts, recorded.course.ends_at), ASSUMPTIONS)
    assert told["interruptions"]["replayed"] == 0 < told["interruptions"]["recorded"]
    [line] = told["not_replayable"]
    assert line["incident"] == recorded.course.name and "no replay facts" in line["why"]
    assert told["control"]["ettr"] is None and told["ettr_change"]["points"] is None

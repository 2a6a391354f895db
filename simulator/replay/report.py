"""Report of a what-if as JSON: the control against the records, and the other policy against the control."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.core.replay_facts import policy_document

from simulator.goodput.assumptions import Assumptions, Cure
from simulator.replay.compare import Difference, first_difference, matched, renamed
from simulator.replay.course import Course, Interruption
from simulator.replay.facts import RELAPSE_WITHIN, Facts
from simulator.replay.player import Eviction, Played
from simulator.replay.what_if import Replayed, WhatIf, with_checkpoints

FORMAT, VERSION = "gpu-recovery/what-if", 1
WITHIN_S = 900.0
"""Seconds by which an interruption of the control may begin earlier or later than the recorded one."""
REPLACED = ("TerminateInstanceInAutoScalingGroup", "StopInstances")
CHECKS = (InstanceStatus.CHECKING.value, InstanceStatus.VERIFYING.value)
MINUTE_S = 60.0
COUNTS = ("interruptions", "reboots", "replacements", "checks", "wrongful_evictions", "down_minutes")
"""Figures of an incident."""
BOUNDS = (
    "replayed in the simulator: each course on a fleet of its own, without the other jobs of the account",
    "a fault strikes the instance that has the same rank at that time",
    "a finding of a check is taken as true, and a check of the same level would find the same again",
    "fleet limits count the instances of the course and its spares, not those of the account",
)
"""Limits of every replay, as the report lists them."""


@dataclass(frozen=True)
class Incident:
    """What a failure of the records led to in one run."""

    interruptions: tuple[Interruption, ...]
    evictions: tuple[Eviction, ...]
    down_s: float

    def counts(self, facts: Facts) -> dict[str, float]:
        """Return the figures of the incident."""
        statuses = [event.after for each in self.interruptions for es in each.about.values() for event in es]
        return {
            "interruptions": len(self.interruptions),
            "reboots": sum(eviction.action == "RebootInstances" for eviction in self.evictions),
            "replacements": sum(eviction.action in REPLACED for eviction in self.evictions),
            "checks": sum(status in CHECKS for status in statuses),
            "wrongful_evictions": sum(is_wrongful(eviction, facts) for eviction in self.evictions),
            "down_minutes": round(self.down_s / MINUTE_S, 2),
        }


def is_wrongful(eviction: Eviction, facts: Facts) -> bool:
    """Return whether an instance was taken out of use that, by the records, had no fault."""
    return eviction.failure is None or eviction.failure in facts.doubtful


def incidents_of(played: Played, facts: Facts) -> dict[int, Incident]:
    """Return the incidents of a run by the number of the recorded interruption that they stand for.

    Everything belongs to the last failure that stopped the training before it.
    """
    episodes = [episode for episode in played.run.episodes if episode.failure is not None]
    begins = [episode.fault_at for episode in episodes]
    owners = [facts.owner[episode.failure] for episode in episodes if episode.failure is not None]

    def owner(at_s: float) -> int | None:
        before = [number for number, begin in zip(owners, begins, strict=True) if begin <= at_s + 1.0]
        return before[-1] if before else None

    conditions = facts.trace.conditions
    rejoin_s = conditions.rejoin(facts.trace.profile.instances * facts.trace.profile.gpus) - conditions.event_s
    found: dict[int, tuple[list[Interruption], list[Eviction], list[float]]] = {}
    course, end_s = played.course, facts.trace.profile.seconds
    for interruption in course.interruptions:
        at_s = (interruption.at - course.began_at).total_seconds() - rejoin_s if course.began_at else 0.0
        if (number := owner(at_s)) is not None:
            found.setdefault(number, ([], [], []))[0].append(interruption)
    for eviction in played.evictions:
        if (number := owner(eviction.at_s)) is not None:
            found.setdefault(number, ([], [], []))[1].append(eviction)
    for episode, number in zip(episodes, owners, strict=True):
        again = end_s if episode.training_at is None else min(end_s, episode.training_at)
        found.setdefault(number, ([], [], []))[2].append(max(0.0, again - episode.fault_at))
    return {
        number: Incident(tuple(stops), tuple(out), sum(down)) for number, (stops, out, down) in sorted(found.items())
    }


def report(result: WhatIf, assumptions: Assumptions) -> dict[str, Any]:
    """Return the report: counts, minutes of the gang, and shares of 1."""
    control = [(each, each.control) for each in result.replayed]
    new = [(each, each.new) for each in result.replayed]
    not_reproduced = [line for each in result.replayed for line in _not_reproduced(each)]
    unplayable = [line for each in result.replayed for line in _unplayable(each)]
    unplayable += [{"incident": name, "why": why} for name, why in result.left_out.items()]
    recorded = sum(len(course.interruptions) for course in result.courses)
    compared = recorded - sum(len(each.facts.unplayable) for each in result.replayed) - _of_left_out(result)
    missed = {line["incident"] for line in not_reproduced if line["incident"] is not None}
    incidents = [line for each in result.replayed for line in _incidents(each, missed)]
    return {
        "format": FORMAT,
        "version": VERSION,
        "records": {
            "name": result.records.name,
            "since": utc_text(result.records.since),
            "until": utc_text(result.records.until),
            "events": len(result.records.events),
        },
        "policies": [
            {"course": each.course.name, "recorded": policy_document(each.recorded_policy), "changed": _changed(each)}
            for each in result.replayed
        ],
        "interruptions": {
            "recorded": recorded,
            "replayed": compared,
            "reproduced": compared - len(missed),
        },
        "not_reproduced": not_reproduced,
        "not_replayable": unplayable,
        "recorded": _recorded(result.courses),
        "control": _figures(control),
        "new": _figures(new),
        "ettr_change": _ettr_change(result.replayed, assumptions),
        "incidents": incidents,
        "assumptions": _assumptions(result.replayed, assumptions),
        "bounds": list(BOUNDS),
    }


def _of_left_out(result: WhatIf) -> int:
    return sum(len(course.interruptions) for course in result.courses if course.name in result.left_out)


def _changed(each: Replayed) -> dict[str, list[Any]]:
    """Return the settings in which the policies differ, each with both values; an unnamed setting is the preset's."""
    before, after = policy_document(each.recorded_policy), policy_document(each.new_policy)
    names = sorted({*before, *after} - {"preset"})
    return {
        name: [_value(each.recorded_policy, name), _value(each.new_policy, name)]
        for name in ("preset", *names)
        if getattr(each.recorded_policy, name) != getattr(each.new_policy, name)
    }


def _value(policy: Any, name: str) -> Any:
    value = getattr(policy, name)
    return getattr(value, "value", value)


def _not_reproduced(each: Replayed) -> list[dict[str, Any]]:
    """Return every interruption that the control did not decide as recorded, with the first difference."""
    lines, names = [], renamed(each.course, each.control.course)
    for recorded, again in matched(each.course, each.control.course, WITHIN_S):
        if recorded is not None and recorded.number in each.facts.unplayable:
            continue
        if recorded is None and again is not None and _is_after(each, again):
            continue
        if recorded is None or again is None:
            found = Difference(_begin(recorded), _begin(again))
        else:
            difference = first_difference(recorded, again, renamed=names)
            if difference is None:
                continue
            found = difference
        lines.append(
            {
                "course": each.course.name,
                "incident": None if recorded is None else recorded.name,
                "at": None if recorded is None else utc_text(recorded.at),
                "recorded": found.first or None,
                "replayed": found.second or None,
            }
        )
    return lines


def _is_after(each: Replayed, again: Interruption) -> bool:
    """Return whether an interruption of the control began after the recorded end of the course."""
    began = each.control.course.began_at
    return began is not None and (again.at - began).total_seconds() > each.course.profile_s


def _begin(interruption: Interruption | None) -> str:
    return "" if interruption is None else f"an interruption: {interruption.events[0].reason}"


def _unplayable(each: Replayed) -> list[dict[str, Any]]:
    by_number = each.course.interruptions
    return [{"incident": by_number[number].name, "why": why} for number, why in each.facts.unplayable.items()]


def _recorded(courses: Sequence[Course]) -> dict[str, int]:
    """Return the counts of the records themselves."""
    statuses = Counter(
        event.after
        for course in courses
        for interruption in course.interruptions
        for events in interruption.about.values()
        for event in events
    )
    return {
        "interruptions": sum(len(course.interruptions) for course in courses),
        "reboots": statuses[InstanceStatus.REBOOTING],
        "replacements": statuses[InstanceStatus.REPLACING],
        "checks": sum(statuses[status] for status in CHECKS),
    }


def _figures(runs: Iterable[tuple[Replayed, Played]]) -> dict[str, Any]:
    """Return the figures of all courses under one policy."""
    counts, lost, kept_s, all_s = Counter[str](), defaultdict[str, float](float), 0.0, 0.0
    for each, played in runs:
        profile = each.facts.trace.profile
        found, gpus = each.account(played), profile.instances * profile.gpus
        counts.update(
            interruptions=found.episodes,
            reboots=found.reboots,
            replacements=sum(eviction.action in REPLACED for eviction in played.evictions),
            checks=played.checks,
            wrongful_evictions=sum(is_wrongful(eviction, each.facts) for eviction in played.evictions),
            quarantines=played.quarantines,
            people_called=found.called,
        )
        for cause, hours in found.hours_by_cause.items():
            lost[cause] += hours * 60 / gpus
        kept_s += found.ettr * profile.seconds * gpus
        all_s += profile.seconds * gpus
    minutes = {cause: round(value, 2) for cause, value in sorted(lost.items(), key=lambda one: -one[1])}
    names = ("interruptions", "reboots", "replacements", "checks", "quarantines", "wrongful_evictions", "people_called")
    return {
        **{name: counts[name] for name in names},
        "minutes_lost": minutes,
        "ettr": kept_s / all_s if all_s else None,
    }


def _ettr_change(replayed: Sequence[Replayed], assumptions: Assumptions) -> dict[str, Any]:
    """Return the change of the ETTR, and its range over the assumptions: the cures, and the time of checkpoints."""
    checkpoint = assumptions.facts["conditions.checkpoint_s"]
    seconds = [value for value in (checkpoint.low, checkpoint.value, checkpoint.high) if value is not None]
    changes = {
        (others, value): _change(replayed, others=others, checkpoint_s=value)
        for others in (False, True)
        for value in seconds
    }
    found = [change for change in changes.values() if change is not None]
    return {
        "points": _points(changes[False, checkpoint.value]),
        "low": _points(min(found, default=None)),
        "high": _points(max(found, default=None)),
        "over": f"checkpoints every {min(seconds):g} to {max(seconds):g} s, "
        "and both possible cures (reboot or replacement) where the records do not show which was needed",
    }


def _points(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 4)


def _change(replayed: Sequence[Replayed], *, others: bool, checkpoint_s: float) -> float | None:
    gained_s = all_s = 0.0
    for each in replayed:
        trace = with_checkpoints(each.facts.trace, checkpoint_s)
        control, new = each.others if others and each.others is not None else (each.control, each.new)
        weight = trace.profile.seconds * trace.profile.instances * trace.profile.gpus
        gained_s += (each.account(new, trace).ettr - each.account(control, trace).ettr) * weight
        all_s += weight
    return gained_s / all_s if all_s else None


def _incidents(each: Replayed, missed: set[str | None]) -> list[dict[str, Any]]:
    """Return one entry for each recorded failure: its figures under both policies, and the first other decision."""
    control, new = incidents_of(each.control, each.facts), incidents_of(each.new, each.facts)
    nothing = Incident((), (), 0.0)
    lines = []
    for number in sorted(set(each.facts.owner)):
        one, other = control.get(number, nothing), new.get(number, nothing)
        recorded = each.course.interruptions[number]
        figures, under_new = one.counts(each.facts), other.counts(each.facts)
        lines.append(
            {
                "course": each.course.name,
                "incident": recorded.name,
                "at": utc_text(recorded.at),
                "cause": next(
                    f.cause for f, n in zip(each.facts.trace.failures, each.facts.owner, strict=True) if n == number
                ),
                "reproduced": recorded.name not in missed,
                **{name: [figures[name], under_new[name]] for name in COUNTS},
                "difference": _difference(one, other),
            }
        )
    return lines


def _difference(one: Incident, other: Incident) -> dict[str, str | None] | None:
    """Return the first decision that the other policy made otherwise; None if all are the same."""
    for first, second in zip_longest(one.interruptions, other.interruptions):
        if first is None or second is None:
            found: Difference | None = Difference(_begin(first), _begin(second))
        else:
            found = first_difference(first, second, by_rank=True)
        if found is not None:
            return {"control": found.first or None, "new": found.second or None}
    return None


def _assumptions(replayed: Sequence[Replayed], assumptions: Assumptions) -> list[dict[str, Any]]:
    """Return what the records do not tell, with the assumed value and its source."""
    lines: list[dict[str, Any]] = []
    for each in replayed:
        for assumed in each.facts.assumed:
            recorded = each.course.interruptions[each.facts.owner[assumed.failure]]
            cures = {Cure.REBOOT: "a reboot cures the instance", Cure.REPLACE: "only a replacement cures the instance"}
            lines.append(
                {
                    "incident": recorded.name,
                    "assumption": cures[assumed.cure],
                    "source": "the verdict of its check; the records hold no check after a reboot",
                }
            )
        if not each.course.was_seen_from_start:
            lines.append(
                {
                    "incident": each.course.name,
                    "assumption": "the job had failed at no time before the records begin",
                    "source": "the records begin while the job runs",
                }
            )
        set_up_s = each.facts.trace.conditions.rejoin_s
        if set_up_s < assumptions.facts["conditions.rejoin_s"].value:
            lines.append(
                {
                    "incident": each.course.name,
                    "assumption": f"rejoin_s = {set_up_s:g} s",
                    "source": "its shortest run did not last longer",
                }
            )
        if len(each.course.policies) > 1:
            lines.append(
                {
                    "incident": each.course.name,
                    "assumption": "the whole course ran under the policy of its last launch",
                    "source": f"{len(each.course.policies)} policies are recorded",
                }
            )
    for name in ("checkpoint_s", "relapse_s", "rejoin_s"):
        fact = assumptions.facts[f"conditions.{name}"]
        lines.append({"incident": None, "assumption": f"{name} = {fact.value:g} {fact.unit}", "source": fact.source})
    hours = RELAPSE_WITHIN.total_seconds() / 3_600
    lines.append(
        {
            "incident": None,
            "assumption": f"the same instance failing first again within {hours:g} h, unrepaired, is one fault",
            "source": "a rule of this replay",
        }
    )
    return lines

"""Report of a walk: counts, bounds and, for a violation, the moves that lead to the violation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gpu_recovery.core.policy import PRESETS, Preset

from simulator.explore.action import DELIVER, RECONCILER, SCHEDULER, STEP, TIME, Action
from simulator.explore.model import DeliveryPace, ExploredFault, Move, Violation, Walk, step_in_words
from simulator.explore.properties import PropertyViolated
from simulator.explore.small_world import GPUS, IN_WORDS, INSTANCES, RANKS, STRUCK
from simulator.explore.transition import Transitions

FAULTS = {
    ExploredFault.DROP: "an event is lost",
    ExploredFault.DUPLICATE: "an event is delivered, and once more at any later time",
    ExploredFault.REORDER: "an event is late: it is delivered at any later time, whatever has come in between",
    ExploredFault.CRASH: "an invocation dies between two of its effects, and Lambda does not try it again",
    ExploredFault.OVERLAP: (
        "another whole invocation, or a machine's step, comes in between two effects of an invocation"
    ),
    ExploredFault.SLOW: "a step of a machine takes so long that deadlines pass before it",
}
"""Text of each kind of fault."""
PACES = {
    DeliveryPace.FREE: "machines, scheduler and reconciler may come before any event that is on its way",
    DeliveryPace.MACHINES: "machines move, and incidents happen, when no event is on its way but the late ones; "
    "the scheduler and the reconciler may come at any time",
    DeliveryPace.ALL: "machines move, incidents happen, and the clock wakes the scheduler and the reconciler, "
    "when no event is on its way but the late ones",
}
"""Text of each delivery pace."""
ALWAYS = (
    f"{INSTANCES} instances with {GPUS} GPU each, one job of {RANKS} ranks, submitted and in line; its ranks exit 0 "
    "together, at any time while both run",
    f"one incident, or none, at any time while the gang runs, to the machine of rank {STRUCK}",
    "events of one instance are delivered in the order they were emitted, unless one is late; those of different "
    "instances in any order",
    "time passes only when nothing is left to be done, and then to what is due next, but not while the gang trains in "
    "peace",
    "an invocation is interrupted at most once, by one other; the words that a dead one leaves to be said (mail, "
    "events, the scheduler's poke) are not said later, but that a job has failed",
    "ECS and EC2 forget nothing; a boot is a second later than its request, by the machine's clock",
    "an event that the records hold is taken off its way once its delivery is seen to change nothing",
)
"""Texts of the bounds that all walks have in common."""


def bounds(walk: Walk) -> list[str]:
    """Return the texts of the bounds of this walk, without the bounds of all walks."""
    limits = walk.bounds
    kinds = [f"{kind}: {FAULTS[kind]}" for kind in ExploredFault if kind in limits.kinds]
    crashes = f", at most {limits.crashes} of them a crash" if limits.crashes < limits.faults else ""
    faults = f"at most {limits.faults} fault(s){crashes}: {'; '.join(kinds)}" if limits.faults else "no fault"
    delivered, policy = PRESETS[Preset.ADAPTIVE], walk.stage.world.policy
    values = {field.name: getattr(policy, field.name) for field in fields(policy)}
    changed = [f"{name} {value}" for name, value in values.items() if value != getattr(delivered, name)]
    return [
        f"incident {limits.incident}: {IN_WORDS[limits.incident]}",
        faults,
        PACES[limits.pace],
        f"the policy is adaptive but for {', '.join(changed)}",
    ]


def report(walk: Walk) -> dict[str, Any]:
    """Return the report of a walk as a JSON object."""
    transitions = walk.stage.world.transcript.rows
    violation = walk.violation
    return {
        "incident": str(walk.bounds.incident),
        "faults": walk.bounds.faults,
        "kinds": sorted(walk.bounds.kinds),
        "pace": str(walk.bounds.pace),
        "bounds": bounds(walk),
        "states": walk.states,
        "states_by_faults": walk.states_by_faults,
        "transitions": walk.transitions,
        "depth": walk.depth,
        "faults_taken": dict(sorted(walk.faults_taken.items())),
        "worlds": len(walk.stage.cores),
        "carried_out": walk.stage.carried_out,
        "ends": dict(walk.ends.most_common()),
        "rows": sorted(
            f"{kind} {status} {event}" for kind, status, event, outcome in transitions if outcome == "APPLIED"
        ),
        "every_state_can_end": walk.is_whole and violation is None,
        "whole": walk.is_whole,
        "violation": None
        if violation is None
        else {
            "told": violation.told,
            "actions": actions(walk.stage, violation),
            "transcript": transcript(walk.stage, violation),
        },
    }


def in_words(walk: dict[str, Any]) -> str:
    """Return the report of a walk as text. `walk`: the result of `report`, with `seconds` of processor time added."""
    states = ", ".join(f"{n} with {faults}" for faults, n in enumerate(walk["states_by_faults"]))
    lines = [
        f"incident {walk['incident']}, {walk['faults']} fault(s) among {', '.join(walk['kinds']) or 'none'}"
        f" ({walk['seconds']} s of processor)",
        *(f"  bound: {sentence}" for sentence in walk["bounds"]),
        f"  states {walk['states']} (by fewest faults: {states}), transitions {walk['transitions']}, "
        f"depth {walk['depth']}",
        f"  faults: {', '.join(f'{kind} {count}' for kind, count in walk['faults_taken'].items()) or 'none'}",
        f"  (status, event) rows taken: {len(walk['rows'])}",
        *(f"  ends: {count} x {end}" for end, count in walk["ends"].items()),
    ]
    if walk["violation"] is None:
        end = "and from every state a final one can be reached without another fault"
        lines.append(
            f"  no invariant broke, {end}" if walk["whole"] else "  no invariant broke; not everything was walked"
        )
        return "\n".join(lines)
    violation = walk["violation"]
    lines += [f"  BROKEN  {sentence}" for sentence in violation["told"]]
    lines += [f"  {number:>3}. {words}" for number, words in enumerate(violation["actions"], 1)]
    return "\n".join([*lines, "", violation["transcript"]])


def summary_in_words(total: dict[str, Any]) -> str:
    """Return the totals of all walks and their common bounds as text. `total`: the result of `cli.summary`."""
    end = "from every state a final one can be reached" if total["every_state_can_end"] else "not all was walked"
    broken = f"{len(total['violations'])} violation(s)" if total["violations"] else "no invariant broke"
    every = "\n".join(f"  bound: {sentence}" for sentence in total["bounds"])
    return (
        f"of every walk\n{every}\n\n{len(total['walks'])} walks, {total['states']} states, {total['transitions']} "
        f"transitions, depth at most {total['depth']}, {len(total['rows'])} (status, event) rows, "
        f"{total['seconds']} s of processor, {total['memory_mib']} MiB\n{broken}; {end}"
    )


def actions(stage: Transitions, violation: Violation) -> list[str]:
    """Return the moves that lead to the violation, a line for each."""
    return [_short(stage, violation, _move(stage, core, move)) for core, move in violation.path]


def transcript(stage: Transitions, violation: Violation) -> str:
    """Return the moves that lead to the violation, each with its lines of the transcript.

    The times are those of the first path on which the walk reached the state, so the clock may jump.
    """
    lines: list[str] = []
    for core, move in violation.path:
        lines.append(f"-- {_move(stage, core, move)}")
        lines += _carried_out_again(stage, core, move)
    return _short(stage, violation, "\n".join([*lines, *(f"BROKEN  {sentence}" for sentence in violation.told)]))


def _move(stage: Transitions, core: int, move: Move) -> str:
    words = _action(stage, core, move.action)
    match move.fault:
        case ExploredFault.CRASH:
            return f"{words}; it dies before its effect {move.effect + 1}"
        case ExploredFault.OVERLAP if move.inner is not None:
            return f"{words}; before its effect {move.effect + 1}: {_action(stage, core, move.inner)}"
        case None:
            return words
    return f"{words}: {move.fault}"


def _action(stage: Transitions, core: int, action: Action) -> str:
    texts = {
        SCHEDULER: "the scheduler passes",
        RECONCILER: "the reconciler makes its round",
        TIME: "time passes",
        "strike": "the incident happens",
        "end_well": "every rank exits 0",
        "heal": "the GPU comes back by itself",
        "cut_off": "the agent is cut off",
        "come_back": "the agent comes back",
        "": "nothing more can happen",
    }
    if action.name == DELIVER:
        return f"event: {stage.events.known[action.number].words}"
    if action.name == STEP:
        return f"machine: {step_in_words(stage.steps(core)[action.number])}"
    return texts.get(action.name, action.name)


def _carried_out_again(stage: Transitions, core: int, move: Move) -> list[str]:
    try:
        if move.fault is ExploredFault.CRASH:
            stage.killed(core, move.action, move.effect)
        elif move.fault is ExploredFault.OVERLAP and move.inner is not None:
            stage.overlapped(core, move.action, move.effect, move.inner)
        elif move.fault in (None, ExploredFault.DUPLICATE) and move.action.name:
            stage.again(core, move.action)
        else:
            return []
    except PropertyViolated:
        pass  # the transcript ends with the sentences of this violation
    return list(stage.world.transcript.lines)


def _short(stage: Transitions, violation: Violation, text: str) -> str:
    """Return `text` with the short names of jobs, instances and tasks in the last state of the path."""
    stage.copier.put(stage.cores[violation.path[-1][0]], anew=True)  # the order of the tasks gives their numbers
    transcript_of_world = stage.world.transcript
    lines, transcript_of_world.lines = transcript_of_world.lines, [text]
    try:
        return transcript_of_world.text().rstrip("\n")
    finally:
        transcript_of_world.lines = lines

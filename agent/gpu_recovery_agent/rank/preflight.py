"""The preflight of a rank: a few cheap tests in its own container, before the training starts.

A gang whose instance lacks a GPU fails in its first minutes, with all its ranks. The preflight sees that in seconds. It
takes BUDGET_S at most, all steps together. Each step has one of four results:

- `passed`: the step ran, and found no fault.
- `failed`: the step ran, and found a fault. If the step is one of PROOFS, the training is not started: the rank ends
  with PREFLIGHT_FAILED.
- `not_run`: the image or the driver lacks what the step needs, or there was no time left. That is no pass.
- `inconclusive`: the step did not end in time, or its answer is no proof. The training starts.

A step that did not end in time has failed all the same if its program had printed an error that names the hardware. A
step that was cut short by the end of the attempt was not run.

The results go to the agent as one observation, and from there to the server. In a container of an earlier attempt only
the steps that take no GPU time are run: the gang is to continue soon.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import clock
from .files import RankIdentity, whole
from .preflight_program import AttemptOver, Programs
from .preflight_steps import (
    DCGM_LEVEL_1,
    FAILED,
    GPU_COUNT,
    INCONCLUSIVE,
    NCCL_LOOPBACK,
    NOT_RUN,
    NVLINK_FABRIC,
    PROOFS,
    RDMA_DEVICES,
    RECOVERY_ACTION,
    Finding,
    ask_nvidia_smi,
    gpu_count,
    nvlink_fabric,
    rdma_devices,
    recovery_action,
)
from .preflight_tests import dcgm_level_1, nccl_loopback

VARIABLE, QUICK = "GPU_RECOVERY_PREFLIGHT", "quick"
"""Variable that the launch of a job sets, and its value. Without it nothing is tested."""
BUDGET_VARIABLE, BUDGET_S, BUDGET_LEAST_S = "GPU_RECOVERY_PREFLIGHT_BUDGET_S", 60, 8
"""Variable with a smaller budget, and the largest and the smallest budget, in seconds. About 3 s are kept for a program
that cannot be killed, and nvidia-smi takes about 4 s for eight GPUs."""
PREFLIGHT_FAILED = 76
"""Exit status of a rank whose training was not started. A program may end with the same status, so the status alone
proves nothing: the server acts on the observation."""
STEP_LEAST_S = 0.1
"""Seconds that must be left for a step that starts a program."""
BEING_ENDED = "the attempt is being ended"
"""Reason of a step that was left out or cut short because another rank of the gang has ended."""
SENTENCE_BYTES_MAX, ERROR_BYTES_MAX = 120, 160
"""Longest texts of a step in the observation, in bytes. The socket of the agent takes a line of 4,096 bytes."""


@dataclass(frozen=True)
class Step:
    """A step of the preflight, its result and the seconds that it took."""

    name: str
    finding: Finding
    seconds: float = 0.0

    @property
    def ends_rank(self) -> bool:
        """Whether the training must not start after this result."""
        return self.finding.result == FAILED and self.name in PROOFS

    def to_json(self) -> dict[str, Any]:
        """Return the step as the observation holds it."""
        found = self.finding
        document: dict[str, Any] = {"name": self.name, "result": found.result, "seconds": round(self.seconds, 2)}
        document["sentence"] = _bounded(found.sentence, SENTENCE_BYTES_MAX)
        document |= {"error": _bounded(found.detail, ERROR_BYTES_MAX)} if found.detail else {}
        return document | ({"value": found.value} if found.value is not None else {})


@dataclass
class Preflight:
    """The steps that were run, in their order."""

    steps: list[Step] = field(default_factory=list)

    @property
    def failure(self) -> Step | None:
        """The step after which the training must not start; None if it may start."""
        return next((step for step in self.steps if step.ends_rank), None)

    def report(self, rank: RankIdentity) -> dict[str, Any]:
        """Return the observation for the agent: one line for its socket. The agent reports a failure at once."""
        return {
            **({"urgent": True} if self.failure is not None else {}),
            "type": "preflight",
            "id": f"preflight-{rank.rank}-{rank.attempt}-{os.getpid()}",
            "job": rank.job,
            "attempt": rank.attempt,
            "rank": rank.rank,
            "steps": [step.to_json() for step in self.steps],
        }


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the launch of the rank asks for a preflight."""
    return environment.get(VARIABLE) == QUICK


def budget_s(environment: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Return the seconds of the preflight. Calls `say` with an invalid value."""
    text = environment.get(BUDGET_VARIABLE, str(BUDGET_S))
    seconds = whole(text, least=1, most=BUDGET_S)
    taken_s = BUDGET_S if seconds is None else max(seconds, BUDGET_LEAST_S)
    if seconds != taken_s:
        limits = f"no whole number from {BUDGET_LEAST_S} to {BUDGET_S}"
        say(f"warning: {BUDGET_VARIABLE} is {text!r}, {limits}; taken as {taken_s}")
    return taken_s


def run_preflight(
    environment: Mapping[str, str],
    say: Callable[[str], None],
    is_first: bool,
    is_over: Callable[[], bool],
) -> Preflight:
    """Run the preflight and return its results.

    Args:
        environment: the environment of the rank.
        say: prints a line.
        is_first: whether this is the first attempt in this container. Otherwise only the cheap steps are run.
        is_over: returns whether the attempt is being ended. Then the present step is cut short, and no other is run.

    Raises:
        Interrupted: a signal ends the container.
    """
    programs = Programs(environment, clock.monotonic_s() + budget_s(environment, say), is_over)
    preflight = Preflight()
    steps = _Steps(preflight, programs, say)
    steps.run_query(environment)
    steps.run(RDMA_DEVICES, lambda: rdma_devices(environment))
    if is_first:
        steps.run(NCCL_LOOPBACK, lambda: nccl_loopback(programs, environment), needs_time=True)
        steps.run(DCGM_LEVEL_1, lambda: dcgm_level_1(programs, environment), needs_time=True)
    else:
        for name in (NCCL_LOOPBACK, DCGM_LEVEL_1):
            steps.skip(name, "only cheap steps are run in a container that waited")
    return preflight


class _Steps:
    """Runs steps one after the other. After a step that ends the rank, and without time, no further step is run."""

    def __init__(self, preflight: Preflight, programs: Programs, say: Callable[[str], None]) -> None:
        self._preflight, self._programs, self._say = preflight, programs, say

    def run_query(self, environment: Mapping[str, str]) -> None:
        """Ask nvidia-smi once, for three steps. The first has its time."""
        began = clock.monotonic_s()
        names = (GPU_COUNT, RECOVERY_ACTION, NVLINK_FABRIC)
        if reason := self._why_not(needs_time=True):
            found = [Finding(NOT_RUN, reason)] * len(names)
        else:
            try:
                smi = ask_nvidia_smi(self._programs, environment)
                found = [gpu_count(smi, environment), recovery_action(smi, environment), nvlink_fabric(smi)]
            except (OSError, AttemptOver) as error:
                found = [_without_answer(error)] * len(names)
        for name, finding in zip(names, found):
            self._add(name, finding, began if name == GPU_COUNT else None)

    def run(self, name: str, step: Callable[[], Finding], needs_time: bool = False) -> None:
        """Run a step, unless there is a reason to leave it out."""
        if reason := self._why_not(needs_time):
            self.skip(name, reason)
            return
        began = clock.monotonic_s()
        try:
            found = step()
        except (OSError, AttemptOver) as error:
            found = _without_answer(error)
        self._add(name, found, began)

    def _why_not(self, needs_time: bool) -> str:
        """Return why the next step is left out; "" if it is run."""
        failure = self._preflight.failure
        if failure is not None:
            return f"{failure.name} failed before"
        if self._programs.is_over:
            return BEING_ENDED
        return "there was no time left" if needs_time and self._programs.left_s < STEP_LEAST_S else ""

    def skip(self, name: str, reason: str) -> None:
        """Record that a step was not run."""
        self._add(name, Finding(NOT_RUN, reason))

    def _add(self, name: str, found: Finding, began: float | None = None) -> None:
        seconds = 0.0 if began is None else clock.monotonic_s() - began
        step = Step(name, found, seconds)
        self._preflight.steps.append(step)
        # The text of another program is printed only with a failure: the log is read for the cause of a later one.
        detail = f" ({found.detail})" if found.detail and step.ends_rank else ""
        self._say(f"preflight: {name} {found.result}, {seconds:.1f} s: {found.sentence}{detail}")


def _bounded(text: str, bytes_max: int) -> str:
    """Return a text without characters that JSON escapes, cut to a number of bytes."""
    plain = "".join(char if char.isprintable() else " " for char in text).replace("\\", "/").replace('"', "'")
    return plain.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _without_answer(error: OSError | AttemptOver) -> Finding:
    """Return the result of a step whose program gave no answer."""
    if isinstance(error, AttemptOver):
        return Finding(NOT_RUN, BEING_ENDED)
    return Finding(INCONCLUSIVE, f"the program could not be started: {error.strerror}")

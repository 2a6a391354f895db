"""Timeouts that must fit each other: compare the limits of PyTorch, torchft and DeepSpeed with those of the job.

A limit inside another limit must be the shorter of the two. If it is not, the outer limit ends the job first, and the
inner limit never does what it is for. `timeout_problems` compares the known pairs and returns both values of each pair
that does not fit, and what to change. It reads known variables and options only, never another value of the environment
(docs/decisions/0072-timeouts-that-fit-each-other.md has the source of each unit and default).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.job.timeout_variables import (
    DUMP,
    ERROR_HANDLING,
    FT_GROUP,
    FT_QUORUM,
    FT_TIMEOUT,
    GRACE,
    GROUP_TIMEOUTS,
    HEARTBEAT,
    INIT_TIMEOUT,
    KNOWN,
    MONITORING,
    NONBLOCKING,
    STOP_TIMEOUT,
    UNITS_S,
    UNREAD,
    stated_timeouts,
)
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy, TimeoutOrder

GROUP_DEFAULT_S, HEARTBEAT_DEFAULT_S, DUMP_DEFAULT_MS = 600, 480, 15_000
"""Defaults of PyTorch: of a process group with NCCL, of the monitor of its watchdog, and of the wait for a dump."""
DUMP_WAITS = 4
"""Waits for a dump that the watchdog of PyTorch sleeps between a timeout and the end of the process."""
REPORTS_S = 10
"""Seconds between two progress reports of a process (docs/hangs.md). An agent report follows."""
MISSED_HEARTBEATS = 3
"""Agent reports that are missing after `suspect_s`."""
STOP_MARGIN_S = 3
"""Seconds of the stopTimeout that `gpu-recovery-run` leaves after the grace: for SIGTERM, and to write the exit."""
ENDS_NO_PROCESS = {0: "no error is handled", 2: "communicators are aborted only"}
"""Values of TORCH_NCCL_ASYNC_ERROR_HANDLING with which a timeout ends no process."""


@frozen_dataclass()
class TimeoutProblem:
    """A pair of timeouts that does not fit.

    inner, inner_s: name of the limit that must be shorter, and its seconds.
    outer, outer_s: name of the limit around it, and its seconds.
    sentence: both values, what follows, and what to change.
    stated: both limits were set for this job. No limit is a default.
    """

    inner: str
    inner_s: float
    outer: str
    outer_s: float
    sentence: str
    stated: bool = False

    @property
    def field(self) -> str:
        """Field of the specification that holds the inner limit."""
        if self.inner.startswith("--"):
            return "command"
        return f"env.{self.inner}" if self.inner.isupper() else self.inner


def timeouts_in(container: Mapping[str, Any], spec: JobSpec) -> dict[str, int]:
    """Return the stated timeouts of a job on ECS: those of its container, replaced by those of its specification.

    Args:
        container: the container in the task definition, as ECS describes it.
        spec: the specification of the job.
    """
    pairs = container.get("environment") or ()
    environment = {str(pair.get("name")): str(pair.get("value", "")) for pair in pairs}
    command = spec.command or container.get("command") or ()
    return stated_timeouts({**environment, **spec.env}, (*(container.get("entryPoint") or ()), *command))


def timeout_problems(
    spec: JobSpec, policy: RecoveryPolicy, observed: Mapping[str, int] | None = None
) -> tuple[TimeoutProblem, ...]:
    """Return the pairs of timeouts of a job that do not fit, in a fixed order; none if the policy switches this off.

    Args:
        spec: the specification, with the timeouts that were stated at submission.
        policy: the limits of the deployment.
        observed: the timeouts in the environment of a running rank. They replace those that were stated.
    """
    if policy.timeout_order is TimeoutOrder.OFF:
        return ()
    values = {name: value for name, value in {**spec.timeouts, **(observed or {})}.items() if name in KNOWN}
    known = _Known(spec, policy, values)
    return (*_torchft(known), *_watchdog(known), *_progress(known), *_stop(known), *_without_effect(known))


def refused(problems: Sequence[TimeoutProblem], policy: RecoveryPolicy) -> TimeoutProblem | None:
    """Return the first problem for which a job is refused; None if it is accepted."""
    if policy.timeout_order is not TimeoutOrder.REFUSE:
        return None
    return next((problem for problem in problems if problem.stated), None)


@frozen_dataclass()
class _Known:
    spec: JobSpec
    policy: RecoveryPolicy
    values: Mapping[str, int]

    def seconds(self, name: str) -> float | None:
        """Return the seconds of a variable or option; None if it is not set."""
        value = self.values.get(name)
        return None if value is None else value * UNITS_S[name]

    @property
    def group(self) -> tuple[str, float, bool]:
        """Return what sets the timeout of the default process group, its seconds, and whether it was stated."""
        for name in GROUP_TIMEOUTS:
            seconds = self.seconds(name)
            if seconds is not None:
                return name, seconds, True
        return "the timeout of the process group", float(GROUP_DEFAULT_S), False

    @property
    def dump_wait_s(self) -> float:
        """Seconds that the watchdog sleeps after a timeout."""
        return DUMP_WAITS * self.values.get(DUMP, DUMP_DEFAULT_MS) / 1_000


def _torchft(known: _Known) -> Iterator[TimeoutProblem]:
    """Compare the timeouts of torchft with those around them: pytorch/torchtitan#2899."""
    group, group_s, stated = known.group
    for name in (FT_GROUP, FT_TIMEOUT):
        inner_s = known.seconds(name)
        if inner_s is not None and inner_s >= group_s:
            follows = "PyTorch ends the process before torchft can leave the step out"
            change = f"{_named(group, stated)} must be longer than {name}"
            yield _problem(name, inner_s, group, group_s, follows, change, stated)
    inner_s, quorum_s = known.seconds(FT_TIMEOUT), known.seconds(FT_QUORUM)
    if inner_s is not None and quorum_s is not None and inner_s > quorum_s:
        follows = "the quorum gives up while a replica may still wait in a collective"
        yield _problem(FT_TIMEOUT, inner_s, FT_QUORUM, quorum_s, follows, f"{FT_QUORUM} must not be shorter", True)
    outer_s = float(known.policy.heartbeat_stale_s + known.policy.lost_timeout_s)
    if quorum_s is not None and quorum_s >= outer_s:
        follows = "after an instance has gone, gpu-recovery decides about the job while torchft still waits"
        change = f"make {FT_QUORUM} shorter, or the policy lost_timeout_s longer"
        yield _problem(FT_QUORUM, quorum_s, "heartbeat_stale_s + lost_timeout_s", outer_s, follows, change)


def _watchdog(known: _Known) -> Iterator[TimeoutProblem]:
    """Compare the sleep of PyTorch's watchdog with the monitor that ends a process whose watchdog is silent."""
    if known.values.get(MONITORING, 1) == 0:
        return
    outer_s, inner_s = known.seconds(HEARTBEAT) or float(HEARTBEAT_DEFAULT_S), known.dump_wait_s
    if inner_s >= outer_s:
        follows = "the monitor ends the process before the watchdog says which collective has timed out"
        change = f"{HEARTBEAT} must be longer than {DUMP_WAITS} times {DUMP}"
        stated = DUMP in known.values and HEARTBEAT in known.values
        yield _problem(DUMP, inner_s, HEARTBEAT, outer_s, follows, change, stated)


def _progress(known: _Known) -> Iterator[TimeoutProblem]:
    """Compare the progress timeout with what it must outlast, and with the time limit of the job."""
    spec, policy = known.spec, known.policy
    own_s = spec.progress_timeout_s
    if own_s is not None and spec.max_runtime_s is not None and own_s >= spec.max_runtime_s:
        follows = "the job ends before it can count as hung"
        change = "make progress_timeout_s shorter"
        yield _problem("progress_timeout_s", own_s, "max_runtime_s", spec.max_runtime_s, follows, change, True)
    if not policy.diagnose:
        return
    reports_s = REPORTS_S + policy.suspect_s // MISSED_HEARTBEATS
    if own_s is not None and own_s <= reports_s:
        follows = "the job may count as hung between two reports"
        change = f"make progress_timeout_s longer than {reports_s}"
        yield _problem("two reports of the progress", reports_s, "progress_timeout_s", own_s, follows, change)
    limit_s = float(policy.progress_timeout_s if own_s is None else own_s)
    name, group_s, stated = known.group
    waits = [(name, group_s)] if stated else []
    waits += [(other, known.seconds(other) or 0.0) for other in (INIT_TIMEOUT, NONBLOCKING)]
    longest, longest_s = max(waits, key=lambda wait: wait[1])
    if longest_s >= limit_s:
        outer = "progress_timeout_s" if own_s is not None else "progress_timeout_s of the policy"
        follows = "a job that reports progress counts as hung while its program still waits"
        change = (
            f"set progress_timeout_s of the job to more than {longest_s + known.dump_wait_s:g}, or mark the long "
            "phases with diagnosis.pause()"
        )
        yield _problem(longest, longest_s, outer, limit_s, follows, change, own_s is not None)
    handling = known.values.get(ERROR_HANDLING)
    if handling in ENDS_NO_PROCESS:
        sentence = (
            f"{ERROR_HANDLING} is {handling}: {ENDS_NO_PROCESS[handling]}, and the timeout of {group_s:g} s ends no "
            f"process. Only the progress timeout of gpu-recovery ({limit_s:g} s) ends such a hang, if the job reports "
            "progress. Leave the variable out"
        )
        yield TimeoutProblem(ERROR_HANDLING, group_s, "progress_timeout_s", limit_s, sentence)


def _stop(known: _Known) -> Iterator[TimeoutProblem]:
    """Compare the grace of a suspension, and what the wrapper takes for the stopTimeout, with the stopTimeout."""
    spec = known.spec
    stop_s = spec.task_stop_timeout_s if spec.stop_timeout_s is None else spec.stop_timeout_s
    if stop_s is None:
        return
    grace_s = known.values.get(GRACE, spec.suspend_grace_s)
    if grace_s > stop_s - STOP_MARGIN_S:
        follows = f"rank 0 has only {max(stop_s - STOP_MARGIN_S, 0)} s to save its state, and is then killed"
        change = f"the stopTimeout must be at least {grace_s + STOP_MARGIN_S}"
        yield _problem("suspend_grace_s", grace_s, "stopTimeout", stop_s, follows, change)
    taken_s = known.seconds(STOP_TIMEOUT)
    if taken_s is not None and taken_s > stop_s:
        follows = "ECS kills the container before gpu-recovery-run has written how the rank ended"
        change = f"leave {STOP_TIMEOUT} out, or make the stopTimeout longer"
        yield _problem(STOP_TIMEOUT, taken_s, "stopTimeout", stop_s, follows, change, True)


def _without_effect(known: _Known) -> Iterator[TimeoutProblem]:
    """Name the variables that nothing reads, and the timeout that applies in spite of them."""
    group, group_s, stated = known.group
    for name in UNREAD:
        seconds = known.seconds(name)
        if seconds is not None and seconds != group_s:
            sentence = (
                f"{name} is {seconds:g} s, and neither NCCL nor PyTorch reads this variable: "
                f"{_named(group, stated)} is {group_s:g} s, unless the "
                "program reads the variable itself. Pass timeout= to init_process_group"
            )
            yield TimeoutProblem(name, seconds, group, group_s, sentence)


def _problem(
    inner: str, inner_s: float, outer: str, outer_s: float, follows: str, change: str, stated: bool = False
) -> TimeoutProblem:
    sentence = f"{inner} is {inner_s:g} s and {outer} is {outer_s:g} s: {follows}. {change[0].upper()}{change[1:]}"
    return TimeoutProblem(inner, float(inner_s), outer, float(outer_s), sentence, stated)


def _named(group: str, stated: bool) -> str:
    return group if stated else f"{group} (PyTorch's default)"

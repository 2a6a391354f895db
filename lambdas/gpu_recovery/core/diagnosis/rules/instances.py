"""Diagnosis rules on instances and ranks: exits, XIDs, missing heartbeats, probes and idle checks.

Seed 002 has no such rows: its rows read what a program reports. These rules read what gpu-recovery knows when a program
reports nothing.

An exit that gpu-recovery caused, or that came after the first, is a consequence of another exit. Of an XID only the
class counts (`core.xid`). No GPU counts as faulty for an error of its program, unless the error repeats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    IdleCheckReport,
    Observation,
    ProbeReport,
    RestartReport,
    SilenceReport,
    StageReport,
    WorkerHealth,
    XidReport,
)
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Probe, Scope, ScopeKind, Weight
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.xid import REPEATS, XidClass, XidProfile

SOURCE = "the recovery loop"
"""Source of these rules, as documents name it."""
TOGETHER_S = 1.0
"""Seconds after the first exit in which other exits count as simultaneous.

Stop times have a resolution of one second.
"""
UNDECIDED_WEIGHT = 0.3
"""Weight, in log-odds, of a finding that alone decides nothing."""
CONTAINED = 94
"""XID of an uncorrectable ECC error that affects a single program.

The XID table classes it as an error of the application (`XidClass.APP`), but its cause is the GPU.
"""
IDLE_CHECK = "idle-check"
"""Row of the notes about passed idle checks."""
SIGNAL_BASE, WRAPPED = 128, frozenset({241, 245, 247, 250})
"""Exit codes that stand for signals.

128 + n is signal n by the convention of the shell. Python's `exit(-n)` gives 256 - n.
"""


@frozen_dataclass()
class _Meaning:
    """Causes that an exit supports, with weights: `here` at its own place, `job` for the whole job."""

    english: str
    chinese: str
    here: Mapping[Cause, float]
    job: Mapping[Cause, float]


_SIGNALS: Mapping[int, _Meaning] = {
    2: _Meaning("interrupted", "被中断", {}, {Cause.PREEMPTED: Weight.HINT}),
    4: _Meaning(
        "an illegal instruction", "非法指令", {Cause.WORKER_CRASH: Weight.WEAK}, {Cause.CONFIGURATION: Weight.WEAK}
    ),
    6: _Meaning(
        "aborted: an assertion, a C++ exception or NCCL's watchdog",
        "abort：断言、C++异常或NCCL watchdog",
        {Cause.WORKER_CRASH: Weight.WEAK, Cause.GPU_CONTEXT: Weight.HINT},
        {Cause.APPLICATION: Weight.HINT},
    ),
    7: _Meaning(
        "a bus error: shared memory that is full, or bad memory",
        "总线错误：共享内存已满或内存故障",
        {Cause.WORKER_CRASH: Weight.WEAK, Cause.HOST_MEMORY: Weight.WEAK},
        {},
    ),
    9: _Meaning(
        "killed; who sent SIGKILL is unknown: the kernel for lack of memory, a user, or another program",
        "被SIGKILL终止；发送者未知：内核OOM、人为或其他程序",
        {Cause.HOST_MEMORY: Weight.WEAK, Cause.WORKER_CRASH: Weight.WEAK},
        {},
    ),
    11: _Meaning(
        "a segmentation fault",
        "段错误",
        {Cause.WORKER_CRASH: Weight.FAIR, Cause.GPU_FAULT: Weight.HINT},
        {Cause.APPLICATION: Weight.HINT},
    ),
    15: _Meaning("asked to end by a signal", "被要求退出", {}, {Cause.PREEMPTED: Weight.WEAK}),
}
_OTHER_SIGNAL = _Meaning("ended by a signal", "被信号终止", {Cause.WORKER_CRASH: Weight.WEAK}, {})
_CODES: Mapping[int, _Meaning] = {
    75: _Meaning("asked to be suspended", "请求挂起", {}, {Cause.PREEMPTED: Weight.FAIR}),
    124: _Meaning(
        "no progress in time", "超时无进展", {Cause.WORKER_HANG: Weight.FAIR, Cause.NETWORK: Weight.HINT}, {}
    ),
    126: _Meaning("its command cannot be executed", "命令无法执行", {}, {Cause.CONFIGURATION: Weight.STRONG}),
    127: _Meaning("its command was not found", "命令不存在", {}, {Cause.CONFIGURATION: Weight.STRONG}),
}
_OTHER_CODE = _Meaning(
    "an error of its own", "自身错误", {Cause.GPU_CONTEXT: UNDECIDED_WEIGHT}, {Cause.APPLICATION: UNDECIDED_WEIGHT}
)
"""Any other exit code, 1 for example. It has many possible causes: without more evidence the GPUs are checked."""


def signal_of(end: ExitReport) -> int | None:
    """Signal that ended the rank, by its reporter, the shell or Python.

    None if no signal ended it, or if the end is unknown.
    """
    if end.signal is not None and end.signal > 0:
        return end.signal
    code = end.code
    if code is None:
        return None
    if code in WRAPPED:
        return 256 - code
    if -64 <= code < 0:
        return -code
    return code - SIGNAL_BASE if SIGNAL_BASE < code <= SIGNAL_BASE + 64 else None


def _meaning(end: ExitReport) -> _Meaning | None:
    signal = signal_of(end)
    if signal is not None:
        return _SIGNALS.get(signal, _OTHER_SIGNAL)
    return _CODES.get(end.code, _OTHER_CODE) if end.code else None


def _end_text(end: ExitReport) -> str:
    signal = signal_of(end)
    return f"signal {signal}" if signal is not None else f"exit code {end.code}"


def _own_ends(case: Case) -> list[tuple[ExitReport, _Meaning]]:
    """Failed exits that gpu-recovery did not cause, the oldest first, each with its meaning."""
    return [(end, meaning) for end in case.all(ExitReport) if not end.by_us and (meaning := _meaning(end))]


def error_exits(case: Case) -> Iterator[ExitReport]:
    """Yield the exits with an error code that names no cause, such as 1, which gpu-recovery did not cause."""
    return (end for end, meaning in _own_ends(case) if meaning is _OTHER_CODE)


def _exits(case: Case) -> Iterator[Match]:
    ends = _own_ends(case)
    for end, meaning in ends:
        if end.at_s > ends[0][0].at_s + TOGETHER_S:
            continue
        values = {
            "who": end.reporter or "?",
            "ended": _end_text(end),
            "english": meaning.english,
            "chinese": meaning.chinese,
        }
        is_unspecific = meaning is _OTHER_CODE  # a consequence of any other finding
        for cause, weight in meaning.here.items():
            yield Match(cause, case.scope_of(end), weight, (end.report_id,), values, is_unspecific)
        for cause, weight in meaning.job.items():
            yield Match(cause, JOB, weight, (end.report_id,), values, is_unspecific)


def _exits_after(case: Case) -> Iterator[Match]:
    ends = _own_ends(case)
    later = [end for end, _ in ends if end.at_s > ends[0][0].at_s + TOGETHER_S]
    ours = [end for end in case.all(ExitReport) if end.by_us]
    for end in [*later, *ours]:
        yield Match(
            None, case.scope_of(end), 0.0, (end.report_id,), {"who": end.reporter or "?", "ended": _end_text(end)}
        )


# -- XIDs --------------------------------------------------------------------------------------------------------------


def _occurrences(case: Case) -> Mapping[tuple[Scope, str, int], int]:
    """Number of occurrences of each XID on each GPU. Reports within a burst are one occurrence."""
    last: dict[tuple[Scope, str, int], float] = {}
    count: dict[tuple[Scope, str, int], int] = {}
    for report in case.all(XidReport):
        key = (case.scope_of(report), report.gpu, report.xid)
        if key not in last or report.at_s - last[key] > REPEATS[XidProfile.NVIDIA].burst_gap_s:
            count[key] = count.get(key, 0) + 1
        last[key] = report.at_s
    return count


def _xid_matches(case: Case) -> Iterator[Match]:
    count, rules = _occurrences(case), REPEATS[XidProfile.NVIDIA]
    for report in case.all(XidReport):
        place, evidence = case.scope_of(report), (report.report_id,)
        values = {"xid": report.xid, "gpu": report.gpu or "?", "asks": report.asks}
        xid_class = XidClass(report.asks) if report.asks in tuple(XidClass) else XidClass.DIAG
        again = count[place, report.gpu, report.xid] >= rules.repeats_by_xid.get(report.xid, rules.repeats_min)
        if xid_class is XidClass.REPLACE:
            yield Match(Cause.GPU_FAULT, place, Weight.PROOF, evidence, values)
        elif xid_class is XidClass.REBOOT:
            yield Match(Cause.GPU_FAULT, place, Weight.STRONG, evidence, values)
            yield Match(Cause.DRIVER, place, Weight.HINT, evidence, values)
        elif xid_class is XidClass.DIAG or report.xid == CONTAINED:
            yield Match(Cause.GPU_FAULT, place, Weight.FAIR, evidence, values)
        elif xid_class is XidClass.CONFIG:
            yield Match(Cause.CONFIGURATION, place, Weight.FAIR, evidence, values)
        elif xid_class is XidClass.FOLLOW_OTHER:
            yield Match(Cause.GPU_FAULT, place, 0.0, evidence, values, follows=True)
        elif xid_class is XidClass.APP:
            yield Match(Cause.APPLICATION, JOB, Weight.FAIR, evidence, values)
            yield Match(Cause.GPU_FAULT, place, Weight.FAIR if again else Weight.HINT, evidence, values)
        elif xid_class is XidClass.WATCH:
            weight = Weight.WEAK if again else UNDECIDED_WEIGHT
            yield Match(Cause.GPU_FAULT, place, weight, evidence, values)


def _restarts(case: Case) -> Iterator[Match]:
    """An instance that restarted under the attempt: that ended its rank, independent of the exit code."""
    for report in case.all(RestartReport):
        place, values = case.scope_of(report), {"instance": case.topology.instance_of(report) or "a machine"}
        yield Match(Cause.NODE_FAULT, place, Weight.STRONG, (report.report_id,), values)


# -- missing heartbeats ------------------------------------------------------------------------------------------------


def _missing_heartbeats(case: Case) -> Mapping[str, SilenceReport]:
    """Instances with a missing heartbeat: the newest SilenceReport of each that has sent nothing since."""
    last_seen: dict[str, float] = {}
    signs_of_life: tuple[Observation, ...] = (*case.all(WorkerHealth), *case.all(StageReport), *case.all(XidReport))
    for report in signs_of_life:
        instance_id = case.topology.instance_of(report)
        last_seen[instance_id] = max(last_seen.get(instance_id, report.at_s), report.at_s)
    missing: dict[str, SilenceReport] = {}
    for silence in case.all(SilenceReport):
        instance_id = case.topology.instance_of(silence)
        if (
            instance_id
            and silence.silent_s > case.thresholds.silent_s
            and last_seen.get(instance_id, 0.0) <= silence.at_s
        ):
            missing[instance_id] = silence
    return missing


def _racks_of(case: Case) -> Mapping[str, frozenset[str]]:
    """Instances of each known rack."""
    workers = case.topology.workers
    return {rack: frozenset(workers[name].instance_id for name in names) for rack, names in case.topology.racks.items()}


def _racks_without_heartbeats(case: Case) -> Mapping[str, frozenset[str]]:
    """Racks where most instances, and at least two, have missing heartbeats, with those instances."""
    missing, most = _missing_heartbeats(case), case.thresholds.rack_most_ratio
    racks = [(rack, whole, whole & missing.keys()) for rack, whole in _racks_of(case).items()]
    return {
        rack: frozenset(without)
        for rack, whole, without in racks
        if len(without) >= 2 and len(without) >= most * len(whole)
    }


def _all_heartbeats_missing(case: Case) -> bool:
    known = case.topology.instances.keys()
    return len(known) >= 2 and known <= _missing_heartbeats(case).keys()


def _missing_instances(case: Case) -> Iterator[Match]:
    """A single instance with a missing heartbeat: it is down, or cut off from the network.

    If its whole rack, or every instance, has missing heartbeats, the match is a consequence.
    """
    together = {name for instances in _racks_without_heartbeats(case).values() for name in instances}
    everywhere = _all_heartbeats_missing(case)
    for instance_id, report in sorted(_missing_heartbeats(case).items()):
        place, values = Scope.of(ScopeKind.INSTANCE, instance_id), {"instance": instance_id, "seconds": report.silent_s}
        follows = everywhere or instance_id in together
        yield Match(Cause.NODE_FAULT, place, Weight.FAIR, (report.report_id,), values, follows)
        yield Match(Cause.NETWORK, place, Weight.WEAK, (report.report_id,), values, follows)


def _missing_racks(case: Case) -> Iterator[Match]:
    if _all_heartbeats_missing(case):
        return
    missing, whole = _missing_heartbeats(case), _racks_of(case)
    for rack, instances in sorted(_racks_without_heartbeats(case).items()):
        evidence = tuple(missing[instance_id].report_id for instance_id in instances)
        values = {"rack": rack, "n": len(instances), "of": len(whole[rack])}
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.RACK, rack), Weight.STRONG, evidence, values)


def _missing_everywhere(case: Case) -> Iterator[Match]:
    if _all_heartbeats_missing(case):
        evidence = tuple(silence.report_id for silence in _missing_heartbeats(case).values())
        yield Match(Cause.CALLER, JOB, Weight.STRONG, evidence, {"n": len(evidence)})


# -- probes ------------------------------------------------------------------------------------------------------------

_FAILED_PROBES: Mapping[str, Mapping[Cause, float]] = {
    Probe.SELF_REPORT: {Cause.WORKER_HANG: Weight.WEAK, Cause.WORKER_CRASH: Weight.HINT},
    Probe.KERNEL_LOG: {Cause.NODE_FAULT: Weight.FAIR, Cause.GPU_FAULT: Weight.HINT},
    Probe.DCGM: {Cause.GPU_FAULT: Weight.PROOF},
    Probe.PAIRWISE: {Cause.NETWORK: Weight.FAIR, Cause.RDMA: Weight.WEAK},
    Probe.REBOOT: {Cause.NODE_FAULT: Weight.STRONG},
}


def _failed_probes(case: Case) -> Iterator[Match]:
    for report in case.all(ProbeReport):
        for cause, weight in _FAILED_PROBES.get(report.probe, {}).items() if report.passed is False else ():
            values = {"probe": report.probe, "who": report.reporter or "?"}
            yield Match(cause, case.scope_of(report), weight, (report.report_id,), values)


def _passed_probes(case: Case) -> Iterator[Match]:
    """A passed probe is only a note: a fault that a probe did not find may still be present."""
    for report in case.all(ProbeReport):
        if report.passed:
            yield Match(
                None,
                case.scope_of(report),
                0.0,
                (report.report_id,),
                {"probe": report.probe, "who": report.reporter or "?"},
            )


def _idle_checks(case: Case) -> Iterator[Match]:
    """A passed idle check is only a note, as a passed probe is: the failure is newer evidence than the pass.

    The diagnosis keeps the notes about the instances that a hypothesis names.
    """
    for report in case.all(IdleCheckReport):
        values = {
            "instance": report.instance_id or "?",
            "level": report.level,
            "hours": max(0.0, case.at_s - report.at_s) / 3600,
        }
        yield Match(None, case.scope_of(report), 0.0, (report.report_id,), values)


RULES: tuple[Rule, ...] = (
    Rule("exit", "{who} ended with {ended}: {english}", "{who}以{ended}结束：{chinese}", (ExitReport,), _exits, SOURCE),
    Rule(
        "exit-after",
        "{who} ended with {ended} after another failure: a consequence",
        "{who}在其他进程之后或因其结束（{ended}）：级联",
        (ExitReport,),
        _exits_after,
        SOURCE,
    ),
    Rule(
        "xid", "XID {xid} on GPU {gpu} ({asks})", "GPU {gpu}出现XID {xid}（{asks}）", (XidReport,), _xid_matches, SOURCE
    ),
    Rule(
        "restart",
        "{instance} restarted during the attempt, and gpu-recovery did not order the restart",
        "{instance}在运行期间重启，且并非由gpu-recovery发起",
        (RestartReport,),
        _restarts,
        SOURCE,
    ),
    Rule(
        "silence",
        "{instance} has not reported for {seconds:.0f} s: it is down, or disconnected",
        "{instance}已{seconds:.0f}秒无消息：宕机或网络中断",
        (SilenceReport,),
        _missing_instances,
        SOURCE,
    ),
    Rule(
        "silence-rack",
        "{n} of the {of} instances of rack {rack} do not report: its switch or its power",
        "机架{rack}的{of}台机器中有{n}台无消息：交换机或供电故障",
        (SilenceReport,),
        _missing_racks,
        SOURCE,
    ),
    Rule(
        "silence-all",
        "All {n} instances do not report: probably the network to the API, not the instances",
        "全部{n}台机器同时无消息：监听方网络中断",
        (SilenceReport,),
        _missing_everywhere,
        SOURCE,
    ),
    Rule(
        "probe", "{who} failed its probe: {probe}", "{who}未通过探测：{probe}", (ProbeReport,), _failed_probes, SOURCE
    ),
    Rule(
        "probe-passed",
        "{who} passed its probe: {probe}",
        "{who}通过探测：{probe}",
        (ProbeReport,),
        _passed_probes,
        SOURCE,
    ),
    Rule(
        IDLE_CHECK,
        "{instance} had passed an idle check at level {level}, {hours:.1f} h before this diagnosis",
        "{instance}在本次诊断之前{hours:.1f}小时通过了级别{level}的空闲检查",
        (IdleCheckReport,),
        _idle_checks,
        SOURCE,
    ),
)

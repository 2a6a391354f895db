"""What the recovery's own loop sees of machines and ranks: how ranks ended, XIDs, silence, and probes that were made.

No row of seed 002: its rows are about what a program reports; these are what is known when it reports nothing. A rank
that we ended, or that ended after the first, ends because another did. Of an XID only the class is read
(`core.xid`); no GPU is blamed for what its program did, unless it does it again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    Observation,
    ProbeReport,
    SilenceReport,
    StageReport,
    WorkerHealth,
    XidReport,
)
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Probe, Scope, ScopeKind, Weight
from gpu_recovery.core.xid import REPEATS, XidClass, XidProfile

SOURCE = "the recovery loop"
TOGETHER_S = 1.0
"""Ranks that end within a second of the first end together: their stops are told to the second."""
UNDECIDED_WEIGHT = 0.3
"""Alone it decides nothing."""
CONTAINED = 94
"""An uncorrectable ECC error that only one program meets: its class is the program's restart, its cause the GPU."""
SIGNAL_BASE, WRAPPED = 128, frozenset({241, 245, 247, 250})
"""128 + n is signal n by the shell's convention; Python's `exit(-n)` gives 256 - n."""


@dataclass(frozen=True)
class _Meaning:
    """What an end speaks for at its own place, and what for the job as a whole."""

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
        "killed: by the kernel for lack of memory, or by somebody",
        "被强制终止：内核OOM或人为",
        {Cause.HOST_MEMORY: Weight.WEAK, Cause.WORKER_CRASH: Weight.WEAK},
        {},
    ),
    11: _Meaning(
        "a segmentation fault",
        "段错误",
        {Cause.WORKER_CRASH: Weight.FAIR, Cause.GPU_FAULT: Weight.HINT},
        {Cause.APPLICATION: Weight.HINT},
    ),
    15: _Meaning("asked to end by somebody", "被要求退出", {}, {Cause.PREEMPTED: Weight.WEAK}),
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
"""Exit code 1 is anything: without more evidence the GPUs are asked."""


def signal_of(end: ExitReport) -> int | None:
    """The signal that ended it, as its reporter, the shell or Python says it; None if none did or nobody knows."""
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


def _ended(end: ExitReport) -> str:
    signal = signal_of(end)
    return f"signal {signal}" if signal is not None else f"exit code {end.code}"


def _own_ends(case: Case) -> list[tuple[ExitReport, _Meaning]]:
    """The failures that were not our doing, the oldest first."""
    return [(one, meaning) for one in case.all(ExitReport) if not one.by_us and (meaning := _meaning(one))]


def _exits(case: Case) -> Iterator[Match]:
    ends = _own_ends(case)
    for one, meaning in ends:
        if one.at_s > ends[0][0].at_s + TOGETHER_S:
            continue
        values = {
            "who": one.reporter or "?",
            "ended": _ended(one),
            "english": meaning.english,
            "chinese": meaning.chinese,
        }
        says_nothing = meaning is _OTHER_CODE  # it follows from whatever else is told
        for cause, weight in meaning.here.items():
            yield Match(cause, case.scope_of(one), weight, (one.report_id,), values, says_nothing)
        for cause, weight in meaning.job.items():
            yield Match(cause, JOB, weight, (one.report_id,), values, says_nothing)


def _exits_after(case: Case) -> Iterator[Match]:
    ends = _own_ends(case)
    later = [one for one, _ in ends if one.at_s > ends[0][0].at_s + TOGETHER_S]
    ours = [one for one in case.all(ExitReport) if one.by_us]
    for one in [*later, *ours]:
        yield Match(None, case.scope_of(one), 0.0, (one.report_id,), {"who": one.reporter or "?", "ended": _ended(one)})


# -- XIDs --------------------------------------------------------------------------------------------------------------


def _occurrences(case: Case) -> Mapping[tuple[Scope, str, int], int]:
    """How often each XID came on each GPU: reports of it that are close together are one occurrence."""
    last: dict[tuple[Scope, str, int], float] = {}
    count: dict[tuple[Scope, str, int], int] = {}
    for one in case.all(XidReport):
        key = (case.scope_of(one), one.gpu, one.xid)
        if key not in last or one.at_s - last[key] > REPEATS[XidProfile.NVIDIA].burst_gap_s:
            count[key] = count.get(key, 0) + 1
        last[key] = one.at_s
    return count


def _xids(case: Case) -> Iterator[Match]:
    count, rules = _occurrences(case), REPEATS[XidProfile.NVIDIA]
    for one in case.all(XidReport):
        place, evidence = case.scope_of(one), (one.report_id,)
        values = {"xid": one.xid, "gpu": one.gpu or "?", "asks": one.asks}
        asks = XidClass(one.asks) if one.asks in tuple(XidClass) else XidClass.DIAG
        again = count[place, one.gpu, one.xid] >= rules.sooner.get(one.xid, rules.most)
        if asks is XidClass.REPLACE:
            yield Match(Cause.GPU_FAULT, place, Weight.PROOF, evidence, values)
        elif asks is XidClass.REBOOT:
            yield Match(Cause.GPU_FAULT, place, Weight.STRONG, evidence, values)
            yield Match(Cause.DRIVER, place, Weight.HINT, evidence, values)
        elif asks is XidClass.DIAG or one.xid == CONTAINED:
            yield Match(Cause.GPU_FAULT, place, Weight.FAIR, evidence, values)
        elif asks is XidClass.CONFIG:
            yield Match(Cause.CONFIGURATION, place, Weight.FAIR, evidence, values)
        elif asks is XidClass.FOLLOW_OTHER:
            yield Match(Cause.GPU_FAULT, place, 0.0, evidence, values, follows=True)
        elif asks is XidClass.APP:
            yield Match(Cause.APPLICATION, JOB, Weight.FAIR, evidence, values)
            yield Match(Cause.GPU_FAULT, place, Weight.FAIR if again else Weight.HINT, evidence, values)
        elif asks is XidClass.WATCH:
            weight = Weight.WEAK if again else UNDECIDED_WEIGHT
            yield Match(Cause.GPU_FAULT, place, weight, evidence, values)


# -- silence -----------------------------------------------------------------------------------------------------------


def _silent(case: Case) -> Mapping[str, SilenceReport]:
    """The last word on each machine that is silent and has not been heard of since."""
    heard: dict[str, float] = {}
    alive: tuple[Observation, ...] = (*case.all(WorkerHealth), *case.all(StageReport), *case.all(XidReport))
    for one in alive:
        instance_id = case.topology.instance_of(one)
        heard[instance_id] = max(heard.get(instance_id, one.at_s), one.at_s)
    found: dict[str, SilenceReport] = {}
    for silence in case.all(SilenceReport):
        instance_id = case.topology.instance_of(silence)
        if instance_id and silence.silent_s > case.thresholds.silent_s and heard.get(instance_id, 0.0) <= silence.at_s:
            found[instance_id] = silence
    return found


def _racks_of(case: Case) -> Mapping[str, frozenset[str]]:
    """The instances of each rack that is known."""
    workers = case.topology.workers
    return {rack: frozenset(workers[name].instance_id for name in names) for rack, names in case.topology.racks.items()}


def _silent_racks(case: Case) -> Mapping[str, frozenset[str]]:
    """The racks of which most is silent, on two machines at least, with their silent machines."""
    silent, most = _silent(case), case.thresholds.rack_most_ratio
    found = [(rack, whole, whole & silent.keys()) for rack, whole in _racks_of(case).items()]
    return {
        rack: frozenset(quiet) for rack, whole, quiet in found if len(quiet) >= 2 and len(quiet) >= most * len(whole)
    }


def _all_are_silent(case: Case) -> bool:
    known = case.topology.instances.keys()
    return len(known) >= 2 and known <= _silent(case).keys()


def _silences(case: Case) -> Iterator[Match]:
    """A machine that is silent alone: it is down, or cut off. With its rack or with all of them it only follows."""
    together = {one for instances in _silent_racks(case).values() for one in instances}
    everybody = _all_are_silent(case)
    for instance_id, one in sorted(_silent(case).items()):
        place, values = Scope.of(ScopeKind.INSTANCE, instance_id), {"instance": instance_id, "seconds": one.silent_s}
        follows = everybody or instance_id in together
        yield Match(Cause.NODE_FAULT, place, Weight.FAIR, (one.report_id,), values, follows)
        yield Match(Cause.NETWORK, place, Weight.WEAK, (one.report_id,), values, follows)


def _silent_rack(case: Case) -> Iterator[Match]:
    if _all_are_silent(case):
        return
    silent, whole = _silent(case), _racks_of(case)
    for rack, instances in sorted(_silent_racks(case).items()):
        evidence = tuple(silent[one].report_id for one in instances)
        values = {"rack": rack, "n": len(instances), "of": len(whole[rack])}
        yield Match(Cause.NETWORK, Scope.of(ScopeKind.RACK, rack), Weight.STRONG, evidence, values)


def _all_silent(case: Case) -> Iterator[Match]:
    if _all_are_silent(case):
        evidence = tuple(one.report_id for one in _silent(case).values())
        yield Match(Cause.CALLER, JOB, Weight.STRONG, evidence, {"n": len(evidence)})


# -- probes ------------------------------------------------------------------------------------------------------------

_FAILED: Mapping[str, Mapping[Cause, float]] = {
    Probe.SELF_REPORT: {Cause.WORKER_HANG: Weight.WEAK, Cause.WORKER_CRASH: Weight.HINT},
    Probe.KERNEL_LOG: {Cause.NODE_FAULT: Weight.FAIR, Cause.GPU_FAULT: Weight.HINT},
    Probe.DCGM: {Cause.GPU_FAULT: Weight.PROOF},
    Probe.PAIRWISE: {Cause.NETWORK: Weight.FAIR, Cause.RDMA: Weight.WEAK},
    Probe.REBOOT: {Cause.NODE_FAULT: Weight.STRONG},
}


def _failed_probes(case: Case) -> Iterator[Match]:
    for one in case.all(ProbeReport):
        for cause, weight in _FAILED.get(one.probe, {}).items() if one.passed is False else ():
            values = {"probe": one.probe, "who": one.reporter or "?"}
            yield Match(cause, case.scope_of(one), weight, (one.report_id,), values)


def _passed_probes(case: Case) -> Iterator[Match]:
    """It speaks for nobody: what was not found is not away."""
    for one in case.all(ProbeReport):
        if one.passed:
            yield Match(
                None, case.scope_of(one), 0.0, (one.report_id,), {"probe": one.probe, "who": one.reporter or "?"}
            )


RULES: tuple[Rule, ...] = (
    Rule("exit", "{who} ended with {ended}: {english}", "{who}以{ended}结束：{chinese}", (ExitReport,), _exits, SOURCE),
    Rule(
        "exit-after",
        "{who} ended with {ended} after or because of another: a consequence",
        "{who}在其他进程之后或因其结束（{ended}）：级联",
        (ExitReport,),
        _exits_after,
        SOURCE,
    ),
    Rule("xid", "XID {xid} on GPU {gpu} ({asks})", "GPU {gpu}出现XID {xid}（{asks}）", (XidReport,), _xids, SOURCE),
    Rule(
        "silence",
        "{instance} has not been heard of for {seconds:.0f} s: it is down, or cut off",
        "{instance}已{seconds:.0f}秒无消息：宕机或网络中断",
        (SilenceReport,),
        _silences,
        SOURCE,
    ),
    Rule(
        "silence-rack",
        "{n} of the {of} machines of rack {rack} are silent: its switch or its power",
        "机架{rack}的{of}台机器中有{n}台无消息：交换机或供电故障",
        (SilenceReport,),
        _silent_rack,
        SOURCE,
    ),
    Rule(
        "silence-all",
        "All {n} machines are silent at once: whoever listens to them is cut off",
        "全部{n}台机器同时无消息：监听方网络中断",
        (SilenceReport,),
        _all_silent,
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
)

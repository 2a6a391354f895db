"""Rows 1-6: what a GPU looked like from stage to stage, and where an error that comes late has happened.

CUDA is asynchronous: an error shows at the next call that waits for the GPU, so it belongs to any stage since the last
check that waited and was well (1). After the first such error every call of that context fails (2). What the rows
specify is published as it is; what their defects are is mended in the rows with a "+": uncorrected ECC errors count as
well, a counter that falls or another boot begins anew, and a probe that did not wait for the GPU shows nothing (5).

A GPU is known by its instance and its name, which must be its own (a UUID, or the machine's number for it): two ranks
that both call theirs "0" would be read as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.cuda_errors import STICKY, CudaError, cuda_error
from gpu_recovery.core.diagnosis.observations import Check, StageReport
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, Weight

CORRECTED_WEIGHT = 0.3
"""ECC has corrected it: alone it decides nothing."""
SEVERAL_PLACES = 3
"""The same kind of error at first hand on so many machines speaks for the program as much as for each of them."""
NO_CHECK = "—"


@dataclass(frozen=True)
class StageFault:
    """An error on a GPU. window: the stages it may be of, the earliest first; since: the last clean check's stage.

    root: the error that spoiled the context before it; None if it is the first.
    """

    report: StageReport
    kind: CudaError
    window: tuple[str, ...]
    since: str
    root: StageFault | None = None


def timelines(case: Case) -> Mapping[tuple[str, str], list[StageReport]]:
    """The reports of each GPU, the oldest first; of one who names no GPU, those of that worker."""
    found: dict[tuple[str, str], list[StageReport]] = {}
    for one in case.all(StageReport):
        place = case.topology.instance_of(one)
        key = (place or one.reporter, one.gpu) if one.gpu else (place, f"of {one.reporter}")
        found.setdefault(key, []).append(one)
    return found


def is_clean(report: StageReport) -> bool:
    """Whether it shows that the GPU was well: a probe that waited for it, passed, and had the right result."""
    return report.probe is Check.PASSED and report.synchronised and report.matches is not False and not report.error


def faults(case: Case) -> tuple[StageFault, ...]:
    """Every error of CUDA in the stages, GPU by GPU (rows 1 and 2)."""
    return tuple(fault for reports in case.computed_once(timelines).values() for fault in _faults_of(reports))


def _faults_of(reports: list[StageReport]) -> Iterator[StageFault]:
    stages: list[str] = []
    since, boot, root = NO_CHECK, "", None
    for one in reports:
        if boot and one.boot_id and one.boot_id != boot:
            stages, since, root = [], NO_CHECK, None
        boot = one.boot_id or boot
        if is_clean(one):
            stages, since, root = [one.stage] if one.moment != "after" else [], f"{one.moment} {one.stage}", None
            continue
        stages.append(one.stage)
        kind = cuda_error(one.error) if one.error else None
        if root is not None and one.error:
            yield StageFault(one, kind or CudaError.CONTEXT, (), since, root)
        elif kind is not None:
            fault = StageFault(one, kind, tuple(dict.fromkeys(stages)), since)
            yield fault
            root = fault if kind in STICKY else None


_CAUSES: Mapping[CudaError, Cause] = {
    CudaError.HARDWARE: Cause.GPU_FAULT,
    CudaError.ASSERTION: Cause.APPLICATION,
    CudaError.DRIVER: Cause.DRIVER,
    CudaError.CONFIGURATION: Cause.CONFIGURATION,
    CudaError.CONTEXT: Cause.GPU_CONTEXT,
}
_NAMES_MORE_THAN: Mapping[CudaError, tuple[CudaError, ...]] = {
    CudaError.CONTEXT: (CudaError.HARDWARE, CudaError.ASSERTION),
    CudaError.ASSERTION: (CudaError.HARDWARE,),
}
"""A consequence that names what its root did not is a root as well: the driver words one fault in several ways."""
_OF_THE_PROGRAM = frozenset({Cause.APPLICATION, Cause.CONFIGURATION})
_WEIGHTS: Mapping[CudaError, float] = {
    CudaError.HARDWARE: Weight.STRONG,
    CudaError.ASSERTION: Weight.STRONG,
    CudaError.DRIVER: Weight.FAIR,
    CudaError.CONFIGURATION: Weight.FAIR,
    CudaError.CONTEXT: Weight.FAIR,
}


def _deferred(case: Case) -> Iterator[Match]:
    first = [one for one in case.computed_once(faults) if one.root is None and one.kind is not CudaError.MEMORY]
    places = {case.scope_of(one.report) for one in first if one.kind is CudaError.CONTEXT}
    for one in first:
        values = {
            "stage": one.report.stage,
            "error": one.report.error,
            "since": one.since,
            "window": ", ".join(one.window),
        }
        evidence = (one.report.report_id,)
        cause, place = _CAUSES[one.kind], _scope(case, one)
        yield Match(cause, place, _WEIGHTS[one.kind], evidence, values)
        if one.kind is CudaError.CONTEXT:
            shared = Weight.FAIR if len(places) >= SEVERAL_PLACES else Weight.HINT
            yield Match(Cause.GPU_FAULT, place, Weight.HINT, evidence, values)
            yield Match(Cause.APPLICATION, JOB, shared, evidence, values)


def _scope(case: Case, fault: StageFault) -> Scope:
    return JOB if _CAUSES[fault.kind] in _OF_THE_PROGRAM else case.scope_of(fault.report)


def _spoiled(case: Case) -> Iterator[Match]:
    for one in case.computed_once(faults):
        if one.root is None:
            continue
        values = {"stage": one.report.stage, "error": one.report.error, "root": one.root.report.stage}
        evidence = (one.report.report_id, one.root.report.report_id)
        yield Match(_CAUSES[one.root.kind], _scope(case, one.root), 0.0, evidence, values, follows=True)
        if one.kind in _NAMES_MORE_THAN.get(one.root.kind, ()):
            yield Match(_CAUSES[one.kind], _scope(case, one), _WEIGHTS[one.kind], evidence, values)


def _growth(case: Case, counter: str) -> Iterator[tuple[StageReport, StageReport, int, int]]:
    """Each reading of `counter` above the one before it on that GPU, with both. The first one is only a baseline."""
    for reports in case.computed_once(timelines).values():
        last: StageReport | None = None
        for one in reports:
            now = getattr(one, counter)
            if now is None:
                continue
            again = last is not None and bool(last.boot_id and one.boot_id) and last.boot_id != one.boot_id
            if last is not None and not again and now > getattr(last, counter):
                yield last, one, getattr(last, counter), now
            last = one


def _ecc_specified(case: Case) -> Iterator[Match]:
    for _, one, before, after in _growth(case, "corrected"):
        yield Match(None, case.scope_of(one), 0.0, (one.report_id,), {"stage": one.stage, "a": before, "b": after})


def _ecc_repaired(case: Case) -> Iterator[Match]:
    for counter, weight in (("corrected", CORRECTED_WEIGHT), ("uncorrected", Weight.PROOF)):
        for last, one, before, after in _growth(case, counter):
            values = {
                "stage": one.stage,
                "a": before,
                "b": after,
                "gpu": one.gpu or "?",
                "english": counter,
                "chinese": "可纠正" if counter == "corrected" else "不可纠正",
            }
            yield Match(Cause.GPU_FAULT, case.scope_of(one), weight, (last.report_id, one.report_id), values)


def _latest(case: Case, *names: str) -> Iterator[StageReport]:
    """The last report of each GPU and stage that has one of these fields."""
    for reports in case.computed_once(timelines).values():
        kept = {
            (one.stage, one.operation): one for one in reports if any(getattr(one, name) is not None for name in names)
        }
        yield from kept.values()


def _passed(case: Case) -> Iterator[Match]:
    for one in _latest(case, "probe"):
        if one.probe is Check.PASSED:
            yield Match(None, case.scope_of(one), 0.0, (one.report_id,), {"stage": one.stage})


def _says_nothing(case: Case) -> Iterator[Match]:
    for one in _latest(case, "probe"):
        if one.probe is Check.PASSED and not one.synchronised:
            yield Match(None, case.scope_of(one), 0.0, (one.report_id,), {"stage": one.stage})


def _wrong_result(case: Case) -> Iterator[Match]:
    for one in case.all(StageReport):
        if one.matches is False:
            weight = Weight.STRONG if one.synchronised else Weight.FAIR
            values = {"stage": one.stage, "gpu": one.gpu or "?"}
            yield Match(Cause.GPU_FAULT, case.scope_of(one), weight, (one.report_id,), values)


def _failed_specified(case: Case) -> Iterator[Match]:
    for one in case.all(StageReport):
        if one.probe is Check.FAILED:
            values = {"stage": one.stage, "error": one.error or "?"}
            yield Match(None, case.scope_of(one), 0.0, (one.report_id,), values)


def _failed_repaired(case: Case) -> Iterator[Match]:
    """A check that failed by itself, or for lack of memory, blames no GPU; nor does one on a context already spoiled.

    One that fails with a late error may have met the fault of an earlier stage: rows 1 and 2 speak of it as well.
    """
    spoiled = {one.report.report_id for one in case.computed_once(faults) if one.root is not None}
    for one in case.all(StageReport):
        if one.probe is not Check.FAILED or one.report_id in spoiled or one.matches is False:
            continue
        kind = cuda_error(one.error) if one.error else CudaError.HARDWARE
        if kind in (CudaError.HARDWARE, CudaError.CONTEXT):
            weight = Weight.FAIR if kind is CudaError.HARDWARE else Weight.HINT
            values = {"stage": one.stage, "error": one.error or "?", "gpu": one.gpu or "?"}
            yield Match(Cause.GPU_FAULT, case.scope_of(one), weight, (one.report_id,), values)


def _trace(case: Case) -> Iterator[Match]:
    for one in _latest(case, "allocated_gb", "reserved_gb"):
        values = {
            "stage": one.stage,
            "operation": one.operation or f"{one.moment}_{one.stage}",
            "allocated": _gb(one.allocated_gb),
            "reserved": _gb(one.reserved_gb),
        }
        yield Match(None, case.scope_of(one), 0.0, (one.report_id,), values)


def _gb(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


_OPERATION = (
    "[GPU_OP] stage={stage}, operation={operation}, "
    "cuda_memory_allocated={allocated}GB, cuda_memory_reserved={reserved}GB"
)
RULES: tuple[Rule, ...] = (
    Rule(
        "1",
        "CUDA error in stage {stage}: {error}. Last clean check: {since}; it may have happened in: {window}",
        "{stage}阶段报告CUDA错误：{error}。上次通过的同步检查：{since}；可疑阶段：{window}",
        (StageReport,),
        _deferred,
    ),
    Rule(
        "2",
        "[{stage}] {error}: a consequence, the CUDA context was spoiled by the error in stage {root}",
        "[{stage}] {error}：级联错误，CUDA context已被{root}阶段的错误污染",
        (StageReport,),
        _spoiled,
    ),
    Rule(
        "3",
        "[{stage}] GPU ECC errors increased: {a} -> {b}",
        "[{stage}] GPU ECC错误增加：{a} -> {b}",
        (StageReport,),
        _ecc_specified,
    ),
    Rule(
        "3+",
        "[{stage}] {english} GPU ECC errors increased: {a} -> {b} (GPU {gpu})",
        "[{stage}] GPU {gpu} {chinese}ECC错误增加：{a} -> {b}",
        (StageReport,),
        _ecc_repaired,
    ),
    Rule("4", "[{stage}] GPU health check passed", "[{stage}] GPU健康检查通过", (StageReport,), _passed),
    Rule(
        "4+",
        "[{stage}] the probe did not wait for the GPU: its pass shows nothing",
        "[{stage}] 探测未与GPU同步：通过不说明任何问题",
        (StageReport,),
        _says_nothing,
    ),
    Rule(
        "4a+",
        "[{stage}] the probe's result on GPU {gpu} is wrong: suspected silent data corruption",
        "[{stage}] GPU {gpu} 探测结果错误 → 疑似静默数据损坏",
        (StageReport,),
        _wrong_result,
    ),
    Rule(
        "5",
        "[{stage}] GPU health check failed: {error}. GPU fault detected in stage {stage}",
        "GPU故障检测于{stage}阶段：{error}",
        (StageReport,),
        _failed_specified,
    ),
    Rule(
        "5+",
        "[{stage}] the probe of GPU {gpu} failed: {error}",
        "[{stage}] GPU {gpu} 探测失败：{error}",
        (StageReport,),
        _failed_repaired,
    ),
    Rule("6", _OPERATION, _OPERATION, (StageReport,), _trace),
)

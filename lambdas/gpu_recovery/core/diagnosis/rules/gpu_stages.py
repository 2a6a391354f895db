"""GPU stage rules: the state of a GPU from stage to stage, and the origin of a late CUDA error.

Rows 1-6 of the fault catalogue, docs/diagnosis.md.

CUDA is asynchronous: an error appears at the next call that waits for the GPU. So it may come from any stage since the
last clean check that waited (row 1). After the first such error every call of that context fails (row 2).

The rows are published as specified. The rows with a "+" repair them: uncorrected ECC errors count as well, a counter
that falls or another boot starts a new count, and a probe that did not wait for the GPU shows nothing (row 5).

A GPU is known by its instance and its name. The name must be unique on the instance (a UUID, or the number of the GPU
on the instance). Two ranks that both call their GPU "0" would count as one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.cuda_errors import STICKY, CudaError, cuda_error
from gpu_recovery.core.diagnosis.observations import Check, StageReport
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, Weight
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

CORRECTED_WEIGHT = 0.3
"""Weight of corrected ECC errors. Alone they decide nothing, because ECC corrected them."""
SEVERAL_PLACES = 3
"""Number of places with a context error of their own from which the program is also a probable cause."""
NO_CHECK = "—"
"""Text for a missing clean check."""


@frozen_dataclass()
class StageFault:
    """A CUDA error on a GPU.

    window: stages that the error may come from, the earliest first.
    since: stage of the last clean check.
    root: the error that broke the context earlier; None for the first error.
    """

    report: StageReport
    kind: CudaError
    window: tuple[str, ...]
    since: str
    root: StageFault | None = None


def timelines(case: Case) -> Mapping[tuple[str, str], list[StageReport]]:
    """Observations of each GPU, the oldest first. Without the name of a GPU: those of each worker."""
    by_gpu: dict[tuple[str, str], list[StageReport]] = {}
    for report in case.all(StageReport):
        place = case.topology.instance_of(report)
        key = (place or report.reporter, report.gpu) if report.gpu else (place, f"of {report.reporter}")
        by_gpu.setdefault(key, []).append(report)
    return by_gpu


def is_clean(report: StageReport) -> bool:
    """Whether the observation shows a healthy GPU.

    That is a probe that waited for the GPU and passed, without a wrong result and without an error.
    """
    return report.probe is Check.PASSED and report.synchronised and report.matches is not False and not report.error


def faults(case: Case) -> tuple[StageFault, ...]:
    """Every CUDA error in the stages, GPU by GPU (rows 1 and 2)."""
    return tuple(fault for reports in case.computed_once(timelines).values() for fault in _faults_of(reports))


def _faults_of(reports: list[StageReport]) -> Iterator[StageFault]:
    stages: list[str] = []
    since, boot, root = NO_CHECK, "", None
    for report in reports:
        if boot and report.boot_id and report.boot_id != boot:
            stages, since, root = [], NO_CHECK, None
        boot = report.boot_id or boot
        if is_clean(report):
            stages, since, root = (
                [report.stage] if report.moment != "after" else [],
                f"{report.moment} {report.stage}",
                None,
            )
            continue
        stages.append(report.stage)
        kind = cuda_error(report.error) if report.error else None
        if root is not None and report.error:
            yield StageFault(report, kind or CudaError.CONTEXT, (), since, root)
        elif kind is not None:
            fault = StageFault(report, kind, tuple(dict.fromkeys(stages)), since)
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
"""Kinds that say more than the kind of their root. Such a consequence counts as a root as well.

The driver reports one fault in several ways.
"""
_OF_THE_PROGRAM = frozenset({Cause.APPLICATION, Cause.CONFIGURATION})
_WEIGHTS: Mapping[CudaError, float] = {
    CudaError.HARDWARE: Weight.STRONG,
    CudaError.ASSERTION: Weight.STRONG,
    CudaError.DRIVER: Weight.FAIR,
    CudaError.CONFIGURATION: Weight.FAIR,
    CudaError.CONTEXT: Weight.FAIR,
}


def _deferred(case: Case) -> Iterator[Match]:
    first = [fault for fault in case.computed_once(faults) if fault.root is None and fault.kind is not CudaError.MEMORY]
    places = {case.scope_of(fault.report) for fault in first if fault.kind is CudaError.CONTEXT}
    for fault in first:
        values = {
            "stage": fault.report.stage,
            "error": fault.report.error,
            "since": fault.since,
            "window": ", ".join(fault.window),
        }
        evidence = (fault.report.report_id,)
        cause, place = _CAUSES[fault.kind], _scope(case, fault)
        yield Match(cause, place, _WEIGHTS[fault.kind], evidence, values)
        if fault.kind is CudaError.CONTEXT:
            shared = Weight.FAIR if len(places) >= SEVERAL_PLACES else Weight.HINT
            yield Match(Cause.GPU_FAULT, place, Weight.HINT, evidence, values)
            yield Match(Cause.APPLICATION, JOB, shared, evidence, values)


def _scope(case: Case, fault: StageFault) -> Scope:
    return JOB if _CAUSES[fault.kind] in _OF_THE_PROGRAM else case.scope_of(fault.report)


def _consequences(case: Case) -> Iterator[Match]:
    for fault in case.computed_once(faults):
        if fault.root is None:
            continue
        values = {"stage": fault.report.stage, "error": fault.report.error, "root": fault.root.report.stage}
        evidence = (fault.report.report_id, fault.root.report.report_id)
        yield Match(_CAUSES[fault.root.kind], _scope(case, fault.root), 0.0, evidence, values, follows=True)
        if fault.kind in _NAMES_MORE_THAN.get(fault.root.kind, ()):
            yield Match(_CAUSES[fault.kind], _scope(case, fault), _WEIGHTS[fault.kind], evidence, values)


def _growth(case: Case, counter: str) -> Iterator[tuple[StageReport, StageReport, int, int]]:
    """Each increase of `counter` on a GPU: both observations, the value before and the value after.

    The first reading, and the first after a boot, is only the baseline.
    """
    for reports in case.computed_once(timelines).values():
        last: StageReport | None = None
        for report in reports:
            now = getattr(report, counter)
            if now is None:
                continue
            rebooted = last is not None and bool(last.boot_id and report.boot_id) and last.boot_id != report.boot_id
            if last is not None and not rebooted and now > getattr(last, counter):
                yield last, report, getattr(last, counter), now
            last = report


def _ecc_specified(case: Case) -> Iterator[Match]:
    for _, report, before, after in _growth(case, "corrected"):
        yield Match(
            None, case.scope_of(report), 0.0, (report.report_id,), {"stage": report.stage, "a": before, "b": after}
        )


def _ecc_repaired(case: Case) -> Iterator[Match]:
    for counter, weight in (("corrected", CORRECTED_WEIGHT), ("uncorrected", Weight.PROOF)):
        for last, report, before, after in _growth(case, counter):
            values = {
                "stage": report.stage,
                "a": before,
                "b": after,
                "gpu": report.gpu or "?",
                "english": counter,
                "chinese": "可纠正" if counter == "corrected" else "不可纠正",
            }
            yield Match(Cause.GPU_FAULT, case.scope_of(report), weight, (last.report_id, report.report_id), values)


def _latest(case: Case, *names: str) -> Iterator[StageReport]:
    """Last observation of each GPU, stage and operation that has one of these fields."""
    for reports in case.computed_once(timelines).values():
        latest = {
            (report.stage, report.operation): report
            for report in reports
            if any(getattr(report, name) is not None for name in names)
        }
        yield from latest.values()


def _passed(case: Case) -> Iterator[Match]:
    for report in _latest(case, "probe"):
        if report.probe is Check.PASSED:
            yield Match(None, case.scope_of(report), 0.0, (report.report_id,), {"stage": report.stage})


def _not_synchronised(case: Case) -> Iterator[Match]:
    for report in _latest(case, "probe"):
        if report.probe is Check.PASSED and not report.synchronised:
            yield Match(None, case.scope_of(report), 0.0, (report.report_id,), {"stage": report.stage})


def _wrong_result(case: Case) -> Iterator[Match]:
    for report in case.all(StageReport):
        if report.matches is False:
            weight = Weight.STRONG if report.synchronised else Weight.FAIR
            values = {"stage": report.stage, "gpu": report.gpu or "?"}
            yield Match(Cause.GPU_FAULT, case.scope_of(report), weight, (report.report_id,), values)


def _failed_specified(case: Case) -> Iterator[Match]:
    for report in case.all(StageReport):
        if report.probe is Check.FAILED:
            values = {"stage": report.stage, "error": report.error or "?"}
            yield Match(None, case.scope_of(report), 0.0, (report.report_id,), values)


def _failed_repaired(case: Case) -> Iterator[Match]:
    """Row 5, repaired: a failed probe that finds its GPU faulty.

    A probe with an error of its own, with too little memory, or in a broken context finds no GPU faulty. A probe
    without an error text counts as a hardware error. A probe with a late error may show the fault of an earlier stage;
    rows 1 and 2 report such an error as well.
    """
    consequences = {fault.report.report_id for fault in case.computed_once(faults) if fault.root is not None}
    for report in case.all(StageReport):
        if report.probe is not Check.FAILED or report.report_id in consequences or report.matches is False:
            continue
        kind = cuda_error(report.error) if report.error else CudaError.HARDWARE
        if kind in (CudaError.HARDWARE, CudaError.CONTEXT):
            weight = Weight.FAIR if kind is CudaError.HARDWARE else Weight.HINT
            values = {"stage": report.stage, "error": report.error or "?", "gpu": report.gpu or "?"}
            yield Match(Cause.GPU_FAULT, case.scope_of(report), weight, (report.report_id,), values)


def _trace(case: Case) -> Iterator[Match]:
    for report in _latest(case, "allocated_gb", "reserved_gb"):
        values = {
            "stage": report.stage,
            "operation": report.operation or f"{report.moment}_{report.stage}",
            "allocated": _gb(report.allocated_gb),
            "reserved": _gb(report.reserved_gb),
        }
        yield Match(None, case.scope_of(report), 0.0, (report.report_id,), values)


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
        _consequences,
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
        _not_synchronised,
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

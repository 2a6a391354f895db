"""Rows 1-6: what a GPU looked like from stage to stage."""

import pytest
from gpu_recovery.core.diagnosis.cuda_errors import CudaError, cuda_error
from gpu_recovery.core.diagnosis.observations import Check, StageReport
from gpu_recovery.core.diagnosis.rules.gpu_stages import RULES
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Remedy, Weight

from tests.core.diagnosis.rule_results import asked, found, instance

ILLEGAL = "RuntimeError: CUDA error: an illegal memory access was encountered"
ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
ASSERT = "RuntimeError: CUDA error: device-side assert triggered"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def report(stage: str = "rollout", **given: object) -> StageReport:
    """A report of GPU-a of instance i-1."""
    return StageReport(**{"report_id": "", "at_s": 0.0, "instance_id": "i-1", "gpu": "GPU-a", "stage": stage, **given})  # type: ignore[arg-type]


def clean(stage: str, moment: str = "before", **given: object) -> StageReport:
    """A check that waited for the GPU and was well."""
    return report(stage, moment=moment, probe=Check.PASSED, synchronised=True, matches=True, **given)


def failed(stage: str, error: str, **given: object) -> StageReport:
    """A stage that ended with an error."""
    return report(stage, moment="during", error=error, **given)


# -- row 1 -------------------------------------------------------------------------------------------------------------


def test_row_1_an_error_is_of_any_stage_since_the_last_clean_check() -> None:
    """An error that shows in weights_update, after a clean check before the rollout, may be the rollout's."""
    said = found(RULES, "1", clean("rollout"), report("rollout", moment="after"), failed("weights_update", ILLEGAL))
    assert {one.english.split("happened in: ")[1] for one in said} == {"rollout, weights_update"}
    assert all("before rollout" in one.english for one in said)


@pytest.mark.parametrize(
    "no_proof",
    [
        report("rollout", moment="after", probe=Check.PASSED),
        report("rollout", moment="after", probe=Check.PASSED, synchronised=True, matches=False),
        report("rollout", moment="after", probe=Check.FAILED, synchronised=True, error="ValueError: x"),
        report("rollout", moment="after"),
    ],
    ids=["it did not wait", "a wrong result", "it failed by itself", "no probe"],
)
def test_row_1_only_a_check_that_waited_and_was_well_narrows_the_window(no_proof: StageReport) -> None:
    """A pass on a context that was never asked would acquit the stage that did it."""
    said = found(RULES, "1", clean("rollout"), no_proof, failed("weights_update", ILLEGAL))
    assert {one.english.split("happened in: ")[1] for one in said} == {"rollout, weights_update"}


def test_row_1_a_clean_check_after_a_stage_acquits_it() -> None:
    """What came through its own synchronised check did nothing."""
    said = found(RULES, "1", clean("rollout"), clean("rollout", "after"), failed("weights_update", ILLEGAL))
    assert {one.english.split("happened in: ")[1] for one in said} == {"weights_update"}


def test_row_1_the_window_is_of_one_gpu() -> None:
    """A clean check of the GPU beside it acquits nobody here."""
    beside = clean("rollout", "after", gpu="GPU-b")
    said = found(RULES, "1", clean("rollout"), report(moment="after"), beside, failed("weights_update", ILLEGAL))
    assert {one.english.split("happened in: ")[1] for one in said} == {"rollout, weights_update"}


def test_row_1_another_boot_begins_another_window() -> None:
    """No error outlives the driver."""
    before = (clean("train", boot_id="b1"), report("train", moment="after", boot_id="b1"))
    said = found(RULES, "1", *before, failed("rollout", ILLEGAL, boot_id="b2"))
    assert {one.english.split("happened in: ")[1] for one in said} == {"rollout"}


@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        (ILLEGAL, Cause.GPU_CONTEXT, Remedy.CHECK),
        (ECC, Cause.GPU_FAULT, Remedy.CHECK),
        (ASSERT, Cause.APPLICATION, Remedy.FAIL),
        ("CUDA error: system not yet initialized", Cause.DRIVER, Remedy.CHECK),
        ("CUDA error: no kernel image is available for execution on the device", Cause.CONFIGURATION, Remedy.FAIL),
    ],
)
def test_row_1_what_an_error_names_decides_who_is_suspected(error: str, cause: Cause, remedy: Remedy) -> None:
    """An assertion of the program's own is no reason to check a machine; an ECC error is."""
    verdict = asked(RULES, clean("rollout"), failed("rollout", error))
    assert (verdict.cause, verdict.remedy, verdict.decided) == (cause, remedy, True)
    assert verdict.scope == (JOB if remedy is Remedy.FAIL else instance("i-1"))


@pytest.mark.parametrize("error", [OOM, "ValueError: all tensors must be on cuda:0, found cpu", ""])
def test_row_1_what_is_no_fault_of_a_context_is_not_attributed(error: str) -> None:
    """An OOM leaves the context alive (row 46 reads it); an exception that only names a device is the program's."""
    assert not found(RULES, "1", clean("rollout"), failed("rollout", error))


def test_row_1_the_same_error_on_many_machines_speaks_for_the_program() -> None:
    """Hardware does not fail on three machines at once."""
    for machines, weight in ((1, Weight.HINT), (2, Weight.HINT), (3, Weight.FAIR)):
        reports = [failed("rollout", ILLEGAL, instance_id=f"i-{n}") for n in range(machines)]
        assert {one.weight for one in found(RULES, "1", *reports) if one.cause is Cause.APPLICATION} == {weight}
        assert asked(RULES, *reports).decided is (machines == 1)


# -- row 2 -------------------------------------------------------------------------------------------------------------


def test_row_2_after_the_first_error_every_later_one_of_that_gpu_follows() -> None:
    """Whoever shares the context fails as well: one fault, not three."""
    later = [failed("weights_update", ILLEGAL), failed("train", "RuntimeError: CUDA error: unknown error", worker="t")]
    reports = [failed("rollout", ILLEGAL), *later]
    assert [one.follows for one in found(RULES, "2", *reports)] == [True, True]
    assert {one.evidence for one in found(RULES, "1", *reports)} == {("r0",)}
    first, many = asked(RULES, reports[0]), asked(RULES, *reports)
    assert (first.cause, first.confidence) == (many.cause, many.confidence)


def test_row_2_the_gpu_beside_it_has_a_context_of_its_own() -> None:
    """An error there is another fault."""
    reports = [failed("rollout", ILLEGAL), failed("rollout", ILLEGAL, gpu="GPU-b")]
    assert not found(RULES, "2", *reports)
    assert {one.evidence for one in found(RULES, "1", *reports)} == {("r0",), ("r1",)}


@pytest.mark.parametrize("between", [clean("rollout"), report("rollout", boot_id="b2")], ids=["clean check", "boot"])
def test_row_2_a_context_that_is_well_again_can_fail_again(between: StageReport) -> None:
    """What comes after a clean check or another boot is a new fault."""
    reports = [failed("rollout", ILLEGAL, boot_id="b1"), between, failed("rollout", ILLEGAL)]
    assert not found(RULES, "2", *reports)
    assert {one.evidence for one in found(RULES, "1", *reports)} == {("r0",), ("r2",)}


def test_row_2_an_oom_spoils_nothing() -> None:
    """The context lives on: the next error is one of its own."""
    assert not found(RULES, "2", failed("rollout", OOM), failed("rollout", ILLEGAL))


def test_row_2_a_consequence_that_names_the_hardware_is_a_root_as_well() -> None:
    """The first line says "illegal access", the second which hardware: the second is right."""
    verdict = asked(RULES, failed("rollout", ILLEGAL), failed("rollout", ECC))
    assert (verdict.cause, verdict.decided) == (Cause.GPU_FAULT, True)


# -- rows 3 and 5: ECC -------------------------------------------------------------------------------------------------


def test_row_3_an_increase_of_corrected_errors_is_published() -> None:
    """The specified sentence, with both readings; it blames nobody."""
    (said,) = found(RULES, "3", report(corrected=0), report("weights_update", corrected=3))
    assert (said.english, said.cause) == ("[weights_update] GPU ECC errors increased: 0 -> 3", None)


def test_row_3_the_first_reading_is_a_baseline() -> None:
    """What was there before we looked happened in no stage of ours."""
    assert not found(RULES, "3", report(corrected=5)) and not found(RULES, "3+", report(corrected=5, uncorrected=5))


def test_row_3_corrected_errors_alone_decide_nothing() -> None:
    """ECC has corrected them."""
    verdict = asked(RULES, report(corrected=0), report(corrected=3))
    assert (verdict.cause, verdict.decided) == (Cause.GPU_FAULT, False)


def test_row_3_uncorrected_errors_count_too() -> None:
    """They are what kills jobs; the specified rule reads the corrected ones only."""
    reports = [report(uncorrected=0, corrected=0), report(uncorrected=1, corrected=0)]
    assert not found(RULES, "3", *reports)
    verdict = asked(RULES, *reports)
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.GPU_FAULT, instance("i-1"), True)
    assert verdict.evidence == ("r0", "r1")


@pytest.mark.parametrize(
    "readings",
    [
        [{"uncorrected": 7}, {"uncorrected": 2}],
        [{"uncorrected": 0, "boot_id": "b1"}, {"uncorrected": 2, "boot_id": "b2"}],
        [{"uncorrected": 0, "gpu": "GPU-a"}, {"uncorrected": 2, "gpu": "GPU-b"}],
        [{"uncorrected": 0, "gpu": "", "worker": "a"}, {"uncorrected": 2, "gpu": "", "worker": "b"}],
        [{"uncorrected": 0}, {"uncorrected": None}, {"uncorrected": 0}],
    ],
    ids=["down", "another boot", "another GPU", "another worker's GPU", "not available"],
)
def test_row_3_a_reading_that_cannot_be_compared_is_a_new_baseline(readings: list[dict[str, object]]) -> None:
    """A counter that falls was reset; two GPUs have two counters; what the GPU does not say is no zero."""
    assert not found(RULES, "3+", *(report(**one) for one in readings))


def test_row_3_a_reading_that_is_missing_hides_no_increase() -> None:
    """[N/A] in between is skipped."""
    assert found(RULES, "3+", report(uncorrected=0), report(uncorrected=None), report(uncorrected=1))


def test_row_3_after_a_reset_increases_are_seen_again() -> None:
    """7 -> 2 is a reset, 2 -> 3 an error."""
    (said,) = found(RULES, "3+", *(report(uncorrected=n) for n in (7, 2, 3)))
    assert "2 -> 3" in said.english


# -- rows 4 and 5: the probe -------------------------------------------------------------------------------------------


def test_row_4_a_pass_is_published_and_blames_nobody() -> None:
    """The specified sentence."""
    (said,) = found(RULES, "4", clean("rollout"))
    assert (said.english, said.cause) == ("[rollout] GPU health check passed", None)
    assert not found(RULES, "4+", clean("rollout"))


def test_row_4_a_pass_that_did_not_wait_says_nothing() -> None:
    """A multiplication that nobody waits for passes on a dead context."""
    (said,) = found(RULES, "4+", report(probe=Check.PASSED))
    assert "shows nothing" in said.english


def test_row_4_a_wrong_result_is_silent_corruption() -> None:
    """No exception, no counter: only the checksum tells."""
    verdict = asked(RULES, report(probe=Check.PASSED, synchronised=True, matches=False))
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.GPU_FAULT, instance("i-1"), True)
    assert [one.row for one in verdict.findings] == ["4a+"]


def test_row_5_any_exception_of_the_check_is_published() -> None:
    """The specified sentence, with the stage, in both languages."""
    (said,) = found(RULES, "5", report(probe=Check.FAILED, error="ValueError: x"))
    assert said.english == "[rollout] GPU health check failed: ValueError: x. GPU fault detected in stage rollout"
    assert said.chinese.startswith("GPU故障检测于rollout阶段") and said.cause is None


@pytest.mark.parametrize("error", ["ValueError: invalid literal for int() with base 10: '[N/A]'", OOM])
def test_row_5_a_check_that_failed_by_itself_blames_no_gpu(error: str) -> None:
    """Several lines or [N/A] from the tool, or no memory left for the probe: the GPU is well."""
    verdict = asked(RULES, report(probe=Check.FAILED, error=error))
    assert verdict.cause is Cause.UNKNOWN and [one.row for one in verdict.informational] == ["5"]


def test_row_5_a_probe_that_fails_blames_its_gpu() -> None:
    """Nothing else spoke before."""
    verdict = asked(RULES, clean("rollout"), report(probe=Check.FAILED, synchronised=True))
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.GPU_FAULT, instance("i-1"), True)


def test_row_5_on_a_spoiled_context_a_failing_probe_is_a_consequence() -> None:
    """After the program's own assertion every probe fails: no instance is faulty."""
    verdict = asked(RULES, failed("rollout", ASSERT), report(probe=Check.FAILED, synchronised=True, error=ILLEGAL))
    assert (verdict.cause, verdict.remedy) == (Cause.APPLICATION, Remedy.FAIL)
    assert not found(RULES, "5+", failed("rollout", ASSERT), report(probe=Check.FAILED, error=ILLEGAL))


# -- row 6 -------------------------------------------------------------------------------------------------------------


def test_row_6_the_last_trace_of_each_operation_is_published() -> None:
    """The specified sentence, in gigabytes; what is not known is a question mark."""
    trace = {"stage": "rollout", "operation": "before_rollout"}
    reports = [report(**trace, allocated_gb=1.0, reserved_gb=2.0), report(**trace, allocated_gb=40.125)]
    (said,) = found(RULES, "6", *reports)
    assert said.english == (
        "[GPU_OP] stage=rollout, operation=before_rollout, cuda_memory_allocated=40.12GB, cuda_memory_reserved=?GB"
    )


# -- what lines of errors say ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (OOM, CudaError.MEMORY),
        ("InferenceEngineError: RolloutError: CUDA out of memory", CudaError.MEMORY),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", CudaError.MEMORY),
        (ECC, CudaError.HARDWARE),
        ("cudaErrorECCUncorrectable", CudaError.HARDWARE),
        ("CUDA error: uncorrectable NVLink error detected during the execution", CudaError.HARDWARE),
        (ASSERT, CudaError.ASSERTION),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasSgemm", CudaError.CONTEXT),
        ("cudaErrorLaunchFailure: unspecified launch failure", CudaError.CONTEXT),
        ("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!", None),
        ("MemoryError", None),
        ("OSError: [Errno 12] Cannot allocate memory", None),
        ("ModuleNotFoundError: No module named 'flash_attn_cuda'", None),
        ("", None),
    ],
)
def test_what_a_line_says_of_cuda(line: str, kind: CudaError | None) -> None:
    """Memory, hardware, the program's assertion, a context; or nothing about CUDA at all."""
    assert cuda_error(line) is kind

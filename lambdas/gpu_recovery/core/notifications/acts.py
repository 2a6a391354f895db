"""What a person does about the cause of a failed job, as a sentence of its e-mail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.identifiers import FILE_PATH

if TYPE_CHECKING:
    from gpu_recovery.core.job.diagnosis_result import DiagnosisResult

_ACTS: Mapping[Cause, str] = {
    Cause.APPLICATION: "Fix the program: it fails with an error of its own, which the evidence quotes.",
    Cause.CONFIGURATION: "Correct the configuration or the input that the evidence names.",
    Cause.GPU_MEMORY: "Reduce the GPU memory that the program uses, for example by a smaller batch.",
    Cause.HOST_MEMORY: "Reduce the host memory that the program uses, or raise the memory of its task.",
    Cause.NUMERICAL: "Check the data and the learning rate: the loss became NaN or diverged.",
    Cause.EXTERNAL: "Wait until the service outside the cluster answers again, or remove the dependency on it.",
    Cause.STORAGE: "Check the storage that the evidence names.",
}
"""Acts by cause. Other causes have no action of an operator: the check and the repair of instances follow."""


def act_for(diagnosis: DiagnosisResult) -> str:
    """Return what a person does about a decided diagnosis; "" if it is undecided or asks for nothing."""
    if not diagnosis.decided:
        return ""
    if diagnosis.cause is Cause.STORAGE and diagnosis.remedy in (Remedy.PERSON, Remedy.LEAVE_OUT):
        return full_storage_act(diagnosis.sentence, shared=not diagnosis.instances)
    return _ACTS.get(diagnosis.cause, "")


def full_storage_act(line: str, *, shared: bool) -> str:
    """Return what an operator does about full storage, with the path that `line` names.

    Args:
        line: the log line about the full storage.
        shared: whether the storage is shared by several instances.
    """
    match = FILE_PATH.search(line)
    where = f"on {match[0]}" if match is not None else "where the program writes"
    kind = "The storage is shared, so another instance does not help. " if shared else ""
    return f"{kind}Free space {where}, or raise the quota there."

"""Text of the results of a preflight: how many ranks have reported, and each step that did not pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_recovery_client.texts import tr


def preflight_sentences(results: Mapping[str, Any] | None) -> list[str]:
    """Return the sentences about the results of a preflight; none for a job without a preflight.

    A step that was not run is named as such: it did not pass.
    """
    if not results:
        return []
    sentences = [
        tr("preflight: {reported} of {ranks} ranks have reported", reported=results["reported"], ranks=results["ranks"])
    ]
    if results["passed"]:
        sentences.append(tr("preflight, passed on ranks: {steps}", steps=_counts(results["passed"])))
    if results["not_run"]:
        sentences.append(tr("preflight, not run on ranks: {steps}", steps=_counts(results["not_run"])))
    sentences += [
        tr(
            "preflight of rank {rank} on {instance}: {step} {result}: {sentence}",
            rank=entry["rank"],
            instance=entry["instance_id"],
            step=entry["step"],
            result=entry["result"],
            sentence=entry["sentence"],
        )
        for entry in results["others"]
    ]
    apart = ", ".join(results["apart"])
    return (
        [*sentences, tr("preflight: checked first after a failure: {instances}", instances=apart)]
        if apart
        else sentences
    )


def _counts(steps: Mapping[str, int]) -> str:
    return ", ".join(f"{step} {number}" for step, number in steps.items())

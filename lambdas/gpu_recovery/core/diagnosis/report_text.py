"""Text and JSON of a diagnosis: cause, scope, confidence, evidence, rivals and next step."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from gpu_recovery.core.diagnosis.diagnose import Diagnosis
from gpu_recovery.core.diagnosis.hypothesis import Hypothesis
from gpu_recovery.core.diagnosis.rule import RuleFinding
from gpu_recovery.core.diagnosis.taxonomy import Cause

EVIDENCE_MAX, SENTENCE_MAX = 8, 8
"""Upper bounds of the findings in the text: those for the cause, and those without a cause."""
LISTED_MAX = 200
"""Upper bound of each list in the JSON document.

A gang of a thousand workers has tens of thousands of findings without a cause.
"""


class Language(StrEnum):
    """Languages of the text."""

    ENGLISH = "en"
    CHINESE = "zh"


_HEADS = {
    Language.ENGLISH: ("What", "Where", "How sure", "Evidence", "Not ruled out", "Also noted", "Next"),
    Language.CHINESE: ("原因", "位置", "把握", "证据", "尚未排除", "另注", "下一步"),
}


class NextStep(StrEnum):
    """What follows the diagnosis of an attempt whose job is past it, in place of its remedy."""

    FAILED = "FAILED"
    ENDED = "ENDED"
    CONTINUED = "CONTINUED"


_PAST: dict[NextStep, tuple[str, str]] = {
    NextStep.FAILED: (
        "The job has FAILED and is not tried again. Fix the cause, then submit the job again.",
        "不再重试: 作业已FAILED。请先排除原因, 再重新提交作业。",
    ),
    NextStep.ENDED: ("Nothing: the job has ended.", "无: 作业已结束。"),
    NextStep.CONTINUED: ("Nothing: the job is at a later attempt already.", "无: 作业已进入后续尝试。"),
}


def report_text(diagnosis: Diagnosis, language: Language = Language.ENGLISH, next_step: NextStep | None = None) -> str:
    """Diagnosis as plain text. Lines stay below 200 characters if the evidence allows it.

    Args:
        next_step: what follows if the job is past the attempt. None: the remedy follows.
    """
    cause_head, scope_head, confidence_head, evidence_head, rivals_head, notes_head, next_head = _HEADS[language]
    english = language is Language.ENGLISH
    decided = ("decided" if english else "已定") if diagnosis.decided else ("undecided" if english else "未定")
    if diagnosis.cause is Cause.UNKNOWN:
        lines = [f"{cause_head}: {'there is no evidence for any cause' if english else '没有任何证据'}"]
    else:
        lines = [
            f"{cause_head}: {diagnosis.cause}",
            f"{scope_head}: {diagnosis.scope}",
            f"{confidence_head}: {diagnosis.confidence:.0%} ({decided})",
        ]
        lines += [f"{evidence_head}:", *_listed(diagnosis.findings, english, EVIDENCE_MAX)]
    if diagnosis.rivals:
        lines += [f"{rivals_head}:", *(f"  - {_rival(rival)}" for rival in diagnosis.rivals)]
    if diagnosis.informational:
        lines += [f"{notes_head}:", *_listed(diagnosis.informational, english, SENTENCE_MAX)]
    follows = _PAST[next_step][0 if english else 1] if next_step is not None else _next(diagnosis, english)
    lines.append(f"{next_head}: {follows}")
    return "\n".join(lines) + "\n"


def _listed(findings: tuple[RuleFinding, ...], english: bool, most: int) -> Iterator[str]:
    order = sorted(findings, key=lambda finding: (-finding.weight, finding.row, finding.english))
    for finding in order[:most]:
        sentence = finding.english if english else finding.chinese
        shown = ", ".join(finding.evidence[:3]) + (
            f" +{len(finding.evidence) - 3}" if len(finding.evidence) > 3 else ""
        )
        yield f"  - [{finding.row}] {sentence}" + (f" ({shown})" if shown else "")
    if len(order) > most:
        yield f"  - +{len(order) - most}"


def _rival(hypothesis: Hypothesis) -> str:
    return f"{hypothesis.cause}, {hypothesis.scope} ({hypothesis.confidence:.0%})"


def _next(diagnosis: Diagnosis, english: bool) -> str:
    if diagnosis.next_probe is not None:
        probe = diagnosis.next_probe
        return f"the cheapest test that would decide: {probe}" if english else f"最省的下一步探查: {probe}"
    return diagnosis.remedy.sentence if english else diagnosis.remedy.chinese


_OUTCOME: dict[bool | None, tuple[str, str]] = {
    True: (
        "its remedy has held: a later attempt ran stably, or the job succeeded",
        "处置有效: 其后的一次尝试已稳定运行, 或作业已完成",
    ),
    False: (
        "its remedy has not held: the job failed again for the same cause or at the same place",
        "处置无效: 作业又因同一原因或在同一位置失败",
    ),
    None: (
        "it is not known yet whether its remedy holds, or the job has failed for another cause since",
        "尚不清楚处置是否有效, 或作业其间因别的原因失败",
    ),
}


def outcome_line(cause: Cause, where: str, held: bool | None, language: Language = Language.ENGLISH) -> str:
    """Line that says whether the remedy of the job's earlier diagnosis held. That diagnosis may differ from a new one.

    Args:
        held: True if the remedy held, False if it failed, None if that is unknown.
    """
    english = language is Language.ENGLISH
    sentence = _OUTCOME[held][0 if english else 1]
    return f"Outcome: {cause} at {where}: {sentence}.\n" if english else f"结果: {cause} ({where}): {sentence}。\n"


def as_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Diagnosis as JSON values. `more` holds the number of omitted entries of each list."""
    lists = {"evidence": diagnosis.evidence, "findings": diagnosis.findings, "said": diagnosis.informational}
    return {
        "cause": diagnosis.cause,
        "scope": _scope(diagnosis),
        "remedy": diagnosis.remedy,
        "remedy_sentence": diagnosis.remedy.sentence,
        "confidence": diagnosis.confidence,
        "decided": diagnosis.decided,
        "evidence": list(diagnosis.evidence[:LISTED_MAX]),
        "findings": [_finding(finding) for finding in diagnosis.findings[:LISTED_MAX]],
        "rivals": [
            {
                "cause": rival.cause,
                "scope": _scope(rival),
                "confidence": rival.confidence,
                "follows": rival.follows,
                "evidence": list(rival.evidence[:LISTED_MAX]),
            }
            for rival in diagnosis.rivals
        ],
        "next_probe": diagnosis.next_probe,
        "said": [_finding(finding) for finding in diagnosis.informational[:LISTED_MAX]],
        "more": {name: max(0, len(entries) - LISTED_MAX) for name, entries in lists.items()},
        "version": diagnosis.version,
    }


def _scope(result: Diagnosis | Hypothesis) -> dict[str, Any]:
    return {"kind": result.scope.kind, "names": list(result.scope.names[:LISTED_MAX])}


def _finding(finding: RuleFinding) -> dict[str, Any]:
    return {
        "row": finding.row,
        "cause": finding.cause,
        "weight": finding.weight,
        "follows": finding.follows,
        "english": finding.english,
        "chinese": finding.chinese,
        "evidence": list(finding.evidence[:LISTED_MAX]),
    }

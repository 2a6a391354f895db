"""A newcomer's questions: the field's term is in the name or the first docstring line of the file that answers it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("lambdas", "agent", "client", "health_check", "infra", "simulator", "sandbox", "image_builder", "ray_runner")
LAMBDA = "lambdas/gpu_recovery"
ANSWERS_MAX = 6
"""Files that may name a term at most: more would be a list to read and no answer."""

QUESTIONS = {
    # term: (file that answers, a name that the file must define)
    "retry limit": (f"{LAMBDA}/core/policy.py", "RecoveryPolicy"),
    "heartbeat timeout": (f"{LAMBDA}/reconciler/heartbeat_timeouts.py", "check_heartbeats"),
    "circuit breaker": (f"{LAMBDA}/core/fleet.py", "Fleet"),
    "repair budget": (f"{LAMBDA}/core/fleet.py", "Fleet"),
    "pause switch": (f"{LAMBDA}/fleet_controls.py", "pause"),
    "preemption": (f"{LAMBDA}/core/queue/preemption.py", "Preemption"),
    "backfill": (f"{LAMBDA}/core/queue/backfill.py", ""),
    "quota": (f"{LAMBDA}/core/queue/quota.py", ""),
    "gang placement": (f"{LAMBDA}/core/queue/place.py", "place"),
    "gang launch": (f"{LAMBDA}/execution/launch.py", "launch"),
    "dead-letter redrive": (f"{LAMBDA}/job_api/redrive.py", ""),
    "health check verdict": (f"{LAMBDA}/core/health_check.py", ""),
    "reboot proof": (f"{LAMBDA}/core/instance/repair_proof.py", "proves_reboot"),
    "escalation": (f"{LAMBDA}/core/instance/escalation.py", ""),
    "quarantine": (f"{LAMBDA}/core/instance/quarantine.py", ""),
    "interruption": (f"{LAMBDA}/core/instance/interruptions.py", ""),
    "observe-only": (f"{LAMBDA}/core/instance/observe_only.py", ""),
    "lemon": (f"{LAMBDA}/core/instance/lemons.py", ""),
    "token check": (f"{LAMBDA}/auth/authenticator.py", ""),
    "idempotency key": (f"{LAMBDA}/job_api/submission.py", ""),
    "suspend grace": (f"{LAMBDA}/core/job/suspension.py", ""),
    "lost contact": (f"{LAMBDA}/core/job/lost_contact.py", ""),
    "exit code": (f"{LAMBDA}/core/task.py", "ending"),
    "hang detection": (f"{LAMBDA}/execution/hang_detection.py", ""),
    "straggler": (f"{LAMBDA}/core/diagnosis/rules/stragglers.py", ""),
    "XID table": (f"{LAMBDA}/core/xid.py", "class_of"),
    "evidence": (f"{LAMBDA}/execution/evidence.py", ""),
    "e-mail text": (f"{LAMBDA}/core/notifications/template.py", ""),
    "drift detection": (f"{LAMBDA}/reconciler/resync.py", ""),
    "client token": (f"{LAMBDA}/aws/ecs_requests.py", ""),
    "throttling": (f"{LAMBDA}/aws/clients.py", ""),
    "optimistic locking": (f"{LAMBDA}/ports/retry.py", "save_with_retry"),
    "pending command": (f"{LAMBDA}/recovery.py", "Recovery"),
    "metric": (f"{LAMBDA}/core/metrics.py", ""),
    "IAM permission": ("infra/permissions.py", ""),
    "alarm": ("infra/alarms.py", ""),
    "outbox": ("agent/gpu_recovery_agent/outbox.py", "Outbox"),
    "kernel log": ("health_check/kernel_log.py", ""),
    "virtual clock": ("simulator/virtual_clock.py", ""),
    "fault injection": ("simulator/faults/injector.py", ""),
    "invariant": ("simulator/invariants/records.py", ""),
    "exit status": ("health_check/check.py", ""),
}
MANY = {
    "metric",
    "quota",
    "evidence",
    "interruption",
    "invariant",
    "exit code",
    "alarm",
    "kernel log",
    "backfill",
    "preemption",
    "heartbeat timeout",
    "escalation",
    "quarantine",
}
"""Terms that name a whole package or concern: more than `ANSWERS_MAX` files may have them."""


def _plain(text: str) -> str:
    """Lower case, and every run of hyphens, underscores and spaces as one space."""
    return re.sub(r"[\s_-]+", " ", text.lower())


@cache
def _headings() -> dict[str, str]:
    """The name and the first docstring line of each module of the product, by path."""
    found = {}
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
            found[path.relative_to(ROOT).as_posix()] = _plain(f"{path.stem} {first}")
    return found


@pytest.mark.parametrize("term", QUESTIONS)
def test_a_term_of_the_field_leads_to_its_file(term: str) -> None:
    """Who searches for the term finds the file, among few others."""
    path, _ = QUESTIONS[term]
    naming = [name for name, heading in _headings().items() if re.search(rf"\b{re.escape(_plain(term))}", heading)]
    assert path in naming
    assert term in MANY or len(naming) <= ANSWERS_MAX, naming


@pytest.mark.parametrize("term", [term for term, (_, name) in QUESTIONS.items() if name])
def test_the_file_defines_what_answers_the_question(term: str) -> None:
    """A heading alone answers nothing."""
    path, name = QUESTIONS[term]
    defined = {
        getattr(node, "name", None) or getattr(getattr(node, "target", None), "id", None)
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AnnAssign)
    }
    assert name in defined

"""The messages operators get, for whatever job ids and reasons the world comes up with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import notice
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.task import EndingKind
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.build import available, failure, running

HEADINGS = ("WHAT HAPPENED", "DONE", "NEXT", "YOU", "IDS")
HOSTILE = "run\r\n[SEV1] \x00\x1b[31m\u2028Grüße\x7f " + "x" * 200


def _messages(job_id: str, reason: str) -> dict[str, NotifyOperator]:
    """One message of every kind about a job called `job_id`, for `reason`."""
    record = replace(running(), job_id=job_id, incident_id=f"{job_id}--a01")
    machine = replace(available(), instance_id=job_id)
    return {
        "opened": notice.opened(record, f"{job_id}--a01", reason),
        "recovered": notice.recovered(record),
        "failed": notice.failed(record, f"{job_id}--a01", reason),
        "would_have_acted": notice.would_have_acted(record, failure(EndingKind.CRASHED)),
        "adoption_refused": notice.adoption_refused(job_id, "task-1", reason),
        "quarantined": notice.quarantined(machine, reason),
        "misconfigured": notice.misconfigured(machine, reason),
    }


@given(job_id=st.text(max_size=300), reason=st.text(max_size=100))
@example(job_id=HOSTILE, reason=HOSTILE)
def test_a_subject_is_one_short_line_of_printable_ascii(job_id: str, reason: str) -> None:
    """SNS refuses anything else, and a refused message is one that nobody reads."""
    for message in _messages(job_id, reason).values():
        assert message.subject.isascii()
        assert message.subject.isprintable()
        assert len(message.subject) < 100
        assert message.subject.startswith(f"[GPU-RECOVERY][{message.severity}] ")


@pytest.mark.parametrize("kind", _messages("sft-1", "why"))
def test_a_body_says_what_happened_what_was_done_what_comes_and_what_to_do(kind: str) -> None:
    """Read at night, in this order; no part is empty."""
    body = _messages("sft-1", "rank 0 was ended by signal 6")[kind].body
    parts = body.strip().split("\n\n")
    assert [part.splitlines()[0] for part in parts] == list(HEADINGS)
    assert all(len(part.splitlines()) > 1 for part in parts)
    assert "sft-1" in body


def test_the_messages_of_one_incident_share_its_id() -> None:
    """They are one thread, from the first to the last."""
    messages = _messages("sft-1", "why")
    assert {messages[kind].incident_id for kind in ("opened", "recovered", "failed")} == {"sft-1--a01"}


def test_only_what_needs_a_person_is_urgent() -> None:
    """What heals by itself wakes nobody."""
    urgent = {kind for kind, message in _messages("sft-1", "why").items() if message.severity == notice.Severity.SEV2}
    assert urgent == {"failed", "quarantined"}


def test_the_reason_is_told_in_the_body() -> None:
    """The same sentence as in the history."""
    for kind in ("opened", "failed", "quarantined", "misconfigured", "adoption_refused"):
        assert "GPU 3 fell off the bus" in _messages("sft-1", "GPU 3 fell off the bus")[kind].body

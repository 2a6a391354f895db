"""What trainings tell for a diagnosis: what is read of it, what is left out, and that neither spoils a heartbeat."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis import observation_codec, observations
from gpu_recovery.core.diagnosis.observation_buffer import (
    BUFFER_BYTES_MAX,
    BUFFER_MAX,
    ObservationBuffer,
    added,
)
from gpu_recovery.core.diagnosis.observation_codec import (
    BYTES_MAX,
    KINDS,
    REPORTS_MAX,
    from_json,
    observed,
    size,
    to_json,
)
from gpu_recovery.core.diagnosis.observations import Occupant
from gpu_recovery.core.heartbeat import ReceivedObservation
from gpu_recovery.node_api.report_parser import parse_report
from gpu_recovery.wire.json_body import read_json
from hypothesis import given
from hypothesis import strategies as st

from tests.aws.records import JOB, A
from tests.fuzz.mutations import mutated, odd_values
from tests.node_api.test_report_parser import BEAT

ROOT = Path(__file__).parents[3]
FROM = {
    "id": "0a1b2c3d-1",
    "job": JOB,
    "attempt": 2,
    "age_s": 1.5,
    "rank": 3,
    "worker": "3.1",
    "worker_role": "train",
    "pid": 4242,
}
WHOLE: dict[str, dict[str, Any]] = {
    "stage": {
        "stage": "rollout",
        "moment": "before",
        "step": 7,
        "gpu": "GPU-1",
        "boot_id": "b",
        "corrected": 1,
        "uncorrected": 0,
        "probe": "passed",
        "synchronised": True,
        "matches": True,
        "error": "e",
        "is_synchronising": True,
        "operation": "upload",
        "allocated_gb": 1.5,
        "reserved_gb": 2,
        "occupants": [{"pid": 12, "memory_mb": 40960.0, "owner": "train"}, {"pid": 13, "memory_mb": 1}],
    },
    "weight_sync": {"step": 1, "serialize_s": 0.1, "upload_s": 61, "download_s": 2.5, "deserialize_s": 0.2},
    "progress": {
        "value": 17,
        "status": 200,
        "unchanged_s": 4.5,
        "steps": 12,
        "step_s": 2.5,
        "slowest_s": 7.5,
        "paused": "evaluation",
    },
    "call": {"method": "train_batch", "seconds": 12.5, "stage": 1},
    "rpc": {
        "method": "m",
        "request_id": "r",
        "connect_s": 1,
        "send_s": 2,
        "header_s": 3,
        "body_s": 4,
        "status": 500,
        "failed_at": "response_header",
        "timed_out": True,
        "connection_error": True,
        "server_phase": "method",
        "error": "e",
    },
    "health": {
        "memory_used_gb": 70.5,
        "memory_free_gb": 9.5,
        "cpu_percent": 3,
        "network_sent": 10,
        "network_received": 20,
        "active_requests": 2,
    },
    "request": {"request_id": "r", "state": "processing_error", "duration_s": 1, "error_type": "E", "error": "e"},
    "event": {
        "request_id": "r",
        "event": "rollout_start",
        "state": "failed",
        "last_state": "delivered",
        "gpu_state": "busy",
        "step": 3,
        "error": "e",
    },
    "lock": {
        "lock": "gpu 0",
        "owner": "rollout",
        "state": "timed out",
        "holder": "train",
        "holder_heard_s": 3,
        "waited_s": 60,
        "token": 4,
    },
    "nccl": {"line": "NCCL WARN timeout"},
    "written": {"part": 1, "lines": ["epoch 1", "ValueError: no"]},
    "timeouts": {"variables": [{"name": "NCCL_TIMEOUT", "value": 3600}, {"name": "DEEPSPEED_TIMEOUT", "value": 30}]},
    "preflight": {
        "steps": [
            {"name": "a", "result": "passed", "seconds": 0.5, "sentence": "so", "error": "e", "value": 4.5},
            {"name": "b", "result": "not_run", "seconds": 0.0, "sentence": "so", "error": "e", "value": 0.0},
        ],
    },
    "flight": {
        "group": "0",
        "members": [0, 1],
        "member_ranges": "0-47999",
        "local_world": 16,
        "last_enqueued": 7,
        "last_completed": 6,
        "from_status": True,
        "uses_p2p": True,
        "sends_to": "8",
        "receives_from": "0-12/4",
        "waits_s": 600,
        "op": "all_reduce of 4096 BFloat16",
        "frame": "a1",
    },
}
"""Of every kind a report with all of its fields."""
OURS = {"report_id", "at_s", "instance_id"}
SOURCE = {"worker", "rank", "worker_role", "pid"}


def told(kind: str, **changes: Any) -> dict[str, Any]:
    """A report of that kind as it travels."""
    return {"type": kind, **FROM, **WHOLE[kind], **changes}


def read(entry: Any) -> ReceivedObservation:
    """The one report that is read of a list of one."""
    found, left_out = observed(A, [entry])
    assert left_out == 0
    return found[0]


def left_out(entry: Any) -> bool:
    """Whether it is counted as one that cannot be kept, beside another that is read."""
    found, count = observed(A, [entry, told("progress")])
    assert len(found) + count == 2 and type(found[-1].report) is observations.ProgressReport
    return count == 1


# -- what is read ------------------------------------------------------------------------------------------------------


def test_every_kind_has_its_row_and_the_tests_know_every_field() -> None:
    """A field that is added to a report travels by itself, and is missed here until it has a value."""
    assert WHOLE.keys() == KINDS.keys()
    for name, kind in KINDS.items():
        known: Any = kind
        assert {one.name for one in fields(known)} - OURS - SOURCE == WHOLE[name].keys(), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_read_whole_and_comes_back_from_where_it_is_kept(kind: str) -> None:
    """Each of its fields, in its type; who it is from is the token's word."""
    one = read(told(kind))
    assert (one.job_id, one.attempt, one.age_s) == (JOB, 2, 1.5)
    found: Any = one.report
    assert type(found) is KINDS[kind]
    assert (found.report_id, found.instance_id, found.rank, found.worker) == (f"{A}/0a1b2c3d-1", A, 3, "3.1")
    assert (found.worker_role, found.pid) == ("train", 4242)
    known = {one.name for one in fields(found)} - {"occupants", "variables", "steps"}
    for name, value in WHOLE[kind].items():
        if name in known:
            assert getattr(found, name) == (tuple(value) if isinstance(value, list) else value), name
    at = replace(found, at_s=1_763_715_600.125)
    assert from_json(read_json(json.dumps(to_json(at)))) == at


def test_occupants_are_read_each_with_its_owner() -> None:
    """Whose a process is by design tells a leak from a resident."""
    found: Any = read(told("stage")).report
    assert found.occupants == (Occupant(12, 40960.0, "train"), Occupant(13, 1.0, ""))


def test_a_report_about_a_worker_elsewhere_names_no_instance() -> None:
    """The controller's own instance must not be blamed for a worker that it waits for."""
    assert read(told("rpc", elsewhere=True)).report.instance_id == ""
    assert read(told("rpc", elsewhere="yes")).report.instance_id == A


def test_a_line_is_one_line_and_is_cut() -> None:
    """It ends up in mails; a long one says enough with its beginning."""
    found: Any = read(told("nccl", line="a\r\nb\x1b[31m" + "c" * 5_000)).report
    assert found.line.startswith("a b [31mc") and len(found.line) == observation_codec.LINE_MAX


def test_what_is_null_is_not_there() -> None:
    """As everywhere in the protocol."""
    found: Any = read(told("stage", probe=None, occupants=None, step=None)).report
    assert (found.probe, found.occupants, found.step) == (None, None, None)


# -- what is left out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        "text",
        [],
        {},
        told("progress", type="exit"),
        told("progress", type="xid"),
        told("progress", type=7),
        told("progress", type=["stage"]),
        told("progress", id=""),
        told("progress", id="a b"),
        told("progress", id="x" * 65),
        told("progress", id=None),
        told("progress", job=f"{JOB}#a01"),
        told("progress", job=None),
        told("progress", attempt=-1),
        told("progress", attempt=1.0),
        told("progress", attempt=None),
        told("progress", attempt=True),
        told("progress", age_s=-1),
        told("progress", age_s="1"),
        told("progress", age_s=1e300),
        told("progress", rank=-1),
        told("progress", rank=1.5),
        told("progress", value="17"),
        told("progress", value=10**400),
        told("progress", value=1e16),
        told("progress", status=True),
        told("progress", value=float("inf")),
        told("progress", value=float("nan")),
        told("progress", age_s=float("nan")),
        told("call", method=None),
        told("call", seconds=None),
        told("call", method=""),
        told("call", method=7),
        told("stage", stage=None),
        told("stage", probe="maybe"),
        told("stage", synchronised=1),
        told("stage", occupants=[7]),
        told("stage", occupants=[{"pid": 1}]),
        told("stage", occupants={}),
        told("stage", occupants=[{"pid": 1, "memory_mb": 1}] * 33),
        told("event", state="lost"),
        told("request", state=None),
        told("lock", token=1.5),
    ],
)
def test_what_cannot_be_read_is_left_out_and_counted_alone(entry: Any) -> None:
    """A kind that a process may not tell, a field out of its type: the other reports count."""
    assert left_out(entry)


@pytest.mark.parametrize("value", ["text", 7, {}, {"type": "progress"}, True])
def test_what_is_no_list_is_one_thing_left_out(value: Any) -> None:
    """The heartbeat counts all the same: it is never refused for what a training says."""
    said = parse_report(A, BEAT | {"diagnosis": value})
    assert (said.observations, said.unread, said.sequence) == ((), 1, 1)


def test_a_heartbeat_brings_the_newest_of_too_many() -> None:
    """In number; the others are counted."""
    many = [told("progress", id=f"x-{n}") for n in range(REPORTS_MAX + 9)]
    found, count = observed(A, many)
    assert [one.report.report_id for one in found] == [f"{A}/x-{n}" for n in range(9, REPORTS_MAX + 9)]
    assert count == 9


def test_a_heartbeat_brings_the_newest_of_too_much() -> None:
    """In bytes: a line may be long, and the sum is bounded."""
    many = [told("nccl", id=f"x-{n}", line="y" * 1_000) for n in range(REPORTS_MAX)]
    found, count = observed(A, many)
    assert 10 < len(found) == REPORTS_MAX - count
    assert found[-1].report.report_id == f"{A}/x-{REPORTS_MAX - 1}"
    sent = [len(json.dumps(one, separators=(",", ":"))) for one in many]
    assert sum(sent[: len(found)]) <= BYTES_MAX < sum(sent[: len(found) + 1])


@pytest.mark.parametrize(("value", "lost"), [(3, 3), (0, 0), (None, 0), (-1, 0), ("3", 0), (1.5, 0), (True, 0)])
def test_how_many_were_lost_on_the_way_is_read_or_passed_over(value: Any, lost: int) -> None:
    """It is no reason to refuse anything."""
    assert parse_report(A, BEAT | {"diagnosis": [], "diagnosis_lost": value}).lost == lost


@given(st.one_of(mutated([[told(kind) for kind in KINDS], [told("stage")]]), odd_values()))
def test_whatever_a_training_says_is_kept_or_left_out(value: Any) -> None:
    """Never an error, and never a report that could not be written as JSON of finite numbers."""
    try:
        document = read_json(json.dumps(value))
    except ValueError:
        return
    said = parse_report(A, BEAT | {"diagnosis": document})
    assert len(said.observations) <= REPORTS_MAX
    for one in said.observations:
        text = json.dumps(to_json(one.report), allow_nan=False, ensure_ascii=False)
        text.encode()
        assert from_json(json.loads(text)) == one.report


def test_a_secret_in_what_was_written_is_not_kept() -> None:
    """Some deployments keep no log on purpose; what stands beside it is kept."""
    line = "wandb login failed, WANDB_API_KEY=0123456789abcdef, at https://me:pass@host/x"
    for entry in (told("written", lines=[line]), told("nccl", line=line), told("rpc", error=line)):
        text = json.dumps(to_json(read(entry).report))
        assert "wandb login failed" in text and "0123456789" not in text and "pass@" not in text


@pytest.mark.parametrize("kept", [None, {}, [], {"id": "x"}, {"id": "x", "type": "later", "at_s": 1}, {"type": "nccl"}])
def test_what_a_newer_release_keeps_is_passed_over(kept: Any) -> None:
    """A release that is rolled back reads what it knows."""
    assert from_json(kept) is None


def test_the_page_of_the_protocol_says_every_type_and_field() -> None:
    """Whoever writes an agent, or a training in another language, has only that page."""
    page = (ROOT / "docs" / "protocol.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", page.partition("## Reports of a training")[2], re.MULTILINE))
    for name, kind in KINDS.items():
        known: Any = kind
        said = set(re.findall(r"`(\w+)`", rows[name]))
        assert {one.name for one in fields(known)} - OURS - SOURCE <= said, name
    assert set(re.findall(r"^\| `(\w+)`(?:, `(\w+)`)? \|", page, re.MULTILINE)) >= {
        ("rank", "worker"),
        ("worker_role", ""),
        ("pid", ""),
    }
    for number in (REPORTS_MAX, BUFFER_MAX, f"{BYTES_MAX // 1024} KiB", f"{BUFFER_BYTES_MAX // 1024} KiB"):
        assert str(number) in page


# -- what is kept ------------------------------------------------------------------------------------------------------


def progress(number: int, at_s: float | None = None) -> observations.ProgressReport:
    """A progress heartbeat."""
    return observations.ProgressReport(
        report_id=f"p-{number:04}", at_s=float(number if at_s is None else at_s), value=number
    )


def event(number: int) -> observations.EventReport:
    """An event that was sent."""
    return observations.EventReport(
        report_id=f"e-{number:04}", at_s=float(number), request_id="r", event="e", state=observations.Delivery.SENT
    )


def test_a_batch_that_comes_again_changes_nothing() -> None:
    """The answer to a heartbeat may be lost."""
    first = added(ObservationBuffer(), [progress(1), progress(2)], 3)
    assert first == ObservationBuffer((progress(1), progress(2)), 3)
    assert added(first, [progress(1), replace(progress(2), at_s=9.0)], 3) is None
    more = added(first, [progress(2), progress(3)], 0)
    assert more == ObservationBuffer((progress(1), progress(2), progress(3)), 3)


def test_what_is_kept_is_bounded_in_number_and_what_goes_is_counted() -> None:
    """The oldest goes first."""
    kept = added(ObservationBuffer(), [progress(n) for n in range(BUFFER_MAX + 5)], 1)
    assert kept is not None and len(kept.reports) == BUFFER_MAX
    assert kept.reports[0] == progress(5) and kept.lost == 6


def test_what_is_kept_is_bounded_in_bytes() -> None:
    """128 long lines would be more than an item should be."""
    lines = [
        observations.NcclReport(report_id=f"n-{n:03}", at_s=float(n), line="\u4f8b" * 900) for n in range(BUFFER_MAX)
    ]
    at_once, one_by_one = added(ObservationBuffer(), lines, 0), ObservationBuffer()
    for line in lines:
        one_by_one = added(one_by_one, [line], 0) or one_by_one
    assert at_once == one_by_one
    kept = one_by_one.reports
    assert 0 < len(kept) < BUFFER_MAX and kept[-1] == lines[-1]
    assert sum(size(one) for one in kept) <= BUFFER_BYTES_MAX < sum(size(one) for one in lines[: len(kept) + 1])


@pytest.mark.slow
def test_a_chatty_kind_pushes_out_its_own() -> None:
    """An event that was never acknowledged is older than ten thousand heartbeats of a healthy worker, and matters."""
    kept = ObservationBuffer((event(0),))
    for n in range(1, 1_000):
        after = added(kept, [progress(n)], 0)
        assert after is not None
        kept = after
    assert kept.reports[0] == event(0) and len(kept.reports) == BUFFER_MAX
    assert kept.lost == 1_000 - BUFFER_MAX

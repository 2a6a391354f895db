"""Bodies of nodes to reports: what docs/protocol.md promises is read, and nothing else gets in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from gpu_recovery.core.heartbeat import (
    AgentReport,
    GpuHealth,
    RankExit,
    ReportedSxid,
    ReportedXid,
    RunningRank,
    running_log_id,
)
from gpu_recovery.node_api.report_parser import (
    GPUS_MAX,
    SAFE_MAX,
    SECONDS_MAX,
    ReportInvalid,
    parse_gpu_report,
    parse_report,
    parse_task_report,
)
from gpu_recovery.wire.json_body import read_json
from hypothesis import example, given
from hypothesis import strategies as st

from tests.aws.records import JOB, A
from tests.fuzz.mutations import mutated, odd_values

BOOT = "0B7F3C1E-6a55-4e0c-9f3b-2a9c7d1e4f60"
RANK = {"job": JOB, "attempt": 2, "rank": 1}
BEAT: dict[str, Any] = {"boot_id": BOOT, "uptime_s": 12, "sequence": 1}
WHOLE: dict[str, Any] = BEAT | {
    "age_s": 3.5,
    "interval_s": 15,
    "running": [RANK | {"epoch": 4, "pid": 4242, "ticks": 77, "log": 9}],
    "exits": [RANK | {"code": 134, "age_s": 0.5}, RANK | {"signal": 9, "epoch": 4, "age_s": 1}],
    "health": {"status": "impaired", "sentence": "GPU 3 has fallen off the bus", "digest": "sha256:1f"},
    "xids": [{"xid": 79, "gpu": "GPU-1", "count": 2, "age_s": 1.5, "action": 2, "bursts": 1, "boot": BOOT}],
    "sxids": [{"sxid": 24007, "fatal": True, "count": 3, "age_s": 2, "bursts": 2, "boot": BOOT}],
    "run": "0123456789abcdef",
    "inventory": {"agent": "0.3.0", "driver": "580.95.05", "gpus": [{"uuid": "GPU-1", "ecc": {"corrected": 0}}]},
}
MISSING = object()


def invalid(body: Any) -> tuple[str, str]:
    """(error code, field) of a body that is no report."""
    with pytest.raises(ReportInvalid) as error:
        parse_report(A, body)
    return error.value.error_code, error.value.field


def test_every_field_of_a_report_is_read() -> None:
    """In its type and with its meaning."""
    assert parse_report(A, WHOLE) == AgentReport(
        instance_id=A,
        boot_id=BOOT.lower(),
        uptime_s=12.0,
        sequence=1,
        age_s=3.5,
        interval_s=15,
        running=(RunningRank(JOB, 2, 1, 4, 4242, 77),),
        exits=(RankExit(JOB, 2, 1, code=134, age_s=0.5), RankExit(JOB, 2, 1, 4, signal=9, age_s=1.0)),
        health=GpuHealth.IMPAIRED,
        sentence="GPU 3 has fallen off the bus",
        digest="sha256:1f",
        xids=(ReportedXid(79, "GPU-1", 2, 1.5, 2, 1, BOOT.lower()),),
        sxids=(ReportedSxid(24007, True, 3, 2.0, 2, BOOT.lower()),),
        run="0123456789abcdef",
        inventory=WHOLE["inventory"],
    )


def test_a_report_of_nothing_new_needs_three_fields() -> None:
    """A quiet machine says little; what it does not speak of is not said to be empty."""
    assert parse_report(A, BEAT) == AgentReport(A, boot_id=BOOT.lower(), uptime_s=12.0, sequence=1, interval_s=15)
    assert parse_report(A, BEAT | {"running": []}).running == ()
    assert parse_report(A, BEAT | {"running": None, "health": None}).running is None


def test_a_rank_of_which_only_the_log_is_known_is_known_by_its_log() -> None:
    """Its file was written by a wrapper of seed 000."""
    log = running_log_id(JOB, 2, 1)
    said = parse_report(A, BEAT | {"running": [{"log": log, "pid": 4242}, RANK | {"pid": 1, "ticks": 1}]})
    assert said.running_logs == (log,) and said.running == (RunningRank(JOB, 2, 1, None, 1, 1),)


@pytest.mark.parametrize(
    ("field", "value", "culprit"),
    [
        ("boot_id", MISSING, "boot_id"),
        ("boot_id", "not a uuid", "boot_id"),
        ("boot_id", 7, "boot_id"),
        ("boot_id", BOOT + "\n", "boot_id"),
        ("boot_id", "\u0660" * 8 + BOOT[8:], "boot_id"),
        ("uptime_s", MISSING, "uptime_s"),
        ("uptime_s", -1, "uptime_s"),
        ("uptime_s", "12", "uptime_s"),
        ("uptime_s", True, "uptime_s"),
        ("uptime_s", float("inf"), "uptime_s"),
        ("uptime_s", float("nan"), "uptime_s"),
        ("uptime_s", 10**400, "uptime_s"),
        ("uptime_s", SECONDS_MAX + 1, "uptime_s"),
        ("sequence", MISSING, "sequence"),
        ("sequence", 0, "sequence"),
        ("sequence", 1.0, "sequence"),
        ("sequence", True, "sequence"),
        ("sequence", SAFE_MAX + 1, "sequence"),
        ("sequence", "1", "sequence"),
        ("run", "no", "run"),
        ("run", 7, "run"),
        ("run", "g" * 16, "run"),
        ("run", "a" * 33, "run"),
        ("sxids", [{"fatal": True}], "sxids[0].sxid"),
        ("sxids", [{"sxid": 0}], "sxids[0].sxid"),
        ("sxids", [{"sxid": 1, "fatal": 1}], "sxids[0].fatal"),
        ("sxids", [{"sxid": 1}] * 33, "sxids"),
        ("xids", [{"xid": 79, "bursts": 0}], "xids[0].bursts"),
        ("xids", [{"xid": 79, "boot": "b"}], "xids[0].boot"),
        ("age_s", -0.1, "age_s"),
        ("age_s", [], "age_s"),
        ("interval_s", 0, "interval_s"),
        ("interval_s", 86_401, "interval_s"),
        ("running", {}, "running"),
        ("running", "none", "running"),
        ("running", [RANK | {"pid": 1, "ticks": 1}] * 9, "running"),
        ("running", [7], "running[0]"),
        ("running", [RANK], "running[0].pid"),
        ("running", [RANK | {"pid": 1}], "running[0].ticks"),
        ("running", [RANK | {"pid": 0, "ticks": 1}], "running[0].pid"),
        ("running", [RANK | {"pid": 1, "ticks": 2**63}], "running[0].ticks"),
        ("running", [RANK | {"pid": 1, "ticks": 1, "epoch": -1}], "running[0].epoch"),
        ("running", [RANK | {"pid": 1, "ticks": 1, "log": 2**53}], "running[0].log"),
        ("running", [{"attempt": 1, "rank": 0, "pid": 1, "ticks": 1}], "running[0].job"),
        ("running", [RANK | {"job": f"{JOB}#a01"}], "running[0].job"),
        ("running", [RANK | {"job": ""}], "running[0].job"),
        ("running", [RANK | {"attempt": -1}], "running[0].attempt"),
        ("running", [RANK | {"rank": -1}], "running[0].rank"),
        ("exits", [RANK], "exits[0].code"),
        ("exits", [RANK | {"code": 1, "signal": 9}], "exits[0].code"),
        ("exits", [RANK | {"code": 256}], "exits[0].code"),
        ("exits", [RANK | {"signal": 0}], "exits[0].signal"),
        ("exits", [RANK | {"code": 0}] * 33, "exits"),
        ("exits", [RANK | {"code": 0, "age_s": -1}], "exits[0].age_s"),
        ("health", "ok", "health"),
        ("health", {}, "health.status"),
        ("health", {"status": "fine"}, "health.status"),
        ("health", {"status": "ok", "sentence": "x" * 501}, "health.sentence"),
        ("health", {"status": "ok", "digest": 7}, "health.digest"),
        ("xids", [{}], "xids[0].xid"),
        ("xids", [{"xid": 0}], "xids[0].xid"),
        ("xids", [{"xid": 79}] * 33, "xids"),
        ("xids", [{"xid": 79, "action": 2**32}], "xids[0].action"),
        ("xids", [{"xid": 79, "count": 0}], "xids[0].count"),
        ("xids", [{"xid": 79, "gpu": "x" * 101}], "xids[0].gpu"),
        ("inventory", [], "inventory"),
        ("inventory", {"gpus": [7]}, "inventory.gpus[0]"),
        ("inventory", {"gpus": [{}] * (GPUS_MAX + 1)}, "inventory.gpus"),
        ("inventory", {"gpus": [{"x": "y" * 262_144}]}, "inventory.gpus"),
        ("inventory", {"gpus": [{"x": "\u00fc" * 50_000}]}, "inventory.gpus"),
        ("inventory", {"gpus": [{"x": float("inf")}]}, "inventory.gpus"),
        ("inventory", {"agent": "x" * 101}, "inventory.agent"),
        ("inventory", {"driver": 580}, "inventory.driver"),
    ],
)
def test_a_field_out_of_its_bounds_is_named(field: str, value: Any, culprit: str) -> None:
    """Its place in the body, so that the agent's log says what to mend."""
    body = {name: one for name, one in (BEAT | {field: value}).items() if one is not MISSING}
    assert invalid(body) == ("invalid_report", culprit)


@pytest.mark.parametrize(
    ("name", "entry", "field", "low", "high"),
    [
        ("running", {"pid": 1, "ticks": 1}, "attempt", 0, 1_000_000),
        ("running", {"pid": 1, "ticks": 1}, "rank", 0, 1_000_000),
        ("running", {"ticks": 1}, "pid", 1, 2**31 - 1),
        ("running", {"pid": 1}, "ticks", 0, 2**63 - 1),
        ("running", {"pid": 1, "ticks": 1}, "epoch", 0, 2**53 - 1),
        ("running", {"pid": 1, "ticks": 1}, "log", 0, 2**53 - 1),
        ("exits", {}, "code", 0, 255),
        ("exits", {}, "signal", 1, 64),
        ("xids", {}, "xid", 1, 100_000),
        ("xids", {"xid": 79}, "action", 0, 2**32 - 1),
        ("xids", {"xid": 79}, "count", 1, 2**53 - 1),
        ("xids", {"xid": 79}, "bursts", 1, 2**53 - 1),
        ("sxids", {}, "sxid", 1, 1_000_000),
    ],
)
def test_a_whole_number_is_accepted_up_to_its_bounds(
    name: str, entry: dict[str, Any], field: str, low: int, high: int
) -> None:
    """Both bounds of the protocol are valid, and the numbers beside them are refused."""
    start = RANK if name in ("running", "exits") else {}
    for value in (low, high):
        assert len(getattr(parse_report(A, BEAT | {name: [start | entry | {field: value}]}), name)) == 1
    for value in (low - 1, high + 1):
        assert invalid(BEAT | {name: [start | entry | {field: value}]}) == ("invalid_report", f"{name}[0].{field}")


@pytest.mark.parametrize(("field", "most"), [("sentence", 500), ("digest", 128)])
def test_a_text_is_accepted_up_to_its_length(field: str, most: int) -> None:
    """One character more is refused."""
    assert getattr(parse_report(A, BEAT | {"health": {"status": "ok", field: "x" * most}}), field) == "x" * most
    assert invalid(BEAT | {"health": {"status": "ok", field: "x" * (most + 1)}})[1] == f"health.{field}"


@pytest.mark.parametrize("body", [None, [], "text", 7, True])
def test_what_is_no_object_is_no_report(body: Any) -> None:
    """The whole of it is wrong."""
    assert invalid(body) == ("invalid_report", "")


@pytest.mark.parametrize(
    ("reported", "text"),
    [
        ([97, 0, None, 100], "6100ff64"),
        ([97.4, "97", -1, 101, True, math.nan], "61ffffffffff"),
        ([0] * 33, "00" * 32),
        ([None, None], ""),
        ([], ""),
        ("97", ""),
        ({"0": 97}, ""),
        (97, ""),
    ],
)
def test_a_utilisation_that_is_not_known_is_not_zero(reported: Any, text: str) -> None:
    """It is only shown, so a malformed value costs no heartbeat."""
    assert parse_report(A, BEAT | {"health": {"status": "ok", "utilization": reported}}).utilisation == text
    assert parse_report(A, BEAT | {"health": {"status": "ok"}}).utilisation == parse_report(A, BEAT).utilisation == ""


def test_a_sentence_is_one_line() -> None:
    """It ends up in the subject of a mail and in logs."""
    said = parse_report(A, BEAT | {"health": {"status": "ok", "sentence": "all\r\nBcc: x\u2028 \x1b[31mwell\t "}})
    assert said.sentence == "all Bcc: x [31mwell"


def test_an_inventory_keeps_what_the_protocol_names() -> None:
    """What a newer agent adds beside it is passed over."""
    said = parse_report(A, BEAT | {"inventory": {"gpus": [{"uuid": "GPU-1"}], "secret": "x", "driver": "580"}})
    assert said.inventory == {"agent": "", "driver": "580", "gpus": [{"uuid": "GPU-1"}]}


# -- the older calls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (17, 17),
        ("17", 17),
        (" 17 ", 17),
        (17.0, 17),
        ("17.0", 17),
        (SAFE_MAX, SAFE_MAX),
        (str(SAFE_MAX), SAFE_MAX),
        (0, 0),
        (SAFE_MAX + 1, None),
        (-1, None),
        ("-1", None),
        (1.5, None),
        ("", None),
        ("seventeen", None),
        ("1e3", None),
        ("0x11", None),
        ("1_0", None),
        ("\u0661", None),
        (None, None),
        (True, None),
        ([], None),
        ({}, None),
        (float("inf"), None),
        (10**400, None),
        ("9" * 400, None),
    ],
)
def test_a_running_log_may_be_a_number_or_a_text(value: Any, read: int | None) -> None:
    """Seed 000's files hold either; an entry that cannot be read is passed over and the others count."""
    said = parse_task_report(A, {"tasks": [{"running_log_id": value}, {"running_log_id": 5}, "nonsense", None, {}]})
    assert said == AgentReport(A, running_logs=(5,) if read is None else (read, 5))


def test_a_rank_counts_once_and_of_gpus_no_more_are_kept_than_an_instance_has() -> None:
    """Which of the running logs are ranks here, the lookup knows."""
    many = [{"running_log_id": number // 2} for number in range(1_000)]
    assert parse_task_report(A, {"tasks": many}).running_logs == tuple(range(500))
    gpus = parse_gpu_report(A, {"gpus": [{"uuid": f"GPU-{number}"} for number in range(1_000)]}).inventory
    assert gpus is not None and len(json.loads(json.dumps(gpus))["gpus"]) == GPUS_MAX


@pytest.mark.parametrize(
    ("gpu", "kept"),
    [
        (
            {"uuid": "GPU-1", "index": "3", "utilization": "7.5", "memory_used": 10},
            {"index": 3, "utilization": 7.5, "memory_used": 10},
        ),
        ({"uuid": "GPU-1", "index": "[N/A]", "name": 7, "memory_total": None}, {}),
        ({"uuid": "GPU-1", "name": "H200", "processes": [{"command": "x"}], "other": 1}, {"name": "H200"}),
        ({"uuid": "", "index": 1}, None),
        ({"uuid": "x" * 101}, None),
        ({"index": 1}, None),
        ("GPU-1", None),
    ],
)
def test_of_a_gpu_is_kept_what_can_be_read(gpu: Any, kept: dict[str, Any] | None) -> None:
    """A value that the driver does not give (`[N/A]`) spoils no other; a GPU without a name is none."""
    said = parse_gpu_report(A, {"gpus": [gpu]}).inventory
    assert said == {"gpus": [] if kept is None else [{"uuid": "GPU-1"} | kept]}


# -- whatever comes ----------------------------------------------------------------------------------------------------

OLD_TASKS = {"tasks": [{"running_log_id": "17", "remote_pid": "1", "remote_pgid": "1"}], "timestamp": "1"}
OLD_GPUS = {
    "gpus": [{"uuid": "GPU-1", "index": 0, "name": "H200", "utilization": "7", "memory_total": 1, "memory_used": 1}],
    "timestamp": 1,
}


def is_sound(said: AgentReport) -> bool:
    """Whether a report can be kept: JSON of finite numbers, short texts, times that a clock can subtract."""
    told = asdict(said)
    json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    times = [said.age_s, said.uptime_s or 0, *(one.age_s for one in (*said.exits, *said.xids))]
    numbers = [said.sequence or 0, *(said.running_logs or ())]
    return (
        said.instance_id == A
        and all(0 <= one <= SECONDS_MAX for one in times)
        and all(type(one) is int and 0 <= one <= SAFE_MAX for one in numbers)
        and len(said.running or ()) <= 8
        and len(said.exits) <= 32
        and len(said.xids) <= 32
    )


def read_or_refused(read: Callable[[str, Any], AgentReport], body: Any) -> None:
    try:
        document = read_json(json.dumps(body))
    except ValueError:
        return  # the API answers that it is no JSON
    try:
        assert is_sound(read(A, document))
    except ReportInvalid as error:
        assert error.error_code and error.detail


@given(st.one_of(mutated([WHOLE, BEAT]), odd_values()))
@example(BEAT | {"uptime_s": 1e308})
@example(BEAT | {"sequence": 10**4_000})
def test_any_json_is_a_report_or_is_refused(body: Any) -> None:
    """Never another error, and never a report that cannot be kept."""
    read_or_refused(parse_report, body)


@given(mutated([OLD_TASKS, OLD_GPUS]))
def test_any_older_body_is_read_or_is_refused(body: Any) -> None:
    """The same for the calls of seed 000, once the body is an object."""
    if isinstance(body, dict):
        read_or_refused(parse_task_report, body)
        read_or_refused(parse_gpu_report, body)

"""What travels: its size, what is left out, and what every answer is read as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent import report
from gpu_recovery_agent.rank.files import Exit, RankIdentity
from gpu_recovery_agent.rank.paths import AgentSettingsError, running_folder
from gpu_recovery_agent.report import ReportContent, body, encoded
from gpu_recovery_agent.report_schedule import ReportSchedule
from gpu_recovery_agent.responses import ResponseKind, read
from gpu_recovery_agent.sensors.gpu_health import GpuHealthStatus, digest, inventory
from gpu_recovery_agent.sensors.kernel_log import Xid
from gpu_recovery_agent.sensors.ranks import ExitFile, LiveRank
from gpu_recovery_agent.settings import AgentSettings

from tests.agent.fake_proc import BOOT

KIB = 1_024
URL = "https://abc123.execute-api.eu-west-1.amazonaws.com"


def made(facts: ReportContent, **more: Any) -> dict[str, Any]:
    given = {"sequence": 7, "uptime_s": 1_000.0, "kernel_log_s": 900.0, "interval_s": 15.0, **more}
    return json.loads(encoded(body(facts, **given)))


def live(rank: int, job: str = "run-17", epoch: int | None = None) -> LiveRank:
    log = 2**53 - 1 - rank
    return LiveRank(RankIdentity(job, 1, rank, epoch, log), log, 4_194_303, 10**10)


# -- the report --------------------------------------------------------------------------------------------------------


def test_a_report_of_a_full_node_where_nothing_changes_is_below_a_kibibyte() -> None:
    """Eight busy GPUs, and ranks with the largest numbers and an epoch; names of 25 characters leave room for them."""
    facts = ReportContent(
        BOOT,
        [live(rank, "j" * 25, 99) for rank in range(8)],
        health=GpuHealthStatus("ok"),
        digest="0" * 16,
        utilization=[100] * 8,
    )
    assert len(encoded(body(facts, sequence=10**7, uptime_s=10**8, kernel_log_s=0, interval_s=15.0))) <= KIB
    one = ReportContent(BOOT, [live(0, "j" * 63, 99)], health=GpuHealthStatus("impaired", "x" * 500), digest="0" * 16)
    assert len(encoded(body(one, sequence=10**7, uptime_s=10**8, kernel_log_s=0, interval_s=15.0))) <= KIB


def test_what_has_nothing_to_say_is_left_out() -> None:
    """The defaults of the protocol are the server's to know."""
    assert made(ReportContent(BOOT, health=GpuHealthStatus("ok"))) == {
        "boot_id": BOOT,
        "uptime_s": 1000.0,
        "sequence": 7,
        "running": [],
        "health": {"status": "ok"},
    }
    health = made(ReportContent(BOOT, health=GpuHealthStatus("ok"), utilization=[0, None]))["health"]
    assert health == {"status": "ok", "utilization": [0, None]}
    assert made(ReportContent(BOOT), interval_s=5.0)["interval_s"] == 5.0
    assert made(ReportContent(BOOT), interval_s=0.2)["interval_s"] == 1.0


def test_a_report_has_no_more_entries_than_the_protocol_admits() -> None:
    """The rest comes with the next one."""
    path = Path("x")
    exits = [ExitFile(path, (n, 0, 0), Exit(RankIdentity("j", 1, n), 0, None, 1.0, BOOT)) for n in range(40)]
    xids = [Xid(n, "", 1, 1.0, None) for n in range(40)]
    found = made(ReportContent(BOOT, [live(n) for n in range(12)], exits, xids))
    assert [len(found[name]) for name in ("running", "exits", "xids")] == [8, 32, 32]


def test_ages_are_counted_by_the_clock_of_what_they_are_of() -> None:
    """An exit of an earlier boot is at least as old as this one; the kernel's log has a clock of its own."""
    path = Path("x")
    same = ExitFile(path, (1, 0, 0), Exit(RankIdentity("j", 1, 0), None, 9, 990.0, BOOT))
    earlier = ExitFile(path, (2, 0, 0), Exit(RankIdentity("j", 1, 1, epoch=3), 5, None, 1_500.0, "another"))
    found = made(ReportContent(BOOT, exits=[same, earlier], xids=[Xid(79, "0000:10:00", 3, 880.0, 2)]))
    assert found["exits"] == [
        {"job": "j", "attempt": 1, "rank": 0, "signal": 9, "age_s": 10.0},
        {"job": "j", "attempt": 1, "rank": 1, "epoch": 3, "code": 5, "age_s": 1000.0},
    ]
    assert found["xids"] == [{"xid": 79, "gpu": "0000:10:00", "count": 3, "age_s": 20.0, "action": 2}]


def test_an_xid_is_of_the_gpu_whose_uuid_is_known() -> None:
    """Until the driver has told, its address has to do."""
    facts = ReportContent(BOOT, xids=[Xid(79, "0000:10:00", 1, 1.0, None)], uuids={"0000:10:00": "GPU-7"})
    assert made(facts)["xids"][0]["gpu"] == "GPU-7"


def test_errors_of_switches_have_a_list_of_their_own_and_occurrences_are_told_apart() -> None:
    """What equals its default is left out."""
    found = made(
        ReportContent(BOOT, xids=[Xid(31, "g", 400, 880.0, None, 2), Xid(24007, "", 3, 890.0, None, 3, fatal=True)])
    )
    assert found["xids"] == [{"xid": 31, "gpu": "g", "count": 400, "age_s": 20.0, "bursts": 2}]
    assert found["sxids"] == [{"sxid": 24007, "fatal": True, "count": 3, "age_s": 10.0}]


def test_an_error_of_an_earlier_boot_is_told_with_it_and_is_older_than_this_one() -> None:
    """The log's clock of that boot says nothing in this one."""
    found = made(
        ReportContent(BOOT, xids=[Xid(79, "", 1, 1e6, None, 1, "boot-0"), Xid(5, "", 1, 9.0, None, 0, "boot-0", True)])
    )
    assert found["xids"][0]["boot"] == found["sxids"][0]["boot"] == "boot-0"
    assert found["xids"][0]["age_s"] == found["sxids"][0]["age_s"] == found["uptime_s"]


def test_a_rank_without_a_job_is_told_by_its_running_log() -> None:
    """That is all that a file of GPUTasker has."""
    assert made(ReportContent(BOOT, [LiveRank(None, 123, 42, 5)]))["running"] == [{"pid": 42, "ticks": 5, "log": 123}]


def test_two_reports_that_tell_the_same_have_the_same_mark() -> None:
    """Only such a one may go again under the sequence of the other."""
    rank, health = live(0), GpuHealthStatus("ok")
    same = ReportContent(BOOT, [rank], health=health, digest="d")
    assert same.mark == ReportContent(BOOT, [rank], health=GpuHealthStatus("ok", "in other words"), digest="d").mark
    assert same.mark == ReportContent(BOOT, [rank], health=health, digest="d", utilization=[97]).mark
    others = [
        ReportContent(BOOT, [], health=health, digest="d"),
        ReportContent(BOOT, [rank], health=GpuHealthStatus("impaired"), digest="d"),
        ReportContent(BOOT, [rank], health=health, digest="e"),
        ReportContent(BOOT, [rank], health=health, digest="d", inventory={}),
        ReportContent(BOOT, [rank], xids=[Xid(79, "", 1, 1.0, None)], health=health, digest="d"),
        ReportContent(
            BOOT,
            [rank],
            [ExitFile(Path("x"), (1, 1, 1), Exit(RankIdentity("j", 1, 0), 0, None, 1.0, BOOT))],
            health=health,
            digest="d",
        ),
    ]
    assert len({one.mark for one in (same, *others)}) == 1 + len(others)


def test_the_digest_changes_when_something_has_happened_and_not_with_the_temperature() -> None:
    """An inventory is kilobytes: it goes when there is news."""
    gpu = {"index": 0, "ecc": {"corrected_volatile": 0, "uncorrected_volatile": 0}, "temperature": 40, "processes": []}

    def of(**changed: Any) -> str:
        return digest(inventory({"driver": "580", "gpus": [{**gpu, **changed}]}, None))

    assert of() == of(temperature=90, processes=[{"pid": 1}], missing={"why": ["x"]}, utilization=3)
    assert of() == of(ecc={"corrected_volatile": 9, "uncorrected_volatile": 0})
    news = [of(ecc={"uncorrected_volatile": 1}), of(recovery_action=2), of(remapped={"pending": True}), of(error=15)]
    assert len({of(), *news}) == 5
    assert digest(inventory({"driver": "580", "gpus": [gpu]}, "no kernel log")) != of()


# -- the answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "raw", "kind"),
    [
        (200, b'{"ok": true}', ResponseKind.ACCEPTED),
        (200, b'{"ok": false}', ResponseKind.UNREACHABLE),
        (200, b"<html>", ResponseKind.UNREACHABLE),
        (200, b"[]", ResponseKind.UNREACHABLE),
        (204, b"", ResponseKind.UNREACHABLE),
        (301, b"", ResponseKind.UNREACHABLE),
        (400, b"{}", ResponseKind.BAD_REPORT),
        (401, b"", ResponseKind.UNREACHABLE),
        (403, b"\xff", ResponseKind.UNREACHABLE),
        (404, b"{}", ResponseKind.UNREACHABLE),
        (409, b"{}", ResponseKind.UNREACHABLE),
        (409, b'{"error": "stale_sequence", "last": 7}', ResponseKind.STALE),
        (413, b"", ResponseKind.TOO_LARGE),
        (429, b"", ResponseKind.TOO_MANY),
        (500, b"", ResponseKind.UNREACHABLE),
        (503, b"[" * 99_999, ResponseKind.UNREACHABLE),
    ],
)
def test_every_answer_is_something(status: int, raw: bytes, kind: ResponseKind) -> None:
    """Also one that nobody of ours has given."""
    assert read(status, raw, None).kind is kind


@pytest.mark.parametrize("said", ["missing_token", "invalid_token", "invalid_signer"])
def test_only_the_apis_own_word_ends_an_agent(said: str) -> None:
    """A firewall or a gateway that forbids something once must not need a hand on every node."""
    own = json.dumps({"error": said}).encode()
    assert {read(status, own, None).kind for status in (401, 403)} == {ResponseKind.DENIED}
    assert read(403, b'{"message": "Forbidden"}', None).kind is ResponseKind.UNREACHABLE


def test_orders_are_taken_as_far_as_they_can_be_read() -> None:
    """A newer server may have kinds and shapes that this agent does not know."""
    good = {"id": "o", "kind": "stop", "job": "j", "attempt": 2, "grace_s": 5}
    strange = [None, 1, {}, {**good, "id": 3}, {**good, "kind": "dance"}, {**good, "attempt": -1}, {**good, "job": ""}]
    raw = json.dumps({"ok": True, "orders": [good, *strange, {**good, "id": "p", "grace_s": "soon"}]})
    orders = read(200, raw.encode(), None).commands
    assert [(one.id, one.kind, one.job, one.attempt, one.grace_s) for one in orders] == [
        ("o", "stop", "j", 2, 5.0),
        ("p", "stop", "j", 2, 30.0),
    ]
    for broken in ('{"ok": true, "orders": 3, "refused": {}}', '{"ok": true, "orders": null, "refused": [1]}'):
        assert read(200, broken.encode(), None).commands == ()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("0.001", 1.0),
        ("15", 15.0),
        ("1e400", 300.0),
        ("NaN", None),
        ('"9"', None),
        ("true", None),
        ("1" * 400, 300.0),
        ("-5", 1.0),
    ],
)
def test_the_next_report_is_wanted_within_bounds(given: str, kept: float | None) -> None:
    """A server that is wrong neither silences an agent nor is flooded by it."""
    assert read(200, f'{{"ok": true, "next_s": {given}}}'.encode(), None).next_s == kept


@pytest.mark.parametrize(
    ("header", "kept"),
    [("7", 7.0), ("999999", 3600.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("٣", None), (None, None)],
)
def test_retry_after_is_seconds(header: str | None, kept: float | None) -> None:
    """A date would be compared with a clock that anybody may set."""
    assert read(503, b"", header).retry_after_s == kept
    assert read(429, b"", header).retry_after_s == kept


# -- the pace ----------------------------------------------------------------------------------------------------------


def test_reports_are_due_within_a_tenth_of_the_interval() -> None:
    """A thousand agents that began together do not speak together."""
    due = []
    for luck in (0.0, 0.5, 1.0):
        pace = ReportSchedule(15.0, lambda luck=luck: luck, 0.0)
        pace.succeeded(100.0, None)
        due.append(pace.due_at)
    assert due == [113.5, 115.0, 116.5]
    pace.succeeded(100.0, 60.0)
    pace.succeeded(200.0, None)
    assert pace.due_at == 266.0


def test_pauses_double_to_half_a_minute_with_full_jitter_and_end_with_an_answer() -> None:
    """Who was away longest is not stormed when it comes back."""
    pace = ReportSchedule(15.0, lambda: 1.0, 0.0)
    pauses = []
    for _ in range(9):
        pace.failed(0.0, None)
        pauses.append(pace.due_at)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30]
    pace.random = lambda: 0.0
    pace.failed(0.0, None)
    assert pace.due_at == 0.0
    pace.random = lambda: 1.0
    pace.succeeded(0.0, None)
    pace.failed(0.0, None)
    assert pace.due_at == 1.0


def test_what_the_server_asks_for_is_waited_whole() -> None:
    """No jitter shortens it, and nothing urgent does."""
    pace = ReportSchedule(15.0, lambda: 0.0, 0.0)
    pace.failed(0.0, 40.0)
    pace.urgent(1.0)
    assert pace.due_at == 40.0


def test_urgent_news_goes_at_once_and_never_in_a_stream() -> None:
    """A thousand errors a minute stay below the 120 reports in five minutes that the API admits."""
    pace = ReportSchedule(15.0, lambda: 0.5, 0.0)
    pace.succeeded(100.0, None)
    pace.urgent(110.0)
    assert pace.due_at == 110.0
    sent, now = 0, 110.0
    while now < 170.0:
        pace.urgent(now)
        if now >= pace.due_at:
            pace.succeeded(now, None)
            sent += 1
        now += 0.25
    assert 18 <= sent <= 21


# -- the settings ------------------------------------------------------------------------------------------------------

GOOD = {"GPU_RECOVERY_API_URL": URL, "GPU_RECOVERY_TOKEN": "grn_x", "HOME": "/root"}


def test_the_settings_have_defaults_for_all_but_address_and_token() -> None:
    """And a stage in the address is kept."""
    found = AgentSettings.from_environment(GOOD)
    assert found.reports_url == f"{URL}/api/v1/reports"
    assert (found.interval_s, found.poll_s, found.nvml_deadline_s, found.inventory_s) == (15.0, 1.0, 30.0, 300.0)
    assert str(found.host_kmsg) == "/dev/kmsg" and found.nvml and found.token(GOOD) == "grn_x"
    staged = AgentSettings.from_environment({**GOOD, "GPU_RECOVERY_API_URL": f"{URL}/prod/"})
    assert staged.reports_url == f"{URL}/prod/api/v1/reports"


@pytest.mark.parametrize(
    "wrong",
    [
        {"GPU_RECOVERY_API_URL": ""},
        {"GPU_RECOVERY_API_URL": "ftp://h"},
        {"GPU_RECOVERY_API_URL": "https://u:p@h"},
        {"GPU_RECOVERY_API_URL": "http://10.0.0.1"},
        {"GPU_RECOVERY_API_URL": "http://127.0.0.1.example.org"},
        {"GPU_RECOVERY_API_URL": "https://["},
        {"GPU_RECOVERY_TOKEN": ""},
        {"GPU_RECOVERY_INTERVAL_MS": "1e3"},
        {"GPU_RECOVERY_LOOK_MS": "0"},
        {"GPU_RECOVERY_NVML": "maybe"},
        {"GPU_RECOVERY_ECS_AGENT": "http://169.254.169.254"},
    ],
)
def test_a_setting_that_cannot_be_meant_is_named(wrong: dict[str, str]) -> None:
    """A token never travels in the clear, nor to whom nobody named."""
    (variable,) = wrong
    with pytest.raises(AgentSettingsError, match="token" if variable.endswith("TOKEN") else variable):
        AgentSettings.from_environment({**GOOD, **wrong})


def test_the_token_comes_from_a_file_a_credential_or_the_environment_and_is_in_no_text(tmp_path: Path) -> None:
    """It is read anew for every report, so that the next one needs no restart."""
    file = tmp_path / "token"
    file.write_text("grn_one\n")
    for given in ({"GPU_RECOVERY_TOKEN_FILE": str(file)}, {"CREDENTIALS_DIRECTORY": str(tmp_path)}):
        settings = AgentSettings.from_environment({**GOOD, **given})
        assert settings.token(GOOD) == "grn_one" and "grn_" not in repr(settings)
    file.write_text("grn_two")
    assert settings.token(GOOD) == "grn_two"
    for broken in ("", "two words", "x" * 300, "gr\u00fcn", "a\nb"):
        file.write_text(broken)
        with pytest.raises(AgentSettingsError) as caught:
            settings.token(GOOD)
        assert not broken or broken not in str(caught.value)
    file.unlink()
    with pytest.raises(AgentSettingsError, match="cannot be read"):
        settings.token(GOOD)


def test_the_folder_of_ranks_is_seed_000s(tmp_path: Path) -> None:
    """Both its variable and its default."""
    assert running_folder({"GPUTASKER_RUNNING_TASKS_DIR": "/x"}) == Path("/x")
    assert running_folder({}) == Path.home() / ".gputasker/running_tasks"
    assert report.RUNNING_MAX == 8

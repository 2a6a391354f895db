"""docs/protocol.md row by row: a real agent, and an API that answers what the row says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.agent.api import WITHIN_S, Api, Said, ok, refusal, serving
from tests.agent.node import ROOT, TOKEN, Node, wait_until

pytestmark = pytest.mark.slow
AGENT = ROOT / "agent"
OTHER_BOOT = "6f1d0c2b-3a58-4e7e-9b41-0d5a7c8e9f10"


def exits_of(report: dict) -> list[int]:
    return [one["rank"] for one in report.get("exits", [])]


def leave_exit(node: Node, rank: int, **how: object) -> Path:
    """An exit of a rank that ended under this boot."""
    node.running.mkdir(exist_ok=True)
    path = node.running / f"{100 + rank}.exit"
    content = {"job_id": "run-1", "attempt": 1, "rank": rank, "uptime_s": 1.0, "boot_id": boot_id(), **how}
    path.write_text(json.dumps(content))
    return path


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_report_says_who_speaks_and_the_token_travels_in_its_header_alone(api: Api, node: Node) -> None:
    """The body names the boot and never an instance; the secret is neither in it, nor in the journal, nor in /proc."""
    agent = node.agent()
    first, second = api.count(2)[:2]
    assert first["boot_id"] == boot_id() and first["uptime_s"] > 0
    assert (first["sequence"], second["sequence"]) == (1, 2)
    assert {one.path for one in api.heard} == {"/api/v1/reports"}
    assert {one.headers["Authorization"] for one in api.heard} == {f"Bearer {TOKEN}"}
    assert not any(b"s3cret" in one.raw for one in api.heard)
    assert "s3cret" not in node.said()
    assert b"s3cret" not in Path(f"/proc/{agent.pid}/cmdline").read_bytes()


def test_gap_6_a_token_is_in_no_body_and_goes_to_nobody_who_was_not_named(api: Api, node: Node) -> None:
    """Seed 000's agent puts it into each body, over plain HTTP, and has an address of its own where none is given."""
    node.agent()
    api.count(2)
    assert not any(TOKEN.encode() in one.raw for one in api.heard)
    for address in ("http://10.0.0.1:8000", "http://gputasker.example.org", ""):
        agent = node.agent(GPU_RECOVERY_API_URL=address)
        assert agent.wait(WITHIN_S) == 78
    assert "GPU_RECOVERY_API_URL must be the address of the API" in node.said() and TOKEN not in node.said()
    sources = "\n".join(path.read_text() for path in AGENT.rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert "StrictHostKeyChecking" not in sources and "_create_unverified_context" not in sources
    assert not re.search(r"https?://(?!127\.0\.0\.1)\d+\.\d+\.\d+\.\d+", sources)


def test_gap_8_a_pid_that_lives_again_is_no_rank_and_its_end_is_told(api: Api, node: Node) -> None:
    """Seed 000's agent asks `kill(pid, 0)`, which whoever has the pid answers, and removes the file with the exit."""
    other = subprocess.Popen(["sleep", "600"])
    try:
        node.running.mkdir()
        ticks = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        of = {"remote_pid": other.pid, "remote_pgid": other.pid, "job_id": "run-1", "attempt": 1, "timestamp": 1}
        for log, start, boot in ((100, ticks, boot_id()), (101, ticks + 1, boot_id()), (102, ticks, OTHER_BOOT)):
            content = {**of, "running_log_id": log, "rank": log - 100, "start_ticks": start, "boot_id": boot}
            (node.running / f"{log}.json").write_text(json.dumps(content))
        node.agent()
        assert [one["rank"] for one in api.count(1)[0]["running"]] == [0]
    finally:
        other.kill()
        other.wait()
    begin = len(api.heard)
    assert node.rank("sh", "-c", "exit 7", rank=3).wait(WITHIN_S) == 7
    (told,) = api.next(lambda report: "exits" in report, begin)["exits"]  # it may be told before the wait has ended
    assert (told["rank"], told["code"]) == (3, 7)
    assert api.next(lambda report: "exits" not in report)["running"] == []


def test_200_exits_are_removed_under_both_names(api: Api, node: Node) -> None:
    """Earlier wrappers wrote `.exit.json`, which agents of GPUTasker take for running ranks."""
    old = leave_exit(node, 1, code=4)
    old.rename(old.with_name("101.exit.json"))
    leave_exit(node, 0, code=3)
    node.agent()
    assert exits_of(api.count(1)[0]) == [0, 1]
    wait_until(lambda: node.files() == [])


def test_200_orders_are_carried_out_once_each(api: Api, node: Node) -> None:
    """A suspend is one SIGTERM however often it is repeated; what is about another attempt is about nobody here."""
    count = node.running.parent / "terms"
    script = f"import signal,time\nsignal.signal(15, lambda *_: open({str(count)!r}, 'a').write('t'))\n" + (
        f"open({str(count)!r}, 'w').close()\nwhile True: time.sleep(0.02)"
    )
    node.rank("python3", "-c", script)
    wait_until(count.exists)
    order = {"id": "o-1", "kind": "suspend", "job": "run-1", "attempt": 1, "grace_s": 0}
    api.lasting = ok(orders=[order, {**order, "id": "o-2", "attempt": 2}, {"id": 7}, "nonsense"])
    node.agent()
    wait_until(lambda: count.read_text() == "t")
    api.count(len(api.heard) + 3)
    assert count.read_text() == "t"
    assert node.said().count("SIGTERM") == 1


def test_200_a_stop_kills_what_does_not_end_and_its_exit_is_told(api: Api, node: Node) -> None:
    """The wrapper lives on to write how its command ended."""
    ready = node.running.parent / "ready"
    script = f"import signal,time\nsignal.signal(15, signal.SIG_IGN)\nopen({str(ready)!r}, 'w')\ntime.sleep(600)"
    rank = node.rank("python3", "-c", script)
    wait_until(ready.exists)
    api.lasting = ok(orders=[{"id": "o-1", "kind": "stop", "job": "run-1", "attempt": 1, "grace_s": 0.3}])
    node.agent()
    told = api.until(lambda reports: any(exits_of(one) for one in reports))
    (gone,) = next(one for one in told if exits_of(one))["exits"]
    assert (gone["job"], gone["attempt"], gone["rank"], gone["signal"]) == ("run-1", 1, 0, 9)
    assert rank.wait() == 128 + 9


def test_200_an_inventory_that_is_asked_for_is_sent_with_the_next_report(api: Api, node: Node) -> None:
    """Otherwise it is sent when it is known, and not again while nothing changes."""
    node.agent()
    reports = api.until(lambda reports: sum("inventory" in one for one in reports) == 1 and len(reports) >= 4)
    (found,) = [one["inventory"] for one in reports if "inventory" in one]
    assert found["driver"] == "580.82.07" and found["gpus"][0]["uuid"] == "GPU-0" and found["agent"]
    api.script = [ok(inventory=True)]
    assert api.next(lambda report: "inventory" in report)["inventory"]["gpus"]


def test_a_report_has_the_utilization_of_each_gpu_and_none_for_what_is_not_known(api: Api, node: Node) -> None:
    """A GPU that MIG divides, or that is lost, has none. An NVML that hangs leaves the field out: 0 would be idle."""
    lost = {"raises": {"*": 15}}
    node.set_nvml(gpus=[{"utilization": 97}, {"utilization": 0}, {"mig": True}, lost])
    node.agent(GPU_RECOVERY_NVML_DEADLINE_MS="300")
    found = api.next(lambda report: "utilization" in report["health"], 0)
    assert found["health"]["utilization"] == [97, 0, None, None]
    node.set_nvml(hang="nvmlDeviceGetCount")
    hung = api.next(lambda report: "has not answered" in report["health"].get("sentence", ""))
    assert "utilization" not in hung["health"]


def test_an_agent_without_nvml_says_nothing_of_utilization(api: Api, node: Node) -> None:
    """The page then shows it as unknown."""
    node.agent(GPU_RECOVERY_NVML="off")
    assert all("utilization" not in report["health"] for report in api.count(3))


def test_200_a_rank_that_is_refused_is_said_once_and_reported_on(api: Api, node: Node) -> None:
    """Whose it is, is the server's to say."""
    node.rank("sleep", "600")
    wait_until(node.files)
    api.lasting = ok(refused=[{"job": "run-1", "attempt": 1, "why": "it is over"}])
    node.agent()
    reports = api.count(3)
    assert all(one["running"][0]["job"] == "run-1" for one in reports)
    assert node.said().count("it is over") == 1


def test_400_the_report_is_dropped_and_its_exits_are_told_by_themselves(api: Api, node: Node) -> None:
    """One exit that no server can read must not keep the others from being heard."""
    for rank in range(2):
        leave_exit(node, rank, code=1)
    api.script = [refusal(400, "invalid_report", field="xids"), ok(), ok()]
    node.kernel_says("NVRM: Xid (PCI:0000:10:00): 79, pid=7")
    node.agent()
    first, second, third = api.count(3)[:3]
    assert (exits_of(first), exits_of(second), exits_of(third)) == ([0, 1], [0], [1])
    assert first["xids"] and "xids" not in second and "health" not in second
    wait_until(lambda: node.files() == [])
    assert "invalid_report in xids" in node.said()


def test_400_a_rank_that_no_server_takes_does_not_silence_the_others(api: Api, node: Node) -> None:
    """Its file is its own doing; without it the next report is heard."""
    for rank in range(2):
        node.rank("sleep", "600", rank=rank)
    wait_until(lambda: len(node.files()) == 2)
    api.script = [refusal(400, "invalid_report", field="running[0].job")]
    node.agent()
    reports = api.count(3)
    assert [[one["rank"] for one in report["running"]] for report in reports[:3]] == [[0, 1], [1], [1]]


def test_400_an_exit_that_is_refused_alone_is_kept_aside(api: Api, node: Node) -> None:
    """It is neither lost nor told for ever."""
    leave_exit(node, 0, code=1)
    api.script = [refusal(400, "invalid_report"), refusal(400, "invalid_report")]
    node.agent()
    reports = api.count(4)
    assert [exits_of(one) for one in reports[:4]] == [[0], [0], [], []]
    assert node.files() == ["100.exit.refused"]


@pytest.mark.parametrize(("status", "error"), [(401, "missing_token"), (403, "invalid_token")])
def test_401_and_403_end_the_agent_for_good(api: Api, node: Node, status: int, error: str) -> None:
    """A token that is not wanted is not tried again: 77 is a status that the unit does not restart."""
    api.script = [ok(), refusal(status, error)]
    agent = node.agent()
    assert agent.wait(60) == 77
    assert len(api.heard) == 2 and error in node.said()


def test_403_the_next_token_is_tried_before_giving_up(api: Api, node: Node, tmp_path: Path) -> None:
    """The file may have been replaced while the old token was on its way."""
    token = tmp_path / "token"
    token.write_text("grn_old_one\n")
    hold = threading.Event()
    api.script = [Said(403, {"ok": False, "error": "invalid_token"}, hold=hold), ok()]
    node.agent(GPU_RECOVERY_TOKEN="", GPU_RECOVERY_TOKEN_FILE=str(token))
    api.count(1)
    token.write_text("grn_next_one\n")
    hold.set()
    api.count(3)
    assert [one.headers["Authorization"] for one in api.heard[:3]] == [
        "Bearer grn_old_one",
        "Bearer grn_next_one",
        "Bearer grn_next_one",
    ]


@pytest.mark.parametrize(
    ("settings", "status", "why"),
    [
        ({"GPU_RECOVERY_TOKEN": ""}, 77, "no token"),
        ({"GPU_RECOVERY_TOKEN_FILE": "/nowhere/token"}, 77, "cannot be read"),
        ({"GPU_RECOVERY_TOKEN_FILE": "/dev/null"}, 77, "empty"),
        ({"GPU_RECOVERY_API_URL": ""}, 78, "GPU_RECOVERY_API_URL"),
    ],
)
def test_the_exit_status_tells_a_missing_token_from_a_wrong_setting(
    api: Api, node: Node, settings: dict[str, str], status: int, why: str
) -> None:
    """As the table of the page says: 77 is mended with a token, 78 with another setting."""
    assert node.agent(**settings).wait(WITHIN_S) == status
    assert why in node.said() and not api.heard


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("gpu_recovery_agent", ("usage: gpu-recovery-agent", "GPU_RECOVERY_API_URL", "77", "78")),
        ("gpu_recovery_agent.nvml_recorder", ("usage: gpu-recovery-record", "69")),
    ],
)
def test_help_is_text_and_needs_no_settings(node: Node, module: str, words: tuple[str, ...]) -> None:
    """A newcomer asks for help before anything is set."""
    command = [sys.executable, "-m", module, "--help"]
    environment = {name: node.environment[name] for name in ("PATH", "PYTHONPATH")}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "") and all(word in told.stdout for word in words)


def test_409_the_agent_goes_on_from_the_last_once_and_then_is_not_alone(api: Api, node: Node) -> None:
    """A lost state is made good; a second agent is not fought."""
    api.script = [refusal(409, "stale_sequence", last=41), ok(), refusal(409, "stale_sequence", last=50)]
    agent = node.agent()
    assert agent.wait(60) == 78
    assert [one.report["sequence"] for one in api.heard] == [1, 42, 43]
    assert "another agent" in node.said()


def test_409_another_agent_ends_this_one_for_good(api: Api, node: Node) -> None:
    """One that started later speaks for the instance: it is not fought, and no report is tried again."""
    api.script = [ok(), refusal(409, "another_agent")]
    assert node.agent().wait(60) == 78
    assert [one.report["sequence"] for one in api.heard] == [1, 2]
    assert "started later" in node.said()


@pytest.mark.parametrize(
    "body", [b"<html>conflict</html>", {"error": "conflict", "last": 7}], ids=["a page", "another API"]
)
def test_409_in_somebody_elses_words_is_an_api_that_is_away(api: Api, node: Node, body: Any) -> None:
    """A proxy may answer so for a while. The exit is reported again under the same sequence; the agent continues."""
    leave_exit(node, 0, code=1)
    api.script = [Said(409, body), Said(409, body), ok()]
    agent = node.agent(GPU_RECOVERY_NVML="off")
    reports = api.count(4)
    assert [(one["sequence"], exits_of(one)) for one in reports[:3]] == [(1, [0])] * 3
    assert agent.poll() is None


def test_each_start_of_an_agent_has_a_name_of_its_own(api: Api, node: Node) -> None:
    """Every report of it carries the same one."""
    first = node.agent()
    api.count(2)
    first.kill()
    first.wait()
    begin = len(api.heard)
    node.agent()
    runs = [one["run"] for one in api.count(begin + 2)]
    assert len(set(runs[:begin])) == len(set(runs[begin:])) == 1 and runs[0] != runs[-1]
    assert all(re.fullmatch("[0-9a-f]{16}", run) for run in runs)


def test_413_the_report_goes_again_without_its_inventory_and_then_not_at_all(api: Api, node: Node) -> None:
    """What is too large once is too large again."""
    api.lasting = ok()
    node.agent()
    api.until(lambda reports: any("inventory" in one for one in reports))
    leave_exit(node, 0, code=3)
    api.script = [ok(inventory=True)]
    api.next(lambda report: True)
    begin = len(api.heard)
    api.script = [refusal(413, "too_large"), refusal(413, "too_large"), ok()]
    reports = api.count(begin + 4)
    large = next(n for n, one in enumerate(reports) if n >= begin - 1 and "inventory" in one)
    assert "inventory" not in reports[large + 1] and "inventory" not in reports[large + 2]


def test_429_is_waited_for_as_long_as_it_says(api: Api, node: Node) -> None:
    """An exit waits with the rest: the rate is the token's."""
    api.script = [refusal(429, "too_many", {"Retry-After": "3600"})]
    node.agent()
    api.count(1)
    wait_until(lambda: "too_many" in node.said())
    path = leave_exit(node, 0, code=0)
    state = node.state / "state.json"
    before = state.stat().st_mtime_ns
    threading.Event().wait(1.0)  # fifty looks
    assert len(api.heard) == 1 and path.exists() and state.stat().st_mtime_ns == before


@pytest.mark.parametrize("status", [500, 502, 503, 404, 301])
def test_5xx_and_other_answers_are_an_api_that_is_away(api: Api, node: Node, status: int) -> None:
    """The same report comes again under its own sequence; a redirect is not followed with the token."""
    leave_exit(node, 0, code=1)
    elsewhere = {"Location": f"{api.url}/elsewhere"}
    api.script = [Said(status, b"<html>", elsewhere), Said(status, b"", elsewhere), ok()]
    node.agent(GPU_RECOVERY_NVML="off")
    reports = api.count(3)
    assert [exits_of(one) for one in reports[:3]] == [[0], [0], [0]]
    assert [one["sequence"] for one in reports[:3]] == [1, 1, 1]
    assert {one.path for one in api.heard} == {"/api/v1/reports"}
    wait_until(lambda: node.files() == [])


def test_a_success_in_somebody_elses_words_is_no_answer(api: Api, node: Node) -> None:
    """A proxy that says 200 to everything has heard nothing: the exit is still there."""
    path = leave_exit(node, 0, code=1)
    api.script = [Said(200, b"<html>log in</html>"), Said(200, {"hello": 1})]
    api.lasting = refusal(503, "busy", {"Retry-After": "3600"})
    node.agent()
    api.count(3)
    assert path.exists()


def test_a_time_out_is_an_api_that_is_away(api: Api, node: Node) -> None:
    """The report may have been heard; it keeps its sequence, and its exit stays until somebody says so."""
    hold = threading.Event()
    path = leave_exit(node, 0, code=1)
    api.script = [Said(200, {"ok": True}, hold=hold), ok()]
    node.agent(GPU_RECOVERY_NVML="off")
    api.count(1)
    assert path.exists()
    reports = api.count(2)
    assert [one["sequence"] for one in reports[:2]] == [1, 1]
    wait_until(lambda: not path.exists())
    hold.set()


def test_no_connection_loses_no_exit_and_no_fault(api: Api, node: Node) -> None:
    """What happened while nobody listened is told in one report when somebody does, and presence is only the last."""
    port = int(api.url.rpartition(":")[2])
    absent = Node(node.running.parent, "http://127.0.0.1:9")
    agent = absent.agent(GPU_RECOVERY_API_URL=f"http://127.0.0.1:{_free_port()}")
    try:
        wait_until(lambda: "does not answer" in absent.said())
        leave_exit(absent, 0, code=1)
        absent.kernel_says("NVRM: Xid (PCI:0000:10:00): 79, pid=7")
        assert agent.poll() is None and port
        late = Api()
        with serving(late, _PORTS[-1]):
            reports = late.until(lambda reports: any("xids" in one for one in reports))
        told = next(one for one in reports if "xids" in one)
        assert exits_of(told) == [0] and told["xids"][0]["xid"] == 79
        assert "age_s" not in told
    finally:
        absent.end()


_PORTS: list[int] = []


def _free_port() -> int:
    with serving(Api()) as found:
        _PORTS.append(int(found.url.rpartition(":")[2]))
    return _PORTS[-1]

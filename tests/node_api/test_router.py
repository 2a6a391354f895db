"""What agents say to the node API and what it answers, row by row of docs/protocol.md."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, IssuedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, AgentReport, Heartbeat, RankExit, RunningRank
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver, ReportResponse
from gpu_recovery.node_api.router import BODY_BYTES_MAX
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyConflicts, TooManyReports, TryAgainSoon

from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, A, B
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
BOOT = "0b7f3c1e-6a55-4e0c-9f3b-2a9c7d1e4f60"
OLDER = ("/api/v1/report_gpu/", "/api/v1/report_tasks/")
REPORTS, SIGNED = "/api/v1/reports", "/api/v1/signed/reports"
BEAT = {"boot_id": BOOT, "uptime_s": 86_400.5, "sequence": 7}
ROLE = "arn:aws:iam::123456789012:role/gpu/training-nodes"
SIGNER = "arn:aws:sts::123456789012:assumed-role/training-nodes/{}"


@dataclass
class Ear:
    """Stands in for what follows from a report: keeps each, and answers or raises `answer`."""

    reports: list[AgentReport] = field(default_factory=list)
    answer: ReportResponse | Exception = field(default_factory=ReportResponse)

    def hear(self, report: AgentReport) -> ReportResponse:
        self.reports.append(report)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class Said:
    """An answer as the agent gets it."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class Agent:
    """Calls the node API as an agent on an instance does."""

    functions: Functions
    heard: Ear
    tokens: DynamoTokenStore
    issued: IssuedToken

    def call(
        self,
        path: str,
        body: Any = None,
        *,
        raw: str | None = None,
        method: str = "POST",
        encoded: bool = False,
        token: str | None = None,
        signer: str | None = None,
        authorizer: Any = ...,
        headers: dict[str, str] | None = None,
    ) -> Said:
        token = self.issued.token if token is None else token
        given = {"authorization": f"Bearer {token}"} if headers is None else headers
        event = {
            "version": "2.0",
            "rawPath": path,
            "headers": given,
            "isBase64Encoded": encoded,
            "body": json.dumps(body) if raw is None else raw,
            "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        }
        if signer is not None:
            event["requestContext"]["authorizer"] = {"iam": {"userArn": signer}}
        if authorizer is not ...:
            event["requestContext"]["authorizer"] = authorizer
        answer = self.functions.call("node_api", event)
        return Said(answer["statusCode"], json.loads(answer["body"]), answer["headers"])

    def older(self, path: str, **body: Any) -> Said:
        """A call of seed 000, with the token where GPUTasker puts it."""
        return self.call(path, {"token": self.issued.token} | body, headers={})

    def reads(self) -> int:
        """How often the last call read the table."""
        return self.functions.aws.operations("dynamodb")["GetItem"]


@pytest.fixture
def agent(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with a token of instance A, before a deaf hearing."""
    heard = Ear()
    monkeypatch.setattr(HeartbeatReceiver, "receive", lambda self, report, *how: heard.hear(report))
    monkeypatch.setenv("NODE_ROLE_ARNS", f"{ROLE} arn:aws-cn:iam::444455556666:role/nodes")
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, heard, tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


def refused(said: Said, status: int, error: str, **more: Any) -> str:
    """The detail of a refusal of the newer calls."""
    assert (said.status, said.body["error"], said.body["status"]) == (status, error, status)
    assert said.headers["content-type"] == "application/problem+json"
    assert {name: said.body.get(name) for name in more} == more
    return str(said.body["detail"])


# -- the calls of seed 000 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/v1/report_tasks/", "/api/v1/report_tasks"])
def test_the_running_tasks_of_an_older_agent_are_heard(agent: Agent, path: str) -> None:
    """By the numbers of their running logs, which may be texts; the answer counts them."""
    agent.heard.answer = ReportResponse(updated=2, revived=1)
    tasks = [
        {"running_log_id": "5012345678901234", "remote_pid": "4242", "remote_pgid": "4242"},
        {"running_log_id": 17, "remote_pid": 4243, "remote_pgid": 4243},
    ]
    said = agent.older(path, tasks=tasks, timestamp=1)
    assert (said.status, said.headers["content-type"]) == (200, "application/json")
    assert said.body == {"ok": True, "updated": 2, "revived": 1, "ts": int(NOW.timestamp())}
    assert agent.heard.reports == [AgentReport(A, running_logs=(5012345678901234, 17))]


@pytest.mark.parametrize("path", ["/api/v1/report_gpu/", "/api/v1/report_gpu"])
def test_the_gpus_of_an_older_agent_are_heard(agent: Agent, path: str) -> None:
    """As its inventory, without the command lines and names of whoever uses them."""
    process = {"pid": 1, "command": "python train.py --key=secret", "gpu_memory_usage": 10, "username": "ana"}
    gpu = {
        "uuid": "GPU-1",
        "index": "0",
        "name": "NVIDIA H200",
        "utilization": "37",
        "memory_total": 143771,
        "memory_used": "1024",
        "processes": [process],
    }
    said = agent.older(path, gpus=[gpu], timestamp="1763715600")
    assert (said.status, said.body) == (200, {"ok": True, "ts": int(NOW.timestamp())})
    (report,) = agent.heard.reports
    assert report.running_logs is None and report.inventory == {
        "gpus": [
            {
                "uuid": "GPU-1",
                "name": "NVIDIA H200",
                "index": 0,
                "utilization": 37,
                "memory_total": 143771,
                "memory_used": 1024,
            }
        ]
    }


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        ("/api/v1/report_tasks/", {"token": ""}, 401, "missing_token"),
        ("/api/v1/report_tasks/", {"token": None, "tasks": []}, 401, "missing_token"),
        ("/api/v1/report_gpu/", {"token": 7, "gpus": []}, 401, "missing_token"),
        ("/api/v1/report_gpu/", {"token": "wrong", "gpus": []}, 403, "invalid_token"),
        ("/api/v1/report_gpu/", {}, 400, "missing_gpus"),
        ("/api/v1/report_gpu/", {"gpus": None}, 400, "missing_gpus"),
        ("/api/v1/report_gpu/", {"gpus": {}}, 400, "invalid_gpus"),
        ("/api/v1/report_tasks/", {}, 400, "missing_tasks"),
        ("/api/v1/report_tasks/", {"tasks": "none"}, 400, "invalid_tasks"),
    ],
)
def test_an_older_call_is_refused_in_its_own_words(
    agent: Agent, path: str, body: dict[str, Any], status: int, error: str
) -> None:
    """`{ok: false, error}`, and nothing is heard."""
    said = agent.older(path, **body)
    assert (said.status, said.body) == (status, {"ok": False, "error": error})
    assert agent.heard.reports == []


@pytest.mark.parametrize("path", OLDER)
@pytest.mark.parametrize("raw", ["", "{", "[]", "null", '"text"', "NaN", "[" * 100_000, '{"token": 1, "token": 2}'])
def test_an_older_call_without_an_object_is_invalid_json(agent: Agent, path: str, raw: str) -> None:
    """The token is in the body, so nobody is asked for it before the body can be read."""
    said = agent.call(path, raw=raw, headers={})
    assert (said.status, said.body) == (400, {"ok": False, "error": "invalid_json"})


@pytest.mark.parametrize(
    ("trouble", "status", "error", "wait"),
    [
        (TooManyReports(7), 429, "too_many", "7"),
        (TryAgainSoon("busy"), 503, "busy", "5"),
        (TooManyConflicts("busy"), 503, "busy", "5"),
    ],
)
@pytest.mark.parametrize("path", OLDER)
def test_an_older_call_that_must_wait_is_told_how_long(
    agent: Agent, path: str, trouble: Exception, status: int, error: str, wait: str
) -> None:
    """Retry-After beside the words of seed 000."""
    agent.heard.answer = trouble
    said = agent.older(path, gpus=[], tasks=[])
    assert (said.status, said.body, said.headers["Retry-After"]) == (status, {"ok": False, "error": error}, wait)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_a_report_is_heard_for_the_instance_of_its_token(agent: Agent) -> None:
    """Whatever else the body claims."""
    rank = {"job": JOB, "attempt": 2, "rank": 1, "epoch": 3, "pid": 4242, "ticks": 99}
    ended = {"job": JOB, "attempt": 1, "rank": 0, "signal": 9, "age_s": 1.5}
    body = BEAT | {"instance_id": B, "instance": B, "running": [rank], "exits": [ended], "later": {"field": []}}
    assert agent.call(REPORTS, body).status == 200
    (report,) = agent.heard.reports
    assert (report.instance_id, report.boot_id, report.sequence, report.uptime_s) == (A, BOOT, 7, 86_400.5)
    assert (report.age_s, report.interval_s) == (0.0, 15)
    assert report.running == (RunningRank(JOB, 2, 1, 3, 4242, 99),)
    assert report.exits == (RankExit(JOB, 1, 0, signal=9, age_s=1.5),)


def test_the_answer_tells_the_agent_what_to_do(agent: Agent) -> None:
    """Orders, refusals, the wish for an inventory, and when the next report is wanted."""
    order = AgentCommand("o-1", AgentCommandKind.STOP, JOB, 2, 30)
    agent.heard.answer = ReportResponse(
        wants_inventory=True, commands=(order,), refused=((RunningRank(JOB, 1, 0), "attempt 1 is over"),)
    )
    assert agent.call(REPORTS, BEAT).body == {
        "ok": True,
        "ts": int(NOW.timestamp()),
        "next_s": 15,
        "inventory": True,
        "orders": [{"id": "o-1", "kind": "stop", "job": JOB, "attempt": 2, "grace_s": 30}],
        "refused": [{"job": JOB, "attempt": 1, "why": "attempt 1 is over"}],
    }


@pytest.mark.parametrize(("suspect_s", "next_s"), [(45, 15), (1, 1), (120, 40)])
def test_three_reports_fit_into_the_time_until_suspicion(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, suspect_s: int, next_s: int
) -> None:
    """An agent that keeps to what it is told is not suspect for losing two of them."""
    monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"suspect_s": suspect_s}))
    assert agent.call(REPORTS, BEAT).body["next_s"] == next_s


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({}, 401, "missing_token"),
        ({"authorization": ""}, 401, "missing_token"),
        ({"authorization": "Bearer "}, 401, "missing_token"),
        ({"authorization": "Basic eDp5"}, 401, "missing_token"),
        ({"authorization": "Bearer wrong"}, 403, "invalid_token"),
        ({"authorization": "Bearer grn_0123456789ab_" + 43 * "x"}, 403, "invalid_token"),
        ({"authorization": "Bearer \ud800"}, 403, "invalid_token"),
    ],
)
def test_a_report_needs_a_token(agent: Agent, headers: dict[str, str], status: int, error: str) -> None:
    """In the header and nowhere else; before the body is read."""
    said = agent.call(REPORTS, raw="no JSON", headers=headers)
    refused(said, status, error)
    refused(agent.call(REPORTS, BEAT | {"token": agent.issued.token}, headers=headers), status, error)
    assert agent.heard.reports == []


def test_the_scheme_may_be_written_in_any_case(agent: Agent) -> None:
    """As HTTP has it, and so may the header."""
    assert agent.call(REPORTS, BEAT, headers={"Authorization": f"bearer  {agent.issued.token}"}).status == 200


@pytest.mark.parametrize("raw", ["", "{", "NaN", "[" * 100_000, '{"a": 1, "a": 2}', '"\\ud800"', "\ud800", "9" * 5_000])
def test_a_body_that_is_no_json_is_refused(agent: Agent, raw: str) -> None:
    """400 `invalid_json`, never a failure of the server."""
    refused(agent.call(REPORTS, raw=raw), 400, "invalid_json")


def test_a_body_that_is_no_report_is_refused_with_its_field(agent: Agent) -> None:
    """So that the agent's log says which."""
    running = [{"job": JOB, "attempt": -1, "rank": 0, "pid": 1, "ticks": 1}]
    detail = refused(
        agent.call(REPORTS, BEAT | {"running": running}), 400, "invalid_report", field="running[0].attempt"
    )
    assert "whole number" in detail
    assert "field" not in agent.call(REPORTS, []).body


def test_an_encoded_body_is_read(agent: Agent) -> None:
    """API Gateway encodes what it does not take for text; the content type decides nothing."""
    raw = base64.b64encode(json.dumps(BEAT).encode()).decode()
    assert agent.call(REPORTS, raw=raw, encoded=True).status == 200
    refused(agent.call(REPORTS, raw="%%%", encoded=True), 400, "invalid_json")


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("path", [REPORTS, "/api/v1/report_gpu/"])
def test_a_body_over_a_mebibyte_is_refused_unread(agent: Agent, path: str, encoded: bool) -> None:
    """413, also without a token; one of exactly a mebibyte is read."""

    def padded(size: int) -> str:
        text = "{}" + " " * (size - 2)
        return base64.b64encode(text.encode()).decode() if encoded else text

    assert agent.call(path, raw=padded(BODY_BYTES_MAX + 1), encoded=encoded, headers={}).status == 413
    assert agent.call(path, raw=padded(BODY_BYTES_MAX + 1), encoded=encoded).body["error"] == "too_large"
    assert agent.call(path, raw=padded(BODY_BYTES_MAX), encoded=encoded).status in (400, 401)


def test_a_body_is_measured_in_bytes(agent: Agent) -> None:
    """A text of few characters may be long."""
    assert agent.call(REPORTS, raw=json.dumps("\u00fc" * 600_000, ensure_ascii=False)).status == 413


def test_a_stale_sequence_is_told_the_last_one(agent: Agent) -> None:
    """The agent goes on from there."""
    agent.heard.answer = SequenceStale(41)
    refused(agent.call(REPORTS, BEAT), 409, "stale_sequence", last=41)


def test_an_agent_whose_place_another_took_is_told_so(agent: Agent) -> None:
    """It ends, and is not asked to go on from any number."""
    agent.heard.answer = AnotherAgent(Heartbeat(A, NOW, run="b"))
    assert "last" not in agent.call(REPORTS, BEAT | {"run": "aaaaaaaa"}).body
    refused(agent.call(REPORTS, BEAT | {"run": "aaaaaaaa"}), 409, "another_agent")


@pytest.mark.parametrize(
    ("trouble", "status", "error", "wait"),
    [
        (TooManyReports(12), 429, "too_many", "12"),
        (TryAgainSoon("x"), 503, "busy", "5"),
        (TooManyConflicts("x"), 503, "busy", "5"),
    ],
)
def test_a_report_that_must_wait_is_told_how_long(
    agent: Agent, trouble: Exception, status: int, error: str, wait: str
) -> None:
    """The agent keeps to it; what AWS refused is in the log."""
    agent.heard.answer = trouble
    said = agent.call(REPORTS, BEAT)
    refused(said, status, error)
    assert said.headers["Retry-After"] == wait
    assert len(agent.functions.logged("busy")) == (status == 503)


def test_a_defect_is_raised(agent: Agent) -> None:
    """It is counted as an error of the function, and somebody is told."""
    agent.heard.answer = KeyError("a defect")
    with pytest.raises(KeyError):
        agent.call(REPORTS, BEAT)


@pytest.mark.parametrize("path", [REPORTS, SIGNED, *OLDER])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", ""])
def test_only_post_is_understood(agent: Agent, path: str, method: str) -> None:
    """405, with the word for what is allowed."""
    said = agent.call(path, BEAT, method=method)
    assert (said.status, said.body["error"], said.headers["Allow"]) == (405, "method_not_allowed", "POST")


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/api/v1/report", "/api/v1/reports//", "/api/v1/signed"])
def test_another_path_is_not_found(agent: Agent, path: str) -> None:
    """Nothing is guessed."""
    refused(agent.call(path, BEAT), 404, "not_found")


# -- signed reports ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "signer",
    [SIGNER.format(A), SIGNER.format("mi-0123456789abcdef0"), f"arn:aws-cn:sts::444455556666:assumed-role/nodes/{A}"],
)
def test_an_instance_may_sign_with_the_role_of_the_settings(agent: Agent, signer: str) -> None:
    """The role session's name is the instance; no token is needed, and none is read."""
    assert agent.call(SIGNED, BEAT, headers={}, signer=signer).status == 200
    assert agent.heard.reports[0].instance_id == signer.rpartition("/")[2]
    assert agent.functions.aws.calls == []


@pytest.mark.parametrize(
    "signer",
    [
        None,
        "",
        SIGNER.format("ana"),
        SIGNER.format("i-0123"),
        SIGNER.format(A).replace("nodes/", "nodes2/"),
        SIGNER.format(A).replace("123456789012", "210987654321"),
        SIGNER.format(A).replace("aws:", "aws-cn:"),
        f"arn:aws:iam::123456789012:user/{A}",
        SIGNER.format(A) + "\n",
        SIGNER.format(f"{B}/{A}"),
    ],
)
def test_nobody_else_may_sign(agent: Agent, signer: str | None) -> None:
    """Another role, account or partition, a person's session name, a user; a token does not help."""
    refused(agent.call(SIGNED, BEAT, signer=signer), 403, "invalid_signer")
    assert agent.heard.reports == []


@pytest.mark.parametrize("authorizer", [None, {}, {"iam": None}, {"iam": {"userArn": None}}])
def test_a_context_without_a_signer_is_refused(agent: Agent, authorizer: Any) -> None:
    """A member of the context that is null says the same as a missing member."""
    refused(agent.call(SIGNED, BEAT, authorizer=authorizer), 403, "invalid_signer")
    assert agent.heard.reports == []


def test_without_the_setting_nobody_may_sign(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route is there, and closed."""
    monkeypatch.setenv("NODE_ROLE_ARNS", "")
    refused(agent.call(SIGNED, BEAT, signer=SIGNER.format(A)), 403, "invalid_signer")


def test_a_signature_opens_no_other_call(agent: Agent) -> None:
    """The route with tokens wants a token."""
    refused(agent.call(REPORTS, BEAT, headers={}, signer=SIGNER.format(A)), 401, "missing_token")

"""Tokens at the node API: which speaks for an instance, for how long, and what invented ones cost."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from gpu_recovery.auth.tokens import AskedToken, TokenKind, issue, revoke
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.issuer_keys import NODE_KEY, invented
from tests.aws.records import NOW, A, B, later
from tests.node_api.test_router import BEAT, OLDER, REPORTS, Agent, agent, refused

__all__ = ["agent"]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_no_token_is_ever_logged_or_answered(agent: Agent) -> None:
    """Neither one that opens nor one that was tried."""
    tried = "grn_0123456789ab_" + 43 * "s"
    said = [agent.call(REPORTS, BEAT), agent.call(REPORTS, BEAT, token=tried), agent.older(OLDER[0], token=tried)]
    agent.heard.answer = TryAgainSoon("busy")
    said.append(agent.call(REPORTS, BEAT))
    shown = agent.functions.log.getvalue() + repr(said)
    assert said[1].status == 403 and "busy" in shown
    assert agent.issued.token not in shown and 43 * "s" not in shown
    assert agent.issued.token not in repr(agent.issued) and agent.issued.record.digest not in repr(agent.issued)


def test_a_token_is_read_once_a_minute(agent: Agent) -> None:
    """A heartbeat with a known token reads nothing."""
    agent.call(REPORTS, BEAT)
    assert agent.reads() == 1
    agent.functions.now = later(59)
    agent.call(REPORTS, BEAT)
    assert agent.functions.aws.calls == []
    agent.functions.now = later(60)
    agent.call(REPORTS, BEAT)
    assert agent.reads() == 1


def test_a_flood_of_invented_tokens_delays_no_agent_and_reads_nothing(agent: Agent) -> None:
    """Forty a second, at whatever time in three hours the agent's token is read anew: it is accepted at once."""
    for minutes in range(0, 180, 10):
        agent.functions.now = later(60 * minutes)
        for number in range(80):
            said = agent.call(REPORTS, BEAT, token=invented(TokenKind.NODE, 100 * minutes + number))
            refused(said, 403, "invalid_token")
            assert agent.reads() == 0
        assert agent.call(REPORTS, BEAT).status == 200 and agent.reads() == 1
    assert len(agent.heard.reports) == 18


def test_a_token_with_another_tag_is_refused_unread(agent: Agent) -> None:
    """Also if an item with its digest is in the table: whoever writes it lacks the issuer key."""
    issue(agent.tokens, b"a key of nobody", A, NOW, "an intruder", AskedToken())
    forged = issue(agent.tokens, b"a key of nobody", B, NOW, "an intruder", AskedToken()).token
    refused(agent.call(REPORTS, BEAT, token=forged), 403, "invalid_token")
    assert agent.reads() == 0 and agent.heard.reports == []


def test_the_issuer_key_is_read_once_and_no_other_secret_is(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents go on reporting while Secrets Manager does not answer; the operator token is none of the node API's."""
    agent.call(REPORTS, BEAT)
    assert agent.functions.aws.asked("GetSecretValue") == [{"SecretId": "node-token-key"}]
    agent.functions.now, hours_later = later(86_399), time.monotonic() + 86_399
    monkeypatch.setattr(time, "monotonic", lambda: hours_later)
    assert agent.call(REPORTS, BEAT).status == 200
    assert agent.functions.aws.asked("GetSecretValue") == []


def test_a_revoked_token_lives_for_a_minute_at_most(agent: Agent) -> None:
    """In a function that has read it; elsewhere it ends at once."""
    agent.call(REPORTS, BEAT)
    revoke(agent.tokens, A, agent.issued.record.token_id, NOW)
    agent.functions.now = later(59)
    assert agent.call(REPORTS, BEAT).status == 200
    agent.functions.now = later(60)
    refused(agent.call(REPORTS, BEAT), 403, "invalid_token")


def test_a_token_ends_at_its_expiry_by_the_servers_clock(agent: Agent) -> None:
    """Also while it is remembered, and whether or not the table has forgotten it."""
    short = issue(agent.tokens, NODE_KEY, A, NOW, "a test", AskedToken(lifetime=timedelta(seconds=60)))
    agent.functions.now = later(30)
    assert agent.call(REPORTS, BEAT, token=short.token).status == 200
    agent.functions.now = later(60)
    refused(agent.call(REPORTS, BEAT, token=short.token), 403, "invalid_token")


def test_both_tokens_of_a_rotation_speak_for_the_instance(agent: Agent) -> None:
    """The next is in place before the last ends."""
    second = issue(agent.tokens, NODE_KEY, A, NOW, "a test", AskedToken())
    for token in (agent.issued.token, second.token):
        assert agent.call(REPORTS, BEAT, token=token).status == 200
    assert [report.instance_id for report in agent.heard.reports] == [A, A]

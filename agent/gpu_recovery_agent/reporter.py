"""One report on its way: its sequence, its repeats, and what the answers mean that end an agent.

A report that was not answered may have been heard. It is repeated under its own sequence as long as it tells the same;
once there is more to tell it is another report, with a sequence of its own. Each start of an agent has a random name of
its own, so that two agents in step are told apart.
"""

from __future__ import annotations

import os

from gpu_recovery_agent import clock
from gpu_recovery_agent.credentials import Credentials
from gpu_recovery_agent.http_client import ReportsEndpoint
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.report import ReportContent, body, encoded
from gpu_recovery_agent.responses import Response, ResponseKind, no_response
from gpu_recovery_agent.sensors.boot import uptime_s
from gpu_recovery_agent.settings import AgentSettingsError
from gpu_recovery_agent.state import AgentState

DENIED, NOT_ALONE = 77, 78
"""Exit statuses, which the unit does not restart: the token, and another agent or a setting that is wrong."""


class AgentEnds(Exception):
    """The agent has to end, with this status. The text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Reporter:
    """Sends reports, one at a time."""

    def __init__(self, proof: Credentials, state: AgentState, channel: ReportsEndpoint, journal: AgentLog) -> None:
        self._credentials = proof
        self._state, self._endpoint, self._log = state, channel, journal
        self._unanswered: tuple[str, int] | None = None
        self._has_gone_on = False
        self._run = os.urandom(8).hex()

    def send(self, facts: ReportContent, interval_s: float) -> Response:
        """The answer to a report of these facts. Raises Ends where the protocol has the agent end."""
        try:
            key = self._credentials.key()
            answer = self._post(facts, interval_s)
            if answer.kind is ResponseKind.DENIED:
                answer = self._retry_with_new_credentials(key, facts, interval_s, answer)
            if answer.kind is ResponseKind.STALE:
                answer = self._retry_from_last_sequence(facts, interval_s, answer)
        except AgentSettingsError as error:
            return no_response(str(error))  # whoever replaces the file may be in the middle of it
        if answer.kind is ResponseKind.NOT_ALONE:
            raise AgentEnds(NOT_ALONE, f"{answer.why}: an agent that started later speaks for this instance")
        return answer

    def _post(self, facts: ReportContent, interval_s: float) -> Response:
        mark = facts.mark
        is_repeat = self._unanswered is not None and self._unanswered[0] == mark
        sequence = self._unanswered[1] if self._unanswered and is_repeat else self._state.next_sequence()
        report = body(
            facts,
            sequence=sequence,
            uptime_s=uptime_s(),
            kernel_log_s=clock.kernel_log_s(),
            interval_s=interval_s,
            run=self._run,
        )
        content = encoded(report)
        answer = self._endpoint.post(content, self._credentials.headers(content))
        self._unanswered = (mark, sequence) if answer.kind is ResponseKind.AWAY else None
        return answer

    def _retry_with_new_credentials(
        self, key: str, facts: ReportContent, interval_s: float, answer: Response
    ) -> Response:
        """The token may have been replaced since it was read: the next one is tried before giving up."""
        try:
            newer = self._credentials.key()
        except AgentSettingsError:
            newer = key
        if newer != key:
            answer = self._post(facts, interval_s)
        if answer.kind is ResponseKind.DENIED:
            raise AgentEnds(DENIED, f"{answer.why}: this agent needs another token, or a role that may sign")
        return answer

    def _retry_from_last_sequence(self, facts: ReportContent, interval_s: float, answer: Response) -> Response:
        """Goes on from the sequence that the server heard: once in the life of an agent, whose state may be lost."""
        if not self._has_gone_on and answer.last is not None:
            self._has_gone_on = True
            self._log.write(f"{answer.why}: going on from {answer.last}")
            self._state.sequence = answer.last
            answer = self._post(facts, interval_s)
        if answer.kind is ResponseKind.STALE:
            raise AgentEnds(NOT_ALONE, f"{answer.why}: another agent speaks for this instance")
        return answer

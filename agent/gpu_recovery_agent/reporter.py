"""Sends one report: its sequence number, its retries, and the responses that end the agent.

The server may have received a report that got no response. The agent repeats it under its own sequence number as long
as the content is the same. A report with other content gets a new sequence number. Each start of an agent has a random
run name, so that the server can distinguish two agents that send equal sequence numbers.
"""

from __future__ import annotations

import os

from gpu_recovery_agent import clock
from gpu_recovery_agent.credentials import Credentials
from gpu_recovery_agent.http_client import ReportsEndpoint
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.paths import AgentSettingsError
from gpu_recovery_agent.report import ReportContent, body, encoded
from gpu_recovery_agent.responses import Response, ResponseKind, no_response
from gpu_recovery_agent.sensors.boot import uptime_s
from gpu_recovery_agent.state import AgentState

DENIED, DO_NOT_RESTART = 77, 78
"""Exit statuses that the systemd unit does not restart: bad credentials, and another agent or a wrong setting."""


class AgentEnds(Exception):
    """The agent must end with `status`. The text says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Reporter:
    """Sends reports, one at a time."""

    def __init__(self, proof: Credentials, state: AgentState, endpoint: ReportsEndpoint, log: AgentLog) -> None:
        self._credentials = proof
        self._state, self._endpoint, self._log = state, endpoint, log
        self._unanswered: tuple[str, int] | None = None
        self._has_resynced = False
        self._run = os.urandom(8).hex()

    def send(self, facts: ReportContent, interval_s: float) -> Response:
        """Send a report with this content and return the response.

        Raises AgentEnds where the protocol ends the agent.
        """
        try:
            key = self._credentials.key()
            answer = self._post(facts, interval_s)
            if answer.kind is ResponseKind.DENIED:
                answer = self._retry_with_new_credentials(key, facts, interval_s, answer)
            if answer.kind is ResponseKind.STALE:
                answer = self._retry_from_last_sequence(facts, interval_s, answer)
        except AgentSettingsError as error:
            return no_response(str(error))  # the token file may be replaced at this moment
        if answer.kind is ResponseKind.REPLACED:
            raise AgentEnds(DO_NOT_RESTART, f"{answer.why}: an agent that started later reports for this instance")
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
        self._unanswered = (mark, sequence) if answer.kind is ResponseKind.UNREACHABLE else None
        return answer

    def _retry_with_new_credentials(
        self, key: str, facts: ReportContent, interval_s: float, answer: Response
    ) -> Response:
        """Retry with the current credentials: the token may have been replaced since it was read. Raises AgentEnds."""
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
        """Retry after the last sequence number that the server received: the stored state may be lost.

        Only once per process.
        """
        if not self._has_resynced and answer.last is not None:
            self._has_resynced = True
            self._log.write(f"{answer.why}: continuing from {answer.last}")
            self._state.sequence = answer.last
            answer = self._post(facts, interval_s)
        if answer.kind is ResponseKind.STALE:
            raise AgentEnds(DO_NOT_RESTART, f"{answer.why}: another agent reports for this instance")
        return answer

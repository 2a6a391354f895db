"""Rank lookup: finds the ranks that an agent report names among the ranks on its instance, and remembers them.

A rank is looked up once. A rank that was launched on an instance stays launched there; its attempt distinguishes it
from earlier ranks. Only the present claims of the instance can confirm a rank that is not known there or that does not
know its attempt. The claims are read together with the token, once a minute, or in a call of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpu_recovery.core.heartbeat import AgentReport, RunningRank
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.recovery import Recovery

KNOWN_MAX = 20_000
"""Ranks, and instances with claims, that are remembered at most."""
CLAIMS_VALID_FOR = timedelta(seconds=60)
"""How long the claims of an instance are used before they are read again: as long as a cached token."""


@dataclass
class ExtraCall:
    """Whether a report may make one more call.

    left:        the call is not used yet.
    claims_read: the instance's claims were read for this report.
    """

    left: bool
    claims_read: bool

    def spend(self) -> None:
        """Use the call."""
        self.left = False


@dataclass
class _ClaimsRead:
    """The ranks with claims on an instance, as read at `at`, and the ranks that needed this read.

    before: ranks that were reported between the previous read and this one, and that only claims can confirm.
    since:  such ranks that were reported after this read.
    is_new: no report has used this read yet.
    """

    at: datetime
    claimed: Sequence[RunningRank]
    before: set[RunningRank | int]
    since: set[RunningRank | int] = field(default_factory=set)
    is_new: bool = True

    def covers(self, unsure: Sequence[RunningRank | int], now: datetime) -> bool:
        """Return whether this read is recent and covers these ranks.

        A rank that is not covered may have a newer claim.
        """
        return (self.before | self.since).issuperset(unsure) and now - self.at < CLAIMS_VALID_FOR


@dataclass
class RankLookup:
    """Finds ranks by instance. Remembers the ranks that it found, and the latest claims that it read."""

    recovery: Recovery
    _known: dict[tuple[str, int], RunningRank] = field(default_factory=dict)
    _claims_read: dict[str, _ClaimsRead] = field(default_factory=dict)

    def needs_claims_of(self, instance_id: str) -> bool:
        """Return whether ranks were reported recently that only the claims of the instance can confirm."""
        latest = self._claims_read.get(instance_id)
        return latest is not None and bool(latest.before or latest.since)

    def use_record(self, instance_id: str, record: Instance | None) -> _ClaimsRead:
        """Save the claims of a record that was just read, for the ranks of the next report.

        Args:
            instance_id: the instance.
            record: its record; None: the instance has no record.
        """
        if len(self._claims_read) > KNOWN_MAX:
            self._claims_read.clear()
        previous = self._claims_read.get(instance_id)
        before = previous.since if previous is not None else set()
        latest = self._claims_read[instance_id] = _ClaimsRead(
            self.recovery.clock(), self._claimed(instance_id, record), before
        )
        return latest

    def ranks(
        self, report: AgentReport, extra_call: ExtraCall
    ) -> tuple[dict[int, RunningRank], tuple[tuple[RunningRank, str], ...]]:
        """Find the reported ranks among the ranks that are known on the instance.

        Returns:
            The known ranks by running log, and the refused ranks, each with the reason.
        """
        unnamed = [rank for rank in report.running or () if not rank.attempt]
        reported = {rank.log_id: rank for rank in report.running or () if rank.attempt}
        logs = (*reported, *(report.running_logs or ()))
        unsure: list[RunningRank | int] = [
            *unnamed,
            *(log for log in logs if (report.instance_id, log) not in self._known),
        ]
        # An adopted task does not know its attempt. Only a present claim says which attempt it belongs to.
        claimed = self._claims_for(report.instance_id, unsure, extra_call) if unsure else ()
        confirmed = (next((candidate for candidate in claimed if _is_same(candidate, rank)), None) for rank in unnamed)
        reported |= {rank.log_id: rank for rank in confirmed if rank is not None}
        logs = (*dict.fromkeys((*reported, *logs)),)
        confirmed_ranks: dict[int, RunningRank] = {}
        refused: list[tuple[RunningRank, str]] = []
        for log in logs:
            known = self._known.get((report.instance_id, log))
            rank = reported.get(log)
            if known is not None and (rank is None or None in (rank.epoch, known.epoch) or rank.epoch == known.epoch):
                confirmed_ranks[log] = known
            elif rank is not None:
                refused.append((rank, "no such rank was launched on this instance, or it was launched anew since"))
        return confirmed_ranks, tuple(refused)

    def claims_were_read(self, report: AgentReport) -> bool:
        """Return whether the claims of the instance were read for this report, together with its token."""
        latest = self._claims_read.get(report.instance_id)
        if latest is None or not latest.is_new:
            return False
        latest.is_new = False
        return True

    def _claims_for(
        self, instance_id: str, unsure: Sequence[RunningRank | int], extra_call: ExtraCall
    ) -> Sequence[RunningRank]:
        """Return the ranks with claims on the instance, read again if the latest read does not cover these ranks."""
        latest = self._claims_read.get(instance_id)
        if latest is None or not (extra_call.claims_read or latest.covers(unsure, self.recovery.clock())):
            extra_call.spend()
            latest = self.use_record(instance_id, self.recovery.store.load_instance(instance_id))
            latest.is_new = False
        # Ranks that this read made known need no other read.
        latest.since |= {rank for rank in unsure if (instance_id, rank) not in self._known}
        return latest.claimed

    def read_claims(self, instance_id: str) -> Sequence[RunningRank]:
        """Read the ranks with claims on the instance, and remember them."""
        return self._claimed(instance_id, self.recovery.store.load_instance(instance_id))

    def _claimed(self, instance_id: str, record: Instance | None) -> Sequence[RunningRank]:
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        claimed: list[RunningRank] = []
        for job_id, claim in record.claims.items() if record is not None else ():
            rank = claim.rank if claim.rank >= 0 else _rank_of(self.recovery, job_id, instance_id)
            if rank is not None:
                claimed.append(RunningRank(job_id, claim.attempt, rank, claim.epoch))
        self._known |= {(instance_id, rank.log_id): rank for rank in claimed}
        return claimed


def _rank_of(recovery: Recovery, job_id: str, instance_id: str) -> int | None:
    job = recovery.store.load_job(job_id)
    return job.instances.index(instance_id) if job is not None and instance_id in job.instances else None


def _is_same(claimed: RunningRank, reported: RunningRank) -> bool:
    return (claimed.job_id, claimed.rank) == (reported.job_id, reported.rank)

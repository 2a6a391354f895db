"""Rank lookup: finds the ranks that an agent report names among the ranks on its instance.

Only a present claim of the instance confirms a rank: the claim names the attempt that has GPUs there. The claims are
read together with the token, once a minute, or in a call of their own. Every function reads them again. So each of them
refuses an attempt that is over, at the latest `CLAIMS_VALID_FOR` after its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpu_recovery.core.heartbeat import AgentReport, RunningRank
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.recovery import Recovery

INSTANCES_MAX = 20_000
"""Instances whose claims are remembered at most."""
CLAIMS_VALID_FOR = timedelta(seconds=60)
"""How long the claims of an instance are used before they are read again: as long as a cached token."""
UNKNOWN_LOGS_MAX = 64
"""Running logs of a report that are looked up beside those that are known on the instance.

An agent of GPUTasker reports each file that it finds. Files of ended ranks can be any number.
"""


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
    """The ranks with claims on an instance by running log, as read at `at`, and the ranks that needed this read.

    before: ranks that were reported between the previous read and this one.
    since:  ranks that were reported after this read.
    is_new: no report has used this read yet.
    """

    at: datetime
    claimed: Mapping[int, RunningRank]
    before: set[RunningRank | int]
    since: set[RunningRank | int] = field(default_factory=set)
    is_new: bool = True

    def covers(self, reported: Iterable[RunningRank | int], now: datetime) -> bool:
        """Return whether this read is recent and covers these ranks.

        A rank that is not covered may have a newer claim.
        """
        return now - self.at < CLAIMS_VALID_FOR and all(
            rank in self.claimed or rank in self.before or rank in self.since for rank in reported
        )


@dataclass
class RankLookup:
    """Finds ranks by instance. Remembers the latest claims that it read."""

    recovery: Recovery
    _claims_read: dict[str, _ClaimsRead] = field(default_factory=dict)

    def needs_claims_of(self, instance_id: str) -> bool:
        """Return whether ranks were reported recently, which only the claims of the instance can confirm."""
        latest = self._claims_read.get(instance_id)
        return latest is not None and bool(latest.before or latest.since)

    def use_record(self, instance_id: str, record: Instance | None) -> _ClaimsRead:
        """Save the claims of a record that was just read, for the ranks of the next report.

        Args:
            instance_id: the instance.
            record: its record; None: the instance has no record.
        """
        if len(self._claims_read) > INSTANCES_MAX:
            self._claims_read.clear()
        previous = self._claims_read.get(instance_id)
        before = previous.since if previous is not None else set()
        claimed = {rank.log_id: rank for rank in self._claimed(instance_id, record)}
        latest = self._claims_read[instance_id] = _ClaimsRead(self.recovery.clock(), claimed, before)
        return latest

    def ranks(
        self, report: AgentReport, extra_call: ExtraCall
    ) -> tuple[dict[int, RunningRank], tuple[tuple[RunningRank, str], ...]]:
        """Find the reported ranks among the ranks with claims on the instance.

        Returns:
            The confirmed ranks by running log, and the refused ranks, each with the reason.
        """
        # An adopted task does not know its attempt. Only a present claim says which attempt it belongs to.
        unnamed = [rank for rank in report.running or () if not rank.attempt]
        reported = {rank.log_id: rank for rank in report.running or () if rank.attempt}
        logs = dict.fromkeys((*reported, *(report.running_logs or ())))
        if not logs and not unnamed:
            return {}, ()
        claimed = self._claims_for(report.instance_id, unnamed, logs, extra_call)
        confirmed = {
            log: claimed[log] for log in logs if log in claimed and _has_epoch(reported.get(log), claimed[log])
        }
        for rank in unnamed:
            confirmed |= {log: candidate for log, candidate in claimed.items() if _is_same(candidate, rank)}
        reason = "no such rank runs on this instance: it has ended, or was launched again or elsewhere"
        return confirmed, tuple((rank, reason) for log, rank in reported.items() if log not in confirmed)

    def claims_were_read(self, report: AgentReport) -> bool:
        """Return whether the claims of the instance were read for this report, together with its token."""
        latest = self._claims_read.get(report.instance_id)
        if latest is None or not latest.is_new:
            return False
        latest.is_new = False
        return True

    def _claims_for(
        self, instance_id: str, unnamed: Sequence[RunningRank], logs: Iterable[int], extra_call: ExtraCall
    ) -> Mapping[int, RunningRank]:
        """Return the ranks with claims on the instance, read again if the latest read does not cover these ranks.

        Of the logs without a claim, the first `UNKNOWN_LOGS_MAX` cause a read. The others wait for the next read.
        """
        latest = self._claims_read.get(instance_id)
        known = latest.claimed if latest is not None else {}
        unknown = [log for log in logs if log not in known][:UNKNOWN_LOGS_MAX]
        if latest is None or not (extra_call.claims_read or latest.covers((*unnamed, *unknown), self.recovery.clock())):
            extra_call.spend()
            latest = self._read(instance_id)
        latest.since |= {*unnamed, *unknown, *(log for log in logs if log in latest.claimed)}
        return latest.claimed

    def read_claims(self, instance_id: str) -> Sequence[RunningRank]:
        """Read the ranks with claims on the instance, and remember them."""
        return tuple(self._read(instance_id).claimed.values())

    def _read(self, instance_id: str) -> _ClaimsRead:
        latest = self.use_record(instance_id, self.recovery.store.load_instance(instance_id))
        latest.is_new = False
        return latest

    def _claimed(self, instance_id: str, record: Instance | None) -> list[RunningRank]:
        claimed: list[RunningRank] = []
        for job_id, claim in record.claims.items() if record is not None else ():
            rank = claim.rank if claim.rank >= 0 else _rank_of(self.recovery, job_id, instance_id)
            if rank is not None:
                claimed.append(RunningRank(job_id, claim.attempt, rank, claim.epoch))
        return claimed


def _rank_of(recovery: Recovery, job_id: str, instance_id: str) -> int | None:
    job = recovery.store.load_job(job_id)
    return job.instances.index(instance_id) if job is not None and instance_id in job.instances else None


def _is_same(claimed: RunningRank, reported: RunningRank) -> bool:
    return (claimed.job_id, claimed.rank) == (reported.job_id, reported.rank)


def _has_epoch(reported: RunningRank | None, claimed: RunningRank) -> bool:
    """Return whether the epochs are equal, or one of them is not known."""
    return reported is None or None in (reported.epoch, claimed.epoch) or reported.epoch == claimed.epoch

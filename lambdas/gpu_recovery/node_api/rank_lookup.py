"""Which ranks run on an instance: finds the ranks that a report names, and remembers them.

A rank is looked up once. A rank that was launched on an instance stays launched there; its attempt tells it apart from
the ranks before it. Only the present claims of the instance can speak for a rank that is not known there, or that was
not told its attempt. The claims are read together with the token, once a minute, or in one call of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpu_recovery.core.heartbeat import AgentReport, RunningRank
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.recovery import Recovery

KNOWN_MAX = 20_000
"""How many ranks, and the claims of how many instances, are remembered at most."""
CLAIMS_VALID_FOR = timedelta(seconds=60)
"""How long the claims of an instance are used before they are read again: as long as a cached token."""


@dataclass
class ExtraCall:
    """Whether the report may make one call more; `looked`: the instance's claims were read for it."""

    left: bool
    claims_read: bool

    def spend(self) -> None:
        self.left = False


@dataclass
class _ClaimsRead:
    """What had its GPUs on an instance when that was read, and the ranks that only this can tell and that it speaks
    for: those that were reported there since, or between it and the look before."""

    at: datetime
    claimed: Sequence[RunningRank]
    before: set[RunningRank | int]
    since: set[RunningRank | int] = field(default_factory=set)
    is_new: bool = True

    def stands(self, unsure: Sequence[RunningRank | int], now: datetime) -> bool:
        """Whether another need not be read for these. One that it does not know may have got its claim since."""
        return (self.before | self.since).issuperset(unsure) and now - self.at < CLAIMS_VALID_FOR


@dataclass
class RankLookup:
    """Finds ranks by instance. Remembers which ranks it found on which instance, and the latest claims that it read."""

    recovery: Recovery
    _known: dict[tuple[str, int], RunningRank] = field(default_factory=dict)
    _looks: dict[str, _ClaimsRead] = field(default_factory=dict)

    def needs_claims_of(self, instance_id: str) -> bool:
        """Whether ranks were reported there of late that only the instance's claims can tell."""
        look = self._looks.get(instance_id)
        return look is not None and bool(look.before or look.since)

    def use_record(self, instance_id: str, record: Instance | None) -> _ClaimsRead:
        """Take the record of an instance, freshly read: it speaks for whoever the next report names."""
        if len(self._looks) > KNOWN_MAX:
            self._looks.clear()
        last = self._looks.get(instance_id)
        before = last.since if last is not None else set()
        look = self._looks[instance_id] = _ClaimsRead(self.recovery.clock(), self._claimed(instance_id, record), before)
        return look

    def ranks(
        self, report: AgentReport, more: ExtraCall
    ) -> tuple[dict[int, RunningRank], tuple[tuple[RunningRank, str], ...]]:
        """The ranks that are reported and known there, by running log; and those that are not, with the reason."""
        unnamed = [rank for rank in report.running or () if not rank.attempt]
        reported = {rank.log_id: rank for rank in report.running or () if rank.attempt}
        logs = (*reported, *(report.running_logs or ()))
        unsure: list[RunningRank | int] = [*unnamed, *(x for x in logs if (report.instance_id, x) not in self._known)]
        # A person's task is not told its attempt: whose it is, only the claim of this moment says.
        claimed = self._claims_for(report.instance_id, unsure, more) if unsure else ()
        meant = (next((one for one in claimed if _is_same(one, rank)), None) for rank in unnamed)
        reported |= {one.log_id: one for one in meant if one is not None}
        logs = (*dict.fromkeys((*reported, *logs)),)
        found: dict[int, RunningRank] = {}
        refused: list[tuple[RunningRank, str]] = []
        for log in logs:
            known = self._known.get((report.instance_id, log))
            rank = reported.get(log)
            if known is not None and (rank is None or None in (rank.epoch, known.epoch) or rank.epoch == known.epoch):
                found[log] = known
            elif rank is not None:
                refused.append((rank, "no such rank was launched on this instance, or it was launched anew since"))
        return found, tuple(refused)

    def claims_were_read(self, report: AgentReport) -> bool:
        """Whether the instance's claims were read for this report, with its token."""
        look = self._looks.get(report.instance_id)
        if look is None or not look.is_new:
            return False
        look.is_new = False
        return True

    def _claims_for(
        self, instance_id: str, unsure: Sequence[RunningRank | int], more: ExtraCall
    ) -> Sequence[RunningRank]:
        """What has its GPUs there, read anew where the latest look does not speak for these."""
        look = self._looks.get(instance_id)
        if look is None or not (more.claims_read or look.stands(unsure, self.recovery.clock())):
            more.spend()
            look = self.use_record(instance_id, self.recovery.store.load_instance(instance_id))
            look.is_new = False
        # Whoever it made known for good is never asked about again.
        look.since |= {rank for rank in unsure if (instance_id, rank) not in self._known}
        return look.claimed

    def read_claims(self, instance_id: str) -> Sequence[RunningRank]:
        """The ranks that have their GPUs on the instance, freshly read; they will be known without another look."""
        return self._claimed(instance_id, self.recovery.store.load_instance(instance_id))

    def _claimed(self, instance_id: str, record: Instance | None) -> Sequence[RunningRank]:
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
        claimed: list[RunningRank] = []
        for job_id, claim in record.claims.items() if record is not None else ():
            rank = claim.rank if claim.rank >= 0 else _rank_of(self.recovery, job_id, instance_id)
            if rank is not None:
                claimed.append(RunningRank(job_id, claim.attempt, rank, claim.epoch))
        self._known |= {(instance_id, one.log_id): one for one in claimed}
        return claimed


def _rank_of(recovery: Recovery, job_id: str, instance_id: str) -> int | None:
    job = recovery.store.load_job(job_id)
    return job.instances.index(instance_id) if job is not None and instance_id in job.instances else None


def _is_same(claimed: RunningRank, reported: RunningRank) -> bool:
    return (claimed.job_id, claimed.rank) == (reported.job_id, reported.rank)

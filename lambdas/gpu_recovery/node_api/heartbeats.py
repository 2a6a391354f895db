"""What a report of an instance leads to: one write of its heartbeat, and an event only where it is news.

The heartbeat as it was before comes back with that write, so whoever is heard of again, or has booted, is found without
reading. A rank is looked up once: what was launched there stays launched there, and what has ended is told apart by its
attempt wherever it matters. For a rank that is not known there, or was not told its attempt, only the claims of the
moment can speak: they come with the token, once a minute, in the one call that reads it.

A report that is no news makes at most one call beside its write, and none where a token was read for it: an inventory
can wait for the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.health_signals import HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    TOLD_AGAIN_AFTER,
    Beat,
    GpuHealth,
    Order,
    RankBeat,
    Report,
    RunningRank,
    SxidSeen,
    XidSeen,
)
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.liveness import attempts_of, booted, is_fresh
from gpu_recovery.core.notifications import agents
from gpu_recovery.core.xid import asks_for_a_look, switch_asks_for_a_look
from gpu_recovery.node_api.training_reports import keep_observed
from gpu_recovery.ports.errors import AnotherAgent
from gpu_recovery.recovery import Recovery, Unsaid

KNOWN_MAX = 20_000
LOOKED = timedelta(seconds=60)
"""How long the claims of an instance stand for ranks that only they can tell: as long as what was read of a token."""
XIDS_NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent is told.

    updated: how many of the ranks that it reports are known there; revived: of these, those that had been silent.
    refused: ranks that are not known there, and why.
    left_out: how many reports for a diagnosis cannot be kept: of no known kind, or of an attempt that is not there.
    """

    updated: int = 0
    revived: int = 0
    wants_inventory: bool = False
    orders: tuple[Order, ...] = ()
    refused: tuple[tuple[RunningRank, str], ...] = ()
    left_out: int = 0


@dataclass
class _Spare:
    """Whether the report may make one call more; `looked`: the instance's claims were read for it."""

    left: bool
    looked: bool

    def spent(self) -> None:
        self.left = False


@dataclass
class _Look:
    """What had its GPUs on an instance when that was read, and the ranks that only this can tell and that it speaks
    for: those that were reported there since, or between it and the look before."""

    at: datetime
    claimed: Sequence[RunningRank]
    before: set[RunningRank | int]
    since: set[RunningRank | int] = field(default_factory=set)
    is_new: bool = True

    def stands(self, unsure: Sequence[RunningRank | int], now: datetime) -> bool:
        """Whether another need not be read for these. One that it does not know may have got its claim since."""
        return (self.before | self.since).issuperset(unsure) and now - self.at < LOOKED


@dataclass
class Hearing:
    """Hears reports. Keeps in memory which ranks it has found on which instance, so as not to look them up again, and
    of an instance with others the latest look."""

    recovery: Recovery
    _known: dict[tuple[str, int], RunningRank] = field(default_factory=dict)
    _looks: dict[str, _Look] = field(default_factory=dict)

    def wonders_about(self, instance_id: str) -> bool:
        """Whether ranks were reported there of late that only the instance's claims can tell."""
        look = self._looks.get(instance_id)
        return look is not None and bool(look.before or look.since)

    def look_at(self, instance_id: str, record: Instance | None) -> _Look:
        """Take the record of an instance, freshly read: it speaks for whoever the next report names."""
        if len(self._looks) > KNOWN_MAX:
            self._looks.clear()
        last = self._looks.get(instance_id)
        before = last.since if last is not None else set()
        look = self._looks[instance_id] = _Look(self.recovery.clock(), self._claimed(instance_id, record), before)
        return look

    def hear(self, report: Report, spare: bool = True, by: str = BY_ROLE) -> Answer:
        """Keep what `report` says and tell whoever must know.

        spare: False where a token was read for it already, so that nothing else should be that can wait.
        by: the id of the token that it came with.
        Raises SequenceStale, AnotherAgent, TooManyReports, TryAgainSoon.
        """
        recovery, now, more = self.recovery, self.recovery.clock(), _Spare(spare, self._was_looked_at(report))
        present = report.age_s < recovery.policy.suspect_s
        ranks, refused = self._ranks(report, more) if present else ({}, ())
        booted_at = now - timedelta(seconds=report.age_s + (report.uptime_s or 0.0)) if report.boot_id else None
        beat = Beat(
            report.instance_id,
            now,
            report.boot_id or "",
            booted_at,
            report.sequence or 0,
            report.interval_s,
            {str(log): RankBeat(r.job_id, r.attempt, r.rank, now, r.epoch) for log, r in ranks.items()},
            health=report.health,
            digest=report.digest,
            run=report.run,
        )
        before = self._kept(beat, present, by)
        known_digest = before.digest if before is not None else ""
        # A new one is kept whatever it costs; the same again, with other gauges, comes with the next report as well.
        waits = report.inventory is not None and not more.left and report.digest != "" and known_digest == report.digest
        if report.inventory is not None and not waits:
            text = json.dumps(report.inventory, separators=(",", ":"))
            recovery.store.keep_inventory(report.instance_id, report.digest, text, now)
        revived = self._presence(before, beat, report) if present and before is not None else 0
        self._ended(report)
        self._health(before, report, present)
        left_out = keep_observed(recovery.store, report, before, ranks, self._look_up, now)
        lacks = bool(report.digest) and report.inventory is None and known_digest != report.digest
        return Answer(
            len(ranks),
            revived,
            lacks or waits,
            self._orders(before, ranks, report) if present and _speaks_of_ranks(report) else (),
            refused,
            left_out,
        )

    def _kept(self, beat: Beat, present: bool, by: str) -> Beat | None:
        """The heartbeat before. Of two agents the one that is refused is what tells that there are two."""
        try:
            return self.recovery.store.keep_beat(beat, present, by)
        except AnotherAgent as refused:
            told_at = refused.known.doubled_at
            if told_at is None or beat.seen_at - told_at >= TOLD_AGAIN_AFTER:
                # Told before it is entered, as of any brake: who dies in between has it told twice rather than never.
                self.recovery.say(agents.doubled(refused.known, beat.run))
                self.recovery.store.mark_doubled(beat.instance_id, beat.seen_at)
            raise

    # -- ranks ---------------------------------------------------------------------------------------------------------

    def _ranks(
        self, report: Report, more: _Spare
    ) -> tuple[dict[int, RunningRank], tuple[tuple[RunningRank, str], ...]]:
        """The ranks that are reported and known there, by running log; and those that are not, with the reason."""
        unnamed = [rank for rank in report.running or () if not rank.attempt]
        reported = {rank.log_id: rank for rank in report.running or () if rank.attempt}
        logs = (*reported, *(report.running_logs or ()))
        unsure: list[RunningRank | int] = [*unnamed, *(x for x in logs if (report.instance_id, x) not in self._known)]
        # A person's task is not told its attempt: whose it is, only the claim of this moment says.
        claimed = self._look_for(report.instance_id, unsure, more) if unsure else ()
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

    def _was_looked_at(self, report: Report) -> bool:
        """Whether the instance's claims were read for this report, with its token."""
        look = self._looks.get(report.instance_id)
        if look is None or not look.is_new:
            return False
        look.is_new = False
        return True

    def _look_for(self, instance_id: str, unsure: Sequence[RunningRank | int], more: _Spare) -> Sequence[RunningRank]:
        """What has its GPUs there, read anew where the latest look does not speak for these."""
        look = self._looks.get(instance_id)
        if look is None or not (more.looked or look.stands(unsure, self.recovery.clock())):
            more.spent()
            look = self.look_at(instance_id, self.recovery.store.load_instance(instance_id))
            look.is_new = False
        # Whoever it made known for good is never asked about again.
        look.since |= {rank for rank in unsure if (instance_id, rank) not in self._known}
        return look.claimed

    def _look_up(self, instance_id: str) -> Sequence[RunningRank]:
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

    # -- what is news --------------------------------------------------------------------------------------------------

    def _presence(self, before: Beat, beat: Beat, report: Report) -> int:
        """Tell of another boot, and of who is heard of again; how many ranks that are."""
        now = beat.seen_at
        if before.boot_id and beat.boot_id and before.boot_id != beat.boot_id:
            whole = replace(beat, ranks={**before.ranks, **beat.ranks})
            self._tell(beat.instance_id, booted(whole, now, _logged_before(report)))
        if before.silent_since is not None:
            self._tell(beat.instance_id, events.InstanceHeard(at=now, heard=attempts_of(beat.ranks)))
        revived = 0
        for log, rank in beat.ranks.items():
            # By its age, and not by the mark alone: whoever tells of the silence may be between telling and marking.
            known = before.ranks.get(log)
            if known is not None and (known.silent or not is_fresh(known.seen_at, now, self.recovery.policy)):
                heard = events.RankHeard(at=now, attempt=rank.attempt, instance_id=beat.instance_id)
                self._tell(rank.job_id, heard)
                revived += 1
        return revived

    def _ended(self, report: Report) -> None:
        """An exit that is no success is a reason to ask ECS soon."""
        failed = [one for one in report.exits if one.code != 0]
        claimed = {(one.job_id, one.attempt) for one in self._look_up(report.instance_id)} if failed else set()
        for one in failed:
            if (one.job_id, one.attempt) not in claimed:
                continue  # a token speaks for its own instance only
            how = f"with code {one.code}" if one.code is not None else f"by signal {one.signal}"
            sentence = f"rank {one.rank} on {report.instance_id} has ended {how}, says its agent"
            event = events.RankExited(
                at=self.recovery.clock(), attempt=one.attempt, instance_id=report.instance_id, sentence=sentence
            )
            self._tell(one.job_id, event)

    def _health(self, before: Beat | None, report: Report, present: bool) -> None:
        """A watcher's word, where it is another than before or names an XID that asks for a look.

        A late report says how the GPUs were; of it only the XIDs count. What a repeated one says is told again: whoever
        heard it first may have died before telling.
        """
        now = self.recovery.clock()
        profile = self.recovery.policy.xid_profile
        # What was logged under an earlier boot is history: it is no reason to look at the machine as it is now.
        present_xids = [one for one in report.xids if not _is_history(one, report)]
        present_sxids = [one for one in report.sxids if not _is_history(one, report)]
        grave: list[XidSeen | SxidSeen] = [
            one for one in present_xids if asks_for_a_look(one.xid, one.occurrences, one.action, profile)
        ]
        grave += [one for one in present_sxids if switch_asks_for_a_look(one.fatal, one.bursts or one.count, profile)]
        word = _word(report, grave)
        repeated = before is not None and bool(report.boot_id) and _numbered(before) == _numbered(report)
        said = None if repeated else GpuHealth.OK
        if before is not None and before.health is not None and not repeated:
            said = before.health
        if word is None or (not grave and (said is report.health or not present)):
            return
        self._tell(
            report.instance_id,
            events.HealthReported(
                at=now, kind=HealthKind.NODE_AGENT, status=word, since=now, sentence=_sentence(report, grave)
            ),
        )

    def _tell(self, to: str, event: events.JobEvent | events.InstanceEvent) -> None:
        """Tell one record. What it could not say in turn stays in its record for the reconciler, who raises it: an
        agent that is answered with an error would only report the same again."""
        with suppress(Unsaid):
            self.recovery.tell(to, event)

    def _orders(self, before: Beat | None, ranks: Mapping[int, RunningRank], report: Report) -> tuple[Order, ...]:
        """The orders about ranks that run there; those about ranks that do not are carried out, or void.

        To an agent whose rank was told no attempt, the order is about attempt 0.
        """
        if before is None or not before.orders:
            return ()
        orders = before.orders.values()
        running = {(rank.job_id, rank.attempt) for rank in ranks.values()}
        due = tuple(one for one in orders if (one.job_id, one.attempt) in running)
        # One report without the rank may come of a restart, or of a look that failed: it is over when it stays away.
        now = self.recovery.clock()
        lately = {
            (rank.job_id, rank.attempt)
            for rank in before.ranks.values()
            if is_fresh(rank.seen_at, now, self.recovery.policy)
        }
        void = [one.order_id for one in orders if one not in due and (one.job_id, one.attempt) not in lately]
        if void:
            self.recovery.store.withdraw_orders(before.instance_id, void)
        unnamed = {rank.job_id for rank in report.running or () if not rank.attempt}
        return tuple(replace(one, attempt=0) if one.job_id in unnamed else one for one in due)


def _speaks_of_ranks(report: Report) -> bool:
    """Whether a rank that it does not name is one that it denies."""
    return report.running is not None or report.running_logs is not None


def _numbered(one: Beat | Report) -> tuple[str | None, int | None]:
    """Which report it is, or was the latest."""
    return one.boot_id, one.sequence


def _rank_of(recovery: Recovery, job_id: str, instance_id: str) -> int | None:
    job = recovery.store.load_job(job_id)
    return job.instances.index(instance_id) if job is not None and instance_id in job.instances else None


def _is_same(claimed: RunningRank, reported: RunningRank) -> bool:
    return (claimed.job_id, claimed.rank) == (reported.job_id, reported.rank)


def _is_history(one: XidSeen | SxidSeen, report: Report) -> bool:
    return one.boot_id not in ("", report.boot_id)


def _logged_before(report: Report) -> str:
    """What the kernel's log had said before the boot, and could not be told while it was on."""
    logged: tuple[XidSeen | SxidSeen, ...] = (*report.xids, *report.sxids)
    old = [_named(one) for one in logged if _is_history(one, report)]
    more = f" and {len(old) - XIDS_NAMED_MAX} more" if len(old) > XIDS_NAMED_MAX else ""
    return f"logged before this boot: {'; '.join(old[:XIDS_NAMED_MAX])}{more}" if old else ""


def _word(report: Report, grave: list[XidSeen | SxidSeen]) -> HealthStatus | None:
    if grave or report.health is GpuHealth.IMPAIRED:
        return HealthStatus.IMPAIRED
    if report.health is None:
        return None
    return HealthStatus.OK if report.health is GpuHealth.OK else HealthStatus.INSUFFICIENT_DATA


def _sentence(report: Report, grave: list[XidSeen | SxidSeen]) -> str:
    words = [_named(one) for one in grave[:XIDS_NAMED_MAX]]
    return "; ".join([*words, *([report.sentence] if report.sentence else [])])


def _named(one: XidSeen | SxidSeen) -> str:
    if isinstance(one, SxidSeen):
        return f"{'fatal ' if one.fatal else ''}SXid {one.sxid} of an NVSwitch"
    return f"XID {one.xid} on {one.gpu or 'an unknown GPU'}" + _and_more(one)


def _and_more(one: XidSeen) -> str:
    often = f", {one.occurrences} times within a day" if one.occurrences > 1 else ""
    return often + (f", the driver asks for recovery action {one.action}" if one.action else "")

"""Handle one agent report: write the heartbeat once, and emit an event only if it changes what we know.

The write of the heartbeat returns the heartbeat before it. So an instance that reports again, or that has booted, is
found without another read. Which ranks run on the instance is found by `rank_lookup`.

A report without news makes at most one call beside its write, and no such call if a token was read for it: an inventory
can wait for the next report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpu_recovery.core import events
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    DUPLICATE_AGENT_REMINDER,
    AgentCommand,
    AgentReport,
    Heartbeat,
    RankHeartbeat,
    RunningRank,
)
from gpu_recovery.core.liveness import boot_event, is_fresh, latest_attempts
from gpu_recovery.core.notifications import agents
from gpu_recovery.node_api.gpu_health import health_news, logged_before
from gpu_recovery.node_api.rank_lookup import ExtraCall, RankLookup
from gpu_recovery.node_api.training_reports import save_observations
from gpu_recovery.ports.errors import AnotherAgent
from gpu_recovery.recovery import NotificationFailed, Recovery


@dataclass(frozen=True, slots=True)
class ReportResponse:
    """What the agent is told.

    updated: how many of the ranks that it reports are known there; revived: of these, those that had been silent.
    refused: ranks that are not known there, and why.
    left_out: how many reports for a diagnosis cannot be kept: of no known kind, or of an attempt that is not there.
    """

    updated: int = 0
    revived: int = 0
    wants_inventory: bool = False
    commands: tuple[AgentCommand, ...] = ()
    refused: tuple[tuple[RunningRank, str], ...] = ()
    left_out: int = 0


@dataclass
class HeartbeatReceiver:
    """Receives reports. `lookup` remembers ranks for as long as this object lives."""

    recovery: Recovery
    lookup: RankLookup = field(init=False)

    def __post_init__(self) -> None:
        self.lookup = RankLookup(self.recovery)

    def receive(self, report: AgentReport, spare: bool = True, by: str = BY_ROLE) -> ReportResponse:
        """Keep what `report` says and tell whoever must know.

        spare: False where a token was read for it already, so that nothing else should be that can wait.
        by: the id of the token that it came with.
        Raises SequenceStale, AnotherAgent, TooManyReports, TryAgainSoon.
        """
        recovery, now, more = (
            self.recovery,
            self.recovery.clock(),
            ExtraCall(spare, self.lookup.claims_were_read(report)),
        )
        present = report.age_s < recovery.policy.suspect_s
        ranks, refused = self.lookup.ranks(report, more) if present else ({}, ())
        booted_at = now - timedelta(seconds=report.age_s + (report.uptime_s or 0.0)) if report.boot_id else None
        beat = Heartbeat(
            report.instance_id,
            now,
            report.boot_id or "",
            booted_at,
            report.sequence or 0,
            report.interval_s,
            {str(log): RankHeartbeat(r.job_id, r.attempt, r.rank, now, r.epoch) for log, r in ranks.items()},
            health=report.health,
            digest=report.digest,
            run=report.run,
        )
        before = self._save_heartbeat(beat, present, by)
        known_digest = before.digest if before is not None else ""
        # A new one is kept whatever it costs; the same again, with other gauges, comes with the next report as well.
        waits = report.inventory is not None and not more.left and report.digest != "" and known_digest == report.digest
        if report.inventory is not None and not waits:
            text = json.dumps(report.inventory, separators=(",", ":"))
            recovery.store.save_inventory(report.instance_id, report.digest, text, now)
        revived = self._presence(before, beat, report) if present and before is not None else 0
        self._handle_exits(report)
        health = health_news(before, report, present, self.recovery.clock(), recovery.policy.xid_profile)
        if health is not None:
            self._handle_event(report.instance_id, health)
        left_out = save_observations(recovery.store, report, before, ranks, self.lookup.read_claims, now)
        lacks = bool(report.digest) and report.inventory is None and known_digest != report.digest
        return ReportResponse(
            len(ranks),
            revived,
            lacks or waits,
            self._agent_commands(before, ranks, report) if present and _speaks_of_ranks(report) else (),
            refused,
            left_out,
        )

    def _save_heartbeat(self, beat: Heartbeat, present: bool, by: str) -> Heartbeat | None:
        """The heartbeat before. Of two agents the one that is refused is what tells that there are two."""
        try:
            return self.recovery.store.save_heartbeat(beat, present, by)
        except AnotherAgent as refused:
            told_at = refused.known.doubled_at
            if told_at is None or beat.seen_at - told_at >= DUPLICATE_AGENT_REMINDER:
                # Told before it is entered, as of any brake: who dies in between has it told twice rather than never.
                self.recovery.notify(agents.duplicate_agent(refused.known, beat.run))
                self.recovery.store.mark_duplicate_agent(beat.instance_id, beat.seen_at)
            raise

    def _presence(self, before: Heartbeat, beat: Heartbeat, report: AgentReport) -> int:
        """Tell of another boot, and of who is heard of again; how many ranks that are."""
        now = beat.seen_at
        if before.boot_id and beat.boot_id and before.boot_id != beat.boot_id:
            whole = replace(beat, ranks={**before.ranks, **beat.ranks})
            self._handle_event(beat.instance_id, boot_event(whole, now, logged_before(report)))
        if before.silent_since is not None:
            self._handle_event(beat.instance_id, events.InstanceHeard(at=now, heard=latest_attempts(beat.ranks)))
        revived = 0
        for log, rank in beat.ranks.items():
            # By its age, and not by the mark alone: whoever tells of the silence may be between telling and marking.
            known = before.ranks.get(log)
            if known is not None and (known.silent or not is_fresh(known.seen_at, now, self.recovery.policy)):
                heard = events.RankHeard(at=now, attempt=rank.attempt, instance_id=beat.instance_id)
                self._handle_event(rank.job_id, heard)
                revived += 1
        return revived

    def _handle_exits(self, report: AgentReport) -> None:
        """An exit that is no success is a reason to ask ECS soon."""
        failed = [one for one in report.exits if one.code != 0]
        claimed = (
            {(one.job_id, one.attempt) for one in self.lookup.read_claims(report.instance_id)} if failed else set()
        )
        for one in failed:
            if (one.job_id, one.attempt) not in claimed:
                continue  # a token speaks for its own instance only
            how = f"with code {one.code}" if one.code is not None else f"by signal {one.signal}"
            sentence = f"rank {one.rank} on {report.instance_id} has ended {how}, says its agent"
            event = events.RankExited(
                at=self.recovery.clock(), attempt=one.attempt, instance_id=report.instance_id, sentence=sentence
            )
            self._handle_event(one.job_id, event)

    def _handle_event(self, to: str, event: events.JobEvent | events.InstanceEvent) -> None:
        """Tell one record. What it could not say in turn stays in its record for the reconciler, who raises it: an
        agent that is answered with an error would only report the same again."""
        with suppress(NotificationFailed):
            self.recovery.handle(to, event)

    def _agent_commands(
        self, before: Heartbeat | None, ranks: Mapping[int, RunningRank], report: AgentReport
    ) -> tuple[AgentCommand, ...]:
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
            self.recovery.store.remove_agent_commands(before.instance_id, void)
        unnamed = {rank.job_id for rank in report.running or () if not rank.attempt}
        return tuple(replace(one, attempt=0) if one.job_id in unnamed else one for one in due)


def _speaks_of_ranks(report: AgentReport) -> bool:
    """Whether a rank that it does not name is one that it denies."""
    return report.running is not None or report.running_logs is not None

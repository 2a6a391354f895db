"""Handle one agent report: write the heartbeat once, and emit an event only for a change.

The write of the heartbeat returns the previous heartbeat. So a boot, and the return of an instance, are found without
another read. `rank_lookup` finds the ranks that run on the instance.

A report without a change makes at most one call beside its write. If a token was read for the report, it makes no
further call that can wait: an inventory then waits for the next report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpu_recovery.core import events
from gpu_recovery.core.gpu_utilisation import all_idle
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    DUPLICATE_AGENT_REMINDER,
    SENTENCE_MAX,
    AgentCommand,
    AgentCommandKind,
    AgentReport,
    Heartbeat,
    RankHeartbeat,
    RunningRank,
)
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.liveness import boot_event, is_fresh, latest_attempts
from gpu_recovery.core.notifications import agents
from gpu_recovery.node_api.gauge_recorder import GaugeRecorder
from gpu_recovery.node_api.gpu_health import health_event, logged_before
from gpu_recovery.node_api.gpu_resets import GpuResets
from gpu_recovery.node_api.health_warnings import HealthWarnings, Warn, log_nothing
from gpu_recovery.node_api.held_ranks import HeldRanks
from gpu_recovery.node_api.quiet_ranks import known_activity, quiet_events
from gpu_recovery.node_api.rank_lookup import ExtraCall, RankLookup
from gpu_recovery.node_api.repair_records import orders_to_record, record_found
from gpu_recovery.node_api.stalls import stall_events
from gpu_recovery.node_api.training_reports import save_observations
from gpu_recovery.ports.errors import AnotherAgent, NotificationFailed
from gpu_recovery.recovery import Recovery


@frozen_dataclass()
class ReportResponse:
    """The answer to an agent report.

    updated:         number of reported ranks that are known on the instance.
    revived:         number of these ranks with a missing heartbeat before.
    wants_inventory: the agent must send its GPU inventory.
    commands:        commands for the agent.
    refused:         reported ranks that are not known on the instance, each with the reason.
    left_out:        number of observations that were not accepted: of an unknown kind, or of an attempt without ranks
                     there.
    records:         orders to write a line about a repair of the instance.
    """

    updated: int = 0
    revived: int = 0
    wants_inventory: bool = False
    commands: tuple[AgentCommand, ...] = ()
    refused: tuple[tuple[RunningRank, str], ...] = ()
    left_out: int = 0
    records: tuple[AgentCommand, ...] = ()


ABOUT_NO_RANK = (AgentCommandKind.RESET, AgentCommandKind.RECORD)
"""Kinds of commands about the instance, which other parts of the answer hold or withdraw."""


@dataclass
class HeartbeatReceiver:
    """Receives agent reports. `lookup` remembers ranks for as long as this object lives, `health_warnings` conditions.

    warn:   logs a warning about the health of a worker.
    gauges: records the gauges of each saved inventory, last of all; None if the deployment keeps no GPU history. Then
        the heartbeat has no utilisation of the GPUs either.
    """

    recovery: Recovery
    warn: Warn = log_nothing
    gauges: GaugeRecorder | None = None
    lookup: RankLookup = field(init=False)
    health_warnings: HealthWarnings = field(init=False)
    held_ranks: HeldRanks = field(init=False)
    gpu_resets: GpuResets = field(init=False)

    def __post_init__(self) -> None:
        self.lookup = RankLookup(self.recovery)
        self.health_warnings = HealthWarnings(self.warn)
        self.held_ranks = HeldRanks(self.recovery)
        self.gpu_resets = GpuResets(self.recovery)

    def receive(self, report: AgentReport, spare: bool = True, by: str = BY_ROLE) -> ReportResponse:
        """Save the heartbeat of `report` and deliver the events that follow from it.

        Args:
            spare: whether the report may make one more call that could wait for the next report. False if the token was
                read for this report.
            by: the id of the token that the report came with, or BY_ROLE.

        Raises:
            SequenceStale: a newer report of this boot, or of a later boot, was received.
            AnotherAgent: another agent has taken the place of the sender.
            TooManyReports: `by` has reached its rate limit.
            TryAgainSoon: AWS or a record was too busy.
        """
        recovery, now, extra_call = (
            self.recovery,
            self.recovery.clock(),
            ExtraCall(spare, self.lookup.claims_were_read(report)),
        )
        present = report.age_s < recovery.policy.suspect_s
        ranks, refused = self.lookup.ranks(report, extra_call) if present else ({}, ())
        beat = self._heartbeat(report, ranks, now)
        before = self._save_heartbeat(beat, present, by)
        known_digest = before.digest if before is not None else ""
        # A new inventory is always saved. A known inventory with other gauges can wait for the next report.
        inventory_waits = (
            report.inventory is not None
            and not extra_call.left
            and report.digest != ""
            and known_digest == report.digest
        )
        if report.inventory is not None and not inventory_waits:
            text = json.dumps(report.inventory, separators=(",", ":"))
            recovery.store.save_inventory(report.instance_id, report.digest, text, now)
        revived = self._deliver_returns(before, beat, report) if present and before is not None else 0
        self._handle_exits(report)
        self.held_ranks.confirm_starts(before, _flagged(report, ranks) if present else ())
        if reset_ended := self.gpu_resets.ended(before, report):
            self._handle_event(report.instance_id, reset_ended)
        health = health_event(before, report, present, self.recovery.clock(), recovery.policy.xid_profile)
        if health is not None:
            self._handle_event(report.instance_id, health)
        self._handle_gpu_events(before, report, now)
        if present and (found := record_found(recovery.store, before, report, now)) is not None:
            self._handle_event(report.instance_id, found)
        left_out = save_observations(
            recovery.store, report, before, ranks, self.lookup.read_claims, now, self.health_warnings.receive
        )
        stalls = (
            *stall_events(report, ranks, recovery.policy, now, beat.activity),
            *quiet_events(report, ranks, recovery.policy, now),
        )
        for job_id, stall in stalls:
            self._handle_event(job_id, stall)
        if report.inventory is not None and not inventory_waits and self.gauges and recovery.has_time():
            self.gauges.record(report.instance_id, report.inventory, now)
        inventory_missing = bool(report.digest) and report.inventory is None and known_digest != report.digest
        return ReportResponse(
            len(ranks),
            revived,
            inventory_missing or inventory_waits,
            (
                *(self._agent_commands(before, ranks, report) if present and _lists_ranks(report) else ()),
                *(self.gpu_resets.due(before) if present else ()),
            ),
            refused,
            left_out,
            orders_to_record(before, report) if present and report.boot_id else (),
        )

    def _handle_gpu_events(self, before: Heartbeat | None, report: AgentReport, now: datetime) -> None:
        """Deliver the GPU Operational Events, and whether the agent reads any if that is news."""
        if report.gpu_events or _is_news_of_reading(before, report):
            told = events.GpuEventsReported(at=now, events=report.gpu_events, are_read=report.reads_events)
            self._handle_event(report.instance_id, told)

    def _heartbeat(self, report: AgentReport, ranks: Mapping[int, RunningRank], now: datetime) -> Heartbeat:
        """Return the heartbeat of a report that arrived at `now`, with the ranks that are known."""
        booted_at = now - timedelta(seconds=report.age_s + (report.uptime_s or 0.0)) if report.boot_id else None
        return Heartbeat(
            report.instance_id,
            now,
            report.boot_id or "",
            booted_at,
            report.sequence or 0,
            report.interval_s,
            {str(log): RankHeartbeat(r.job_id, r.attempt, r.rank, now, r.epoch) for log, r in ranks.items()},
            health=report.health,
            digest=report.digest,
            sentence=report.sentence[:SENTENCE_MAX],
            run=report.run,
            holds=tuple(str(rank.log_id) for rank in _flagged(report, ranks) if rank.holds and not rank.held),
            utilisation=report.utilisation if self.gauges is not None else "",
            idle_since=now if all_idle(report.utilisation) else None,
            resets=report.resets,
            reads_events=report.reads_events,
            activity=known_activity(report, ranks, self.recovery.policy),
        )

    def _save_heartbeat(self, beat: Heartbeat, present: bool, by: str) -> Heartbeat | None:
        """Save the heartbeat and return the heartbeat before it.

        The refusal of an agent that was replaced shows that two agents run on the instance. Operators are then
        notified.
        """
        try:
            return self.recovery.store.save_heartbeat(beat, present, by)
        except AnotherAgent as refused:
            notified_at = refused.known.doubled_at
            if notified_at is None or beat.seen_at - notified_at >= DUPLICATE_AGENT_REMINDER:
                # Notified before it is recorded: if the function is killed in between, operators are notified twice.
                self.recovery.notify(agents.duplicate_agent(refused.known, beat.run))
                self.recovery.store.mark_duplicate_agent(beat.instance_id, beat.seen_at)
            raise

    def _deliver_returns(self, before: Heartbeat, beat: Heartbeat, report: AgentReport) -> int:
        """Deliver a reboot, and the return of the instance and of ranks. Return how many ranks returned."""
        now = beat.seen_at
        if before.boot_id and beat.boot_id and before.boot_id != beat.boot_id:
            merged = replace(beat, ranks={**before.ranks, **beat.ranks})
            self._handle_event(beat.instance_id, boot_event(merged, now, logged_before(report)))
        if before.silent_since is not None:
            self._handle_event(beat.instance_id, events.InstanceHeard(at=now, heard=latest_attempts(beat.ranks)))
        revived = 0
        for log, rank in beat.ranks.items():
            # By age, not by the mark alone: the reconciler may have delivered the timeout and not yet set the mark.
            known = before.ranks.get(log)
            if known is not None and (known.silent or not is_fresh(known.seen_at, now, self.recovery.policy)):
                event = events.RankHeard(at=now, attempt=rank.attempt, instance_id=beat.instance_id)
                self._handle_event(rank.job_id, event)
                revived += 1
        return revived

    def _handle_exits(self, report: AgentReport) -> None:
        """Deliver `RankExited` for each reported failure of a rank, so that ECS is polled soon.

        ECS knows nothing of a rank whose container waits, so the report itself says how that rank ended.
        """
        failed = [exited for exited in report.exits if exited.code != 0 or exited.held]
        if not failed:
            return
        claimed = {(rank.job_id, rank.attempt, rank.rank) for rank in self.lookup.read_claims(report.instance_id)}
        for exited in failed:
            if (exited.job_id, exited.attempt, exited.rank) not in claimed:
                continue  # a token is valid for its own instance only
            if exited.held:
                self.held_ranks.record(report.instance_id, exited)
                continue
            how = f"with code {exited.code}" if exited.code is not None else f"by signal {exited.signal}"
            sentence = f"rank {exited.rank} on {report.instance_id} has ended {how}, as its agent reports"
            event = events.RankExited(
                at=self.recovery.clock(), attempt=exited.attempt, instance_id=report.instance_id, sentence=sentence
            )
            self._handle_event(exited.job_id, event)

    def _handle_event(self, record_id: str, event: events.JobEvent | events.InstanceEvent) -> None:
        """Deliver an event to one record.

        Notifications that fail stay in the record, and the reconciler raises them. An error would only make the agent
        repeat its report.
        """
        with suppress(NotificationFailed):
            self.recovery.handle(record_id, event)

    def _agent_commands(
        self, before: Heartbeat | None, ranks: Mapping[int, RunningRank], report: AgentReport
    ) -> tuple[AgentCommand, ...]:
        """Return the commands for ranks that run on the instance, and remove the others: they are carried out or void.

        A rank that is reported gets its command also if it has no claim any more: ECS may have forgotten the task of a
        process that still runs. An agent that reports a rank without an attempt gets its command with attempt 0.
        """
        if before is None or not before.orders:
            return ()
        commands = [order for order in before.orders.values() if order.kind not in ABOUT_NO_RANK]
        reported = report.running or ()
        running = {(rank.job_id, rank.attempt) for rank in (*ranks.values(), *reported)}
        unnamed = {rank.job_id for rank in reported if not rank.attempt}
        unclaimed = unnamed - {rank.job_id for rank in ranks.values()}
        held = {(rank.job_id, rank.attempt) for rank in reported if rank.held}
        due = tuple(
            command
            for command in commands
            if ((command.job_id, command.attempt) in running or command.job_id in unclaimed)
            and not (command.kind is AgentCommandKind.HOLD and (command.job_id, command.attempt) in held)
        )
        # A single report without the rank may follow a restart or a failed scan. The rank is over when it stays away.
        now = self.recovery.clock()
        recent = {
            (rank.job_id, rank.attempt)
            for rank in before.ranks.values()
            if is_fresh(rank.seen_at, now, self.recovery.policy)
        }
        void = [
            command.order_id
            for command in commands
            if command not in due
            and ((command.job_id, command.attempt) not in recent or (command.job_id, command.attempt) in held)
        ]
        if void:
            self.recovery.store.remove_agent_commands(before.instance_id, void)
        return tuple(replace(command, attempt=0) if command.job_id in unnamed else command for command in due)


def _flagged(report: AgentReport, known: Mapping[int, RunningRank]) -> list[RunningRank]:
    """Return the reported ranks that are known on the instance, as the report has them."""
    return [rank for rank in report.running or () if rank.log_id in known]


def _lists_ranks(report: AgentReport) -> bool:
    """Return whether the report lists ranks, so that a rank that is not listed does not run."""
    return report.running is not None or report.running_logs is not None


def _is_news_of_reading(before: Heartbeat | None, report: AgentReport) -> bool:
    """Return whether the agent began or ended to read GPU Operational Events. A new agent says again that it does."""
    known = before is not None and before.reads_events
    is_new = before is None or before.run != report.run
    return known != report.reads_events or (is_new and report.reads_events)

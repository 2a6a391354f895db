"""The main loop of the agent: poll the sensors, send a report, run the server's commands.

One thread does all of this, and no step blocks for long. The API responds within seconds, or it counts as unreachable.
Child processes with a deadline read every source that may block forever, and a thread reads the byte counters.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpu_recovery_agent import clock, systemd
from gpu_recovery_agent.commands import CommandRunner
from gpu_recovery_agent.credentials import credentials_of
from gpu_recovery_agent.gpu_events import GpuEventQueue
from gpu_recovery_agent.gpu_reset import GpuReset
from gpu_recovery_agent.http_client import ReportsEndpoint
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.outbox import Outbox
from gpu_recovery_agent.parsers.xid import bus_id
from gpu_recovery_agent.rank_orders import RankOrders
from gpu_recovery_agent.repair_record import RepairRecord
from gpu_recovery_agent.report import RUNNING_MAX, ReportContent
from gpu_recovery_agent.report_schedule import ReportSchedule
from gpu_recovery_agent.reporter import AgentEnds, Reporter
from gpu_recovery_agent.responses import Response, ResponseKind
from gpu_recovery_agent.sensors import boot, gpu_health
from gpu_recovery_agent.sensors.ecs import RanksWithoutFile
from gpu_recovery_agent.sensors.ecs_gpu_metrics import EcsGpuMetricsSensor
from gpu_recovery_agent.sensors.host_counters import CounterReader
from gpu_recovery_agent.sensors.kernel_log import KernelLogSensor
from gpu_recovery_agent.sensors.nvml import NvmlSensor
from gpu_recovery_agent.sensors.process_reader import DEADLINE_S, ProcessReader
from gpu_recovery_agent.sensors.rank_activity import ActivitySensor
from gpu_recovery_agent.sensors.ranks import LiveRank, RankSensor
from gpu_recovery_agent.sensors.training_socket import TrainingSocket
from gpu_recovery_agent.settings import AgentSettings
from gpu_recovery_agent.state import AgentState
from gpu_recovery_agent.stop_flag import StopFlag

LAST_REPORT_S = 2.0
"""Seconds that the last report may take: the shutdown of the machine waits for the agent."""


class Agent:
    """One agent. Set `stop` to end it."""

    def __init__(self, settings: AgentSettings, environment: Mapping[str, str], log: AgentLog) -> None:
        self.stop = StopFlag()
        self._settings, self._log, self._notify = settings, log, systemd.SystemdNotifier(environment)
        boot_id = boot.boot_id(settings.host_proc)
        self._state = AgentState(settings.state_folder, boot_id, log)
        deadline_s = min(DEADLINE_S, settings.nvml_deadline_s)
        self._reader = ProcessReader(settings.host_proc, environment, log, deadline_s=deadline_s)
        self._running = RankSensor(settings.running_folder, settings.host_proc, boot_id, log, self._reader)
        self._fileless_ranks = RanksWithoutFile(settings.ecs_agent_url, settings.host_proc, log, self._reader)
        self._kernel_log = KernelLogSensor(settings.host_kmsg, log)
        self._ecs_metrics = EcsGpuMetricsSensor(settings.ecs_gpu_metrics, log)
        self._socket = TrainingSocket(settings.socket, log)
        self._nvml = NvmlSensor(environment, log, interval_s=settings.interval_s, deadline_s=settings.nvml_deadline_s)
        counters = CounterReader(settings.host_sys, settings.host_proc)
        self._activity = ActivitySensor(settings.running_folder, settings.host_proc, counters.read)
        self._orders = RankOrders(settings.running_folder, log)
        self._commands = CommandRunner(settings.host_proc, self._state, log, reader=self._reader, orders=self._orders)
        self._reset = GpuReset(settings.reset, settings.host_proc, environment, self._state, log)
        self._outbox = Outbox(boot_id, self._state, self._running, log, settings.inventory_s)
        self._endpoint = ReportsEndpoint(settings.reports_url)
        self._reporter = Reporter(credentials_of(settings, environment), self._state, self._endpoint, log)
        self._schedule = ReportSchedule(settings.interval_s, random.random, clock.monotonic_s())
        self._live_with_file: list[LiveRank] = []
        self._all_live: list[LiveRank] = []
        self._refused: set[LiveRank] = set()
        self._repairs = RepairRecord(settings.repair_log, settings.journal, boot_id, log)
        self._gpu_events = GpuEventQueue(log)
        self._batch = 0
        self._gpus_before = 0

    def run(self) -> None:
        """Run until `stop` is set. Raises AgentEnds, AlreadyRunning and BootUnknown."""
        self._state.open()
        self._outbox.restore()
        self._repairs.restore()
        self._notify.notify(systemd.READY)
        try:
            while not self.stop.is_set():
                self._notify.notify(systemd.WATCHDOG)
                self._touch_alive_file()
                self._cycle()
                left = self._schedule.due_at - clock.monotonic_s()
                poll_s = min(self._settings.poll_s, self._schedule.pace_s or self._settings.poll_s)
                self.stop.wait(min(max(left, 0.0), poll_s))
            self._last_report()
        finally:
            self._notify.notify(systemd.STOPPING)
            self._state.save()
            self._nvml.close()
            self._reset.close()
            self._reader.close()
            self._kernel_log.close()
            self._socket.close()
            self._state.close()

    def _cycle(self) -> None:
        self._live_with_file, exits = self._running.poll()
        xids = self._kernel_log.poll()
        xids += self._ecs_metrics.poll(self._kernel_log.logged, self._state.reported_from_dcgm)
        is_urgent = self._socket.poll(clock.uptime_s())
        self._orders.touch_agent_file()
        if self._reset.poll():
            self._schedule.urgent(clock.monotonic_s())
        if self._settings.nvml and not self._reset.is_running:
            if xids and self._settings.gpu_events:
                self._nvml.read_soon()  # the events of the same occurrence wait by now
            if self._nvml.poll():
                self._activity.sample(self._all_live, self._nvml.current)
                is_urgent |= self._gpu_events.add(self._nvml.current)
        if self._outbox.add(exits, xids, self._health()) or is_urgent:
            self._schedule.urgent(clock.monotonic_s())
        now = clock.monotonic_s()
        self._schedule.pace(now, self._orders.pace_s(self._live_with_file, now))
        if self._orders.has_news(self._live_with_file):
            self._schedule.urgent(now)
        self._commands.run_due()
        self._reader.rest()
        if clock.monotonic_s() >= self._schedule.due_at:
            self._send_report()

    def _last_report(self) -> None:
        """Report once more at SIGTERM, if the API answers: before a reboot the answer says who ordered the reboot.

        The state is saved before, because systemd and ECS end the process some seconds after SIGTERM.
        """
        if self._settings.repair_log is None or self._schedule.failures or self._schedule.sent_at is None:
            return
        self._state.save()
        self._endpoint.timeout_s = LAST_REPORT_S
        with suppress(AgentEnds):
            self._send_report()

    def _touch_alive_file(self) -> None:
        """Show a health check of the container that the loop turns."""
        if self._settings.alive_file is not None:
            try:
                self._settings.alive_file.touch()
            except OSError as error:
                self._log.once("alive file", f"{self._settings.alive_file} cannot be written: {error.strerror}")

    def _health(self) -> gpu_health.GpuHealthStatus:
        return gpu_health.with_note(self._ecs_metrics.with_dcgm_sentence(self._health_of_gpus()), self._reader.unread)

    def _health_of_gpus(self) -> gpu_health.GpuHealthStatus:
        if not self._settings.nvml:
            return gpu_health.GpuHealthStatus(gpu_health.UNKNOWN, "NVML is switched off")
        nvml = self._nvml
        self._gpus_before = max(self._gpus_before, len(gpu_health.gpus_in(nvml.reading)))
        return gpu_health.gpu_health_of(
            nvml.reading,
            trouble=nvml.trouble,
            hung=nvml.hung,
            silent_s=nvml.unanswered_s,
            gpus_before=self._gpus_before,
        )

    def _send_report(self) -> None:
        facts = self._next_report()
        answer = self._reporter.send(facts, self._schedule.interval_s)
        if answer.kind is ResponseKind.TOO_LARGE and facts.inventory is not None:
            self._log.write(f"{answer.why}: the report is sent again without its inventory")
            facts = self._outbox.without_inventory(facts, clock.monotonic_s())
            answer = self._reporter.send(facts, self._schedule.interval_s)
        self._handle_response(facts, answer, clock.monotonic_s())

    def _handle_response(self, facts: ReportContent, answer: Response, now: float) -> None:
        if answer.kind in (ResponseKind.UNREACHABLE, ResponseKind.TOO_MANY):
            self._log.once("api", answer.why)
            self._schedule.failed(now, answer.retry_after_s)
            return
        if answer.kind is ResponseKind.ACCEPTED:
            self._log.over("api", "the API answers again")
            self._log.over("report")
            self._log.once("heard", "the API accepts the reports of this agent")
            more = self._outbox.acknowledge(facts, inventory_wanted=answer.inventory, now=now)
            self._socket.acknowledge(facts.diagnosis, facts.diagnosis_lost)
            self._gpu_events.acknowledge(facts.gpu_events)
            if answer.left_out:
                self._log.once("left out", f"{answer.left_out} reports of trainings were not kept by the server")
            for refused in answer.refused:
                self._log.once(f"refused {refused}", f"refused: {refused}")
            self._commands.add(answer.commands, self._all_live)
            self._repairs.acknowledge(facts.recorded)
            more = self._repairs.add(answer.lines) or more
            if self._reset.is_new(answer.commands) and not self.stop.is_set():
                self._nvml.pause()
                self._reset.begin(answer.commands)
            self._state.save()
        else:
            self._log.once("report", f"{answer.why}: the report is dropped")
            if answer.rank is not None and answer.rank < len(facts.running):
                # A wrong entry of one rank must not block the reports of the others, nor of the instance.
                self._refused.add(facts.running[answer.rank])
            self._socket.reject(facts.diagnosis)
            self._gpu_events.acknowledge(facts.gpu_events)
            more = self._outbox.reject(facts, now, answer.field)
        self._schedule.succeeded(now, answer.next_s)
        if more or self._socket.has_urgent:
            self._schedule.urgent(now)

    def _next_report(self) -> ReportContent:
        reading = self._nvml.gpus
        inventory = gpu_health.inventory(reading, self._kernel_log.unread) if reading else None
        pids = [process["pid"] for gpu in gpu_health.gpus_in(reading) for process in gpu.get("processes") or []]
        self._all_live = [*self._live_with_file, *self._fileless_ranks.poll(pids, self._live_with_file)]
        self._refused &= set(self._all_live)
        live = self._fitting([rank for rank in self._all_live if rank not in self._refused])
        facts = self._outbox.next_report(live, self._health(), inventory, _uuids(reading), clock.monotonic_s())
        if facts.health is None:
            return facts  # an exit that is sent alone
        return replace(
            facts,
            reset=self._reset.report(),
            diagnosis=self._socket.batch(),
            diagnosis_lost=self._socket.lost,
            utilization=gpu_health.utilization(self._nvml.current),
            activity={rank: known for rank in live if (known := self._activity.values(rank)) is not None},
            recorded=self._repairs.unreported,
            gpu_events=self._gpu_events.batch,
        )

    def _fitting(self, live: list[LiveRank]) -> list[LiveRank]:
        """Return as many ranks as a report may have, and other ranks each time, so that each rank is reported soon."""
        if len(live) <= RUNNING_MAX:
            return live
        self._log.once(
            "many", f"{len(live)} ranks run on this instance; each report contains {RUNNING_MAX} of them, in turn"
        )
        begin = self._batch * RUNNING_MAX % len(live)
        self._batch += 1
        return (live + live)[begin : begin + RUNNING_MAX]


def _uuids(reading: dict[str, Any] | None) -> dict[str, str]:
    """Return the UUIDs of the GPUs by their PCI address, in the form of the kernel log."""
    pairs = ((bus_id(str(gpu.get("pci"))), gpu.get("uuid")) for gpu in gpu_health.gpus_in(reading))
    return {address: uuid for address, uuid in pairs if address and uuid}

"""Look, tell, obey, wait. One thread, in which nothing waits for long.

The API answers within seconds or not at all, and what may block for ever is asked by children with a deadline.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery_agent import clock, systemd
from gpu_recovery_agent.commands import Orders
from gpu_recovery_agent.credentials import proof_of
from gpu_recovery_agent.http_client import Channel
from gpu_recovery_agent.log import Journal
from gpu_recovery_agent.outbox import Untold
from gpu_recovery_agent.report import RUNNING_MAX, Facts
from gpu_recovery_agent.report_schedule import Pace
from gpu_recovery_agent.reporter import Teller
from gpu_recovery_agent.responses import Answer, Kind
from gpu_recovery_agent.sensors import boot, gpu_health
from gpu_recovery_agent.sensors.ecs import RanksWithoutFile
from gpu_recovery_agent.sensors.kernel_log import KernelLogSensor
from gpu_recovery_agent.sensors.nvml import NvmlSensor
from gpu_recovery_agent.sensors.process_reader import DEADLINE_S, ProcessReader
from gpu_recovery_agent.sensors.ranks import Live, RunningSensor
from gpu_recovery_agent.sensors.training_socket import DiagnosisSocket
from gpu_recovery_agent.settings import Settings
from gpu_recovery_agent.state import State
from health_check.xid import bus_id


class Agent:
    """One agent. `run` returns when `stop` is set; it raises Ends, AlreadyRunning and BootUnknown."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], journal: Journal) -> None:
        self.stop = threading.Event()
        self._settings, self._journal, self._notify = settings, journal, systemd.Notify(environment)
        boot_id = boot.boot_id(settings.host_proc)
        self._state = State(settings.state_folder, boot_id, journal)
        deadline_s = min(DEADLINE_S, settings.nvml_deadline_s)
        self._reader = ProcessReader(settings.host_proc, environment, journal, deadline_s=deadline_s)
        self._running = RunningSensor(settings.running_folder, settings.host_proc, boot_id, journal, self._reader)
        self._without_file = RanksWithoutFile(settings.ecs_agent_url, settings.host_proc, journal, self._reader)
        self._kernel_log = KernelLogSensor(settings.host_kmsg, journal)
        self._socket = DiagnosisSocket(settings.socket, journal)
        self._nvml = NvmlSensor(
            environment, journal, interval_s=settings.interval_s, deadline_s=settings.nvml_deadline_s
        )
        self._orders = Orders(settings.host_proc, self._state, journal, reader=self._reader)
        self._untold = Untold(boot_id, self._state, self._running, journal, settings.inventory_s)
        self._teller = Teller(proof_of(settings, environment), self._state, Channel(settings.reports_url), journal)
        self._pace = Pace(settings.interval_s, random.random, clock.monotonic_s())
        self._live: list[Live] = []
        self._all_live: list[Live] = []
        self._unwanted: set[Live] = set()
        self._turn = 0
        self._gpus_before = 0

    def run(self) -> None:
        """Until `stop` is set."""
        self._state.open()
        self._untold.remembers()
        self._notify.say(systemd.READY)
        try:
            while not self.stop.is_set():
                self._notify.say(systemd.TURNING)
                self._once()
                left = self._pace.due_at - clock.monotonic_s()
                self.stop.wait(min(max(left, 0.0), self._settings.look_s))
        finally:
            self._notify.say(systemd.STOPPING)
            self._state.save()
            self._nvml.close()
            self._reader.close()
            self._kernel_log.close()
            self._socket.close()
            self._state.close()

    def _once(self) -> None:
        self._live, exits = self._running.look()
        xids = self._kernel_log.look()
        told_urgently = self._socket.look(clock.uptime_s())
        if self._settings.nvml:
            self._nvml.look()
        if self._untold.sees(exits, xids, self._health()) or told_urgently:
            self._pace.urgent(clock.monotonic_s())
        self._orders.act()
        self._reader.rest()
        if clock.monotonic_s() >= self._pace.due_at:
            self._tell()

    def _health(self) -> gpu_health.Health:
        return gpu_health.with_remark(self._health_of_gpus(), self._reader.unread)

    def _health_of_gpus(self) -> gpu_health.Health:
        if not self._settings.nvml:
            return gpu_health.Health(gpu_health.UNKNOWN, "NVML is switched off")
        nvml = self._nvml
        self._gpus_before = max(self._gpus_before, len(gpu_health.gpus_in(nvml.reading)))
        return gpu_health.judge(
            nvml.reading, trouble=nvml.trouble, hung=nvml.hung, silent_s=nvml.silent_s, gpus_before=self._gpus_before
        )

    def _tell(self) -> None:
        facts = self._facts()
        answer = self._teller.tell(facts, self._pace.interval_s)
        if answer.kind is Kind.TOO_LARGE and facts.inventory is not None:
            self._journal.say(f"{answer.why}: the report goes again without its inventory")
            facts = self._untold.without_inventory(facts, clock.monotonic_s())
            answer = self._teller.tell(facts, self._pace.interval_s)
        self._answered(facts, answer, clock.monotonic_s())

    def _answered(self, facts: Facts, answer: Answer, now: float) -> None:
        if answer.kind in (Kind.AWAY, Kind.TOO_MANY):
            self._journal.once("api", answer.why)
            self._pace.failed(now, answer.retry_after_s)
            return
        if answer.kind is Kind.HEARD:
            self._journal.over("api", "the API answers again")
            self._journal.over("report")
            self._journal.once("heard", "the API hears this agent")
            more = self._untold.heard(facts, inventory_wanted=answer.inventory, now=now)
            self._socket.heard(facts.diagnosis, facts.diagnosis_lost)
            if answer.left_out:
                self._journal.once("left out", f"{answer.left_out} reports of trainings were not kept by the server")
            for refused in answer.refused:
                self._journal.once(f"refused {refused}", f"refused: {refused}")
            self._orders.given(answer.orders, self._all_live)
            self._state.save()
        else:
            self._journal.once("report", f"{answer.why}: the report is dropped")
            if answer.rank is not None and answer.rank < len(facts.running):
                # What one rank says of itself must not silence the others, nor the instance.
                self._unwanted.add(facts.running[answer.rank])
            self._socket.dropped(facts.diagnosis)
            more = self._untold.dropped(facts, now, answer.field)
        self._pace.heard(now, answer.next_s)
        if more:
            self._pace.urgent(now)

    def _facts(self) -> Facts:
        reading = self._nvml.gpus
        found = gpu_health.inventory(reading, self._kernel_log.unread) if reading else None
        pids = [one["pid"] for gpu in gpu_health.gpus_in(reading) for one in gpu.get("processes") or []]
        self._all_live = [*self._live, *self._without_file.look(pids, self._live)]
        self._unwanted &= set(self._all_live)
        live = self._some([one for one in self._all_live if one not in self._unwanted])
        facts = self._untold.facts(live, self._health(), found, _uuids(reading), clock.monotonic_s())
        if facts.health is None:
            return facts  # an exit that is told by itself
        return replace(facts, diagnosis=self._socket.batch(), diagnosis_lost=self._socket.lost)

    def _some(self, live: list[Live]) -> list[Live]:
        """As many as a report may have, others each time: nobody is silent for long."""
        if len(live) <= RUNNING_MAX:
            return live
        self._journal.once("many", f"{len(live)} ranks run here; a report has {RUNNING_MAX} of them, in turn")
        begin = self._turn * RUNNING_MAX % len(live)
        self._turn += 1
        return (live + live)[begin : begin + RUNNING_MAX]


def _uuids(reading: dict[str, Any] | None) -> dict[str, str]:
    """The GPUs' UUIDs by their address as the kernel's log writes it."""
    pairs = ((bus_id(str(gpu.get("pci"))), gpu.get("uuid")) for gpu in gpu_health.gpus_in(reading))
    return {address: uuid for address, uuid in pairs if address and uuid}

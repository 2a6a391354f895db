"""`gpu-recovery-agent`: one agent for this instance. Its exit statuses are in README.md."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from gpu_recovery_agent import VERSION
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.loop import Agent
from gpu_recovery_agent.reporter import NOT_ALONE, AgentEnds
from gpu_recovery_agent.sensors.boot import BootUnknown
from gpu_recovery_agent.settings import AgentSettings, AgentSettingsError
from gpu_recovery_agent.state import AlreadyRunning


def main() -> None:
    """Runs until SIGTERM or SIGINT, and ends with 0; with 77 or 78 where a restart would change nothing."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"gpu-recovery-agent {VERSION}\n")
        return
    journal = AgentLog()
    if sys.argv[1:]:
        journal.write("gpu-recovery-agent takes no arguments: its settings are in the environment")
        sys.exit(NOT_ALONE)
    sys.exit(run(journal))


def run(journal: AgentLog) -> int:
    """The exit status of an agent with the environment of this process."""
    try:
        settings = AgentSettings.from_environment(os.environ)
        agent = Agent(settings, os.environ, journal)

        def stop(_signal: int, _frame: FrameType | None) -> None:
            agent.stop.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        journal.write(f"gpu-recovery-agent {VERSION} reports to {settings.reports_url}")
        agent.run()
    except (AgentSettingsError, AlreadyRunning) as error:
        journal.write(f"the agent ends: {error}")
        return NOT_ALONE
    except AgentEnds as end:
        journal.write(f"the agent ends: {end}")
        return end.status
    except BootUnknown as error:
        journal.write(f"the agent ends: {error}")
        return 1
    return 0


if __name__ == "__main__":
    main()

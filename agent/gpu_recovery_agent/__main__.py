"""Entry point `gpu-recovery-agent`: one agent for this instance.

README.md lists its exit statuses.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from gpu_recovery_agent import VERSION
from gpu_recovery_agent.gputasker_variables import unread_variables
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.loop import Agent
from gpu_recovery_agent.reporter import DO_NOT_RESTART, AgentEnds
from gpu_recovery_agent.sensors.boot import BootUnknown
from gpu_recovery_agent.settings import AgentSettings, AgentSettingsError
from gpu_recovery_agent.state import AlreadyRunning


def main() -> None:
    """Run the agent until SIGTERM or SIGINT, then exit with 0.

    Exit with 1 if the boot is unknown, and with 77 or 78 where a restart would not help.
    """
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"gpu-recovery-agent {VERSION}\n")
        return
    log = AgentLog()
    if sys.argv[1:]:
        log.write("gpu-recovery-agent takes no arguments: its settings are in the environment")
        sys.exit(DO_NOT_RESTART)
    sys.exit(run(log))


def run(log: AgentLog) -> int:
    """Run an agent with the environment of this process and return its exit status."""
    for sentence in unread_variables(os.environ):
        log.write(sentence)
    try:
        settings = AgentSettings.from_environment(os.environ)
        agent = Agent(settings, os.environ, log)

        def stop(_signal: int, _frame: FrameType | None) -> None:
            agent.stop.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        log.write(f"gpu-recovery-agent {VERSION} reports to {settings.reports_url}")
        agent.run()
    except (AgentSettingsError, AlreadyRunning) as error:
        log.write(f"the agent ends: {error}")
        return DO_NOT_RESTART
    except AgentEnds as error:
        log.write(f"the agent ends: {error}")
        return error.status
    except BootUnknown as error:
        log.write(f"the agent ends: {error}")
        return 1
    return 0


if __name__ == "__main__":
    main()

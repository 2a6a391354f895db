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
from gpu_recovery_agent.rank.paths import AgentSettingsError
from gpu_recovery_agent.reporter import DENIED, DO_NOT_RESTART, AgentEnds
from gpu_recovery_agent.sensors.boot import BootUnknown
from gpu_recovery_agent.settings import AgentSettings, CredentialsMissing
from gpu_recovery_agent.state import AlreadyRunning

HELP = """usage: gpu-recovery-agent [--version | --help]

The node agent of gpu-recovery: reports the ranks of this instance, the health of its GPUs and the errors of its kernel.
It takes no other arguments. Its settings are variables of the environment: GPU_RECOVERY_API_URL is required, and
GPU_RECOVERY_TOKEN_FILE, or GPU_RECOVERY_AUTH=sigv4. The page of the agent (agent/README.md) lists them all.

Exit status: 0 after SIGTERM or SIGINT; 77 if the credentials are missing or refused, 78 if another agent reports for
this instance or a setting is wrong: a restart fixes neither; 1 otherwise.
"""


def main() -> None:
    """Run the agent until SIGTERM or SIGINT, then exit with 0.

    Exit with 1 if the boot is unknown, and with 77 or 78 where a restart would not help.
    """
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"gpu-recovery-agent {VERSION}\n")
        return
    if sys.argv[1:] in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
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
    except CredentialsMissing as error:
        log.write(f"the agent ends: {error}")
        return DENIED
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

"""Resets of the GPUs: with the real child process, programs in place of nvidia-smi, and a process table of files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.gpu_reset import GpuReset
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.paths import AgentSettingsError
from gpu_recovery_agent.reset_settings import INSTANCE_TYPE, RESET_COMMAND, ResetSettings
from gpu_recovery_agent.responses import ServerCommand, read
from gpu_recovery_agent.settings import AgentSettings
from gpu_recovery_agent.state import AgentState

from tests.agent.api import WITHIN_S, Api, ok
from tests.agent.fake_proc import BOOT
from tests.agent.node import Node
from tests.sandbox.patience import wait_until

SMI = """#!/bin/sh
echo "$*" >> {log}
case "$1" in
  --query-gpu=*) echo "00000000:00:1E.0, {mode}";;
  --gpu-reset) {reset};;
esac
"""


SYSTEMCTL = """#!/bin/sh
echo "systemctl $*" >> {log}
case "$*" in {failing}) echo 'Job failed.'; exit 1;; esac
case "$1" in
  stop) rm -rf {proc}/812;;
esac
"""
CHROOT = """#!/bin/sh
root=$1; shift
echo "in $root" >> {log}
exec "$@"
"""


class Place:
    """An instance with a program `nvidia-smi`, and an agent that may reset its GPUs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.proc, self.now = folder, folder / "calls", folder / "proc", 100.0
        (folder / "bin").mkdir()
        self.proc.mkdir()
        self.program()
        self.begin()

    def program(self, reset: str = "echo 'All done.'", mode: str = "Disabled") -> None:
        path = self.folder / "bin/nvidia-smi"
        path.write_text(SMI.format(log=self.log, reset=reset, mode=mode))
        path.chmod(0o755)

    def systemd(self, failing: str = "none") -> None:
        """Let systemd be there. `failing`: the arguments of systemctl that fail, as a pattern of the shell.

        The first service that is stopped is the host engine of DCGM, which is process 812.
        """
        path = self.folder / "bin/systemctl"
        path.write_text(SYSTEMCTL.format(log=self.log, failing=failing, proc=self.proc))
        path.chmod(0o755)

    def begin(self, settings: ResetSettings | None = None) -> None:
        """Start an agent with the state that the agent before has left."""
        self.state = AgentState(self.folder / "state", BOOT, AgentLog())
        self.state.open()
        variables = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        self.reset = GpuReset(
            settings or ResetSettings(RESET_COMMAND),
            self.proc,
            variables,
            self.state,
            AgentLog(),
            now=lambda: self.now,
        )

    def restart(self, settings: ResetSettings | None = None) -> None:
        """End the agent and start the next."""
        self.state.close()
        self.begin(settings)

    def uses(self, pid: int, name: str, device: str = "/dev/nvidia0") -> None:
        """Let a process have an open device."""
        folder = self.proc / str(pid) / "fd"
        folder.mkdir(parents=True)
        (folder.parent / "comm").write_text(f"{name}\n")
        (folder / "3").symlink_to(device)

    def ends(self, order_id: str = "reset/i-1/4") -> dict[str, Any] | None:
        """Give the order and wait for its end. Return the field of the report."""
        self.reset.begin([order(order_id)])
        wait_until(lambda: self.reset.poll() or not self.reset.is_running)
        return self.reset.report()

    @property
    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def order(order_id: str = "reset/i-1/4") -> ServerCommand:
    return ServerCommand(order_id, "reset", "", 4, 120.0)


def is_running(pid: int) -> bool:
    """Whether the process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_gpus_are_reset_once_and_each_report_says_so(place: Place) -> None:
    """A repeated order, also after a restart of the agent, does not reset them again."""
    assert place.reset.report() == {}
    told = {"order": "reset/i-1/4", "done": True, "sentence": "the GPUs were reset"}
    assert place.ends() == told == place.ends()
    place.restart()
    assert place.ends() == told
    assert place.calls.count("--gpu-reset") == 1
    assert place.ends("reset/i-1/6") == {**told, "order": "reset/i-1/6"}
    assert place.calls.count("--gpu-reset") == 2


def test_persistence_mode_is_off_during_the_reset_only(place: Place) -> None:
    """The driver counts the mode as a use of the GPU."""
    place.program(mode="Enabled")
    place.ends()
    assert [call for call in place.calls if not call.startswith("--query")] == [
        "-i 00000000:00:1E.0 -pm 0",
        "--gpu-reset",
        "-i 00000000:00:1E.0 -pm 1",
    ]


def test_gpus_that_a_process_uses_are_not_reset(place: Place) -> None:
    """The answer names the process. The persistence daemon and other devices do not count."""
    place.uses(41, "nvidia-persiste")
    place.uses(42, "python3", "/dev/nvidiactl")
    assert (place.ends() or {})["done"] is True
    place.uses(812, "nv-hostengine")
    told = place.ends("reset/i-1/6") or {}
    assert (told["done"], told["sentence"]) == (False, "1 process(es) use the GPUs: nv-hostengine (812)")
    assert place.calls.count("--gpu-reset") == 1


def test_the_answer_of_the_driver_is_told(place: Place) -> None:
    """The end of the output of nvidia-smi, and its exit status."""
    place.program("echo 'GPU 0000:1E: In use by another client'; exit 255")
    told = place.ends() or {}
    assert (told["done"], told["sentence"]) == (
        False,
        "nvidia-smi ended with 255: GPU 0000:1E: In use by another client",
    )


def test_a_reset_that_never_ends_is_given_up(place: Place) -> None:
    """It is not reported as ended before that, though its failure is stored from its beginning."""
    place.program("sleep 600")
    place.reset.begin([order()])
    wait_until(lambda: "--gpu-reset" in place.calls)
    assert place.reset.report() == {} and not place.reset.poll()
    place.now += 121
    wait_until(place.reset.poll)
    assert place.reset.report() == {"order": "reset/i-1/4", "done": False, "sentence": "the reset did not end in time"}


@pytest.mark.parametrize("ends", ["deadline", "agent"])
def test_the_program_of_a_reset_ends_with_its_child_process(place: Place, ends: str) -> None:
    """It would reset the GPUs later, when a check or a job uses them."""
    number = place.folder / "number"
    place.program(f"echo $$ > {number}.new; mv {number}.new {number}; exec sleep 600")
    place.reset.begin([order()])
    wait_until(number.exists)
    if ends == "agent":
        place.reset.close()
    else:
        place.now += 121
        wait_until(place.reset.poll)
    wait_until(lambda: not is_running(int(number.read_text())))


def test_an_agent_that_is_killed_during_the_reset_says_so_later(place: Place) -> None:
    """The next agent does not repeat the order: the server reboots the instance."""
    place.program("sleep 600")
    place.reset.begin([order()])
    place.reset.close()
    place.restart()
    assert not place.reset.is_new([order()])
    assert (place.reset.report() or {})["done"] is False


def test_an_agent_without_the_setting_resets_nothing_and_says_nothing(place: Place) -> None:
    """An order does not change that."""
    off = GpuReset(ResetSettings(), place.proc, {}, place.state, AgentLog())
    off.begin([order()])
    assert off.report() is None and not off.is_running and place.calls == []


DCGM, FABRIC = "nvidia-dcgm.service", "nvidia-fabricmanager.service"


def test_services_that_hold_the_gpus_are_stopped_during_the_reset(place: Place) -> None:
    """Only the services that run, and each is started again."""
    place.systemd(failing=f"'is-active {FABRIC}'")
    place.uses(812, "nv-hostengine")
    place.restart(ResetSettings(RESET_COMMAND, (DCGM, FABRIC)))
    assert (place.ends() or {})["done"] is True
    assert [call for call in place.calls if not call.startswith("--query")] == [
        f"systemctl is-active {DCGM}",
        f"systemctl is-active {FABRIC}",
        f"systemctl stop {DCGM}",
        "--gpu-reset",
        f"systemctl start {DCGM}",
    ]


@pytest.mark.parametrize(
    ("failing", "sentence", "resets"),
    [
        (f"'stop {DCGM}'", f"{DCGM} cannot be stopped: Job failed.", 0),
        (f"'start {FABRIC}'", f"the GPUs were reset; {FABRIC} did not start again", 1),
    ],
    ids=["stop", "start"],
)
def test_a_service_that_fails_makes_the_reset_a_failure(place: Place, failing: str, sentence: str, resets: int) -> None:
    """A reboot follows, which starts every service. Each service that was stopped is started in any case."""
    place.systemd(failing)
    place.restart(ResetSettings(RESET_COMMAND, (DCGM, FABRIC)))
    told = place.ends() or {}
    assert (told["done"], told["sentence"]) == (False, sentence)
    assert place.calls.count("--gpu-reset") == resets
    assert [call for call in place.calls if " start " in call] == [f"systemctl start {each}" for each in (FABRIC, DCGM)]


def test_an_agent_in_a_container_runs_the_programs_of_the_instance(place: Place) -> None:
    """The image of the agent has neither nvidia-smi nor systemctl: both run in the root of the instance."""
    place.systemd()
    chroot = place.folder / "bin/chroot"
    chroot.write_text(CHROOT.format(log=place.log))
    chroot.chmod(0o755)
    place.restart(ResetSettings(RESET_COMMAND, (DCGM,), Path("/proc/1/root")))
    assert (place.ends() or {})["done"] is True
    calls = place.calls
    assert len(calls) == 2 * 5 and set(calls[::2]) == {"in /proc/1/root"}


def settings_of(tmp_path: Path, **variables: str) -> ResetSettings:
    """The settings of an agent with these variables, below `GPU_RECOVERY_GPU_`."""
    given = {"GPU_RECOVERY_API_URL": "https://api.example.com", "GPU_RECOVERY_TOKEN": "t", "HOME": str(tmp_path)}
    given["HOST_SYS"] = str(tmp_path / "sys")
    named = {f"GPU_RECOVERY_GPU_{name}": value for name, value in variables.items()}
    return AgentSettings.from_environment(given | named).reset


@pytest.mark.parametrize(
    ("value", "command"),
    [("", ()), ("off", ()), ("on", RESET_COMMAND), ("/opt/reset 'all GPUs'", ("/opt/reset", "all GPUs"))],
)
def test_the_setting_is_a_switch_or_a_command_line(value: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """`on` stands for the command of nvidia-smi."""
    assert settings_of(tmp_path, RESET=value).command == command


@pytest.mark.parametrize(
    ("patterns", "kind", "excluded"),
    [
        ("", None, ""),
        ("p5.48xlarge, p4d.*", "p4d.24xlarge", ""),
        ("p5.*", "p4d.24xlarge", "GPUs are reset only on p5.*, and this is 'p4d.24xlarge'"),
        ("p5.*", "HVM domU", "GPUs are reset only on p5.*, and this is 'HVM domU'"),
        ("*", None, "GPUs are reset only on *, and the instance type cannot be read: No such file or directory"),
    ],
    ids=["none", "named", "other", "Xen", "unknown"],
)
def test_gpus_are_reset_only_on_the_named_instance_types(
    patterns: str, kind: str | None, excluded: str, tmp_path: Path
) -> None:
    """An instance of another or of an unknown type resets nothing, and the log of its agent says why."""
    if kind is not None:
        (tmp_path / "sys" / INSTANCE_TYPE).parent.mkdir(parents=True)
        (tmp_path / "sys" / INSTANCE_TYPE).write_text(f"{kind}\n")
    found = settings_of(tmp_path, RESET="on", RESET_INSTANCE_TYPES=patterns)
    assert found.excluded == excluded and bool(found.command) is not bool(excluded)
    log = AgentLog()
    reset = GpuReset(found, tmp_path, {}, AgentState(tmp_path / "state", BOOT, log), log)
    assert reset.is_able is not bool(excluded)


@pytest.mark.parametrize("value", ["--now", "a b;c", "nvidia/dcgm"])
def test_a_name_that_no_service_has_is_refused(value: str, tmp_path: Path) -> None:
    """It would be an option or a path for systemctl."""
    with pytest.raises(AgentSettingsError, match="GPU_RECOVERY_GPU_RESET_SERVICES"):
        settings_of(tmp_path, RESET="on", RESET_SERVICES=value)


def test_the_order_of_a_response_is_about_no_job() -> None:
    """Any job in it is left out."""
    body = b'{"ok": true, "orders": [{"id": "reset/i-1/4", "kind": "reset", "job": "", "attempt": 4, "grace_s": 120}]}'
    assert read(200, body, None).commands == (order(),)


@pytest.mark.slow
def test_an_agent_that_ends_begins_no_reset(node: Node, api: Api) -> None:
    """Its last report gets the order, too. The agent that starts after it carries the order out."""
    reset = {"id": "reset/i-1/4", "kind": "reset", "attempt": 4, "grace_s": 120}
    api.lasting = ok(next_s=300)
    agent = node.agent(GPU_RECOVERY_GPU_RESET="true")
    api.count(1)
    api.lasting = ok(next_s=300, orders=[reset])
    agent.terminate()
    assert agent.wait(WITHIN_S) == 0, node.said()
    assert len(api.heard) == 2
    node.agent(GPU_RECOVERY_GPU_RESET="true")
    ended = api.next(lambda report: report.get("reset"), since=2)["reset"]
    assert (ended["order"], ended["done"]) == ("reset/i-1/4", True)

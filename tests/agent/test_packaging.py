"""What is installed: the wheel, the unit, the daemon of ECS, and the page that describes them."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import gpu_recovery_agent
import gpu_recovery_run
import pytest
from gpu_recovery_agent.http_client import TIMEOUT_S
from gpu_recovery_agent.loop import LAST_REPORT_S
from gpu_recovery_agent.reporter import DENIED, DO_NOT_RESTART
from gpu_recovery_agent.settings import AgentSettings

from sandbox.cluster.driver import ClusterTimings

ROOT = Path(__file__).parents[2]
AGENT = ROOT / "agent"
PACKAGE = Path(gpu_recovery_agent.__file__).parent
UNIT, DROP_IN = "gpu-recovery-agent.service", "gpu-reset.conf"
PAGE = (AGENT / "README.md").read_text()
OF_THE_RANK = {"JOB_ID", "ATTEMPT", "RANK", "EPOCH", "RUNNING_LOG_ID", "NODE_RANK"}


class Unit(configparser.RawConfigParser):
    """A unit file: names keep their case, and may come more than once."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit(section: str = "Service") -> dict[str, str]:
    parser = Unit(strict=False, comment_prefixes=("#",), delimiters=("=",))
    parser.read_string((AGENT / "gpu-recovery-agent.service").read_text())
    return dict(parser[section])


def test_the_versions_agree() -> None:
    """The one that is installed is the one that is told."""
    project = tomllib.loads((AGENT / "pyproject.toml").read_text())["project"]
    assert project["version"] == gpu_recovery_agent.VERSION == gpu_recovery_run.VERSION
    for other in (ROOT, AGENT / "run"):
        assert project["version"] == tomllib.loads((other / "pyproject.toml").read_text())["project"]["version"]


def test_the_image_of_the_daemon_is_the_output_of_the_stack_in_every_document() -> None:
    """A name of its own would be the name of an image that no stack pushes. The documents say what goes there."""
    (container,) = json.loads((AGENT / "ecs-daemon.json").read_text())["containerDefinitions"]
    assert container["image"] == "AGENT_IMAGE_URI"
    assert '{"AgentImageUri": ' in (ROOT / "infra/recovery_stack.py").read_text(), "the output of the stack"
    for page in (PAGE, (ROOT / "docs/deploy.md").read_text()):
        (sentence,) = [
            sentence for sentence in re.split(r"[.:]\s", page) if "`AGENT_IMAGE_URI`" in " ".join(sentence.split())
        ]
        assert "`AgentImageUri`" in sentence and "ecs-daemon.json" in sentence


def test_the_page_names_every_placeholder_of_the_daemon() -> None:
    """A placeholder that is left in place fails at registration, at the pull of the image, or at the first report."""
    (container,) = json.loads((AGENT / "ecs-daemon.json").read_text())["containerDefinitions"]
    values = [container["image"], *(one["value"] for one in container["environment"])]
    values += container["logConfiguration"]["options"].values()
    placeholders = {word for value in values for word in re.findall(r"\b[A-Z][A-Z_]+\b", value)}
    assert placeholders and all(f"`{placeholder}`" in PAGE for placeholder in placeholders)


def test_the_unit_restarts_what_a_restart_mends_and_nothing_else() -> None:
    """A revoked token would be knocked with every five seconds, for ever."""
    found = unit()
    assert found["Restart"] == "always"
    assert found["RestartPreventExitStatus"].split() == [str(DENIED), str(DO_NOT_RESTART)]


def test_a_stop_leaves_time_and_network_for_the_last_report() -> None:
    """A report may be under way at SIGTERM. systemd stops units in the reverse order of their start.

    The sandbox ends an agent as the unit does.
    """
    assert "network-online.target" in unit("Unit")["After"].split()
    grace_s = float(unit()["TimeoutStopSec"])
    (container,) = json.loads((AGENT / "ecs-daemon.json").read_text())["containerDefinitions"]
    assert TIMEOUT_S + LAST_REPORT_S < grace_s == container["stopTimeout"] == ClusterTimings().shutdown_s


def test_the_unit_has_the_rights_it_needs_and_no_others() -> None:
    """Three capabilities, its own folders, and the devices that a stricter line would take away."""
    found = unit()
    rights = {"CAP_SYSLOG", "CAP_KILL", "CAP_SYS_PTRACE"}
    assert set(found["AmbientCapabilities"].split()) == set(found["CapabilityBoundingSet"].split()) == rights
    assert (found["ProtectSystem"], found["NoNewPrivileges"], found["ProtectHome"]) == ("strict", "yes", "yes")
    assert found["MemoryMax"] and found["User"] not in ("root", "0")
    takes_away = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProtectKernelLogs", "PrivateUsers"}
    assert not takes_away & set(found)
    assert found["ReadWritePaths"] in found["Environment"]
    assert "GPU_RECOVERY_TOKEN=" not in found["Environment"] and "LoadCredential" not in found


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_itself_finds_the_unit_hardened() -> None:
    """By its own count of what is left open, from 0 to 10: below 4, the devices and capabilities that the agent needs
    among it. A line that it cannot read, or that it knows no more, is said on its error channel."""
    command = ("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=40", str(AGENT / UNIT))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if "unrecognized option" in done.stderr or "Unknown command" in done.stderr:
        pytest.skip("this systemd analyses no file")
    complaints = [line for line in done.stderr.splitlines() if UNIT in line]
    assert done.returncode == 0, done.stdout + done.stderr
    assert complaints == [] and "Overall exposure level" in done.stdout


def test_the_drop_in_lets_the_agent_reset_gpus_and_changes_nothing_else() -> None:
    """Root with all capabilities, and none of the lines that keep nvidia-smi or systemctl from their work."""
    parser = Unit(strict=False, comment_prefixes=("#",), delimiters=("=",))
    parser.read_string((AGENT / DROP_IN).read_text())
    assert dict(parser["Service"]) == {
        "Environment": "GPU_RECOVERY_GPU_RESET=on",
        "User": "root",
        "Group": "root",
        "AmbientCapabilities": "",
        "CapabilityBoundingSet": "~",
        "ProtectKernelModules": "no",
        "ProtectKernelTunables": "no",
        "SystemCallFilter": "",
        "MemoryMax": "512M",
        "TasksMax": "64",
    }
    assert f"{UNIT}.d/{DROP_IN}" in PAGE


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_itself_reads_the_drop_in(tmp_path: Path) -> None:
    """It has no complaint about a line, and finds root with CAP_SYS_ADMIN, which a reset needs."""
    (tmp_path / f"{UNIT}.d").mkdir()
    shutil.copy(AGENT / UNIT, tmp_path / UNIT)
    shutil.copy(AGENT / DROP_IN, tmp_path / f"{UNIT}.d" / DROP_IN)
    command = ("systemd-analyze", "security", "--offline=true", "--no-pager", str(tmp_path / UNIT))
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    if "unrecognized option" in done.stderr or "Unknown command" in done.stderr:
        pytest.skip("this systemd analyses no file")
    assert not [line for line in done.stderr.splitlines() if DROP_IN in line or UNIT in line]
    assert "Service runs as root user" in done.stdout and "Service has administrator privileges" in done.stdout


def test_the_daemon_of_ecs_sees_the_gpus_and_takes_none_from_a_training() -> None:
    """A GPU that it reserved could be used by nobody else; the default runtime passes neither devices nor library."""
    task = json.loads((AGENT / "ecs-daemon.json").read_text())
    (container,) = task["containerDefinitions"]
    assert (task["pidMode"], task["networkMode"]) == ("host", "host")
    assert "resourceRequirements" not in container and container["privileged"] is True
    given = {one["name"]: one["value"] for one in container["environment"]}
    assert "GPU_RECOVERY_TOKEN" not in given and given["HOST_ROOT"] == "/proc/1/root"
    settings = AgentSettings.from_environment({**given, "GPU_RECOVERY_API_URL": "https://h"})
    mounted = {one["containerPath"]: one.get("readOnly", False) for one in container["mountPoints"]}
    assert mounted == {
        str(settings.token_file and settings.token_file.parent): True,
        str(settings.state_folder): False,
        str(settings.running_folder): False,
    }
    assert str(settings.alive_file) in container["healthCheck"]["command"][1]
    assert container["logConfiguration"]["options"]["mode"] == "non-blocking"


PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >> "$DONE"
for last; do before=$target; target=$last; done
case "${0##*/} $*" in
  *"-m venv "*) mkdir -p "$target/bin" "$target/share/gpu-recovery-agent"; cp "$0" "$target/bin/pip"
    echo unit > "$target/share/gpu-recovery-agent/gpu-recovery-agent.service" ;;
  "install -d"*) mkdir -p "$target" ;;
  "install "*) if [ -d "$target" ]; then target="$target/${before##*/}"; fi; cat "$before" > "$target" ;;
esac
"""
"""Stands in for every program of the installation: notes its arguments, and does what the next lines need."""


def test_the_installation_can_be_pasted_whole(tmp_path: Path) -> None:
    """A line that reads the terminal would swallow the lines after it: the token comes last."""
    block = next(text for text in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if "venv" in text)
    lines = re.sub(r"(?<![\w.])/(etc|opt|var)/", rf"{tmp_path}/\1/", block)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("dnf", "python3.11", "useradd", "install", "systemctl"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    done, token = tmp_path / "done", "grn_the-token"
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "DONE": str(done)}
    pasted = subprocess.run(
        ["bash", "--norc"],
        input=f"{lines}{token}\n",
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (pasted.returncode, pasted.stdout, pasted.stderr) == (0, "", "")
    assert (tmp_path / "etc/gpu-recovery/token").read_text() == f"{token}\n"
    assert (tmp_path / "etc/gpu-recovery/agent.env").read_text().startswith("GPU_RECOVERY_API_URL=https://")
    assert (tmp_path / "etc/systemd/system/gpu-recovery-agent.service").read_text() == "unit\n"
    ran = done.read_text().splitlines()
    assert ran[-1] == "systemctl enable --now gpu-recovery-agent" and not any(token in line for line in ran)
    assert len(ran) == len(block.splitlines()) - 1, "every line but that of the settings runs one program"


def test_the_page_says_every_variable_and_status() -> None:
    """Whoever looks at a node finds out what each of them does."""
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    read = set(re.findall(r'"((?:GPU_RECOVERY|GPUTASKER|HOST)_[A-Z_]+)"', source))
    assert len(read) >= 12
    for name in read | OF_THE_RANK - {"NODE_RANK"}:
        assert f"`{name}`" in PAGE, name
    documented = set(re.findall(r"^\| `([A-Z_]+)`", PAGE, re.MULTILINE))
    assert documented == read
    for status in (0, 1, DENIED, DO_NOT_RESTART):
        assert re.search(rf"^\| {status} \|", PAGE, re.MULTILINE), status

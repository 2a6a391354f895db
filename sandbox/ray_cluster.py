"""Ray cluster of a sandbox: one head on loopback, and the package that stands in for the image of `ray_runner`.

A deployment builds the image of `ray_runner` with CodeBuild, or takes it from ECR. The sandbox has neither, and no
Docker. So it packs the files that `ray_runner/Dockerfile` copies into a zip file, and MiniStack runs that package where
the stack names the image (`sandbox/ministack/runner.py`). The digest of the image reference is that of the package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import processes
from sandbox.ministack.command import ACCOUNT, REGION
from sandbox.processes import SandboxError, ServerProcess

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "ray_runner/Dockerfile"
TASK_ROOT = "${LAMBDA_TASK_ROOT}/"
STATED_DASHBOARD, STATED_CONTROL_STORE = "http://127.0.0.1:8265", "127.0.0.1:6379"
"""Addresses in the deployed stack: Ray's usual ports. The ports of each sandbox replace them where the function runs,
so that the synthesised stacks can be used again."""
CPUS = 8
"""CPUs that the head claims to have, whatever the computer has: a driver reserves one."""
ANSWER_TIMEOUT_S = 20
ENVIRONMENT: Mapping[str, str] = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # off, Ray takes 127.0.0.1 at its word
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Variables of the head and of Ray's clients."""


@dataclass(frozen=True)
class RayPorts:
    """TCP ports of a head on loopback."""

    dashboard: int
    control_store: int
    agent: int
    client: int

    @property
    def dashboard_url(self) -> str:
        """The address of Ray's Jobs API and of its web pages."""
        return f"http://127.0.0.1:{self.dashboard}"

    @property
    def control_store_address(self) -> str:
        """The address of the global control store."""
        return f"127.0.0.1:{self.control_store}"


def free_ports() -> RayPorts:
    """Return ports that are free at this moment."""
    return RayPorts(*(processes.free_port() for _ in range(4)))


def head_command(ports: RayPorts, gpus: int, session: Path) -> list[str]:
    """Return the command of a head that claims to have `gpus` GPUs.

    Args:
        ports: ports that the head listens on.
        gpus: number of GPUs.
        session: empty folder for its files and sockets; its path must be short.

    Raises:
        SandboxError: Ray is not installed.
    """
    ray = Path(sys.executable).parent / "ray"
    if not ray.exists():
        raise SandboxError(f"there is no {ray}: `make setup` installs Ray")
    return [
        str(ray),
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={ports.control_store}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={ports.dashboard}",
        f"--dashboard-agent-listen-port={ports.agent}",
        f"--ray-client-server-port={ports.client}",
        f"--num-cpus={CPUS}",
        f"--num-gpus={gpus}",
        '--resources={"worker_node": 100}',
        f"--temp-dir={session}",
        "--object-store-memory=80000000",
        "--disable-usage-stats",
    ]


class RayHead:
    """The Ray head of a sandbox, and the function that reaches it.

    Attributes:
        settings: deployment settings that name the cluster.
        function_environment: variables of MiniStack's process that tell it how to run the function.

    Args:
        directory: folder of the sandbox.
        gpus: number of GPUs that the head claims to have.
    """

    def __init__(self, directory: Path, gpus: int) -> None:
        self._directory, self._run, self._gpus, self._ports = directory, directory / "run", gpus, free_ports()
        package = self._run / "ray_runner.zip"
        image = write_package(package)
        self.settings = settings(image)
        self.function_environment = function_environment(image, package, self._ports)
        self._server: ServerProcess | None = None

    def start(self) -> None:
        """Start the head without waiting for it, and record it among the servers of the sandbox."""
        session = Path(tempfile.mkdtemp(prefix="ray-"))  # for Ray's sockets, which need a short path
        _session_link(self._run).symlink_to(session)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # `python` of its drivers
        own = {**processes.own_folders(self._run), "TMPDIR": str(session), "PATH": path}
        environment = processes.clean_environment({**ENVIRONMENT, **own})
        command = head_command(self._ports, self._gpus, session)
        self._server = processes.start("ray", command, environment, self._run, self._run / "ray.log")
        known = self._directory / "processes.json"
        processes.remember(known, [*processes.recall(known), self._server])

    def wait(self) -> dict[str, str]:
        """Wait until the head takes drivers, and return its addresses. Its dashboard answers some seconds before.

        Raises:
            SandboxError: The head ended, or was not ready in time.
        """
        assert self._server is not None
        processes.wait_until(lambda: takes_drivers(self._ports), self._server)
        return {
            "ray_dashboard": self._ports.dashboard_url,
            "ray_control_store": self._ports.control_store_address,
        }


def remove_session(run: Path) -> None:
    """Remove the files of the head of this sandbox, if there was one. The head must have ended."""
    link = _session_link(run)
    if link.is_symlink():
        shutil.rmtree(link.readlink(), ignore_errors=True)
        link.unlink()


def _session_link(run: Path) -> Path:
    return run / "ray"


def takes_drivers(ports: RayPorts) -> bool:
    """Return whether the head takes drivers now. The first call that succeeds runs the driver `true`."""
    body = json.dumps({"entrypoint": "true", "submission_id": "first"}).encode()
    request = urllib.request.Request(
        f"{ports.dashboard_url}/api/jobs/", body, {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return b"already exists" in error.read()  # an earlier answer was lost
    except OSError:
        return False


# -- the stand-in for the image ----------------------------------------------------------------------------------------


def write_package(path: Path) -> str:
    """Write the package of `ray_runner` to `path` and return the reference of the image that it stands for.

    The package holds the Python files that the Dockerfile copies. Its libraries are those of this Python.
    """
    digest = hashlib.sha256()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        for name, file in sorted(_files()):
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
            package.writestr(name, content)
    return f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/gpu-recovery-ray-runner@sha256:{digest.hexdigest()}"


def handler() -> str:
    """Return the handler that the Dockerfile names."""
    (name,) = re.findall(r'^CMD \["([\w.]+)"\]$', DOCKERFILE.read_text(), re.MULTILINE)
    return str(name)


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the Python files of the image: the name in the image, and the file in this repository."""
    for source, target in re.findall(r"^COPY (\S+) (\S+)$", DOCKERFILE.read_text(), re.MULTILINE):
        folder = target.removeprefix(TASK_ROOT)
        for path in ROOT.glob(source):
            files = path.rglob("*.py") if path.is_dir() else [path] if path.suffix == ".py" else []
            for file in files:
                inner = file.relative_to(path) if path.is_dir() else Path(file.name)
                yield str(Path(folder) / inner), file


def settings(image: str) -> dict[str, Any]:
    """Return the deployment settings for the Ray cluster of a sandbox.

    Args:
        image: the reference that `write_package` returned.
    """
    return {
        "gpu-recovery:ray_dashboard": STATED_DASHBOARD,
        "gpu-recovery:ray_control_store": STATED_CONTROL_STORE,
        "gpu-recovery:ray_image": image,
        # MiniStack gives functions the network of this computer, whatever the subnets are.
        "gpu-recovery:ray_subnet_ids": ["subnet-00000000"],
        "gpu-recovery:ray_security_group_ids": ["sg-00000000"],
    }


def function_environment(image: str, package: Path, ports: RayPorts) -> dict[str, str]:
    """Return the variables of MiniStack's process that tell it how to run the image.

    Args:
        image: the reference of the image.
        package: the package that stands for the image.
        ports: ports of the head.
    """
    stand_in = {
        "image": image,
        "package": str(package),
        "handler": handler(),
        "variables": {
            **ENVIRONMENT,
            "RAY_DASHBOARD": ports.dashboard_url,
            "RAY_CONTROL_STORE": ports.control_store_address,
        },
    }
    return {"SANDBOX_IMAGE_STAND_IN": json.dumps(stand_in)}

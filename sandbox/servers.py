"""The two servers of a sandbox, MiniStack and the GPU cluster: start them, and send them HTTP requests.

Both servers listen on the loopback interface only. They are recorded in `processes.json` of the sandbox's directory as
soon as they run, so that `sandbox.down` can end them at any time.
"""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from sandbox import credentials, deployment, processes
from sandbox.ministack import command as ministack
from sandbox.processes import SandboxError, ServerProcess

ATTEMPTS_TO_START = 3


def start_servers(
    directory: Path,
    cluster_name: str,
    speed: float,
    secret: str,
    options: Sequence[str],
    variables: Mapping[str, str],
) -> tuple[str, str]:
    """Start both servers.

    Each server must know the other's port before it listens. So the ports are chosen first, and chosen again if another
    process has taken a port meanwhile.

    Args:
        directory: Folder of the sandbox's files.
        cluster_name: Name of the ECS cluster.
        speed: Factor by which `rate(...)` schedules of MiniStack run more often than stated.
        secret: Secret of the sandbox, whose holders the servers answer.
        options: Further arguments of `python -m sandbox.cluster`.
        variables: Further variables of MiniStack's process.

    Returns:
        The URLs of MiniStack and of the cluster.

    Raises:
        SandboxError: A server ended, or was not ready in time.
    """
    for _ in range(ATTEMPTS_TO_START - 1):
        try:
            return _start_servers_once(directory, cluster_name, speed, secret, options, variables)
        except SandboxError as error:
            if "in use" not in str(error):
                raise
            processes.stop(processes.recall(directory / "processes.json"))
    return _start_servers_once(directory, cluster_name, speed, secret, options, variables)


def _start_servers_once(
    directory: Path,
    cluster_name: str,
    speed: float,
    secret: str,
    options: Sequence[str],
    variables: Mapping[str, str],
) -> tuple[str, str]:
    run = directory / "run"
    port, cluster_port = processes.free_port(), processes.free_port()
    endpoint_url, cluster_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{cluster_port}"
    servers: list[ServerProcess] = []

    def start(name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        env = processes.clean_environment(processes.own_folders(run) | dict(environment))
        servers.append(processes.start(name, command, env, deployment.ROOT, run / f"{name}.log"))
        processes.remember(directory / "processes.json", servers)

    endpoints = {"ECS": cluster_url, "EC2": cluster_url, "AUTO_SCALING": cluster_url}
    start("ministack", ministack.COMMAND, {**ministack.environment(port, speed, secret, endpoints), **variables})
    cluster = [
        sys.executable,
        "-m",
        "sandbox.cluster",
        "--port",
        str(cluster_port),
        "--state",
        str(run / "cluster"),
        "--cluster",
        cluster_name,
        "--account",
        ministack.ACCOUNT,
        "--region",
        ministack.REGION,
        "--endpoint-url",
        endpoint_url,
        # A random seed, so that the ids of instances and tasks differ from those of every other sandbox.
        "--seed",
        secrets.token_hex(8),
        *options,
    ]
    processes.wait_until(lambda: _answers(f"{endpoint_url}/_ministack/ready"), servers[0])
    start("cluster", cluster, {"PYTHONUNBUFFERED": "1", credentials.SECRET_VARIABLE: secret})
    processes.wait_until(lambda: _has_announced_itself(run / "cluster.log"), servers[1])
    return endpoint_url, cluster_url


def _has_announced_itself(log: Path) -> bool:
    """Whether the cluster listens: it then prints one JSON line with its address."""
    return '"endpoint_url"' in log.read_text()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=processes.READY_WITHIN_S) as answer:
            return bool(answer.status == 200)
    except OSError:  # no listener yet, a refused or reset connection, or a timeout
        return False


class RequestRefused(SandboxError):
    """A server of the sandbox refuses a request. `sentence` is the message of its answer."""

    def __init__(self, text: str, sentence: str) -> None:
        super().__init__(text)
        self.sentence = sentence


def get(url: str, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON document at `url`. See `post`."""
    return _call("GET", url, keys, b"")


def post(url: str, keys: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, Any]:
    """Post `body` as JSON, and return the JSON response.

    Args:
        url: URL of a server of the sandbox.
        keys: Credentials of the sandbox, as `credentials.client_keys` returns them. They sign the request.
        body: JSON object.

    Raises:
        SandboxError: The server refuses the request.
    """
    return _call("POST", url, keys, json.dumps(body).encode())


def _call(method: str, url: str, keys: Mapping[str, str], body: bytes) -> dict[str, Any]:
    signed = AWSRequest(method, url, {"Content-Type": "application/json"}, body)
    own = Credentials(keys["aws_access_key_id"], keys["aws_secret_access_key"])
    SigV4Auth(own, "sandbox", ministack.REGION).add_auth(signed)
    request = urllib.request.Request(url, body or None, dict(signed.headers.items()), method=method)
    try:
        with urllib.request.urlopen(request, timeout=processes.READY_WITHIN_S) as answer:
            return dict(json.loads(answer.read() or b"{}"))
    except urllib.error.HTTPError as refusal:
        answer = refusal.read().decode(errors="replace")
        raise RequestRefused(f"{url} answered {refusal.code}: {answer}", _message(answer)) from refusal


def _message(answer: str) -> str:
    """Return the message of an error in the form of AWS's errors; else the answer as it is."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, TypeError, KeyError):
        return answer

"""The sandbox: a whole deployment on one host, with MiniStack for AWS, our own GPU cluster, and the production stacks.

`up` starts the servers, deploys the stacks, and returns the addresses and tokens. The servers then run on their own
until `down`, which any process may call. The files of a sandbox are in its directory (default `.sandbox` in the
repository):

    state.json       addresses, tokens and credentials; readable for its owner only
    processes.json   the running servers, for `down`
    run/             logs, temporary files, the cluster's instances
    cdk.out/         synthesised stacks, saved for the next sandbox (always in the repository's `.sandbox`)

All servers listen on the loopback interface only, and answer only requests that the credentials of the sandbox sign.
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import boto3
from botocore.config import Config

from sandbox import account_setup, credentials, deployment, processes, ray_cluster, servers
from sandbox.ministack import command as ministack
from sandbox.processes import SandboxError

DEFAULT_DIRECTORY = deployment.ROOT / ".sandbox"
CLUSTER_NAME = "nwcd-gpu-testing"
SETTINGS: Mapping[str, Any] = {"gpu-recovery:cluster_name": CLUSTER_NAME, "gpu-recovery:health_check_image": ""}
"""Deployment settings of each sandbox. Its tasks are processes, so no image is built."""
EVENT_SOURCE = "aws.ecs"
TRAINING_FAMILY = "gpu-training"
TRAINING_LOG_GROUP = "/ecs/gpu-training"
SERVICES = ("ssm", "s3", "sqs", "sns", "lambda", "secretsmanager")
SCHEDULE_SPEED = 12.0
RAY_POLL_INTERVAL_S = 5
"""Seconds between two polls of a job with a Ray head. Ray reports no end of a driver, so the status of a job on Ray
lags behind by this time: by two minutes with the default of the policy, which is for hours of training."""

Progress = Callable[[str], None]


def up(
    directory: Path = DEFAULT_DIRECTORY,
    *,
    instances: int = 2,
    gpus: int = 8,
    speed: float = SCHEDULE_SPEED,
    preset: str = "adaptive",
    policy: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    cluster_options: Sequence[str] = (),
    agents: bool = False,
    ray: bool = False,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Start a sandbox and leave it running. A sandbox that already runs in `directory` is ended first.

    Args:
        directory: Folder of the sandbox's files.
        instances: Number of instances.
        gpus: Number of GPUs of each instance.
        speed: Factor by which `rate(...)` schedules run more often than stated.
        preset: Preset of the recovery policy.
        policy: Thresholds that replace those of the preset, by field name.
        context: Further deployment settings, by full key.
        cluster_options: Further arguments of `python -m sandbox.cluster`.
        agents: Whether a node agent runs on each instance.
        ray: Whether a Ray head with `gpus` GPUs runs, for jobs with `backend: ray`.
        progress: Function that receives one line for each step.

    Returns:
        The member `sandbox` of state.json: addresses, tokens and names.

    Raises:
        SandboxError: A step failed. After an error or an interruption no process of the sandbox runs.
    """
    directory = directory.resolve()
    down(directory)
    with _ended_when_interrupted(directory):
        run = _new_folder(directory)
        head = ray_cluster.RayHead(directory, gpus) if ray else None
        settings = _settings(preset, policy, context, head)
        is_synthesised = deployment.is_synthesised(settings)
        with deployment.synthesis(settings, run) as assembly:
            progress(f"Starting MiniStack and a cluster of {instances} instances with {gpus} GPUs each")
            options = ["--instances", str(instances), "--gpus", str(gpus), *cluster_options]
            secret = secrets.token_hex(32)
            keys = credentials.client_keys(secret)
            endpoint_url, cluster_url = servers.start_servers(
                directory, CLUSTER_NAME, speed, secret, options, head.function_environment if head else {}
            )
            if head:
                progress(f"Starting a Ray head with {gpus} GPUs")
                head.start()
            clients = _prepared_account(endpoint_url, cluster_url, keys)
            if not is_synthesised:
                progress("Synthesising the stacks with the CDK (kept for the next time)")
            stacks = assembly()
        progress("Deploying the stacks with the CDK")
        outputs = deployment.deploy(stacks, endpoint_url, keys, run)
        progress("Setting the operator token, opening the mailbox, announcing the instances, issuing their tokens")
        state = _describe(endpoint_url, cluster_url, keys, outputs)
        _complete(clients, outputs, state)
        if head:
            state["sandbox"] |= head.wait()
        processes.write_private(directory / "state.json", state)
        if agents:
            progress("Starting a node agent on each instance")
            _start_agents(state["sandbox"], settings)
        progress("The sandbox is ready")
        return dict(state["sandbox"])


def down(directory: Path = DEFAULT_DIRECTORY) -> bool:
    """End the sandbox and remove its files, except the synthesised stacks. Returns False if there was no sandbox."""
    directory = directory.resolve()
    run = directory / "run"
    existed = run.exists()
    processes.stop(processes.recall(directory / "processes.json"))
    processes.sweep(run)
    ray_cluster.remove_session(run)
    for leftover in ("processes.json", "processes.new", "state.json", "state.new"):
        (directory / leftover).unlink(missing_ok=True)
    if existed:
        shutil.rmtree(run)
    return existed


def status(directory: Path = DEFAULT_DIRECTORY) -> dict[str, Any]:
    """Return whether the sandbox is up, and which servers run: {running, servers: {name: bool}, sandbox}."""
    alive = {server.name: server.is_running for server in processes.recall(directory / "processes.json")}
    ready = (directory / "state.json").exists()
    return {
        "running": ready and all(alive.values()),
        "servers": alive,
        "sandbox": _state(directory)["sandbox"] if ready else None,
    }


def fault(
    directory: Path, instance: str, kind: str, cured_by: str | None = None, reboot: str | None = None
) -> dict[str, Any]:
    """Inject a fault into an instance; returns the cluster's response.

    Args:
        directory: Folder of the sandbox.
        instance: Id of the instance.
        kind: xid79, xid119, ecc, hang, agent_lost, spot or kill.
        cured_by: Repair that ends the fault; None takes the cluster's default.
        reboot: Reaction of the instance to reboot requests; None takes the cluster's default.

    Raises:
        SandboxError: The cluster refuses the request, or no sandbox is up.
    """
    request = {"instance": instance, "kind": kind, "cured_by": cured_by, "reboot": reboot}
    reach = _state(directory)["sandbox"]
    given = {name: value for name, value in request.items() if value is not None}
    try:
        return servers.post(f"{reach['ecs_endpoint_url']}/_sandbox/fault", reach, given)
    except servers.RequestRefused as refusal:
        raise SandboxError(refusal.sentence) from refusal


def read_mailbox(directory: Path = DEFAULT_DIRECTORY) -> list[dict[str, str]]:
    """Return every e-mail sent to the operators so far, oldest first: [{subject, body, at}], `at` in ISO 8601."""
    state = _state(directory)
    # MiniStack shows a queue's messages without removing them, so any process may read them any number of times.
    query = urllib.parse.urlencode({"QueueUrl": state["mailbox_url"]})
    shown = servers.get(f"{state['sandbox']['endpoint_url']}/_ministack/sqs/messages?{query}", state["sandbox"])
    ((message_lists,),) = [[*regions.values()] for regions in shown["messages"].values()]
    mails = [json.loads(message["Body"]) for messages in message_lists.values() for message in messages]
    return sorted(
        ({"subject": mail.get("Subject", ""), "body": mail["Message"], "at": mail["Timestamp"]} for mail in mails),
        key=lambda mail: mail["at"],
    )


def cluster_state(directory: Path = DEFAULT_DIRECTORY) -> dict[str, Any]:
    """Return the cluster's instances and tasks, with the paths of logs: {cluster, instances: [...], tasks: [...]}."""
    reach = _state(directory)["sandbox"]
    return servers.get(f"{reach['ecs_endpoint_url']}/_sandbox/state", reach)


def client(service: str, endpoint_url: str, keys: Mapping[str, str]) -> Any:
    """Return a boto3 client of the sandbox.

    Args:
        service: Name of the service.
        endpoint_url: URL of MiniStack or of the cluster.
        keys: Mapping with `aws_access_key_id` and `aws_secret_access_key`, such as the result of `up`.
    """
    return boto3.client(  # type: ignore[call-overload]  # the stubs accept only literal service names
        service,
        endpoint_url=endpoint_url,
        region_name=ministack.REGION,
        aws_access_key_id=keys["aws_access_key_id"],
        aws_secret_access_key=keys["aws_secret_access_key"],
        config=Config(retries={"total_max_attempts": 3}),
    )


@contextmanager
def _ended_when_interrupted(directory: Path) -> Iterator[None]:
    """End the servers if an error, Ctrl-C or SIGTERM ends the block early."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    on_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, interrupt) if on_main_thread else None
    try:
        yield
    except BaseException:
        down(directory)
        raise
    finally:
        if on_main_thread:
            signal.signal(signal.SIGTERM, before)


def _new_folder(directory: Path) -> Path:
    """Create and return the folder of the files of a sandbox's processes."""
    run = directory / "run"
    for folder in processes.own_folders(run).values():
        Path(folder).mkdir(parents=True)
    return run


def _settings(
    preset: str,
    policy: Mapping[str, Any] | None,
    context: Mapping[str, Any] | None,
    head: ray_cluster.RayHead | None,
) -> dict[str, Any]:
    """Return the deployment settings of a sandbox. The arguments are as those of `up`."""
    settings: dict[str, Any] = {**SETTINGS, "gpu-recovery:preset": preset, **(context or {})}
    if head:
        settings |= head.settings
        policy = {"poll_interval_s": RAY_POLL_INTERVAL_S, **(policy or {})}
    if policy:
        settings["gpu-recovery:policy"] = dict(policy)
    return settings


def _prepared_account(endpoint_url: str, cluster_url: str, keys: Mapping[str, str]) -> dict[str, Any]:
    """Bootstrap the account and register the trainer. Returns the clients of MiniStack by service."""
    clients = {service: client(service, endpoint_url, keys) for service in SERVICES}
    deployment.bootstrap(clients)
    client("logs", endpoint_url, keys).create_log_group(logGroupName=TRAINING_LOG_GROUP)
    account_setup.register_trainer(client("ecs", cluster_url, keys), TRAINING_FAMILY, TRAINING_LOG_GROUP)
    return clients


def _start_agents(reach: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Start a node agent on each instance of the sandbox. The agents reset GPUs if the policy of `settings` does."""
    gpu_reset = bool(settings.get("gpu-recovery:policy", {}).get("gpu_reset"))
    request = {"api_url": reach["api_url"], "tokens": reach["node_tokens"], "gpu_reset": gpu_reset}
    servers.post(f"{reach['ecs_endpoint_url']}/_sandbox/agents", reach, request)


def _describe(
    endpoint_url: str, cluster_url: str, keys: Mapping[str, str], outputs: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "sandbox": {
            "endpoint_url": endpoint_url,
            "ecs_endpoint_url": cluster_url,
            "ec2_endpoint_url": cluster_url,
            **keys,
            "api_url": f"{endpoint_url}/_aws/execute-api/{outputs['ApiId']}/$default",
            "console_url": f"{endpoint_url}/_aws/execute-api/{outputs['ApiId']}/$default/console",
            "operator_token": secrets.token_urlsafe(32),
            "cluster": CLUSTER_NAME,
            "tables": {"jobs": outputs["JobTableName"], "instances": outputs["InstanceTableName"]},
            "topic_arn": outputs["TopicArn"],
            "event_source": EVENT_SOURCE,
            "bus": outputs["EventBusName"],
        },
        "outputs": dict(outputs),
    }


def _complete(clients: Mapping[str, Any], outputs: Mapping[str, str], state: dict[str, Any]) -> None:
    """Set the operator token, open the mailbox, announce the instances, and issue their tokens, all into `state`."""
    reach = state["sandbox"]
    secret_arn, control_url = outputs["OperatorTokenSecretArn"], f"{reach['ecs_endpoint_url']}/_sandbox"
    account_setup.set_operator_token(clients["secretsmanager"], secret_arn, reach["operator_token"])
    state["mailbox_url"] = account_setup.open_mailbox(clients["sqs"], clients["sns"], outputs["TopicArn"])
    account_setup.wait_for_functions(clients["lambda"])
    servers.post(f"{control_url}/announce", reach, {})
    instance_ids = [instance["instance_id"] for instance in servers.get(f"{control_url}/state", reach)["instances"]]
    reach |= account_setup.issue_node_tokens(reach["api_url"], reach["operator_token"], instance_ids)


def _state(directory: Path) -> dict[str, Any]:
    path = directory / "state.json"
    if not path.exists():
        raise SandboxError(f"no sandbox is up in {directory}")
    state: dict[str, Any] = json.loads(path.read_text())
    return state

"""`python -m sandbox.cluster`: the cluster as a server on loopback, until SIGTERM or SIGINT."""

import argparse
import json
import os
import signal
import sys
import threading
from pathlib import Path

from sandbox import credentials
from sandbox.cluster.api import AutoScalingApi, Ec2Api, EcsApi
from sandbox.cluster.aws_protocol import AwsProtocol, server
from sandbox.cluster.awslogs import AwsLogs, cloudwatch
from sandbox.cluster.control_api import Control
from sandbox.cluster.driver import ClusterTimings, Driver
from sandbox.cluster.event_publisher import Chaos, Publisher, event_bridge
from sandbox.cluster.model import instances
from sandbox.cluster.model.cluster import ClusterModel
from sandbox.cluster.power import PowerControl
from sandbox.cluster.task_definitions import Definitions, ForwardedDefinitions, MemoryDefinitions

PASSED_ON = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_ECS",
    "AWS_ENDPOINT_URL_EC2",
    "AWS_ENDPOINT_URL_AUTO_SCALING",
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
"""Variables of the server's environment that every container gets."""


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.cluster", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--state", type=Path, required=True, help="folder for instances, tasks and their logs")
    parser.add_argument("--cluster", default="nwcd-gpu-testing")
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=8, help="of each instance")
    parser.add_argument("--account", default="000000000000")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--endpoint-url", help="AWS (MiniStack) for events, task definitions and the containers")
    parser.add_argument("--seed", default="sandbox", help="of every id the cluster makes up")
    parser.add_argument("--timings", type=json.loads, default={}, help='JSON, for example {"boot_s": 1}')
    parser.add_argument("--chaos", type=json.loads, default={}, help='JSON, for example {"seed": 1, "duplicate": 1}')
    return parser.parse_args(argv)


def _environment(arguments: argparse.Namespace, secret: str) -> dict[str, str]:
    """Return the containers' AWS settings: those of the server, with defaults for keys, region and endpoint."""
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    region = {"AWS_DEFAULT_REGION": arguments.region}
    endpoint = {"AWS_ENDPOINT_URL": arguments.endpoint_url} if arguments.endpoint_url else {}
    return credentials.key_variables(credentials.client_keys(secret)) | region | endpoint | passed


def loopback_network(port: int) -> str:
    """Return the loopback network of the cluster that serves on `port`. Linux lets a process bind each address of it.

    Two sandboxes on one machine have no address in common while each has at most 200 instances. So each job can bind
    the port of its master process.
    """
    return f"127.{port >> 8}.{port & 255}.0"


def main(argv: list[str]) -> int:
    """Serve the cluster until a signal arrives. Returns 0, or 1 if a thread of the server crashed.

    Raises:
        KeyError: The environment lacks the secret of the sandbox.
    """
    arguments, secret = _arguments(argv), os.environ.pop(credentials.SECRET_VARIABLE)
    keys = credentials.client_keys(secret)
    cluster = ClusterModel(arguments.cluster, arguments.account, arguments.region, arguments.seed)
    send = event_bridge(arguments.endpoint_url, arguments.region, keys) if arguments.endpoint_url else None
    definitions: Definitions = MemoryDefinitions(arguments.account, arguments.region)
    if arguments.endpoint_url:
        definitions = ForwardedDefinitions(arguments.endpoint_url, arguments.region, keys)
    driver = Driver(
        cluster,
        arguments.state,
        Publisher(send, Chaos(**arguments.chaos)),
        timings=ClusterTimings(**arguments.timings),
        environment=_environment(arguments, secret),
        logs=AwsLogs(cloudwatch(arguments.endpoint_url, arguments.region, keys)) if arguments.endpoint_url else None,
    )
    power = PowerControl(driver)
    apis = {
        "ecs": EcsApi(driver, definitions),
        "ec2": Ec2Api(driver, power),
        "autoscaling": AutoScalingApi(driver, power),
    }
    listener = server(AwsProtocol(apis, Control(driver, power)), arguments.port, secret)
    port = listener.server_address[1]
    cluster.network = loopback_network(port)
    url = f"http://127.0.0.1:{port}"
    driver.control = {"url": url, "keys": keys}
    ended = threading.Event()
    crashed: list[threading.ExceptHookArgs] = []

    def crash(failure: threading.ExceptHookArgs) -> None:
        """End the server: without one of its threads a cluster would give wrong answers."""
        crashed.append(failure)
        threading.__excepthook__(failure)
        ended.set()

    threading.excepthook = crash
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    threading.Thread(target=listener.serve_forever, name="wire", daemon=True).start()
    try:
        for _ in range(arguments.instances):
            driver.change(lambda now: instances.launch(cluster, arguments.gpus, now))
        print(json.dumps({"endpoint_url": url}), flush=True)
        ended.wait()
    finally:
        listener.shutdown()
        driver.close()
    return 1 if crashed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Command line and environment by which the sandbox starts MiniStack."""

from __future__ import annotations

import sys

from sandbox import credentials

COMMAND = (sys.executable, "-m", "sandbox.ministack.runner")
ACCOUNT = "000000000000"
REGION = "us-east-1"


def environment(port: int, speed: float, secret: str, endpoints: dict[str, str] | None = None) -> dict[str, str]:
    """Return the variables of MiniStack's process, in addition to a clean environment with its own folders.

    Args:
        port: TCP port that MiniStack listens on.
        speed: Factor by which `rate(...)` schedules run more often than stated.
        secret: Secret of the sandbox. The credentials of its user are MiniStack's root key.
        endpoints: URL that replaces the endpoint of a service (`ECS`, `EC2`: our cluster). Functions inherit these
            URLs from the process, so the deployed stack holds no setting of the sandbox.
    """
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "AUTH": "true",  # the deployed roles are enforced, as on AWS
        "IOT_MTLS_ENABLED": "0",  # IoT and SFTP would listen beyond loopback, or load unused libraries
        "SFTP_ENABLED": "0",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_REGION": REGION,
        "LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
        "SANDBOX_SCHEDULE_SPEED": str(speed),
        **credentials.server_environment(secret),
    } | {f"AWS_ENDPOINT_URL_{service}": url for service, url in (endpoints or {}).items()}

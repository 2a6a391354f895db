"""How the sandbox starts MiniStack: its command line and its environment."""

from __future__ import annotations

import sys

COMMAND = (sys.executable, "-m", "sandbox.ministack.runner")
ACCOUNT = "000000000000"
REGION = "us-east-1"


def environment(port: int, speed: float, endpoints: dict[str, str] | None = None) -> dict[str, str]:
    """What MiniStack's own process needs, beside a clean environment with folders of its own.

    `endpoints` maps a service to where its calls go instead (`ECS`, `EC2`: our cluster). Functions inherit these from
    the process, so the deployed stack holds no setting of the sandbox.
    """
    return {
        "GATEWAY_PORT": str(port),
        "BIND_HOST": "127.0.0.1",
        "AUTH": "true",  # the deployed roles are enforced, as on AWS
        "IOT_MTLS_ENABLED": "0",  # both would listen beyond loopback or load what nobody uses
        "SFTP_ENABLED": "0",
        "MINISTACK_ACCOUNT_ID": ACCOUNT,
        "MINISTACK_REGION": REGION,
        "LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
        "SANDBOX_SCHEDULE_SPEED": str(speed),
    } | {f"AWS_ENDPOINT_URL_{service}": url for service, url in (endpoints or {}).items()}

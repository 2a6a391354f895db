"""Credentials of a sandbox: one random secret, from which the secret of every access key of the sandbox follows.

The servers of the sandbox run commands as the user who started it. So they answer only callers with a key of this
sandbox.
The emulator (MiniStack) and the cluster both know the random secret, and no other process does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

ACCESS_KEY_ID = "SANDBOXROOT"
"""Access key id of the user who started the sandbox."""
SECRET_VARIABLE = "SANDBOX_SECRET"
"""Variable that gives the random secret to the servers. Other users cannot read the environment of a process."""


def secret_access_key(secret: str, access_key_id: str) -> str:
    """Return the secret access key of an access key id, in the sandbox with this random secret."""
    return hmac.new(secret.encode(), access_key_id.encode(), hashlib.sha256).hexdigest()


def client_keys(secret: str) -> dict[str, str]:
    """Return the credentials of the sandbox's user, as arguments of `boto3.client`."""
    return {
        "aws_access_key_id": ACCESS_KEY_ID,
        "aws_secret_access_key": secret_access_key(secret, ACCESS_KEY_ID),
    }


def key_variables(keys: Mapping[str, str]) -> dict[str, str]:
    """Return credentials as the environment variables that the SDKs and the CDK read."""
    return {"AWS_ACCESS_KEY_ID": keys["aws_access_key_id"], "AWS_SECRET_ACCESS_KEY": keys["aws_secret_access_key"]}


def server_environment(secret: str) -> dict[str, str]:
    """Return the variables by which a server of the sandbox knows its secret and its own credentials."""
    return key_variables(client_keys(secret)) | {SECRET_VARIABLE: secret}

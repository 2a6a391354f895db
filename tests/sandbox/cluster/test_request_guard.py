"""Who may call the cluster: a holder of the sandbox's credentials, and no other user of this computer or web page."""

import http.client
import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from sandbox import credentials, servers
from sandbox.processes import SandboxError
from sandbox.request_guard import RequestGuard
from tests.sandbox.cluster.conftest import KEYS, NAME, REGION, SECRET
from tests.sandbox.patience import PATIENCE_S

PORT = 4566
URL = f"http://127.0.0.1:{PORT}"
RUN_TASK = "AmazonEC2ContainerServiceV20141113.RunTask"


def signed(url, body=b"", keys=KEYS, headers=None, method="POST"):
    """The headers of a signed request, names in small letters."""
    request = AWSRequest(method, url, headers or {}, body)
    own = Credentials(keys["aws_access_key_id"], keys["aws_secret_access_key"])
    SigV4Auth(own, "ecs", REGION).add_auth(request)
    host = url.split("/")[2]
    return {"host": host} | {name.lower(): value for name, value in request.headers.items()}


def run_task(server, instance_id, changed, keys=None):
    """The status of RunTask with a command that leaves a file, and whether the file is there afterwards."""
    proof = server.folder / "proof"
    definition = server.define(["sleep", "60"], family="proof")
    body = json.dumps(
        {
            "cluster": NAME,
            "taskDefinition": definition,
            "placementConstraints": [{"type": "memberOf", "expression": f"ec2InstanceId == {instance_id}"}],
            "overrides": {"containerOverrides": [{"name": "main", "command": ["touch", str(proof)]}]},
        }
    ).encode()
    named = {"X-Amz-Target": RUN_TASK, "Content-Type": "application/x-amz-json-1.1"}
    headers = named if keys is None else signed(f"{server.url}/", body, keys, named)
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=PATIENCE_S)
    connection.request("POST", "/", body, headers | changed)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, proof


STRANGER = {"aws_access_key_id": credentials.ACCESS_KEY_ID, "aws_secret_access_key": "guessed"}
OLD_ROOT = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


@pytest.mark.parametrize(
    ("keys", "changed"),
    [
        (None, {}),
        (STRANGER, {}),
        (OLD_ROOT, {}),
        (KEYS, {"Host": "rebind.evil.example"}),
        (KEYS, {"Host": "127.0.0.1:1"}),
        (KEYS, {"Origin": "http://evil.example"}),
        (KEYS, {"Origin": "null"}),
    ],
    ids=["unsigned", "another secret", "the key of every emulator", "rebound name", "another port", "origin", "null"],
)
def test_a_stranger_starts_no_process(server, instance_id, keys, changed):
    """403, and no task: RunTask executes commands as the user who started the sandbox."""
    before = {task["task_id"] for task in server.get("state")["tasks"]}
    status, proof = run_task(server, instance_id, changed, keys)
    assert status == 403
    assert {task["task_id"] for task in server.get("state")["tasks"]} == before and not proof.exists()


def test_the_holder_of_the_credentials_starts_a_process(server, instance_id):
    """The same request, signed."""
    status, proof = run_task(server, instance_id, {}, KEYS)
    assert status == 200
    server.until(proof.exists, "the command did not run")
    proof.unlink()


@pytest.mark.parametrize("what", ["state", "events"])
def test_the_sandbox_paths_need_the_signature_too(server, what):
    """They name processes and files, and inject faults."""
    with pytest.raises(SandboxError, match="answered 403"):
        servers.get(f"{server.url}/_sandbox/{what}", STRANGER)
    with pytest.raises(SandboxError, match="answered 403"):
        servers.post(f"{server.url}/_sandbox/launch", STRANGER, {"count": 1})


def test_a_function_of_the_sandbox_signs_with_its_own_key(server):
    """MiniStack gives each function a session. Its secret follows from that of the sandbox, as the root's does."""
    key = "ASIA0123456789ABCDEF"
    for secret, allowed in (
        (credentials.secret_access_key(SECRET, key), True),
        ("made from the function's ARN", False),
    ):
        ecs = boto3.client(
            "ecs",
            endpoint_url=server.url,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            aws_session_token="token",
        )
        if allowed:
            assert ecs.list_tasks(cluster=NAME)["taskArns"] is not None
        else:
            with pytest.raises(ClientError, match="AccessDenied"):
                ecs.list_tasks(cluster=NAME)


# -- the guard alone ---------------------------------------------------------------------------------------------------


@pytest.fixture
def guard():
    """The guard of a server on PORT, now."""
    return RequestGuard(SECRET, PORT)


def test_a_signature_covers_path_query_and_body(guard):
    """None of them can be exchanged."""
    headers = signed(f"{URL}/_sandbox/x?a=1", b"body")
    assert guard.refusal("POST", "/_sandbox/x?a=1", headers, b"body") == ""
    for method, target, body in (
        ("GET", "/_sandbox/x?a=1", b"body"),
        ("POST", "/_sandbox/y?a=1", b"body"),
        ("POST", "/_sandbox/x?a=2", b"body"),
        ("POST", "/_sandbox/x?a=1", b"Body"),
    ):
        assert "does not match" in guard.refusal(method, target, headers, body)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "1f00ba12.execute-api.localhost"])
def test_every_name_of_the_loopback_interface_will_do(guard, name):
    """They are the same server."""
    assert guard.refusal("POST", "/", signed(f"http://{name}:{PORT}/"), b"") == ""


@pytest.mark.parametrize(
    "host",
    [
        f"rebind.evil.example:{PORT}",
        "127.0.0.1:1",
        "127.0.0.1",
        f"127.0.0.1.evil.example:{PORT}",
        f"1f00ba12.execute-api.localhost.evil.example:{PORT}",
        "1f00ba12.execute-api.localhost:1",
    ],
)
def test_no_other_name_will_do(guard, host):
    """Also with a right signature. A web page gets here by a name that somebody points to the loopback interface."""
    assert "Host header" in guard.refusal("POST", "/", signed(f"http://{host}/"), b"")


def test_a_signature_ends_after_a_quarter_of_an_hour():
    """Whoever has seen one cannot use it for long."""
    headers = signed(f"{URL}/")
    for minutes, refused in ((0, False), (14, False), (16, True), (-16, True)):
        later = datetime.now(UTC) + timedelta(minutes=minutes)
        assert bool(RequestGuard(SECRET, PORT, lambda now=later: now).refusal("POST", "/", headers, b"")) is refused


def test_a_header_cannot_replace_the_hash_of_the_body(guard):
    """Signers for S3 name the hash in a header, and may name none at all."""
    headers = signed(f"{URL}/", b"", headers={"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"})
    assert "hash of the body" in guard.refusal("POST", "/", headers, b"anything")


@pytest.mark.parametrize("left_out", ["host", "x-amz-date"])
def test_host_and_date_are_signed(guard, left_out):
    """Otherwise they could be chosen anew."""
    headers = signed(f"{URL}/")
    headers["authorization"] = headers["authorization"].replace("host;x-amz-date", left_out)
    assert "must cover" in guard.refusal("POST", "/", headers, b"")

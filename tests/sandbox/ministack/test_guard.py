"""Who may call MiniStack: plain MiniStack believes every caller, ours only the holder of the sandbox's credentials."""

from __future__ import annotations

import hashlib
import http.client

import boto3
import pytest
from botocore.exceptions import ClientError

from sandbox import credentials, servers
from sandbox.ministack import command
from sandbox.processes import SandboxError
from tests.sandbox.ministack_server import ROLE, SECRET, Cloud
from tests.sandbox.patience import PATIENCE_S

pytestmark = pytest.mark.slow
KEYS = credentials.client_keys(SECRET)


def is_served(cloud: Cloud, key: str, secret: str, token: str | None = None) -> bool:
    """Whether a caller with this key may list the functions."""
    client = boto3.client(
        "lambda",
        endpoint_url=cloud.url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
    )
    try:
        client.list_functions()
    except ClientError as refusal:
        assert refusal.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403)
        return False
    return True


def status(cloud: Cloud, method: str, path: str, **headers: str) -> int:
    """The status of an unsigned request."""
    connection = http.client.HTTPConnection(cloud.url.removeprefix("http://"), timeout=PATIENCE_S)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


ROOTS = [
    ("test", "test"),
    (command.ACCOUNT, "test"),
    (credentials.ACCESS_KEY_ID, "guessed"),
    (credentials.ACCESS_KEY_ID, credentials.secret_access_key("another sandbox", credentials.ACCESS_KEY_ID)),
]


@pytest.mark.parametrize(("key", "secret"), ROOTS)
def test_plain_ministack_takes_anybody_for_the_root_user(plain: Cloud, key: str, secret: str) -> None:
    """Also with a wrong signature. The root user may create a function, which runs as its owner."""
    assert is_served(plain, key, secret)


@pytest.mark.parametrize(("key", "secret"), ROOTS)
def test_only_the_credentials_of_the_sandbox_are_the_root_user(whole: Cloud, key: str, secret: str) -> None:
    """Its signature is checked."""
    assert not is_served(whole, key, secret)
    assert is_served(whole, KEYS["aws_access_key_id"], KEYS["aws_secret_access_key"])


def keys_made_from_arns(name: str) -> tuple[str, str, str]:
    """The credentials that plain MiniStack gives the function `name`: everything in them is known."""
    arn = f"arn:aws:lambda:us-east-1:{command.ACCOUNT}:function:{name}"
    digest = hashlib.sha256(f"{arn}:{ROLE}".encode()).hexdigest()
    secret, token = (hashlib.sha256(f"{what}:{digest}".encode()).hexdigest() for what in ("secret", "token"))
    return f"ASIA{digest[:16].upper()}", secret, token


def allowed_function(cloud: Cloud) -> str:
    """The name of a function that has run, whose role may list functions."""
    cloud.client("iam").put_role_policy(
        RoleName="nothing-allowed",
        PolicyName="list",
        PolicyDocument='{"Version": "2012-10-17", "Statement": '
        '[{"Effect": "Allow", "Action": "lambda:ListFunctions", "Resource": "*"}]}',
    )
    name, _, _ = cloud.function("return 1")
    cloud.client("lambda").invoke(FunctionName=name)
    return name


def test_plain_ministack_makes_the_secrets_of_functions_from_their_names(plain: Cloud) -> None:
    """So every user of the computer can make them."""
    assert is_served(plain, *keys_made_from_arns(allowed_function(plain)))


def test_the_secrets_of_functions_follow_from_the_secret_of_the_sandbox(whole: Cloud) -> None:
    """Those of plain MiniStack are refused. The cluster makes the same ones, so that functions may call it."""
    key, secret, token = keys_made_from_arns(allowed_function(whole))
    assert not is_served(whole, key, secret, token)
    own = [credentials.secret_access_key(SECRET, text) for text in (key, f"token of {key}")]
    assert is_served(whole, key, *own)


def test_plain_ministack_shows_its_own_pages_to_everybody(plain: Cloud) -> None:
    """Messages of every queue among them, also to a web page under another name."""
    assert status(plain, "GET", "/_ministack/sqs/messages", Host="rebind.evil.example") == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/_ministack/sqs/messages"),
        ("GET", "/_ministack/ses/messages"),
        ("GET", "/_ministack/health"),
        ("POST", "/_ministack/reset"),
        ("POST", "/_ministack/config"),
        ("GET", "/_localstack/health"),
        ("GET", "/health"),
    ],
)
def test_the_pages_of_ministack_need_the_signature(whole: Cloud, method: str, path: str) -> None:
    """All of them but the one that says that the server is ready."""
    assert status(whole, method, path) == 403
    assert status(whole, "GET", "/_ministack/ready") == 200


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("PUT", "/bucket"), ("GET", "/bucket"), ("GET", "/x/y")])
def test_nothing_is_stored_or_shown_without_a_signature(whole: Cloud, method: str, path: str) -> None:
    """S3 takes requests without one where a policy allows it; here no policy does."""
    assert status(whole, method, path) in (403, 404)


def test_the_holder_of_the_credentials_reads_the_pages(whole: Cloud) -> None:
    """Query and all; another secret does not."""
    url, _ = whole.queue()
    page = f"{whole.url}/_ministack/sqs/messages?QueueUrl={url}"
    assert "messages" in servers.get(page, KEYS)
    with pytest.raises(SandboxError, match="answered 403"):
        servers.get(page, credentials.client_keys("another sandbox"))


@pytest.mark.parametrize(
    "headers", [{"Host": "rebind.evil.example"}, {"Host": "127.0.0.1:1"}, {"Origin": "http://evil.example"}]
)
@pytest.mark.parametrize(("method", "path"), [("OPTIONS", "/"), ("GET", "/_ministack/ready"), ("POST", "/")])
def test_no_web_page_calls_ministack(whole: Cloud, method: str, path: str, headers: dict[str, str]) -> None:
    """Neither by a request to another origin, nor by its question whether that is allowed, nor by DNS rebinding."""
    assert status(whole, method, path, **headers) == 403

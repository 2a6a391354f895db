"""Signing requests: when, with which credentials and for which region, and a clear error where it is not possible."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from gpu_recovery_client import RecoveryClient, RequestRefused, SettingsMissing
from gpu_recovery_client.iam import IamAuth
from gpu_recovery_client.request_signer import BOTOCORE_MISSING
from gpu_recovery_client.settings import ClientSettings, find_settings

URL = "https://a1b2c3.execute-api.cn-north-1.amazonaws.com.cn"
SECRET, SESSION = "wJalrXUtnFEMI/K7MDENG", "the-session-of-the-role"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials in the environment, and no files of the user who runs the tests."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION)


def credential_scope(request: httpx.Request) -> str:
    """Access key, region and service of a signature; the day is left out."""
    found = re.search(r"Credential=(\w+)/\d{8}/([\w-]+/[\w-]+)/aws4_request", request.headers["authorization"])
    assert found is not None
    return f"{found[1]}/{found[2]}"


@pytest.mark.parametrize(
    ("url", "environment", "region"),
    [
        (URL, {}, "cn-north-1"),
        (f"{URL}/prod", {"AWS_REGION": "us-east-1"}, "cn-north-1"),
        ("https://a1.execute-api.us-gov-west-1.amazonaws.com", {}, "us-gov-west-1"),
        ("https://api.example.test", {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}, "eu-west-1"),
        ("https://api.example.test", {"AWS_DEFAULT_REGION": "us-east-1"}, "us-east-1"),
        ("https://a1.execute-api.cn-north-1.amazonaws.com.cn.evil.test", {"AWS_REGION": "eu-west-1"}, "eu-west-1"),
    ],
)
def test_the_region_is_that_of_the_address_or_of_the_environment(
    url: str, environment: dict[str, str], region: str
) -> None:
    """The address wins: a region of the user's own would give signatures that AWS refuses."""
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={"job_id": "a"})

    RecoveryClient(url, transport=httpx.MockTransport(answer), auth=IamAuth(url, environment)).job("a")
    assert credential_scope(sent[0]) == f"AKIDEXAMPLE/{region}/execute-api"
    assert sent[0].headers["x-amz-security-token"] == SESSION


def test_a_region_that_nothing_names_is_asked_for() -> None:
    """Before anything is sent."""
    with pytest.raises(SettingsMissing, match="set AWS_REGION to the region of the API"):
        IamAuth("https://api.example.test", {})


def test_each_repetition_is_signed_with_the_credentials_of_its_time() -> None:
    """Credentials of a role expire, and a signature is good for minutes."""
    auth, sent = IamAuth(URL), list[httpx.Request]()
    keys = iter(("AKIDFIRST", "AKIDSECOND"))

    def credentials() -> Any:
        frozen = SimpleNamespace(access_key=next(keys), secret_key=SECRET, token=SESSION)
        return SimpleNamespace(get_frozen_credentials=lambda: frozen)

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(httpx.Request(request.method, request.url, headers=request.headers))
        return httpx.Response(503 if len(sent) == 1 else 200, json={"job_id": "a"})

    auth.signer._session.get_credentials = credentials
    client = RecoveryClient(URL, transport=httpx.MockTransport(answer), auth=auth, pause=lambda _: None)
    client.job("a")
    assert [credential_scope(one).partition("/")[0] for one in sent] == ["AKIDFIRST", "AKIDSECOND"]


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client itself needs no AWS library."""
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(SettingsMissing, match=re.escape(BOTOCORE_MISSING)):
        IamAuth(URL)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"{project['name']}[{next(iter(project['optional-dependencies']))}]" in BOTOCORE_MISSING


def test_missing_credentials_are_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent without a signature."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    sent: list[httpx.Request] = []
    client = RecoveryClient(URL, transport=httpx.MockTransport(sent.append), auth=IamAuth(URL))  # type: ignore[arg-type]
    with pytest.raises(SettingsMissing, match="there are no AWS credentials to sign with"):
        client.job("a")
    assert sent == []


def test_a_profile_that_does_not_exist_is_named_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name may be mistyped."""
    monkeypatch.setenv("AWS_PROFILE", "mistyped")
    with pytest.raises(SettingsMissing, match="the AWS credentials cannot be read: ProfileNotFound"):
        RecoveryClient(URL, auth=IamAuth(URL)).job("a")


def test_a_role_that_cannot_be_assumed_is_an_error_of_the_client() -> None:
    """A profile with a role asks STS for each new session, and STS may refuse."""
    auth = IamAuth(URL)

    def credentials() -> Any:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": SECRET}}, "AssumeRole")

    auth.signer._session.get_credentials = credentials
    with pytest.raises(SettingsMissing, match="the AWS credentials cannot be read: ClientError") as caught:
        RecoveryClient(URL, auth=auth).job("a")
    assert SECRET not in str(caught.value)


def test_no_credentials_are_in_a_repr_or_an_error() -> None:
    """Also if the server repeats them."""
    body = {"message": f"the canonical string is x-amz-security-token:{SESSION} {SECRET}"}
    transport = httpx.MockTransport(lambda request: httpx.Response(403, json=body))
    client = RecoveryClient(URL, transport=transport, auth=IamAuth(URL))
    with pytest.raises(RequestRefused) as caught:
        client.job("a")
    for text in (repr(client), str(caught.value), repr(vars(caught.value)), str(client._http.headers)):
        assert SESSION not in text and SECRET not in text


def test_a_token_and_a_signature_exclude_each_other() -> None:
    """Both travel in the header Authorization."""
    with pytest.raises(SettingsMissing, match="not both"):
        RecoveryClient(URL, "a-token", auth=IamAuth(URL))
    with pytest.raises(SettingsMissing, match="the token is empty"):
        RecoveryClient(URL)


# -- settings ----------------------------------------------------------------------------------------------------------

ADDRESS = {"GPU_RECOVERY_API_URL": URL, "GPU_RECOVERY_TOKEN": "of-another-deployment"}
SIGNS = ClientSettings(URL, "", "options and environment", signs=True)


def test_an_option_or_a_variable_chooses_signatures(tmp_path: Path) -> None:
    """The option wins, and a token of the environment is left where it is."""
    assert find_settings(None, None, ADDRESS, tmp_path, "iam") == SIGNS
    assert find_settings(None, None, ADDRESS | {"GPU_RECOVERY_AUTH": "iam"}, tmp_path) == SIGNS
    found = find_settings(None, None, ADDRESS | {"GPU_RECOVERY_AUTH": "iam"}, tmp_path, "token")
    assert (found.token, found.signs) == ("of-another-deployment", False)


@pytest.mark.parametrize(
    ("token", "environment", "reason"),
    [
        (None, ADDRESS | {"GPU_RECOVERY_AUTH": "basic"}, "must be token or iam, not 'basic'"),
        (None, ADDRESS | {"GPU_RECOVERY_AUTH": "sigv4"}, "must be token or iam, not 'sigv4'"),
        ("a-token", ADDRESS | {"GPU_RECOVERY_AUTH": "iam"}, "signed requests carry no token"),
        (None, {"GPU_RECOVERY_AUTH": "iam"}, "no API address: set GPU_RECOVERY_API_URL"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    tmp_path: Path, token: str | None, environment: dict[str, str], reason: str
) -> None:
    """A token on the command line that would not be sent, and an address that is missing: no sandbox is signed for."""
    sandbox = tmp_path / ".sandbox"
    sandbox.mkdir()
    (sandbox / "state.json").write_text('{"api_url": "http://127.0.0.1:1", "operator_token": "t"}')
    with pytest.raises(SettingsMissing, match=re.escape(reason)):
        find_settings(None, token, environment, tmp_path)

"""Signed reports: a signature that AWS would take, reckoned anew; and a clear word where none can be made."""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gpu_recovery_agent.__main__ import run
from gpu_recovery_agent.credentials import BOTOCORE_MISSING, SignedCredentials, TokenCredentials, credentials_of
from gpu_recovery_agent.http_client import ReportsEndpoint
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.paths import AgentSettingsError
from gpu_recovery_agent.responses import ResponseKind
from gpu_recovery_agent.settings import AgentSettings

from tests.agent.api import Api, Heard, Said, ok, refusal, serving
from tests.agent.node import Node

KEY, SECRET, SESSION, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "the-session-of-the-role", "eu-west-1"
SIGNING = {
    "GPU_RECOVERY_AUTH": "sigv4",
    "GPU_RECOVERY_REGION": REGION,
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": SESSION,
    "GPU_RECOVERY_TOKEN": "",
}


def is_signed(heard: Heard, secret: str = SECRET, region: str = REGION) -> bool:
    """Whether the signature is the one that AWS reckons (Signature Version 4, service execute-api)."""
    headers = {name.lower(): value for name, value in heard.headers.items()}
    scheme, _, rest = headers["authorization"].partition(" ")
    given = dict(part.strip().split("=", 1) for part in rest.split(","))
    key, date, *scope = given["Credential"].split("/")
    names = given["SignedHeaders"].split(";")
    canonical = "\n".join(
        [
            "POST",
            urlsplit(heard.path).path,
            "",
            *(f"{name}:{headers[name].strip()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(heard.raw).hexdigest(),
        ]
    )
    place = "/".join([date, region, "execute-api", "aws4_request"])
    text = "\n".join([scheme, headers["x-amz-date"], place, hashlib.sha256(canonical.encode()).hexdigest()])
    signing = f"AWS4{secret}".encode()
    for part in place.split("/"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    expected = hmac.new(signing, text.encode(), hashlib.sha256).hexdigest()
    bound = {"host", "x-amz-date", "x-amz-security-token"} <= set(names)
    whole = (scheme, key, [date, *scope]) == ("AWS4-HMAC-SHA256", KEY, place.split("/"))
    return whole and bound and hmac.compare_digest(given["Signature"], expected)


class Gateway(Api):
    """Lets in whoever has signed, and answers others as API Gateway does."""

    def answer(self, heard: Heard) -> Said:
        said = super().answer(heard)
        return said if is_signed(heard) else Said(403, {"message": "Forbidden"})


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving(Gateway()) as found:
        assert isinstance(found, Gateway)
        yield found


@pytest.mark.slow
def test_an_agent_signs_its_reports_with_the_role_of_its_instance(gateway: Gateway, tmp_path: Path) -> None:
    """To the route that takes signatures, each for its own body; no token, and no secret in any of them."""
    node = Node(tmp_path, gateway.url)
    try:
        node.agent(**SIGNING)
        assert len(gateway.count(3)) >= 3
        heard = gateway.heard[:3]
        assert {one.path for one in heard} == {"/api/v1/signed/reports"}
        assert all(is_signed(one) for one in heard) and len({one.headers["Authorization"] for one in heard}) == 3
        assert not any(is_signed(one, region="us-east-1") or is_signed(one, "another") for one in heard)
        assert {one.headers["X-Amz-Security-Token"] for one in heard} == {SESSION}
        assert not any("Bearer" in str(one.headers) or SECRET in f"{one.headers}{one.raw!r}" for one in heard)
        assert [one["sequence"] for one in gateway.count(3)][:3] == [1, 2, 3]
        assert SECRET not in node.said()
    finally:
        node.end()


def test_a_signature_is_good_for_its_own_body_at_its_own_address_and_for_nothing_else(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees a report on its way can say nothing in the instance's name: a changed one is refused unheard."""
    for name, value in SIGNING.items():
        monkeypatch.setenv(name, value)
    body, url = b'{"sequence": 7}', f"{gateway.url}/api/v1/signed/reports"
    environment = {**Node(tmp_path, gateway.url).environment, **SIGNING}
    headers = SignedCredentials(AgentSettings.from_environment(environment)).headers(body)

    def answered(body: bytes, url: str = url, **changed: str) -> ResponseKind:
        return ReportsEndpoint(url).post(body, {**headers, **changed}).kind

    assert answered(body) is ResponseKind.ACCEPTED
    assert answered(b'{"sequence": 8}') is ResponseKind.UNREACHABLE
    assert answered(body, f"{gateway.url}/api/v1/reports") is ResponseKind.UNREACHABLE
    assert answered(body, **{"X-Amz-Date": "20260101T000000Z"}) is ResponseKind.UNREACHABLE
    assert answered(body, **{"X-Amz-Security-Token": "another-session"}) is ResponseKind.UNREACHABLE
    assert answered(body, **{"Content-Type": "text/plain"}) is ResponseKind.UNREACHABLE
    assert [is_signed(one) for one in gateway.heard] == [True] + 5 * [False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "status"), [(refusal(403, "invalid_signer"), 77), (Said(403, {"message": "Forbidden"}), None)]
)
def test_a_role_that_may_not_sign_ends_the_agent_and_a_gateway_that_refuses_does_not(
    api: Api, node: Node, said: Said, status: int | None
) -> None:
    """The API's own word is for good; a signature is refused for a wrong clock as well."""
    api.lasting = said
    agent = node.agent(**SIGNING)
    if status is not None:
        assert agent.wait(60) == status
        return
    api.count(2)
    api.lasting = ok()
    api.count(len(api.heard) + 2)
    assert agent.poll() is None


def test_the_region_is_named_or_is_that_of_the_address() -> None:
    """Where neither says it, the setting is asked for before anything is sent."""
    api = {"GPU_RECOVERY_AUTH": "sigv4", "HOME": "/root"}
    ours = "https://a1b2.execute-api.cn-north-1.amazonaws.com.cn/prod"
    found = AgentSettings.from_environment({**api, "GPU_RECOVERY_API_URL": ours})
    assert (found.region, found.token_file, found.signs) == ("cn-north-1", None, True)
    assert found.reports_url == f"{ours}/api/v1/signed/reports"
    named = AgentSettings.from_environment(
        {**api, "GPU_RECOVERY_API_URL": "https://api.example.org", "AWS_REGION": REGION}
    )
    assert named.region == REGION
    for wrong in ({}, {"GPU_RECOVERY_REGION": "Europe"}):
        with pytest.raises(AgentSettingsError, match="GPU_RECOVERY_REGION"):
            AgentSettings.from_environment({**api, "GPU_RECOVERY_API_URL": "https://api.example.org", **wrong})
    with pytest.raises(AgentSettingsError, match="GPU_RECOVERY_AUTH"):
        AgentSettings.from_environment({**api, "GPU_RECOVERY_API_URL": ours, "GPU_RECOVERY_AUTH": "basic"})


def test_without_the_extra_the_agent_says_so_at_its_start(
    node: Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The core install has nothing but the standard library; a restart would not bring botocore."""
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    for name, value in {**node.environment, **SIGNING}.items():
        monkeypatch.setenv(name, value)
    assert run(AgentLog()) == 78
    assert BOTOCORE_MISSING in capfd.readouterr().err


def test_an_instance_without_a_role_is_away_and_goes_on_trying(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be given one."""
    proof = SignedCredentials(AgentSettings.from_environment({**node.environment, **SIGNING}))
    monkeypatch.setattr(proof._session, "get_credentials", lambda: None)
    with pytest.raises(AgentSettingsError, match="has no role"):
        proof.headers(b"{}")


def test_a_token_needs_no_botocore(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what it always was."""
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    proof = credentials_of(AgentSettings.from_environment(node.environment), node.environment)
    assert isinstance(proof, TokenCredentials)
    assert proof.headers(b"{}") == {"Authorization": f"Bearer {node.environment['GPU_RECOVERY_TOKEN']}"}

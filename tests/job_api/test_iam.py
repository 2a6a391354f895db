"""The job API of a deployment with `api_auth: iam`: principals of API Gateway, and no tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.aws.records import JOB
from tests.job_api.submissions import ASKED
from tests.job_api.test_authentication import ROUTES
from tests.lambdas.api_gateway import TOKEN, Api, refused, user_token

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ACCOUNT = "123456789012"
SESSION = "arn:aws:sts::123456789012:assumed-role/{}/{}"
ROLES = {
    f"arn:aws:iam::{ACCOUNT}:role/teams/gpu-operators": "operator",
    f"arn:aws:iam::{ACCOUNT}:role/researchers": "user",
    f"arn:aws:iam::{ACCOUNT}:role/auditors": "viewer",
    f"arn:aws:iam::{ACCOUNT}:user/people/eva": "user",
    "arn:aws-cn:iam::444455556666:role/researchers": "user",
}
OPERATOR = SESSION.format("gpu-operators", "olga")
ANA, BEN = SESSION.format("researchers", "ana@example.com"), SESSION.format("researchers", "ben")
VIEWER = SESSION.format("auditors", "vera")
LOOK = ("GET", "/api/v2/jobs")
WITHOUT_USER = {name: value for name, value in ASKED.items() if name != "user"}
OPENAPI = ("GET", "/api/v2/openapi.json")


@pytest.fixture
def api(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """The API of a deployment whose callers sign their requests."""
    monkeypatch.setenv("API_AUTH", "iam")
    monkeypatch.setenv("API_ROLES", json.dumps(ROLES))
    api.functions.chill()
    yield api
    monkeypatch.undo()
    api.functions.chill()


@pytest.mark.parametrize(
    ("signer", "status"),
    [
        (OPERATOR, 200),
        (ANA, 403),
        (VIEWER, 403),
    ],
)
def test_the_role_of_the_principal_is_that_of_the_settings(api: Api, signer: str, status: int) -> None:
    """A session of a role has the rights of the role; all of these may read."""
    assert api.call(*LOOK, token=None, signer=signer).status == 200
    assert (
        api.call("POST", "/api/v2/fleet/pause", {"because": "maintenance"}, token=None, signer=signer).status == status
    )


def test_the_name_of_the_session_is_the_user(api: Api) -> None:
    """Jobs belong to people, not to the role that they share."""
    submitted = api.post("/jobs", WITHOUT_USER, token=None, signer=ANA)
    assert (submitted.status, submitted.body["user"]) == (201, "ana@example.com")
    assert api.post("/jobs", WITHOUT_USER | {"user": "ana@example.com"}, token=None, signer=BEN).status == 403
    path = f"/jobs/{submitted.body['job_id']}/cancel"
    assert "belongs to ana@example.com, not to ben" in refused(api.post(path, token=None, signer=BEN), 403)
    assert api.post(path, token=None, signer=ANA).status == 202


def test_an_iam_user_is_the_user(api: Api) -> None:
    """The path of an IAM user is no part of the name."""
    submitted = api.post("/jobs", WITHOUT_USER, token=None, signer=f"arn:aws:iam::{ACCOUNT}:user/people/eva")
    assert (submitted.status, submitted.body["user"]) == (201, "eva")


@pytest.mark.parametrize(
    "signer",
    [
        SESSION.format("others", "ana@example.com"),
        SESSION.format("researchers2", "ana"),
        SESSION.format("RESEARCHERS", "ana"),
        SESSION.format("researchers", "ana").replace(ACCOUNT, "444455556666"),
        SESSION.format("researchers", "ana").replace("arn:aws:", "arn:aws-cn:"),
        f"arn:aws:iam::{ACCOUNT}:role/researchers",
        f"arn:aws:iam::{ACCOUNT}:user/ana",
        f"arn:aws:iam::{ACCOUNT}:user/researchers",
        "arn:aws:iam::444455556666:user/eva",
        f"arn:aws:iam::{ACCOUNT}:role/people/eva",
        f"arn:aws:iam::{ACCOUNT}:root",
        f"arn:aws:sts::{ACCOUNT}:federated-user/eva",
        SESSION.format("researchers", "ana/gpu-operators"),
        SESSION.format("researchers", "ana") + "\n",
        "*",
    ],
)
def test_a_principal_outside_the_settings_is_refused(api: Api, signer: str) -> None:
    """Another role, account, partition or kind of principal, though API Gateway let it pass; nothing is read."""
    answer = api.call(*LOOK, token=None, signer=signer)
    assert "add the principal to the setting gpu-recovery:api_roles" in refused(answer, 403)
    assert answer.body["code"] == "unknown_principal"
    assert api.functions.aws.count("dynamodb") == 0


def test_a_principal_of_another_account_may_call_if_the_settings_name_it(api: Api) -> None:
    """Account and partition are parts of the principal."""
    signer = "arn:aws-cn:sts::444455556666:assumed-role/researchers/lin"
    assert api.call(*LOOK, token=None, signer=signer).status == 200


def test_a_name_that_no_user_can_have_is_refused(api: Api) -> None:
    """IAM allows `=` and `,` in names, and quotas do not."""
    answer = api.call(*LOOK, token=None, signer=SESSION.format("researchers", "ana=gpu"))
    assert "ana=gpu cannot be the name of a user here" in refused(answer, 403)


@pytest.mark.parametrize(("method", "path"), [*ROUTES, OPENAPI])
@pytest.mark.parametrize("signer", [None, ""])
def test_a_request_that_api_gateway_did_not_authorize_is_refused(
    api: Api, method: str, path: str, signer: str | None
) -> None:
    """Also with the operator token, also a route that is open elsewhere; no secret and no table is read."""
    answer = api.call(method, path, ASKED, signer=signer)
    assert "this deployment accepts no tokens: sign the request" in refused(answer, 401)
    assert (answer.body["code"], answer.headers["www-authenticate"]) == ("not_signed", "AWS4-HMAC-SHA256")
    assert api.functions.aws.calls == []


def test_no_header_names_a_signer(api: Api) -> None:
    """Only API Gateway writes the context of a request."""
    forged = {
        "authorizer": json.dumps({"iam": {"userArn": OPERATOR}}),
        "userarn": OPERATOR,
        "x-amzn-iam-userarn": OPERATOR,
        "x-amzn-request-context": json.dumps({"authorizer": {"iam": {"userArn": OPERATOR}}}),
        "authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261121/us-east-1/execute-api/aws4_request",
    }
    refused(api.call(*LOOK, token=None, headers=forged), 401)


def test_a_token_beside_a_signature_changes_nothing(api: Api) -> None:
    """The principal decides, not the token of an operator."""
    refused(api.call("POST", "/api/v2/fleet/pause", {"because": "maintenance"}, signer=ANA), 403)
    assert api.functions.aws.asked("GetSecretValue") == []


@pytest.mark.parametrize("holder", ["/users/ana", "/instances/i-0123456789abcdef0"])
def test_no_token_is_issued_where_tokens_are_refused(api: Api, holder: str) -> None:
    """Its holder would believe that it opens something."""
    answer = api.post(f"{holder}/tokens", {}, token=None, signer=OPERATOR)
    assert "gpu-recovery:api_auth is iam" in refused(answer, 409)
    assert answer.body["code"] == "no_tokens"


def test_a_signature_opens_nothing_where_callers_send_tokens(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default, even if the settings named principals; the operator's token and a user's work."""
    monkeypatch.setenv("API_AUTH", "token")
    api.functions.chill()
    signed = {"authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261121/us-east-1/execute-api/aws4_request"}
    answer = api.call(*LOOK, token=None, headers=signed, signer=OPERATOR)
    assert "this deployment accepts no signatures" in refused(answer, 401)
    assert api.call(*LOOK).status == api.call(*LOOK, token=user_token(api, "ana")).status == 200
    assert api.call(*OPENAPI, token=None).status == 200


def test_no_signature_is_logged(api: Api) -> None:
    """Requests that succeed and requests that are refused."""
    header = {"authorization": "AWS4-HMAC-SHA256 Signature=0a1b2c3d", "x-amz-security-token": "session-token"}
    api.call(*LOOK, token=None, headers=header, signer=ANA)
    api.call("GET", f"/api/v2/jobs/{JOB}", token=f"Bearer {TOKEN}", headers=header)
    logged = api.functions.log.getvalue()
    assert not any(word in logged for word in ("0a1b2c3d", "session-token", TOKEN))

"""Sessions of the web console: exchanged for a token, never above its role, and ended with it."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product

import pytest
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.sessions import SESSION_CHARACTERS_MAX

from tests.aws.records import A, instance
from tests.job_api.submissions import ASKED
from tests.lambdas.api_gateway import Api, refused, user_token

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ANA = "/users/ana/tokens"
OWN = {**ASKED, "user": "ana"}


def session(api: Api, token: str | None = None, **asked: object) -> str:
    """The header of a new session."""
    how = {} if token is None else {"token": token}
    answer = api.post("/sessions", asked, **how)
    assert answer.status == 201
    return f"Bearer {answer.body['session']}"


@pytest.mark.parametrize(("of", "wanted"), product(Role, [None, *Role]))
def test_a_session_never_has_a_higher_role_than_its_token(api: Api, of: Role, wanted: Role | None) -> None:
    """All pairs: the same role or a lower one, else 403."""
    token = user_token(api, "ana", of.value)
    asked = {} if wanted is None else {"role": wanted.value}
    answer = api.post("/sessions", asked, token=token)
    if wanted is not None and not of.covers(wanted):
        refused(answer, 403, "role")
        return
    role = (wanted or of).value
    me = api.call("GET", "/api/v2/me", token=f"Bearer {answer.body['session']}").body
    assert (answer.status, answer.body["role"], me["role"], me["user"], me["is_session"]) == (
        201,
        role,
        role,
        "ana",
        True,
    )


def test_a_viewers_session_of_an_operator_changes_nothing(api: Api) -> None:
    """The operator looks around without the power to act."""
    api.functions.store.save_instance(instance())
    looks = session(api, role="viewer")
    assert api.call("GET", "/api/v2/instances", token=looks).status == 200
    refused(api.post(f"/instances/{A}/quarantine", {}, token=looks), 403)
    assert api.post(f"/instances/{A}/quarantine", {}, token=session(api)).status == 200


def test_a_users_session_acts_in_the_users_name(api: Api) -> None:
    """As the token does."""
    acts = session(api, user_token(api, "ana"))
    assert api.post("/jobs", OWN, token=acts).body["user"] == "ana"
    refused(api.post("/jobs", {**ASKED, "user": "bob"}, token=acts), 403, "user")


def test_a_session_ends_with_its_token(api: Api) -> None:
    """Within the minute for which a function remembers a token; a fresh function refuses at once."""
    token = user_token(api, "ana")
    opened = session(api, token)
    assert api.call("GET", "/api/v2/me", token=opened).status == 200
    (listed,) = api.get("/users/ana/tokens").body["tokens"]
    assert api.call("DELETE", f"/api/v2/users/ana/tokens/{listed['id']}").status == 200
    api.functions.chill()
    refused(api.call("GET", "/api/v2/me", token=opened), 401)


def test_a_session_ends_before_its_token(api: Api) -> None:
    """It never outlives the token, however long a session is asked for."""
    soon = api.post("/users/ana/tokens", {"expires_in_s": 120}).body
    answer = api.post("/sessions", {"expires_in_s": 43_200}, token=f"Bearer {soon['token']}")
    ends, of_token = (datetime.fromisoformat(text) for text in (answer.body["expires_at"], soon["expires_at"]))
    assert of_token - timedelta(seconds=1) <= ends <= of_token


def test_a_new_operator_token_ends_every_session_of_the_old(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session holds a mark of the token that cannot be turned back into the token."""
    opened = session(api)
    assert "secret of operator-token" not in opened
    monkeypatch.setattr("gpu_recovery.aws.job_api_wiring.operator_token", lambda secret: "another token")
    refused(api.call("GET", "/api/v2/me", token=opened), 401)


@pytest.mark.parametrize(("user", "role"), [("", "viewer"), ("ana", "user")])
def test_a_session_exchanged_for_another_ends_no_later_and_rises_no_higher(api: Api, user: str, role: str) -> None:
    """Else a session could renew itself for ever, or a viewer could become an operator."""
    token = user_token(api, "ana", "operator") if user else None
    first = session(api, token, role=role, expires_in_s=600)
    second = api.post("/sessions", {"expires_in_s": 43_200}, token=first).body
    ends = api.call("GET", "/api/v2/me", token=first).body["expires_at"]
    assert (second["role"], second["expires_at"]) == (role, ends)
    refused(api.post("/sessions", {"role": "operator"}, token=first), 403, "role")
    assert api.call("GET", "/api/v2/me", token=f"Bearer {second['session']}").body["user"] == (user or "an operator")


@pytest.mark.parametrize("path", [ANA, f"/instances/{A}/tokens"])
@pytest.mark.parametrize("user", ["", "ada"])
def test_no_session_issues_a_token(api: Api, path: str, user: str) -> None:
    """The token would outlive the session. An operator's session still lists and revokes tokens."""
    acts = session(api, user_token(api, user, "operator") if user else None)
    answer = api.post(path, {"expires_in_s": 60}, token=acts)
    refused(answer, 403)
    assert answer.body["code"] == "needs_token"
    assert api.get(path).body["tokens"] == []
    issued = api.post(path).body
    token_id = issued.get("id") or issued["token_id"]
    assert api.call("GET", f"/api/v2{path}", token=acts).body["tokens"][0]["live"] is True
    assert api.call("DELETE", f"/api/v2{path}/{token_id}", token=acts).body["live"] is False


def test_a_session_of_the_role_user_needs_a_user(api: Api) -> None:
    """The operator token has no user: its session of this role would own every job that has no user."""
    refused(api.post("/sessions", {"role": "user"}), 422, "role")
    refused(api.post("/sessions", {"role": "user"}, token=session(api)), 422, "role")
    for role in ("viewer", "operator"):
        assert api.post("/sessions", {"role": role}).status == 201


def test_a_session_takes_none_of_the_places_of_tokens(api: Api) -> None:
    """A user may have two valid tokens, and any number of tabs."""
    token = user_token(api, "ana")
    opened = [session(api, token) for _ in range(5)]
    assert [api.call("GET", "/api/v2/me", token=one).status for one in opened] == [200] * 5
    assert len(api.get("/users/ana/tokens").body["tokens"]) == 1


def test_a_changed_session_is_refused(api: Api) -> None:
    """Each character counts, and what was never a session is refused."""
    opened = session(api, user_token(api, "ana"))
    text = opened.removeprefix("Bearer ")
    wrong = [f"{text}x", text[:-1], text.replace(".", "", 1), f"grs_{text}", "grs_", "grs_.", "grs_ü.ü"]
    wrong += [text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :] for at in (4, 20, len(text) - 2)]
    wrong.append(text + "A" * SESSION_CHARACTERS_MAX)
    for each in wrong:
        refused(api.call("GET", "/api/v2/me", token=f"Bearer {each}"), 401)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"role": "king"}, "role"),
        ({"role": None}, "role"),
        ({"expires_in_s": 43_201}, "expires_in_s"),
        ({"expires_in_s": 59}, "expires_in_s"),
        ({"expires_in_s": True}, "expires_in_s"),
        ({"user": "bob"}, "user"),
    ],
)
def test_a_wrong_wish_is_refused(api: Api, asked: dict[str, object], field: str) -> None:
    """422, with the field."""
    refused(api.post("/sessions", asked), 422, field)


def test_no_session_is_ever_logged(api: Api) -> None:
    """Its opening is: who, in which role, until when."""
    opened = session(api, user_token(api, "ana"), role="viewer").removeprefix("Bearer ")
    logged = api.functions.log.getvalue()
    assert opened not in logged and opened.split(".")[1] not in logged
    (line,) = api.functions.logged("session_opened")
    assert (line["user"], line["role"]) == ("ana", "viewer")


def test_me_names_the_deployment(api: Api) -> None:
    """The page shows which cluster it is about."""
    me = api.get("/me").body
    assert (me["user"], me["role"], me["expires_at"], me["is_session"]) == ("an operator", "operator", None, False)
    assert me["deployment"].keys() == {"cluster", "region", "preset", "adopt", "observe_only", "replace"}

"""Texts of errors: the message, and a hint of one sentence on what the user can do."""

from __future__ import annotations

from http import HTTPStatus

from gpu_recovery_client.errors import ClientError, RequestRefused, ServiceUnreachable
from gpu_recovery_client.render.text import printable
from gpu_recovery_client.settings import AUTH_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, ClientSettings
from gpu_recovery_client.texts import tr

BY_CODE = {
    "idempotency_mismatch": "Another job was submitted with this key: leave --idempotency-key out, or give a new key.",
    "foreign_user": "The token of a user submits jobs of this user only: leave --user and the field user out.",
    "foreign_job": "Ask the user of the job, or an operator.",
    "role_too_low": "Use a token with a higher role, or ask an operator.",
    "no_such_job": "`gpu-recovery list` shows the ids and names of jobs.",
    "no_such_instance": "`gpu-recovery instances` shows the ids of instances.",
    "needs_token": "Set {token} or --token to a token instead of a session of the console.",
    "not_signed": "Sign your requests: set {auth}=iam, or give --auth iam.",
    "unknown_principal": "Use a role that the deployment knows (AWS_PROFILE), or ask an operator to add your role.",
}
"""Hints by the error code of the API; they come first."""
OF_GATEWAY = (
    "API Gateway refused the request. A deployment that authorizes by IAM accepts signed requests ({auth}=iam)"
    " of principals that may call `execute-api:Invoke` on it."
)
"""Hint for a refusal without a code of the API: API Gateway has none."""
OTHER_SERVER = (
    "{address} does not answer like gpu-recovery. Check {url}, --api-url or the profile:"
    " the address ends before /api/v2."
)
"""Hint for an answer that is not an error of the API."""
BY_PLACE = {
    (HTTPStatus.NOT_FOUND, "/logs"): (
        "A job that has not run yet has no log; `gpu-recovery status` shows the job."
        " Logs outside CloudWatch are not shown."
    ),
    (HTTPStatus.NOT_FOUND, "/tokens"): "`gpu-recovery token list` shows the ids of tokens.",
    (HTTPStatus.CONFLICT, "/tokens"): (
        "`gpu-recovery token list` shows the existing tokens; `gpu-recovery token revoke` makes room for a new token."
    ),
    (HTTPStatus.CONFLICT, "/quotas"): "Read the limits again with `gpu-recovery quota show`, then repeat the command.",
}
"""Hints by status and a part of the path; they come second."""
BY_STATUS = {
    HTTPStatus.BAD_REQUEST: "Correct the named value and send the request again. Nothing was changed.",
    HTTPStatus.UNAUTHORIZED: (
        "Check the token in {token}, --token or the profile. An operator issues a new token with"
        " `gpu-recovery token issue --user NAME`."
    ),
    HTTPStatus.FORBIDDEN: "Your role does not allow this: call as the user of the job, or ask an operator.",
    HTTPStatus.NOT_FOUND: "`gpu-recovery list` and `gpu-recovery instances` show the ids.",
    HTTPStatus.CONFLICT: "`gpu-recovery status` and `gpu-recovery instances` show the present status.",
    HTTPStatus.PRECONDITION_FAILED: (
        "The limits were changed in the meantime: read them again with `gpu-recovery quota show`,"
        " then repeat the command."
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Keep large files where the ranks can read them, not in the specification.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Correct the named field and send the request again. Nothing was changed.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests at once. Nothing was changed; try again {when}.",
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "The service is busy. Check whether the command had an effect before you repeat it, and try again {when}."
    ),
}
"""Hints by status."""
READ_AGAIN = "Correct the named value and try again."
"""Hint in place of one that says that nothing was changed, for a request that only reads."""
LOCAL = "Is the sandbox running? `gpu-recovery sandbox status` shows it; `gpu-recovery sandbox up` starts a sandbox."
UNREACHABLE = "Check the address in {url}, --api-url or the profile, and the network."
GATEWAY_STATUSES = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.TOO_MANY_REQUESTS,
}
"""Statuses that API Gateway itself returns in front of a deployment, besides errors of the server."""


def error_lines(error: ClientError, used: ClientSettings | None = None) -> list[str]:
    """Return the lines of an error: what happened, what else is wrong, and what to do.

    If the wrong deployment may have been called, the lines say which deployment `used` names, and where it was found.
    """
    lines = [f"gpu-recovery: {error}"]
    if isinstance(error, RequestRefused):
        lines += [f"  {': '.join(part for part in problem if part)}" for problem in error.more]
    sentence = advice(error)
    lines += [f"  {sentence}"] if sentence else []
    if used is not None and _may_be_of_another_deployment(error):
        lines += [f"  {tr('The deployment was {api_url}, from {source}.', api_url=used.api_url, source=used.source)}"]
    return [printable(line) for line in lines]


def _may_be_of_another_deployment(error: ClientError) -> bool:
    if isinstance(error, RequestRefused):
        return error.status == HTTPStatus.UNAUTHORIZED or _is_of_another_server(error)
    return isinstance(error, ServiceUnreachable)


def advice(error: ClientError) -> str:
    """Return what to do about `error`; "" if its message says enough."""
    sentence, values = _advice(error)
    names = {"auth": AUTH_VARIABLE, "token": TOKEN_VARIABLE, "url": URL_VARIABLE}
    return tr(sentence, **names, **values) if sentence else ""


def _advice(error: ClientError) -> tuple[str, dict[str, str]]:
    """Return the hint and its values."""
    if isinstance(error, ServiceUnreachable):
        return (LOCAL if error.local else UNREACHABLE), {}
    if not isinstance(error, RequestRefused):
        return "", {}
    if _is_of_another_server(error):
        return OTHER_SERVER, {"address": error.api_url}
    if error.code in BY_CODE:
        return BY_CODE[error.code], {}
    if error.status == HTTPStatus.FORBIDDEN and not error.code:
        return OF_GATEWAY, {}
    for (status, part), sentence in BY_PLACE.items():
        if status == error.status and part in error.path:
            return sentence, {}
    if error.status == HTTPStatus.BAD_REQUEST and error.is_read:
        return READ_AGAIN, {}
    wait = error.retry_after_s
    when = tr("in a moment") if wait is None else tr("in {seconds} s", seconds=f"{wait:g}")
    known = error.status in set(HTTPStatus)
    return (BY_STATUS.get(HTTPStatus(error.status), "") if known else ""), {"when": when}


def _is_of_another_server(error: RequestRefused) -> bool:
    """Return whether the answer comes from a server that is not gpu-recovery, or from another path of its gateway."""
    if error.path and error.code == "no_such_route":
        return True
    server_failed = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and error.status != HTTPStatus.NOT_IMPLEMENTED
    return not error.is_problem and not server_failed and error.status not in GATEWAY_STATUSES

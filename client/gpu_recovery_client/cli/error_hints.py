"""Hints for errors: one sentence on what the user can do, printed below the API's message."""

from __future__ import annotations

from http import HTTPStatus

from gpu_recovery_client.errors import ClientError, RequestRefused, ServiceUnreachable
from gpu_recovery_client.settings import AUTH_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE

BY_CODE = {
    "idempotency_mismatch": (
        "Another job was submitted under that key: leave --idempotency-key out, or give a new one for a new job."
    ),
    "foreign_user": "A user's token submits as its user only: leave --user and the field user out.",
    "needs_token": f"Set {TOKEN_VARIABLE} or --token to a token instead of a session of the console.",
    "not_signed": f"Sign your requests: set {AUTH_VARIABLE}=iam or give --auth iam.",
    "unknown_principal": "Use a role that the deployment knows (AWS_PROFILE), or ask an operator to name yours.",
}
"""Hints by the error code of the API; they come first."""
BY_GATEWAY = (
    f"API Gateway refused the request. A deployment that authorizes by IAM takes signed requests ({AUTH_VARIABLE}=iam)"
    " of principals that may call `execute-api:Invoke` on it."
)
"""Hint for a refusal without a code of the API: API Gateway has none."""
BY_PLACE = {
    (HTTPStatus.NOT_FOUND, "/logs"): (
        "A job that has not run yet has no log: `gpu-recovery status` tells. One that logs elsewhere than to CloudWatch"
        " is read there."
    ),
    (HTTPStatus.NOT_FOUND, "/tokens"): "Look the token's id up with `gpu-recovery token list`.",
    (HTTPStatus.CONFLICT, "/tokens"): (
        "`gpu-recovery token list` shows what there is; `gpu-recovery token revoke` makes room."
    ),
    (HTTPStatus.CONFLICT, "/quotas"): "Look at them again with `gpu-recovery quota show`, then repeat the order.",
}
"""Hints by status and a part of the path; they come second."""
BY_STATUS = {
    HTTPStatus.BAD_REQUEST: "Correct what is named and send it again; nothing was changed.",
    HTTPStatus.UNAUTHORIZED: (
        f"Check the token in {TOKEN_VARIABLE} or --token; an operator makes a new one with"
        " `gpu-recovery token issue --user NAME`."
    ),
    HTTPStatus.FORBIDDEN: "Your role does not allow this: call as the job's own user, or ask an operator.",
    HTTPStatus.NOT_FOUND: "Look the id up with `gpu-recovery list` or `gpu-recovery instances`.",
    HTTPStatus.CONFLICT: (
        "It is in a state that does not allow this: look with `gpu-recovery status` or `gpu-recovery instances`."
    ),
    HTTPStatus.PRECONDITION_FAILED: (
        "Somebody changed it meanwhile: look at it again, with `gpu-recovery quota show`, and repeat the order."
    ),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Keep large files where the ranks can read them, not in the specification.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Correct the field that is named and send it again; nothing was changed.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests at once: nothing was changed, try again {when}.",
    HTTPStatus.SERVICE_UNAVAILABLE: (
        "The service is busy: look whether an order was followed before you repeat it, and try again {when}."
    ),
}
"""Hints by status."""


def advice(error: ClientError) -> str:
    """Return what to do about `error`; "" if its message says enough."""
    if isinstance(error, ServiceUnreachable):
        if error.local:
            return "Is the sandbox up? `gpu-recovery sandbox status` tells; `gpu-recovery sandbox up` starts one."
        return f"Check the address in {URL_VARIABLE} or --api-url, and the network between here and there."
    if not isinstance(error, RequestRefused):
        return ""
    if error.code in BY_CODE:
        return BY_CODE[error.code]
    if error.status == HTTPStatus.FORBIDDEN and not error.code:
        return BY_GATEWAY
    for (status, part), sentence in BY_PLACE.items():
        if status == error.status and part in error.path:
            return sentence
    wait = error.retry_after_s
    when = "in a moment" if wait is None else f"in {wait:g} s"
    return BY_STATUS.get(HTTPStatus(error.status), "").format(when=when) if error.status in set(HTTPStatus) else ""

"""Checks of the running deployment by its API: the tokens of the node agents, and one health check from end to end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from gpu_recovery_client.account.findings import Finding, Settings

EXPIRES_SOON = timedelta(days=7)
AVAILABLE, QUARANTINED, GONE = "AVAILABLE", "QUARANTINED", "GONE"
POLL_S = 5.0
"""Seconds between two looks at the instance of a health check."""
BECAUSE = "gpu-recovery doctor: one health check from end to end"

View = Mapping[str, Any]


class Api(Protocol):
    """The requests to the API that these checks make."""

    def tokens(self, instance_id: str) -> Any:
        """Return the tokens of an instance."""

    def instance(self, instance_id: str) -> Any:
        """Return an instance."""

    def quarantine(self, instance_id: str, because: str = "") -> Any:
        """Take an instance out of use."""

    def release(self, instance_id: str) -> Any:
        """Return an instance to use."""


def check_tokens(api: Api, settings: Settings, instances: Iterable[View], now: datetime) -> Iterator[Finding]:
    """Yield findings about instances whose agent cannot report because its token is missing, or expires soon.

    An instance without any token has no agent, unless other instances have tokens. Where agents may use a role, a
    missing token is no finding: the agent may sign its reports with the role.
    """
    if settings["node_agent"] == "daemon" or settings["api_auth"] == "iam":
        return
    present = [one["instance_id"] for one in instances if one["status"] != GONE]
    tokens = {name: list(api.tokens(name)["tokens"]) for name in present}
    needs_token = any(tokens.values()) and not settings["node_role_arns"]
    for name, issued in tokens.items():
        live = [one for one in issued if one.get("live")]
        ends = [datetime.fromisoformat(one["expires_at"]) for one in live if one.get("expires_at")]
        if not live and needs_token:
            sentence = (
                "every token of the instance has expired or is revoked" if issued else "the instance has no token"
            )
        elif live and len(ends) == len(live) and max(ends) - now < EXPIRES_SOON:
            sentence = f"the token of the instance expires at {max(ends):%Y-%m-%d %H:%M} UTC"
        else:
            continue
        yield Finding(
            "tokens",
            name,
            sentence,
            "the API refuses the reports of the agent, so a failure is noticed later",
            f"gpu-recovery token issue {name}, then put the token on the instance",
        )


def unfit(instance: View) -> str:
    """Return why an instance cannot be taken out of use for a health check; "" if it can."""
    if instance["status"] != AVAILABLE:
        return f"it is {instance['status']}, not {AVAILABLE}: {instance.get('reason') or ''}".rstrip(": ")
    if instance.get("claims"):
        return f"it works for {', '.join(sorted(instance['claims']))}"
    return ""


def run_health_check(
    api: Api, instance_id: str, *, timeout_s: float, pause: Callable[[float], None], report: Callable[[str], None]
) -> Iterator[Finding]:
    """Take an idle instance out of use and release it, which needs a passing health check. Wait for the end.

    So a message travels through the API, the functions, ECS, EventBridge and the verdict bucket, as after a failure.

    Args:
        api: the API of the deployment.
        instance_id: the instance.
        timeout_s: longest wait in seconds.
        pause: waits for so many seconds.
        report: receives the status, whenever it changes.
    """
    log = f"gpu-recovery explain {instance_id}"
    why = unfit(api.instance(instance_id))
    if not why:
        try:
            api.quarantine(instance_id, BECAUSE)
            view = _wait(api, instance_id, {QUARANTINED}, timeout_s, pause, report)
            why = f"it works for {', '.join(sorted(view['claims']))}" if view.get("claims") else ""
            if view["status"] == QUARANTINED:
                api.release(instance_id)
        except BaseException:
            report(f"{instance_id}: it may still be quarantined; to end that: gpu-recovery release {instance_id}")
            raise
    if why:
        sentence = f"no health check was made on the instance: {why}"
        yield Finding("health-check", instance_id, sentence, "only an idle instance is checked", log)
        return
    if view["status"] == QUARANTINED:
        view = _wait(api, instance_id, {AVAILABLE}, timeout_s, pause, report, left=QUARANTINED)
    if view["status"] == AVAILABLE:
        return
    ended = view["status"] in (QUARANTINED, GONE)
    sentence = f"the instance is {view['status']}" if ended else f"after {timeout_s:.0f} s it is still {view['status']}"
    yield Finding(
        "health-check",
        instance_id,
        f"the health check did not pass: {sentence}: {view.get('reason') or ''}".rstrip(": "),
        "after a failure the same check decides which instance is repaired",
        f"{log}; the log of the check is in the log group of the output HealthCheckLogGroupName",
    )


def _wait(
    api: Api,
    instance_id: str,
    wanted: set[str],
    timeout_s: float,
    pause: Callable[[float], None],
    report: Callable[[str], None],
    left: str = "",
) -> View:
    """Return the instance once its status is wanted, or once it has ended elsewhere.

    `left` is the status in which the instance may still be at first, and in which the wait ends later.
    """
    waited, last, has_left = 0.0, "", not left
    while True:
        view: View = api.instance(instance_id)
        status = view["status"]
        if status != last:
            report(f"{instance_id}: {status}: {view.get('reason') or ''}".rstrip(": "))
            last = status
        has_left = has_left or status != left
        is_over = status in wanted or status == GONE or (has_left and status == left)
        if is_over or waited >= timeout_s:
            return view
        pause(POLL_S)
        waited += POLL_S

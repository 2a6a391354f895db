"""What the task definition and its overrides tell the health check, read once from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from health_check.xid_table import XidPolicy

# Seconds that a diagnostic of a level may take. Measured on cloud instances: level 2 up to 10.5 minutes,
# level 4 up to 2.25 hours; a check that is cut short too early looks like a hang, and a hang costs a reboot.
PASSIVE = 0  # no diagnostic: only what the kernel's log and the driver say, for instances where others work
TIMEOUT_S_BY_LEVEL = {PASSIVE: 120, 1: 300, 2: 1_200, 3: 2_700, 4: 10_800}
FOCUS_MAX = 64


class SettingsError(ValueError):
    """A variable is missing or unusable. The message names it."""


@dataclass(frozen=True)
class Settings:
    """One check of one instance.

    `expected_gpus` is None when the caller does not know; `region` is None when botocore may find it itself.
    `focus` are GPUs that the caller suspects, by index or UUID; `since` is when the time asked about began (aware),
    None for the boot.
    """

    check_id: str
    instance_id: str
    verdict_bucket: str
    verdict_key: str
    level: int
    expected_gpus: int | None
    timeout_s: int
    host_proc: Path
    host_kmsg: Path
    focus: tuple[str, ...]
    since: datetime | None
    xid_policy: XidPolicy
    region: str | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises SettingsError at the first variable that is missing or out of range."""
        level = _number(environment, "CHECK_LEVEL", least=PASSIVE, most=4)
        if level is None:
            raise SettingsError("CHECK_LEVEL is not set; it is the level of `dcgmi diag`, 1 to 4, or 0 for none")
        timeout_s = _number(environment, "CHECK_TIMEOUT_S", least=1, most=86_400)
        return cls(
            check_id=_required(environment, "CHECK_ID"),
            instance_id=_required(environment, "INSTANCE_ID"),
            verdict_bucket=_required(environment, "VERDICT_BUCKET"),
            verdict_key=_required(environment, "VERDICT_KEY"),
            level=level,
            expected_gpus=_number(environment, "EXPECTED_GPUS", least=0, most=1_024),
            timeout_s=timeout_s or TIMEOUT_S_BY_LEVEL[level],
            host_proc=Path(environment.get("HOST_PROC") or "/proc"),
            host_kmsg=Path(environment.get("HOST_KMSG") or "/dev/kmsg"),
            focus=_focus(environment),
            since=_time(environment, "SINCE"),
            xid_policy=_policy(environment),
            # Lambda and Fargate set AWS_REGION; botocore itself reads only AWS_DEFAULT_REGION.
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None,
        )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise SettingsError(f"{name} is not set")
    return value


def _number(environment: Mapping[str, str], name: str, *, least: int, most: int) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    # int() also takes "1_0" and digits of other scripts; an environment variable has neither.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
        raise SettingsError(f"{name} is {text!r}; it must be a whole number from {least} to {most}")
    return int(text)


def _focus(environment: Mapping[str, str]) -> tuple[str, ...]:
    names = [name.strip() for name in environment.get("FOCUS", "").split(",") if name.strip()]
    for name in names:
        if not re.fullmatch(r"[0-9]{1,3}|(GPU|MIG)-[0-9a-zA-Z-]{1,60}", name) or len(names) > FOCUS_MAX:
            raise SettingsError(f"FOCUS has {name!r}; it must be indices or UUIDs of at most {FOCUS_MAX} GPUs")
    return tuple(dict.fromkeys(names))


def _time(environment: Mapping[str, str], name: str) -> datetime | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise SettingsError(
            f"{name} is {text!r}; it must be a time in ISO 8601, such as 2026-03-01T10:00:00Z"
        ) from error


def _policy(environment: Mapping[str, str]) -> XidPolicy:
    text = environment.get("XID_POLICY", "").strip() or XidPolicy.NVIDIA
    if text not in set(XidPolicy):
        raise SettingsError(f"XID_POLICY is {text!r}; it must be one of {', '.join(XidPolicy)}")
    return XidPolicy(text)

"""Settings of the health check, read once from the environment of the task.

The control plane sends the overrides: CHECK_ID, INSTANCE_ID, VERDICT_BUCKET, VERDICT_KEY, CHECK_LEVEL, EXPECTED_GPUS,
CHECK_TIMEOUT_S, SINCE and FOCUS. An invalid override is a defect of gpu-recovery, so it never ends in CONFIGURATION:
the check continues without the value, and the verdict says so. Without the first four there is no place for a verdict,
and the check is inconclusive.

The task definition belongs to the deployment and sets XID_POLICY, HOST_ENGINE, HOST_PROC, HOST_KMSG and AWS_REGION:
- An invalid XID_POLICY is a configuration error, unless a worse finding decides.
- An invalid HOST_ENGINE is a note, and the check starts its own engine.
- An unreadable HOST_KMSG is a note beside a diagnostic. It makes a passive check inconclusive.
- An unreadable HOST_PROC leaves the boot unknown.
- With a wrong AWS_REGION the document cannot be written. The outcome is then INCONCLUSIVE, unless it is CONFIGURATION.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from health_check.remedies import FindingRemedy
from health_check.xid import bus_id
from health_check.xid_table import XidPolicy

# Seconds that a diagnostic of a level may take. Measured on cloud instances: level 2 up to 10.5 minutes,
# level 4 up to 2.25 hours. A check that is cut short looks like a hang, and a hang costs a reboot.
PASSIVE = 0  # no diagnostic, only kernel log and driver: for instances that run jobs
TIMEOUT_S_BY_LEVEL = {PASSIVE: 120, 1: 300, 2: 1_200, 3: 2_700, 4: 10_800}
FOCUS_MAX = 64
"""Largest number of suspects."""
SHOWN_MAX = 80
"""Largest number of characters of a value that a message shows."""
HOST_ENGINE_SOCKET = Path("/run/nvidia-dcgm/nv-hostengine")
"""Socket of the host engine on the GPU-optimized AMIs (scripts/al2023/gpu/install-dcgm.sh of aws/amazon-ecs-ami)."""
_INDEX_OR_UUID = re.compile(r"[0-9]{1,3}|(GPU|MIG)-[0-9a-zA-Z-]{1,60}")


class CheckSettingsError(ValueError):
    """A required variable is missing. The message names it."""


@dataclass(frozen=True)
class Unread:
    """A variable that cannot be read.

    `message` says what the check does without it, `remedy` what that means for the verdict.
    """

    name: str
    remedy: FindingRemedy
    message: str


@dataclass(frozen=True)
class CheckSettings:
    """One check of one instance.

    `expected_gpus` is None if the caller does not know; `region` is None if botocore may find it itself. `focus` are
    GPUs that the caller suspects, by index, UUID or PCI address (`dddd:bb:dd`). `since` is the begin of the time in
    question (aware), None for the boot. `host_engine` is the socket of the host's engine that may run the tests, None
    if the check starts its own. `unread` are the variables that could not be read.
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
    host_engine: Path | None = None
    unread: tuple[Unread, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> CheckSettings:
        """Read the settings.

        Raises CheckSettingsError only if CHECK_ID, INSTANCE_ID, VERDICT_BUCKET or VERDICT_KEY is missing.
        """
        reader = _Reader(environment)
        level = reader.level()
        timeout_s = reader.number("CHECK_TIMEOUT_S", 1, 86_400, FindingRemedy.IGNORE, "the level's own limit is used")
        return cls(
            check_id=_required(environment, "CHECK_ID"),
            instance_id=_required(environment, "INSTANCE_ID"),
            verdict_bucket=_required(environment, "VERDICT_BUCKET"),
            verdict_key=_required(environment, "VERDICT_KEY"),
            level=level,
            expected_gpus=reader.number(
                "EXPECTED_GPUS", 0, 1_024, FindingRemedy.CONTACT_SUPPORT, "a missing GPU cannot be detected"
            ),
            timeout_s=timeout_s or TIMEOUT_S_BY_LEVEL[level],
            host_proc=Path(environment.get("HOST_PROC") or "/proc"),
            host_kmsg=Path(environment.get("HOST_KMSG") or "/dev/kmsg"),
            focus=reader.focus(),
            since=reader.time("SINCE"),
            xid_policy=reader.policy(),
            # Lambda and Fargate set AWS_REGION; botocore itself reads only AWS_DEFAULT_REGION.
            region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None,
            host_engine=reader.host_engine(),
            unread=tuple(reader.unread),
        )


@dataclass
class _Reader:
    """Reads the optional variables, and records those that could not be read."""

    environment: Mapping[str, str]
    unread: list[Unread] = field(default_factory=list)

    def _text(self, name: str) -> str:
        return self.environment.get(name, "").strip()

    def _cannot(self, name: str, remedy: FindingRemedy, what: str, instead: str) -> None:
        self.unread.append(Unread(name, remedy, f"{name} {what}; {instead}"))

    def level(self) -> int:
        """Return the level of the diagnostic; without a valid level PASSIVE, which runs no diagnostic."""
        instead = "no diagnostic is run"
        level = self.number("CHECK_LEVEL", PASSIVE, 4, FindingRemedy.CONTACT_SUPPORT, instead)
        if level is None and not self._text("CHECK_LEVEL"):
            self._cannot("CHECK_LEVEL", FindingRemedy.CONTACT_SUPPORT, "is not set", instead)
        return PASSIVE if level is None else level

    def number(self, name: str, least: int, most: int, remedy: FindingRemedy, instead: str) -> int | None:
        """Return an integer from `least` to `most`; None without a valid one."""
        text = self._text(name)
        if not text:
            return None
        # int() also takes "1_0" and digits of other scripts; an environment variable has neither.
        if not (text.isascii() and text.isdigit() and len(text) <= 9 and least <= int(text) <= most):
            self._cannot(name, remedy, f"is {text[:SHOWN_MAX]!a}, no whole number from {least} to {most}", instead)
            return None
        return int(text)

    def focus(self) -> tuple[str, ...]:
        """Return the suspects, each by one name. FOCUS is a hint: a text that names no GPU is left out."""
        texts = [name.strip() for name in self._text("FOCUS").split(",") if name.strip()]
        names = {name: gpu_name(name) for name in texts}
        wrong = [name for name, known in names.items() if known is None]
        if wrong:
            what = f"has {wrong[0][:SHOWN_MAX]!a}, not an index, UUID or PCI address of a GPU"
            self._cannot("FOCUS", FindingRemedy.IGNORE, what, "all GPUs are examined")
        suspects = tuple(dict.fromkeys(known for known in names.values() if known is not None))
        if len(suspects) > FOCUS_MAX:
            self._cannot("FOCUS", FindingRemedy.IGNORE, f"has {len(suspects)} names", f"the first {FOCUS_MAX} count")
        return suspects[:FOCUS_MAX]

    def time(self, name: str) -> datetime | None:
        """Return a time in ISO 8601, UTC if it names no zone; None without a valid time."""
        text = self._text(name)
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            what = f"is {text[:SHOWN_MAX]!a}, no time in ISO 8601"
            self._cannot(name, FindingRemedy.IGNORE, what, "all entries since the boot are examined")
            return None

    def host_engine(self) -> Path | None:
        """Return the socket of the host's engine, as the task definition says: `host`, or `own` for none."""
        text = self._text("HOST_ENGINE") or "own"
        if text not in ("own", "host"):
            self._cannot("HOST_ENGINE", FindingRemedy.IGNORE, f"is {text[:SHOWN_MAX]!a}, no own or host", "own is used")
        socket = self._text("HOST_ENGINE_SOCKET")
        return (Path(socket) if socket else HOST_ENGINE_SOCKET) if text == "host" else None

    def policy(self) -> XidPolicy:
        """Return the vendor of the list of XIDs to apply, as the task definition says."""
        text = self._text("XID_POLICY") or XidPolicy.NVIDIA
        if text not in set(XidPolicy):
            what = f"is {text[:SHOWN_MAX]!a}, none of {', '.join(XidPolicy)}"
            self._cannot("XID_POLICY", FindingRemedy.FIX_CONFIGURATION, what, f"{XidPolicy.NVIDIA} is used")
            return XidPolicy.NVIDIA
        return XidPolicy(text)


def gpu_name(text: str) -> str | None:
    """Return the index, the UUID or the PCI address (as `dddd:bb:dd`) that `text` is; None for any other text."""
    return text if _INDEX_OR_UUID.fullmatch(text) else bus_id(text)


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise CheckSettingsError(f"{name} is not set")
    return value

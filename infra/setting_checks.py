"""Checks of a setting against other settings. Each returns the problems that it finds, as pairs of a setting and a
sentence."""

from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.policy import CHECK_MARGIN_S, CHECK_S_BY_LEVEL, RecoveryPolicy

from infra.setting_readers import BUILD, DIGEST
from infra.settings_error import NAMESPACE, Problem

NEEDS = {
    "agent_gpu_reset_instance_types": ("node_agent", "daemon"),
    "agent_gpu_reset_services": ("agent_gpu_reset_instance_types", "given"),
    "agent_gpu_events": ("node_agent", "daemon"),
}
"""Settings that have no effect without another setting: its name, and its value or `given` for any value."""


def without_effect(settings: Mapping[str, Any]) -> list[Problem]:
    """Return an error message for each setting of `NEEDS` that is given without the other setting."""
    return [
        (name, f"has no effect unless {NAMESPACE}{other} is {value}")
        for name, (other, value) in NEEDS.items()
        if settings[name] and not (settings[other] and value in ("given", settings[other]))
    ]


def too_short_for_checks(level: int, policy: RecoveryPolicy) -> list[Problem]:
    """Return an error message for each policy timeout that is too short for a health check.

    A check that exceeds its timeout looks like a hang, and a hang leads to a reboot.
    """
    needed = CHECK_S_BY_LEVEL[level] + CHECK_MARGIN_S
    return [
        ("policy", f"{name} must be at least {needed} for check_level {level}, not {getattr(policy, name)}")
        for name in ("check_timeout_s", "verify_timeout_s")
        if getattr(policy, name) < needed
    ]


def wrong_callers(auth: str, roles: Mapping[str, str]) -> list[Problem]:
    """Return an error message if nobody could call the API, or if principals are named that API Gateway ignores."""
    if auth == "iam" and not roles:
        return [("api_roles", f"must name a principal, because {NAMESPACE}api_auth is iam")]
    if auth != "iam" and roles:
        return [("api_roles", f"has no effect unless {NAMESPACE}api_auth is iam")]
    return []


def replaceable_image(image: str, *, is_prod: bool) -> list[Problem]:
    """Return an error message for an image that someone could replace in production."""
    if is_prod and image != BUILD and not DIGEST.fullmatch(image):
        sentence = (
            f"must be {BUILD}, or end in @sha256:<digest>, with {NAMESPACE}profile prod: a tag can be moved, and the "
            "image runs as root on every GPU instance. The digest of a tag in ECR: "
            "aws ecr describe-images --repository-name NAME --image-ids imageTag=TAG "
            "--query imageDetails[0].imageDigest"
        )
        return [("health_check_image", sentence)]
    return []

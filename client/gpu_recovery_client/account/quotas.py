"""Checks of quotas of the account: vCPUs of GPU instances, concurrency of Lambda, and the rate of launches in ECS."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpu_recovery_client.account.access import Account, Described
from gpu_recovery_client.account.findings import Finding, Settings
from gpu_recovery_client.account.instances import Fleet

VCPU_QUOTAS = {
    "p": "Running On-Demand P instances",
    "g": "Running On-Demand G and VT instances",
    "trn": "Running On-Demand Trn instances",
    "inf": "Running On-Demand Inf instances",
    "dl": "Running On-Demand DL instances",
}
"""Names of the quotas of vCPUs in Service Quotas, by the letters that instance types begin with."""
CONCURRENCY_MIN = 50
"""Concurrent executions of Lambda below which events of a gang wait. New accounts may have 10."""
UNRESERVED_MIN = 100
"""Concurrent executions that Lambda keeps unreserved."""
LAUNCHES_PER_S, LAUNCH_BURST = 40, 100
"""Rate and burst of RunTask (Amazon ECS Developer Guide, "Request throttling": modifications of cluster resources).

No API of AWS returns the rate of an account.
"""
LAUNCH_TIMEOUT_S = 600
"""Default of the threshold `launch_timeout_s` in every preset. A test compares it with that of the policy."""


def check_quotas(account: Account, settings: Settings, fleet: Fleet) -> Iterator[Finding]:
    """Yield findings about quotas that a repair or a launch would reach."""
    yield from _vcpus(account, settings, fleet)
    yield from _concurrency(account, settings)
    yield from _launches(settings, len(fleet.names))


def vcpus_of(instance: Described) -> int:
    """Return the number of vCPUs of an instance."""
    options = instance.get("CpuOptions", {})
    return int(options.get("CoreCount", 0)) * int(options.get("ThreadsPerCore", 1))


def _class_of(instance_type: str) -> str:
    return re.match("[a-z]*", instance_type)[0]  # type: ignore[index]  # the pattern matches every text


def _vcpus(account: Account, settings: Settings, fleet: Fleet) -> Iterator[Finding]:
    used: dict[str, int] = {}
    largest: dict[str, int] = {}
    for instance in fleet.described:
        kind, vcpus = _class_of(instance.get("InstanceType", "")), vcpus_of(instance)
        if kind in VCPU_QUOTAS and not instance.get("InstanceLifecycle") and vcpus:  # Spot and Capacity Blocks: others
            used[kind] = used.get(kind, 0) + vcpus
            largest[kind] = max(largest.get(kind, 0), vcpus)
    if not used:
        return
    quotas = {
        quota["QuotaName"]: quota
        for quota in account.items("service-quotas", "list_service_quotas", "Quotas", ServiceCode="ec2")
    }
    for kind, vcpus in used.items():
        quota = quotas.get(VCPU_QUOTAS[kind])
        needed = vcpus + (largest[kind] if settings.knows("replace") and settings["replace"] else 0)
        if quota is None or quota["Value"] >= needed:
            continue
        yield Finding(
            "quotas",
            quota["QuotaName"],
            f"the quota is {quota['Value']:g} vCPUs; the GPU instances use {vcpus}, and a replacement would bring them "
            f"to {needed}",
            "EC2 refuses to launch the replacement of a faulty instance while the old instance still counts",
            "aws service-quotas request-service-quota-increase --service-code ec2 "
            f"--quota-code {quota['QuotaCode']} --desired-value {needed}",
        )


def _concurrency(account: Account, settings: Settings) -> Iterator[Finding]:
    limit = account.call("lambda", "get_account_settings").get("AccountLimit", {})
    total = limit.get("ConcurrentExecutions")
    reserved = 2 * int(settings["reserved_concurrency"]) if settings.knows("reserved_concurrency") else 0
    if total is None:
        return
    increase = (
        "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
        "--desired-value 1000"
    )
    if reserved and total - reserved < UNRESERVED_MIN:
        yield Finding(
            "quotas",
            "Lambda concurrent executions",
            f"the account has {total}, and reserved_concurrency reserves {reserved}, which leaves less than "
            f"{UNRESERVED_MIN}",
            "Lambda refuses such a reservation, and the deployment fails",
            f"{increase}; or {settings.change('reserved_concurrency', '0')}",
        )
    elif total < CONCURRENCY_MIN:
        yield Finding(
            "quotas",
            "Lambda concurrent executions",
            f"the account has {total}",
            "each event needs an execution: at the limit events wait, and repairs begin late",
            increase,
        )


def _launches(settings: Settings, instances: int) -> Iterator[Finding]:
    timeout_s = settings["policy"].get("launch_timeout_s", LAUNCH_TIMEOUT_S)
    needed_s = max(0, instances - LAUNCH_BURST) / LAUNCHES_PER_S
    if needed_s > timeout_s:
        yield Finding(
            "quotas",
            "ECS RunTask",
            f"ECS launches {LAUNCHES_PER_S} tasks a second, so a job on all {instances} instances needs "
            f"{needed_s:.0f} s, more than launch_timeout_s ({timeout_s} s)",
            "such a job never starts: each launch is ended at the timeout",
            settings.change_threshold("launch_timeout_s", round(2 * needed_s)),
        )

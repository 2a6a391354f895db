"""Checks of the sources of evidence about GPUs: the node agents, and the health reports of ECS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpu_recovery.core.health_signals import HealthKind
from gpu_recovery.core.instance.record import EcsStatus, InstanceStatus
from gpu_recovery.core.liveness import Liveness

from gpu_recovery_client.account.findings import Finding, Settings

IN_SERVICE = (InstanceStatus.AVAILABLE, InstanceStatus.CHECKING)
"""Statuses in which a node agent reports all the time. An instance under repair may be silent."""
View = Mapping[str, Any]


def check_evidence(settings: Settings, instances: Iterable[View]) -> Iterator[Finding]:
    """Yield findings about node agents that are missing or silent, and a note if there is no agent at all.

    An API of an earlier release lists no agents. Then nothing is known about them.

    Args:
        settings: the settings of the deployment.
        instances: the instances, as the API lists them.
    """
    listed = [one for one in instances if _is_in_service(one) and "node_agent" in one]
    heard = [one for one in listed if one["node_agent"] is not None]
    if listed and not heard:
        yield _without_agents(settings, listed)
        return
    yield from (_missing(one["instance_id"], len(heard), settings) for one in listed if one["node_agent"] is None)
    yield from (_silent(one) for one in heard if one["node_agent"]["liveness"] == Liveness.LOST)


def _is_in_service(view: View) -> bool:
    """Return whether an agent of the instance would report. ECS stops a daemon on an instance that a user drained."""
    return view["status"] in IN_SERVICE and view.get("ecs_status") != EcsStatus.DRAINING


def _without_agents(settings: Settings, listed: list[View]) -> Finding:
    by_ecs = sum(HealthKind.ACCELERATED_COMPUTE in one.get("health", ()) for one in listed)
    ecs = f"ECS reports the GPUs of {by_ecs} of them" if by_ecs else "ECS has reported no GPU of them, either"
    return Finding(
        "evidence",
        f"{len(listed)} instance(s)",
        f"no node agent reports from any of them; {ecs}",
        "XIDs, hangs and missing heartbeats are not noticed while a job runs, and a failure is diagnosed by exits and "
        "logs alone. It may be your choice, so this is a note",
        settings.change("node_agent", '"daemon"'),
        is_note=True,
    )


def _missing(name: str, others: int, settings: Settings) -> Finding:
    daemon = settings["node_agent"] == "daemon"
    return Finding(
        "evidence",
        name,
        f"no node agent has ever reported from the instance, but {others} other instance(s) have one",
        "XIDs, hangs and missing heartbeats of this instance are not noticed, and each failure there has the whole "
        "gang checked",
        f"aws ecs list-services --cluster {settings['cluster_name']}, then read the events of the service of the agent"
        if daemon
        else "install the agent on the instance, as agent/README.md says",
    )


def _silent(view: View) -> Finding:
    return Finding(
        "evidence",
        view["instance_id"],
        f"the node agent has not reported since {view['node_agent']['seen_at']}",
        "XIDs, hangs and missing heartbeats of this instance are not noticed, and each failure there has the whole "
        "gang checked",
        "on the instance: journalctl -u gpu-recovery-agent, or the log of the daemon's task; then start it again",
    )

"""The examination of an account by `gpu-recovery doctor`: every check, in order, with what could not be checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from gpu_recovery_client.account.access import Account, Refused
from gpu_recovery_client.account.deployment import (
    Deployment,
    check_bootstrap,
    check_dead_letters,
    check_functions,
    check_layer,
    check_permissions,
    check_rules,
    check_subscriptions,
)
from gpu_recovery_client.account.findings import Finding, Settings
from gpu_recovery_client.account.images import check_health_check_image
from gpu_recovery_client.account.instances import (
    Fleet,
    check_auto_scaling,
    check_instances,
    check_registered,
    container_instances,
    gpus_of,
    read_fleet,
)
from gpu_recovery_client.account.quotas import check_quotas
from gpu_recovery_client.account.tasks import check_roles, check_tasks

CHECKS = (
    *("credentials", "bootstrap", "cluster", "instances", "autoscaling", "tasks", "roles", "image", "quotas"),
    *("layer", "names"),
    *("functions", "rules", "subscriptions", "dead-letters", "permissions", "tokens", "evidence", "health-check"),
)
"""Names of the checks, in their order. Those of the last line are about a running deployment."""


@dataclass
class Examination:
    """Runs checks and collects their findings.

    skip:        names of checks to leave out.
    findings:    what was found.
    checked:     names of the checks that were made.
    not_checked: a sentence for each check that could not be made.
    """

    skip: Collection[str] = ()
    findings: list[Finding] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def check(self, name: str, findings: Callable[[], Iterator[Finding]]) -> None:
        """Make a check, unless it is to be left out. If AWS refuses a call, the check counts as not made."""
        if name in self.skip:
            return
        found: list[Finding] = []
        try:
            for one in findings():
                found.append(one)
        except Refused as error:
            self.not_checked.append(f"{name}: {error}")
        else:
            self.checked.append(name)
        self.findings += found


def examine_account(examination: Examination, account: Account, settings: Settings, names: Sequence[str] = ()) -> Fleet:
    """Make the checks that need no deployment.

    Args:
        examination: receives the findings.
        account: the account.
        settings: the settings of the deployment.
        names: ids of the instances that the API lists; none: those with GPUs in the cluster.

    Returns:
        The instances that were checked.
    """
    cluster = settings["cluster_name"]
    examination.check("credentials", lambda: _credentials(account, settings))
    if settings.file:
        examination.check("bootstrap", lambda: check_bootstrap(account))
    fleet = Fleet(())

    def in_cluster() -> Iterator[Finding]:
        nonlocal fleet
        if not _is_active(account, settings):
            yield Finding(
                "cluster",
                cluster,
                f"there is no active cluster of this name in {account.region}",
                "no event of the cluster reaches the stack, and no job is launched",
                "aws ecs list-clusters, then " + settings.change("cluster_name", '"..."'),
            )
            return
        registered = container_instances(account, cluster)
        with_gpus = [one for one in registered if one.get("ec2InstanceId") and gpus_of(one)]
        chosen = list(names) or [one["ec2InstanceId"] for one in with_gpus]
        fleet = read_fleet(account, chosen, [one for one in registered if one.get("ec2InstanceId") in chosen])
        yield from check_registered(fleet, cluster)
        if not with_gpus:
            yield Finding(
                "cluster",
                cluster,
                "no instance of the cluster has registered a GPU",
                "gpu-recovery works with GPU instances: their AMI must be GPU-optimized, with ECS_ENABLE_GPU_SUPPORT",
                "echo ECS_ENABLE_GPU_SUPPORT=true | sudo tee -a /etc/ecs/ecs.config && sudo systemctl restart ecs",
            )

    examination.check("cluster", in_cluster)
    examine_instances(examination, account, settings, fleet)
    examination.check("tasks", lambda: check_tasks(account, settings, fleet))
    examination.check("roles", lambda: check_roles(account, settings))
    examination.check("image", lambda: check_health_check_image(account, settings, fleet))
    examination.check("quotas", lambda: check_quotas(account, settings, fleet))
    if settings.knows("powertools_layer"):
        examination.check("layer", lambda: check_layer(account, settings))
    return fleet


def examine_instances(examination: Examination, account: Account, settings: Settings, fleet: Fleet) -> None:
    """Make the checks of instances and of their groups."""
    examination.check("instances", lambda: check_instances(fleet, settings, account.region))
    examination.check("autoscaling", lambda: check_auto_scaling(fleet, settings))


def examine_deployment(examination: Examination, deployment: Deployment, settings: Settings) -> None:
    """Make the checks of a running deployment."""
    examination.check("functions", lambda: check_functions(deployment))
    examination.check("rules", lambda: check_rules(deployment))
    examination.check("subscriptions", lambda: check_subscriptions(deployment, settings))
    examination.check("dead-letters", lambda: check_dead_letters(deployment))
    examination.check("permissions", lambda: check_permissions(deployment, settings))


def _credentials(account: Account, settings: Settings) -> Iterator[Finding]:
    wanted = settings.target.get("account", account.account_id)
    if wanted != account.account_id:
        yield Finding(
            "credentials",
            settings.file,
            f"the file is for the account {wanted}, the credentials are for {account.account_id}",
            "the deployment would be made a second time, in another account",
            "choose other credentials: export AWS_PROFILE=...",
        )


def _is_active(account: Account, settings: Settings) -> bool:
    name = settings["cluster_name"]
    clusters = account.call("ecs", "describe_clusters", clusters=[name])["clusters"]
    return bool(clusters) and clusters[0].get("status") == "ACTIVE"

"""Contenders as rule models: what other systems do with a failed gang, as their documents say.

Each number is an entry of `assumptions.toml` with its source. `docs/simulator.md` links the documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from simulator.goodput.gang_rules import SUSPECT_AFTER, Abilities, GangPolicy
from simulator.goodput.recovery_times import Launch

OWN_WAY = Abilities(level=2, leave_out_after=SUSPECT_AFTER, reboots=True)
"""The way of the product's `adaptive` preset today."""
LEVERS: Mapping[str, tuple[str, Mapping[str, object]]] = MappingProxyType(
    {
        "progress": ("a hang is noticed by missing progress", {"hang_after": "progress_s"}),
        "fewer calls": ("one call of ECS starts ten ranks, agents stop them", {"launch": Launch.BATCHES}),
        "in place": ("the processes start again in their containers", {"launch": Launch.PROCESSES}),
        "no gang-wide checks": (
            "the first end of a rank and passive evidence name the machine; all are checked only on a return",
            {"trusts_exits": True, "has_evidence": True, "checks_returns": True},
        ),
        "warm spares": ("processes stand by on each machine and spare", {"is_warm": True}),
    }
)
"""Changes of the product's way, by name: what each is, and the abilities that it adds."""


def own_way(level: int, spares: int) -> GangPolicy:
    """The product's own way at its best: without delays and errors of its own. Another way can be faster."""
    rules = (
        f"stop all, check all at level {level} unless a log names the machine, repair what is faulty, relaunch on "
        "healthy machines, deciding in no time"
    )
    abilities = Abilities(level=level, leave_out_after=SUSPECT_AFTER, reboots=True)
    return GangPolicy("own way at its best", rules, abilities, spares)


BUILT = ("progress", "in place", "no gang-wide checks")
"""The levers that the product has without a setting of the training. `with_agents` of `production` has them."""
STANDBY = "warm spares"
"""The lever of a training with standby processes."""


def way_with_agents(
    level: int, spares: int, *, stands_by: bool = False, memory_checkpoints: bool = False
) -> GangPolicy:
    """The product's own way with the levers that it has: without delays and errors of its own.

    Args:
        level: level of the health checks.
        spares: spare instances.
        stands_by: whether each container and each spare has a standby process.
        memory_checkpoints: whether the trainer saves its state in the memory of the instances.
    """
    way, abilities = own_way(level, spares), dict[str, object]()
    for lever in (*BUILT, *((STANDBY,) if stands_by else ())):
        abilities |= LEVERS[lever][1]
    title = "own way with agents" + (", standby" if stands_by else "")
    title += ", memory checkpoints" if memory_checkpoints else ""
    rules = (
        "hangs are noticed by missing progress, containers stay, and the gang is checked only if a failure returns; "
        "otherwise the product's own way, deciding in no time"
    )
    return replace(
        way,
        title=title,
        rules=rules,
        abilities=replace(way.abilities, **abilities),  # type: ignore[arg-type]
        memory_checkpoints=memory_checkpoints,
    )


def replace_only(spares: int) -> GangPolicy:
    """ECS Managed Instances with a service for each rank: the monitor knows no gang, a service only its own task."""
    return GangPolicy(
        "replace only",
        "node repair of ECS Managed Instances: replaces what a monitor sees (20 % at once at most, which one gang "
        "never reaches), and leaves the other ranks to their time-outs",
        Abilities(at_first_exit=False, monitor_after="watch_s"),
        spares,
    )


def jobset(spares: int) -> GangPolicy:
    """EKS with JobSet, the node monitoring agent and node auto repair."""
    return GangPolicy(
        "EKS + JobSet",
        "JobSet recreates all pods at the first failed one; the node monitor's machine is avoided at once and replaced "
        "after the wait of node auto repair",
        Abilities(launch=Launch.PODS, monitor_after="watch_s", repair_after="eks_repair_s"),
        spares,
    )


def training_operator(spares: int) -> GangPolicy:
    """SageMaker HyperPod with its training operator."""
    return GangPolicy(
        "HyperPod operator",
        "processes restart in their containers at the first exit, a hang is noticed by missing log lines, and the "
        "health monitor's machine is replaced",
        Abilities(launch=Launch.PROCESSES, hang_after="operator_hang_s", monitor_after="watch_s"),
        spares,
    )


def swap(spares: int) -> GangPolicy:
    """A small controller on ECS: swaps the machine that a passive node agent sees, and leaves out repeaters."""
    return GangPolicy(
        "swap and leave out",
        "stops the gang at the first exit, swaps the machine that a log or a passive node agent names, leaves a "
        "machine out after its second first exit, checks nothing",
        Abilities(monitor_after="watch_s", leave_out_after=SUSPECT_AFTER),
        spares,
    )


CONTENDERS = (replace_only, jobset, training_operator, swap)
"""The contenders that restart a whole gang, in the order of the report."""

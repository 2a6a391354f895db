"""Builds the parts of a `World`: the modelled AWS, the actions on it, and the product's loop over both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.execution.context import COMMAND_S
from gpu_recovery.ports.back_off import BackOff
from gpu_recovery.ports.store import Store
from gpu_recovery.recovery import Recovery

from sandbox.cluster.model.cluster import ClusterModel
from sandbox.cluster.task_definitions import MemoryDefinitions
from simulator.actions import SimulatedActions
from simulator.cloud.ecs import EcsModelClient, SequentialEcs
from simulator.cloud.fleet import FleetTimings, VirtualFleet
from simulator.cloud.log_output import LogOutput
from simulator.cloud.rate_limits import Costs, Meter
from simulator.cloud.workloads import Checks, Training
from simulator.invariants.writes import WriteCheckedStore
from simulator.invocations import EffectStore, Invocations
from simulator.lambda_runtime import CHECK_FAMILY
from simulator.transcript import Transcript
from simulator.virtual_clock import VirtualClock

CLUSTER, ACCOUNT, REGION = "nwcd-gpu-testing", "000000000000", "us-east-1"
TRAINING_FAMILY = "gpu-training"


@dataclass(frozen=True)
class ModelledAws:
    """One AWS account with its cluster before any instance is launched, and what records it.

    training, checks: the programs that run on the instances.
    writing: the log lines of the training programs.
    lives:   the invocations of the product's functions.
    journal: the transcript.
    """

    timeline: VirtualClock
    cluster: ClusterModel
    definitions: MemoryDefinitions
    journal: Transcript
    lives: Invocations
    fleet: VirtualFleet
    training: Training
    checks: Checks
    writing: LogOutput


def build_aws(
    seed: str, timings: FleetTimings | None, train_s: float | None, emitted: Callable[[list[dict[str, Any]]], None]
) -> ModelledAws:
    """Build the modelled AWS.

    Args:
        seed: What all ids are derived from.
        timings: How long instances and tasks take; None: the usual times.
        train_s: How long a gang trains, in seconds; None: until it is stopped.
        emitted: Called with the events that the cluster sends to EventBridge.
    """
    timeline, cluster = VirtualClock(), ClusterModel(CLUSTER, ACCOUNT, REGION, seed)
    cluster.zones = "a"  # training clusters are bought in one Availability Zone
    fleet = VirtualFleet(cluster, timeline, timings or FleetTimings(), emitted)
    training, checks = Training(fleet, train_s), Checks(fleet)
    log_output = LogOutput(training)
    fleet.about_to_end = log_output.ends
    definitions, transcript = MemoryDefinitions(ACCOUNT, REGION), Transcript(timeline, cluster)
    return ModelledAws(timeline, cluster, definitions, transcript, Invocations(), fleet, training, checks, log_output)


def build_actions(aws: ModelledAws, poked: Callable[[str, int], None]) -> SimulatedActions:
    """Register the task definitions of checks and training, and build the product's actions on the model.

    Args:
        aws: The modelled AWS.
        poked: Called with the deduplication id and the hops of each message to the scheduler's queue.
    """
    client = EcsModelClient(aws.fleet, aws.definitions, aws.lives)
    ecs = SequentialEcs(client, CLUSTER, aws.timeline.clock)
    check = _define(aws, CHECK_FAMILY, "health-check")
    _define(aws, TRAINING_FAMILY, "train", networkMode="host")
    actions = SimulatedActions(ecs, aws.fleet, aws.training, aws.checks, aws.lives, check, poked)
    actions.on_message = aws.journal.message_sent
    return actions


def _define(aws: ModelledAws, family: str, container: str, **members: Any) -> str:
    """Register a task definition of one container; return its ARN."""
    definition = {"name": container, "image": f"{family}:1", "essential": True, "memory": 1000, "command": ["run"]}
    answer = aws.definitions.register_task_definition(family=family, containerDefinitions=[definition], **members)
    return str(answer["taskDefinition"]["taskDefinitionArn"])


def build_recovery(
    aws: ModelledAws,
    actions: SimulatedActions,
    store: Store,
    policy: RecoveryPolicy,
    adoption: Adoption,
    *,
    judges_writes: bool,
    costs: Costs | None,
) -> Recovery:
    """Build the product's loop. Each write and each call of the loop is an effect of an invocation.

    Args:
        aws: The modelled AWS.
        actions: The product's actions on it.
        store: Where the records are saved.
        policy: The policy of the product.
        adoption: What the product does with gangs that an operator started.
        judges_writes: Whether the invariants of single writes are checked.
        costs: What calls take, and AWS's limits on them; None: calls take no time and have no limit.
    """
    checked = WriteCheckedStore(store, aws.journal.broken) if judges_writes else store
    effects = cast(Store, EffectStore(checked, aws.lives))
    if costs is None:
        return Recovery(effects, actions, policy, aws.timeline.clock, aws.journal, adoption)
    meter = aws.lives.meter = Meter(aws.timeline, costs, aws.lives.kill)
    actions.ecs.for_each = actions.ec2.for_each = meter.each
    return Recovery(
        effects,
        actions,
        policy,
        aws.timeline.clock,
        aws.journal,
        adoption,
        for_each=meter.each,
        has_time=lambda: meter.seconds_left() > COMMAND_S,
        back_off=BackOff(meter.wait, lambda: 1.0),
    )

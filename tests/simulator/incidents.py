"""Whole incidents, from a healthy cluster to the end of the job. Each answers the world it ran in, and its job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from sandbox.cluster.model.statuses import RebootBehaviour
from simulator.cloud.workloads import ScriptedCheck
from simulator.fast.fidelity import Checking, Fidelity
from simulator.faults.injector import FaultInjector, RandomFaults
from simulator.world import World

ADAPTIVE, CLASSIC = PRESETS[Preset.ADAPTIVE], PRESETS[Preset.CLASSIC]
TRAIN_S = 600.0
TROUBLED_S = 1800.0
QUICK = Fidelity(checking=Checking.CHANGES, skips=True)
"""What is certain is passed over, but everything is remembered: such a run can be compared with a thorough one."""
Told = tuple[World, str]
NEVER_ENDS = ScriptedCheck(None)
INCONCLUSIVE = ScriptedCheck(CheckOutcome.INCONCLUSIVE)
MISCONFIGURED = ScriptedCheck(CheckOutcome.CONFIGURATION)
BLAMED_WITHOUT_DOCUMENT = ScriptedCheck(CheckOutcome.REBOOT, document=False)


def running(nnodes: int = 2, **given: Any) -> Told:
    """A job that runs on as many instances as it needs, or on `instances`."""
    world = World(**{"instances": nnodes, "train_s": TRAIN_S, **given})
    job_id = world.submit(nnodes)
    world.until_status(job_id, JobStatus.RUNNING)
    return world, job_id


def ended(world: World, job_id: str) -> Told:
    """The same, once the job has ended and everything has settled."""
    world.until(lambda: world.store.load_job(job_id) is not None, f"{job_id} was not adopted")
    world.until_end(job_id)
    world.check_end()
    return world, job_id


def count_operations(world: World) -> Counter[str]:
    """Count the calls of AWS by operation from now on, including those that AWS refuses."""
    counted, real = Counter[str](), world.invocations.call

    def call(operation: str = "", times: int = 1) -> None:
        counted[operation] += times
        real(operation, times)

    world.invocations.call = call  # type: ignore[method-assign]
    return counted


def troubled(seed: int) -> FaultInjector:
    """Half an hour of deaths, of work that overlaps, and of answers to RebootInstances that are lost."""
    rates = {"kill_before": 0.01, "kill_after": 0.01, "overlap": 0.03, "answer_lost": 0.3}
    return FaultInjector(RandomFaults(seed, rates, only={"answer_lost": ("RebootInstances",)}), TROUBLED_S)


# -- adaptive ----------------------------------------------------------------------------------------------------------


def gpu_fault(**given: Any) -> Told:
    """A GPU falls off the bus; there is no spare, so the job waits for the reboot."""
    world, job_id = running(**given)
    world.break_gpu(world.model_instance(0))
    return ended(world, job_id)


def gpu_fault_with_spare(**given: Any) -> Told:
    """A GPU falls off the bus; a spare takes its place before the reboot is over."""
    return gpu_fault(instances=3, **given)


def crash_on_healthy_gpus(**given: Any) -> Told:
    """A rank dies of a signal and the checks find nothing: a restart is worth a try."""
    world, job_id = running(**given)
    world.exit(job_id, 1, 139)
    return ended(world, job_id)


def application_error(**given: Any) -> Told:
    """The program itself exits with 1 on healthy GPUs."""
    world, job_id = running(**given)
    world.exit(job_id, 1, 1)
    return ended(world, job_id)


def two_of_eight_faulty(**given: Any) -> Told:
    """Two of eight instances break at once."""
    world, job_id = running(8, **given)
    world.break_gpu(world.model_instance(2))
    world.break_gpu(world.model_instance(5))
    return ended(world, job_id)


def spot_interruption(**given: Any) -> Told:
    """An instance is taken away; another is there."""
    world, job_id = running(instances=3, **given)
    world.transcript.happened("gpu-0 gets two minutes' notice")
    world.fleet.interrupt(world.model_instance(0))
    return ended(world, job_id)


def reboot_that_never_returns(**given: Any) -> Told:
    """The faulty instance never comes back from its reboot, and there is no other."""
    world, job_id = running(**given)
    world.model_instance(0).reboot_behaviour = RebootBehaviour.SILENT
    world.break_gpu(world.model_instance(0))
    return ended(world, job_id)


def check_that_never_ends(**given: Any) -> Told:
    """One check hangs for ever."""
    world, job_id = running(**given)
    world.checks.script(world.model_instance(1), NEVER_ENDS)
    world.exit(job_id, 1, 139)
    return ended(world, job_id)


def user_stop(**given: Any) -> Told:
    """A person stops one rank with their own StopTask."""
    world, job_id = running(**given)
    world.stop_by_hand(world.rank(job_id, 1), "maintenance")
    return ended(world, job_id)


def success(**given: Any) -> Told:
    """Nothing goes wrong."""
    return ended(*running(**given))


# -- classic -----------------------------------------------------------------------------------------------------------


def classic(fault: Callable[[World, str], None], **given: Any) -> Told:
    """A job under `classic` whose rank 0 exits with 1 after `fault`."""
    world, job_id = running(**{"policy": CLASSIC, **given})
    world.training.abort_code = 1
    fault(world, job_id)
    return ended(world, job_id)


def classic_healthy(**given: Any) -> Told:
    """Exit 1, and the checks find nothing."""
    return classic(lambda world, job_id: world.exit(job_id, 0, 1), **given)


def classic_faulty(**given: Any) -> Told:
    """Exit 1 on a GPU that a reboot mends."""
    return classic(lambda world, job_id: world.break_gpu(world.model_instance(0)), **given)


def classic_faulty_twice(**given: Any) -> Told:
    """The reboot seems to help, but the GPU fails again in the second run."""

    def fault(world: World, job_id: str) -> None:
        world.break_gpu(world.model_instance(0))
        world.until(lambda: world.job(job_id).attempt == 2 and len(world.ranks(job_id)) == 2, "attempt 2 did not run")
        world.break_gpu(world.model_instance(0))

    return classic(fault, **given)


def classic_exit_0(**given: Any) -> Told:
    """Every rank exits 0."""
    return classic(lambda world, job_id: None, **given)


def classic_user_stop(**given: Any) -> Told:
    """A person stops a rank."""
    return classic(lambda world, job_id: world.stop_by_hand(world.rank(job_id, 0), "enough"), **given)


def classic_reboot_never_returns(**given: Any) -> Told:
    """The machine never comes back."""

    def fault(world: World, job_id: str) -> None:
        world.model_instance(0).reboot_behaviour = RebootBehaviour.SILENT
        world.break_gpu(world.model_instance(0))

    return classic(fault, **given)


# -- tasks that people start -------------------------------------------------------------------------------------------

HAND_JOB = "llm-pretrain"


def started_by_hand(adoption: Adoption, **given: Any) -> World:
    """Two ranks that a person started themselves, as seed 001 has it."""
    world = World(**{"adoption": adoption, "train_s": TRAIN_S, **given})
    world.let_pass(5)
    for rank in range(2):
        world.transcript.happened(
            f"a person starts rank {rank} of {HAND_JOB} on {world.model_instance(rank).instance_id}"
        )
        world.start_by_hand(HAND_JOB, rank, 2, world.model_instance(rank), EPOCHS="3")
    world.until(lambda: len(world.fleet.running()) == 2, "the person's ranks did not start")
    world.let_pass(10)
    return world


def adopted_recover(**given: Any) -> Told:
    """An adopted gang is healed like one of ours."""
    world = started_by_hand(Adoption.RECOVER, **given)
    world.break_gpu(world.model_instance(0))
    return ended(world, HAND_JOB)


def adopted_observe(**given: Any) -> Told:
    """An observed gang is reported and left alone; the person stops the rank that hangs."""
    world = started_by_hand(Adoption.OBSERVE, **given)
    world.break_gpu(world.model_instance(0))
    world.let_pass(300)
    world.stop_by_hand(world.rank(HAND_JOB, 1), "it hangs")
    return ended(world, HAND_JOB)


def adoption_refused(**given: Any) -> Told:
    """A person starts a task under the id of a job of ours."""
    world, job_id = running(instances=3, **{"adoption": Adoption.RECOVER, **given})
    world.transcript.happened(f"a person starts rank 0 of {job_id} on {world.model_instance(2).instance_id}")
    stranger = world.start_by_hand(job_id, 0, 2, world.model_instance(2))
    world.let_pass(60)
    world.stop_by_hand(stranger, "my mistake")
    return ended(world, job_id)


def ending(world: World, job_id: str) -> tuple[Any, ...]:
    """What must be the same however an incident was disturbed: the job, its machines, their real reboots."""
    job = world.job(job_id)
    machines = sorted((one.instance_id, one.status, len(one.claims), one.reserved_for) for one in world.instances())
    return (
        job.status,
        job.attempt,
        job.attempts_counted,
        dict(job.attempts_uncounted),
        machines,
        dict(world.fleet.boots),
    )


INCIDENTS: dict[str, Callable[..., Told]] = {
    "adaptive_gpu_fault": gpu_fault,
    "adaptive_gpu_fault_with_spare": gpu_fault_with_spare,
    "adaptive_crash_on_healthy_gpus": crash_on_healthy_gpus,
    "adaptive_application_error": application_error,
    "adaptive_two_of_eight_faulty": two_of_eight_faulty,
    "adaptive_spot_interruption": spot_interruption,
    "adaptive_reboot_that_never_returns": reboot_that_never_returns,
    "adaptive_check_that_never_ends": check_that_never_ends,
    "adaptive_user_stop": user_stop,
    "adaptive_success": success,
    "classic_healthy": classic_healthy,
    "classic_faulty": classic_faulty,
    "classic_faulty_twice": classic_faulty_twice,
    "classic_exit_0": classic_exit_0,
    "classic_user_stop": classic_user_stop,
    "classic_reboot_never_returns": classic_reboot_never_returns,
    "adoption_recover": adopted_recover,
    "adoption_observe": adopted_observe,
    "adoption_refused": adoption_refused,
}

"""Restart in place in the simulated world: the containers stay, each fact counts once, and nothing runs twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.heartbeat import AgentCommandKind
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset

from sandbox.cluster.model import describe
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import RebootBehaviour
from simulator.cloud.log_output import LogStory
from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import ScriptedCheck
from simulator.faults.delivery import PROMPT_S, Envelope
from simulator.faults.operators import DeregisteredByHand
from simulator.trials import generator, in_place
from simulator.trials.trial import play
from simulator.world import World
from tests import tiers
from tests.simulator.incidents import QUICK

POLICY = replace(PRESETS[Preset.ADAPTIVE], restart_in_place=True, pending_retry_s=1)
OFTEN = replace(POLICY, stable_run_s=10, attempts_max=9)
"""Each run is stable, so the same cause again needs no check of all instances."""


def running(
    nnodes: int = 2, story: str = LogStory.SERVICE, policy: Any = POLICY, instances: int = 3, **more: Any
) -> tuple[World, str]:
    """A world with node agents whose gang has run for a minute, and writes `story` when it fails."""
    world = World(instances=instances, policy=policy, agents=True, diagnose=True, **more)
    job_id = world.submit(nnodes=nnodes)
    world.log_output.habits[job_id] = story
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    return world, job_id


def runs_again(world: World, job_id: str, attempt: int = 2) -> None:
    """Let time pass until this attempt of the job runs."""
    job = world.job
    world.until(
        lambda: job(job_id).attempt == attempt and job(job_id).status is JobStatus.RUNNING, "it does not run again"
    )


def succeeds(world: World, job_id: str) -> None:
    """Let the gang train for ten minutes, in which the reconciler compares every task, and end it."""
    world.let_pass(600)
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED, world.transcript.text()
    world.check_end()


def tasks(world: World, job_id: str) -> set[str]:
    return {task.task_id for task in world.ranks(job_id)}


def history(world: World, job_id: str) -> str:
    return "\n".join(entry.reason for entry in world.job(job_id).history)


def test_a_transient_crash_is_restarted_in_the_same_containers() -> None:
    """A new attempt without one task started or stopped, within seconds, and nobody stops it afterwards."""
    world, job_id = running()
    before, at = tasks(world, job_id), world.timeline.now
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    assert (len(world.calls("RunTask")), len(world.calls("StopTask"))) == (2, 0)
    assert "restarted in place" in history(world, job_id)
    assert (world.timeline.now - at).total_seconds() < 120
    succeeds(world, job_id)
    assert before and not world.ranks(job_id) and len(world.calls("StopTask")) == 0


def test_only_the_rank_on_the_named_instance_is_a_new_task() -> None:
    """The other rank stays in its container; the named instance is checked after its task has ended."""
    world, job_id = running(story="")
    sick = world.model_instance(1)
    world.log_output.next[sick.instance_id] = LogStory.ECC
    kept = tasks(world, job_id)
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    assert len(tasks(world, job_id) & kept) == 1
    assert sick.instance_id not in world.job(job_id).instances
    ranks = [step for step in world.calls("RunTask") if "--a" in step.given["startedBy"]]
    assert len(ranks) == 3 and len(world.calls("StopTask")) == 1
    world.let_pass(300)
    assert world.instance(sick).status is InstanceStatus.AVAILABLE and not world.instance(sick).claims
    assert any(step.given["startedBy"].startswith("check/") for step in world.calls("RunTask"))
    succeeds(world, job_id)


def test_it_goes_on_in_place_again_and_again() -> None:
    """A container serves a third attempt, and its end is a fact of that attempt, not of the first."""
    world, job_id = running(policy=OFTEN)
    before = tasks(world, job_id)
    for attempt in (2, 3, 4):
        world.exit(job_id, attempt % 2, 1)
        runs_again(world, job_id, attempt)
        world.let_pass(60)
    assert tasks(world, job_id) == before and len(world.calls("RunTask")) == 2
    succeeds(world, job_id)


@pytest.mark.parametrize("story", [LogStory.CUDA, LogStory.NOTHING, LogStory.EXCEPTION])
def test_without_a_cause_every_container_ends_before_the_checks(story: LogStory) -> None:
    """The check of all instances reserves all GPUs, so every held task is stopped first, as without holding."""
    world, job_id = running(story=story, instances=2)
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.DIAGNOSING)
    assert not world.ranks(job_id) and len(world.calls("StopTask")) == 2
    world.until_end(job_id)
    world.check_end()


def restarted(*, on_in_the_deployment: bool, failed_rank: int, **fields: bool) -> World:
    """A world in which a job of two ranks runs again after a failure that a service outside caused."""
    policy = replace(POLICY, restart_in_place=on_in_the_deployment)
    world = World(instances=2, policy=policy, agents=True, diagnose=True)
    job_id = world.submit(nnodes=2, **fields)
    world.log_output.habits[job_id] = LogStory.SERVICE
    world.until_status(job_id, JobStatus.RUNNING)
    world.let_pass(60)
    world.exit(job_id, failed_rank, 1)
    runs_again(world, job_id)
    return world


@pytest.mark.parametrize("in_place_for", [None, False])
def test_without_the_setting_nothing_is_held(in_place_for: bool | None) -> None:
    """The preset has it off, and a job can have it off where the deployment has it on."""
    fields = {} if in_place_for is None else {"restart_in_place": in_place_for}
    world = restarted(on_in_the_deployment=in_place_for is False, failed_rank=1, **fields)
    assert world.fleet.ranks.holds == 0 and len(world.calls("RunTask")) == 4


def test_a_job_can_have_it_on_where_the_deployment_has_it_off() -> None:
    """The word of the job decides."""
    world = restarted(on_in_the_deployment=False, failed_rank=0, restart_in_place=True)
    assert world.fleet.ranks.starts == 2 and len(world.calls("RunTask")) == 2


def test_ranks_that_no_agent_reports_get_the_ordinary_way() -> None:
    """Only a rank that its agent reports as holdable is held; the others are stopped in ECS and are new tasks."""
    world, job_id = running(nnodes=3)
    assert world.agents is not None
    world.agents.unable.add(world.model_instance(2).instance_id)
    world.let_pass(20)
    world.exit(job_id, 0, 1)
    runs_again(world, job_id)
    assert world.fleet.ranks.starts == 2
    assert len(world.calls("RunTask")) == 4 and len(world.calls("StopTask")) == 1
    succeeds(world, job_id)


def test_an_agent_that_dies_while_it_holds_costs_the_hold_and_no_counted_attempt() -> None:
    """The start never arrives. The container ends by itself, and the job is launched again, uncounted."""
    world, job_id = running()
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    assert world.agents is not None
    world.agents.ended.add(world.model_instance(0).instance_id)
    runs_again(world, job_id, 3)
    job = world.job(job_id)
    assert job.attempts_counted == 1 and sum(job.attempts_uncounted.values()) == 1
    assert "before the attempt had started there" in history(world, job_id)
    succeeds(world, job_id)


@pytest.mark.parametrize("delays_s", [(0.0, 0.0), (0.0, 3.0, 30.0), (4.0, 400.0)])
def test_doubled_and_late_commands_start_an_attempt_once(delays_s: tuple[float, ...]) -> None:
    """A late hold of attempt 1 ends nothing of attempt 2, and a late start of attempt 2 nothing of attempt 3."""
    world, job_id = running(policy=OFTEN)
    assert world.agents is not None
    world.agents.command_delays_s = delays_s
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    world.let_pass(20)
    world.exit(job_id, 0, 1)
    runs_again(world, job_id, 3)
    assert world.fleet.ranks.starts == 4 and len(world.calls("RunTask")) == 2
    succeeds(world, job_id)


@pytest.mark.parametrize("delay_s", [19.0, 19.5, 20.0, 20.5, 21.0])
def test_a_hold_that_ends_as_the_start_arrives_never_runs_two_attempts(delay_s: float) -> None:
    """Whichever comes first, the job goes on; the invariants are checked after each step."""
    world, job_id = running(policy=replace(POLICY, container_hold_s=22))
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    assert world.agents is not None
    world.agents.command_delays_s = (delay_s,)
    world.until(lambda: world.job(job_id).attempt >= 2 and world.job(job_id).status is JobStatus.RUNNING, "runs")
    world.agents.command_delays_s = (0.0,)
    world.let_pass(600)
    world.until(lambda: world.job(job_id).status is JobStatus.RUNNING, "it does not run")
    world.finish(job_id)
    assert world.until_end(job_id).status is JobStatus.SUCCEEDED
    world.check_end()


def test_a_lost_hold_is_followed_by_a_stop_in_ecs() -> None:
    """After `hold_confirm_s` without the end of every process the gang is stopped as without holding."""
    world, job_id = running()
    assert world.agents is not None
    world.agents.command_delays_s = ()
    world.exit(job_id, 1, 1)
    at = world.timeline.now
    world.until(lambda: len(world.calls("StopTask")) == 2, "it is not stopped")
    assert (world.timeline.now - at).total_seconds() >= POLICY.hold_confirm_s
    world.agents.command_delays_s = (0.0,)
    runs_again(world, job_id)
    succeeds(world, job_id)


def test_a_held_gang_with_a_rank_that_nothing_ends_is_rebooted() -> None:
    """Every process but one is held or stopped; what the progress holds must not hide the deadlines of the stop."""
    world, job_id = running(story=LogStory.CUDA, policy=replace(POLICY, container_hold_s=86_400))
    stuck = world.model_instance(0).instance_id
    world.exit(job_id, 1, 1)
    world.until(lambda: world.job(job_id).held_attempt == 1 or not world.job(job_id).holding, "it is not held")
    world.fleet.stuck.add(stuck)
    world.until(lambda: world.fleet.boots[stuck] == 1, "it is not rebooted", 3_600)
    runs_again(world, job_id)
    succeeds(world, job_id)


@pytest.mark.parametrize("ends", ["cancel", "suspend"])
def test_a_job_that_does_not_go_on_ends_its_held_tasks(ends: str) -> None:
    """GPUs come back only after ECS has confirmed the end of each container."""
    world, job_id = running(policy=replace(POLICY, pending_retry_s=120))
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    held = world.ranks(job_id)
    assert len(held) == 2 and all(task.task_id in world.fleet.ranks.held for task in held)
    getattr(world, ends)(job_id)
    world.until(lambda: not world.ranks(job_id), "a held task is left", 60)
    assert len(world.calls("StopTask")) == 2
    world.until(lambda: not any(instance.claims for instance in world.instances()), "a claim is left", 120)
    if ends == "suspend":
        world.resume(job_id)
        runs_again(world, job_id)
        assert len(world.calls("RunTask")) == 4
        world.finish(job_id)
        world.until_end(job_id)
    world.check_end()


def test_a_held_task_that_one_answer_of_ecs_does_not_know_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """DescribeTasks may say MISSING of a task that ListTasks shows. Its GPUs stay claimed until its end."""
    world, job_id = running(policy=replace(POLICY, pending_retry_s=120))
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    whole, hidden = describe.describe_tasks, set[str]()

    def some_are_missing(cluster: Any, params: Any, now: Any) -> dict[str, Any]:
        answer = whole(cluster, params, now)
        kept = [one for one in answer["tasks"] if one["taskArn"] in hidden]
        hidden.update(one["taskArn"] for one in answer["tasks"])
        return {**answer, "tasks": kept}

    monkeypatch.setattr(describe, "describe_tasks", some_are_missing)
    world.cancel(job_id)
    world.until(lambda: not world.ranks(job_id), "a container is left", 900)
    assert hidden
    world.until(lambda: not any(one.claims for one in world.instances()), "a claim is left", 900)
    world.check_end()


def test_the_gpus_of_a_held_task_are_given_to_nobody() -> None:
    """Another job waits, although no process uses the GPUs, and gets them after the confirmed end."""
    world, job_id = running(instances=2, policy=replace(POLICY, pending_retry_s=200, container_hold_s=60))
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    other = world.submit(nnodes=1)
    world.let_pass(30)
    assert world.job(other).attempt == 0
    world.until(lambda: world.job(other).status is JobStatus.RUNNING, "it never runs", 400)


def lost(*kinds: str) -> Any:
    """A delivery that loses the STOPPED events of ranks."""

    def deliver(envelope: Envelope) -> tuple[float, ...]:
        detail = envelope.get("detail", {})
        return () if detail.get("lastStatus") in kinds and "--a" in (detail.get("startedBy") or "") else (PROMPT_S,)

    return deliver


def test_a_lost_end_of_a_held_task_is_found() -> None:
    """The container ends while the job waits; ECS is asked, and the attempt that has the task goes on elsewhere."""
    world, job_id = running(delivery=lost("STOPPED"))
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    victim: Task = world.ranks(job_id)[0]
    world.fleet.ranks.give_up(victim.task_id)
    runs_again(world, job_id, 3)
    assert sum(world.job(job_id).attempts_uncounted.values()) == 1
    succeeds(world, job_id)


def test_an_end_that_comes_while_the_launch_records_its_tasks_is_not_lost() -> None:
    """The event finds no rank in the plan yet, so the launch looks once more after it has written the plan."""
    world, job_id = running(delivery=lost("STOPPED"))
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    victim, kept = world.ranks(job_id)[0], world.store.record_tasks

    def record(plan: Any, ranks: Any) -> None:
        if plan.attempt == 2 and world.fleet.ranks.held.get(victim.task_id):
            world.fleet.ranks.give_up(victim.task_id)
            world.store.add_stopped(job_id, 1, int(environment(victim)["RANK"]), None)  # by the event of this end
        kept(plan, ranks)

    world.store.record_tasks = record  # type: ignore[method-assign]
    world.until(lambda: world.job(job_id).status is JobStatus.STOPPING, "the end was lost", 30)
    assert "before the attempt had started there" in history(world, job_id)


def test_a_task_that_ends_after_its_attempt_is_a_fact_of_the_present_attempt() -> None:
    """ECS names attempt 1 for it, and attempt 2 fails by it."""
    world, job_id = running()
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    world.exit(job_id, 0, None)  # its container vanishes
    world.until(lambda: world.job(job_id).status is not JobStatus.RUNNING, "the end was lost", 30)
    failure = world.job(job_id).failure
    assert failure is not None and world.job(job_id).attempt == 2 and failure.rank == 0
    runs_again(world, job_id, 3)
    succeeds(world, job_id)


def test_a_faulty_instance_that_was_swapped_out_is_repaired() -> None:
    """Its check comes after the end of its held task, and takes the claim over."""
    world, job_id = running(story="")
    sick = world.model_instance(1)
    world.log_output.next[sick.instance_id] = LogStory.ECC
    world.checks.script(sick, ScriptedCheck(CheckOutcome.REBOOT))
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    world.until(lambda: world.fleet.boots[sick.instance_id] == 1, "it is not rebooted")
    world.until(lambda: world.instance(sick).status is InstanceStatus.AVAILABLE, "it does not come back")
    succeeds(world, job_id)


def test_commands_of_an_attempt_are_withdrawn_once_they_are_carried_out() -> None:
    """A heartbeat keeps no order for ever."""
    world, job_id = running()
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    world.let_pass(120)
    orders = world.store.load_heartbeats([instance.instance_id for instance in world.model_instances()])
    assert not any(beat.orders for beat in orders.values()), AgentCommandKind.START


@pytest.mark.slow
def test_a_failed_job_asks_no_more_for_the_end_of_a_rank_whose_claim_it_keeps() -> None:
    """The instance of a rank that was started in place dies with its ECS agent. The command was tried for ever."""
    played = play(in_place.scenario_of(7044), generator.in_passing(7044), begun=in_place.commands_of(7044))
    assert not played.violations, played.violations


@pytest.mark.slow
@pytest.mark.parametrize("seed", tiers.seeds(400, default=5))
def test_no_invariant_breaks_whatever_is_late_lost_or_doubled(seed: int) -> None:
    """Each run ends with every job ended, no claim left, and never two attempts of a job at once."""
    played = play(in_place.scenario_of(seed), generator.in_passing(seed), begun=in_place.commands_of(seed))
    assert not played.violations, played.violations


def test_a_task_that_the_launch_did_not_record_is_found_before_it_is_used_again() -> None:
    """The launcher died after RunTask. A held task without an id looked as if it had ended."""
    world, job_id = running()
    plan = world.store.load_plan(job_id, 1)
    assert plan is not None
    before = tasks(world, job_id)
    world.store.plans[job_id, 1] = replace(plan, task_ids=("", ""))
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    assert tasks(world, job_id) == before and len(world.calls("RunTask")) == 2
    succeeds(world, job_id)


def test_a_job_of_one_instance_leaves_it_with_its_container() -> None:
    """Nothing is left to hold."""
    world, job_id = running(nnodes=1)
    world.fleet.interrupt(world.cluster.instances[world.job(job_id).instances[0]])
    runs_again(world, job_id)
    assert world.fleet.ranks.holds == 0
    succeeds(world, job_id)


def test_a_held_task_that_cannot_be_stopped_is_ended_by_a_reboot() -> None:
    """The job runs elsewhere meanwhile. Before, its claim stayed as long as the container."""
    world, job_id = running(story="", policy=replace(POLICY, container_hold_s=86_400))
    sick = world.model_instance(1)
    world.log_output.next[sick.instance_id] = LogStory.ECC
    world.fleet.stuck.add(sick.instance_id)
    world.exit(job_id, 1, 1)
    runs_again(world, job_id)
    world.until(lambda: world.fleet.boots[sick.instance_id] == 1, "it is not rebooted", 3_600)
    world.until(lambda: not world.instance(sick).claims, "its claim is left", 1_200)
    succeeds(world, job_id)


FORGOTTEN_S = 4_200.0
"""Seconds after which ECS has forgotten a stopped task. It forgets a stopped task after about an hour."""


def deregister(world: World, instance_id: str, registers_every_s: float = 0) -> ModelInstance:
    """Deregister the instance by force. It ignores the reboot that follows. Return it."""
    sick = world.cluster.instances[instance_id]
    sick.reboot_behaviour = RebootBehaviour.IGNORED
    number = [machine.instance_id for machine in world.model_instances()].index(instance_id)
    DeregisteredByHand(at_s=0, machines=(number,), registers_every_s=registers_every_s).strike(world)
    return sick


@pytest.mark.parametrize(("canceled", "registers_every_s"), [(False, 0), (True, 0), (True, 30)])
def test_a_held_task_that_ecs_has_forgotten_keeps_its_claim(canceled: bool, registers_every_s: float) -> None:
    """A forced deregistration ends no container. Before, the GPUs were free as soon as ECS had forgotten the task."""
    world, job_id = running(policy=replace(POLICY, container_hold_s=86_400, pending_retry_s=60), fidelity=QUICK)
    orphan = world.rank(job_id, 1)
    world.exit(job_id, 1, 1)
    world.until_status(job_id, JobStatus.RECOVERING)
    sick = deregister(world, world.job(job_id).instances[1], registers_every_s)
    if canceled:
        world.cancel(job_id)
    else:
        runs_again(world, job_id)
        assert sick.instance_id not in world.job(job_id).instances
    world.let_pass(FORGOTTEN_S)
    assert orphan.runs and not world.actions.describe_tasks([orphan.task_id])
    assert world.instance(sick).claims[job_id].attempt == 1
    assert not [step for step in world.calls("StopTask") if step.given["task"] == orphan.task_id]
    world.fleet.terminate(sick)
    world.until(lambda: not world.instance(sick).claims, "its claim is left", 120)
    if not canceled:
        succeeds(world, job_id)
    world.until(world.is_quiet, "a command is left", 600)


def test_a_held_task_whose_claim_a_refused_launch_took_over_keeps_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim names the second attempt, and the container the first. The instance is deregistered in between."""
    world, job_id = running(nnodes=3, policy=replace(POLICY, container_hold_s=86_400))
    claim, refused = world.store.claim_instance, []

    def claim_instance(instance_id: str, *given: Any) -> bool:
        if refused or instance_id != world.job(job_id).instances[2]:
            return claim(instance_id, *given)
        refused.append(deregister(world, world.job(job_id).instances[0]))
        return False

    orphan = world.rank(job_id, 0)
    monkeypatch.setattr(world.store, "claim_instance", claim_instance)
    world.exit(job_id, 1, 1)
    world.until(lambda: bool(refused), "no second attempt", 300)
    world.let_pass(600)
    assert orphan.runs and world.instance(refused[0]).claims[job_id].attempt == 2
    world.fleet.terminate(refused[0])
    world.until(lambda: not world.instance(refused[0]).claims, "its claim is left", 120)

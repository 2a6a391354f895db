"""Deploy and heal: the production stacks, deployed by the real CDK, with real processes as GPU tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli import app
from typer.testing import CliRunner

from sandbox import sandbox
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow

GPUS = 8
CLASSIC_IF_FULL = pytest.mark.parametrize(
    "deployed", ["adaptive", pytest.param("classic", marks=pytest.mark.full)], indirect=True, scope="module"
)
ADAPTIVE = pytest.mark.parametrize("deployed", ["adaptive"], indirect=True, scope="module")
QUICK = {"poll_interval_s": 5, "reboot_settle_s": 4, "reboot_timeout_s": 20, "pending_retry_s": 5}
TRAINER = ["python", "-m", "sandbox.trainers.plain_python"]
UNTIL_THE_FAULT = '[ "${ATTEMPT:-1}" = 1 ] && export TOTAL_STEPS=1000000'
"""Shell command: attempt 1 trains until the test injects its fault, however long that takes on a busy machine."""
EXITS_ONE = ["sh", "-c", f"{UNTIL_THE_FAULT}; trap : ABRT; python -m sandbox.trainers.plain_python || exit 1"]
"""Exit code 1 for every end of the worker, as from a launcher: the only code that `classic` checks for."""
RANK_0_FAILS = ["sh", "-c", 'sleep 1; [ "$RANK" = 0 ] && exit 1; exec sleep 600']
"""Only rank 0 ends by itself. If both ranks did, the load of the machine would decide which of them is stopped."""
IS_KILLED = ["sh", "-c", f"{UNTIL_THE_FAULT}; exec python -m sandbox.trainers.plain_python"]


@dataclass(frozen=True)
class Deployment:
    """A sandbox that is up, and its operator."""

    directory: Path
    client: RecoveryClient
    state: dict[str, Any]

    def submit(self, name: str, command: list[str], steps: int = 60, **fields: Any) -> str:
        environment = {
            "CHECKPOINT_DIR": str(self.directory / name),
            "TOTAL_STEPS": str(steps),
            "STEP_SECONDS": "0.1",
            "CHECKPOINT_EVERY": "5",
            "COLLECTIVE_TIMEOUT_S": "120",
        }
        spec = {
            "workload": name,
            "nnodes": 2,
            "n_gpus_per_node": GPUS,
            "task_definition": sandbox.TRAINING_FAMILY,
            "command": command,
            "env": environment,
            "user": "tests",
            **fields,
        }
        return str(self.client.submit(spec)["job_id"])

    def wait(self, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        job: dict[str, Any] = {}

        def reached() -> bool:
            job.update(self.client.job(job_id))
            return condition(job)

        wait_until(reached, lambda: [entry["reason"] for entry in job["history"]])
        return job

    def until_checkpoint(self, name: str) -> None:
        wait_until(lambda: any((self.directory / name).glob("**/*.json")), "a checkpoint")

    def until_free(self) -> None:
        def free() -> bool:
            return all(i["status"] == "AVAILABLE" and not i["claims"] for i in self.client.instances())

        wait_until(free, "every instance free again")

    def ends(self, job_id: str) -> dict[str, Any]:
        return self.wait(job_id, lambda job: job["status"] in ("SUCCEEDED", "FAILED", "CANCELED"))

    def instance(self, instance_id: str) -> dict[str, Any]:
        return self.client.instance(instance_id)

    def logs(self, job_id: str, attempt: int) -> str:
        tasks = sandbox.cluster_state(self.directory)["tasks"]
        wanted = [t for t in tasks if t["started_by"] == f"{job_id}--a{attempt:02d}"]
        return "".join(Path(task["log"]).read_text() for task in wanted)

    def mails(self, record_id: str) -> list[dict[str, Any]]:
        return [mail for mail in sandbox.read_mailbox(self.directory) if record_id in mail["subject"]]

    def subjects(self, record_id: str) -> list[str]:
        return [mail["subject"] for mail in self.mails(record_id)]


@pytest.fixture(scope="module")
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    directory = tmp_path_factory.mktemp(request.param)
    context = {"gpu-recovery:adopt": "recover"}
    try:
        state = sandbox.up(directory, instances=2, gpus=GPUS, preset=request.param, policy=QUICK, context=context)
        with RecoveryClient(state["api_url"], state["operator_token"]) as client:
            yield Deployment(directory, client, {**state, "preset": request.param})
    finally:
        sandbox.down(directory)


def statuses(view: dict[str, Any]) -> list[str]:
    """The statuses in the order they were entered."""
    return [entry["to"] for entry in view["history"] if entry["from"] != entry["to"]]


@CLASSIC_IF_FULL
def test_a_gpu_fault_heals_by_itself(deployed: Deployment) -> None:
    """Fault, gang stop, two checks, reboot, proof, relaunch from the checkpoint, success; under both presets."""
    job_id = deployed.submit("heal", EXITS_ONE)
    job = deployed.wait(job_id, lambda job: job["status"] == "RUNNING")
    deployed.until_checkpoint("heal")
    well, sick = job["instances"]
    before = {machine["instance_id"]: machine for machine in sandbox.cluster_state(deployed.directory)["instances"]}
    sandbox.fault(deployed.directory, sick, "xid79")
    job = deployed.ends(job_id)

    assert (job["status"], job["attempt"], job["instances"]) == ("SUCCEEDED", 2, [well, sick])
    attempt = ["SUBMITTING", "RUNNING"]
    # An attempt whose ranks all run before its launch is recorded is never SUBMITTED.
    passed = [status for status in statuses(job) if status != "SUBMITTED"]
    assert passed == ["QUEUED", *attempt, "STOPPING", "DIAGNOSING", "RECOVERING", *attempt, "SUCCEEDED"]
    assert "resumed from step" in deployed.logs(job_id, 2) and "resumed from step 0" not in deployed.logs(job_id, 2)
    deployed.until_free()
    healed, spared = deployed.instance(sick), deployed.instance(well)
    assert statuses(healed)[1:] == ["CHECKING", "REBOOTING", "VERIFYING", "AVAILABLE"]
    assert statuses(spared)[1:] == ["CHECKING", "AVAILABLE"]
    after = {machine["instance_id"]: machine for machine in sandbox.cluster_state(deployed.directory)["instances"]}
    assert after[sick]["boot_id"] not in (before[sick]["boot_id"], None)
    assert after[sick]["boot_id"] == healed["boot_id"] and after[well]["boot_id"] == before[well]["boot_id"]
    assert after[sick]["status"] == "ACTIVE" and not after[sick]["faults"]
    wait_until(lambda: len(deployed.mails(job_id)) == 2, "the e-mails")
    first, last = deployed.mails(job_id)
    assert first["subject"].endswith("attempt 1 failed, recovering")
    # The second attempt ends within the minute after which it would count as recovered.
    assert last["subject"].endswith("has ended, nothing is left to recover")
    assert "GPU_HAS_FALLEN_OFF_THE_BUS" in last["body"] and f"{sick} " in last["body"] and "REBOOTING: " in last["body"]
    assert "(2 times)" not in last["body"]


@CLASSIC_IF_FULL
def test_an_application_error_on_healthy_gpus_fails_and_says_so(deployed: Deployment) -> None:
    """Exit 1 with nothing wrong: both presets check, blame nobody, fail the job and tell the operators."""
    job_id = deployed.submit("broken", RANK_0_FAILS)
    job = deployed.ends(job_id)
    assert (job["status"], job["attempt"]) == ("FAILED", 1), [entry["reason"] for entry in job["history"]]
    assert "no faulty instance found" in job["reason"]
    deployed.until_free()
    wait_until(lambda: deployed.subjects(job_id)[-1].endswith("FAILED on attempt 1"), "the e-mail")


@CLASSIC_IF_FULL
def test_a_cancelled_job_stops_its_ranks_and_frees_its_instances(deployed: Deployment) -> None:
    """Cancel ends real processes, and the GPUs are free once their end is confirmed."""
    job_id = deployed.submit("cancel", TRAINER, steps=100_000)
    deployed.wait(job_id, lambda job: job["status"] == "RUNNING")
    deployed.client.cancel(job_id)
    assert deployed.ends(job_id)["status"] == "CANCELED"
    tasks = [t for t in sandbox.cluster_state(deployed.directory)["tasks"] if t["started_by"].startswith(job_id)]
    assert [task["last_status"] for task in tasks] == ["STOPPED", "STOPPED"]
    deployed.until_free()


@ADAPTIVE
def test_tasks_started_by_a_person_are_adopted_and_recovered(deployed: Deployment) -> None:
    """Seed 001's only way in: the tasks carry JOB_ID, RANK and WORLD_SIZE, and a crash relaunches them."""
    ecs = sandbox.client("ecs", deployed.state["ecs_endpoint_url"], deployed.state)
    ids = sorted(i["instance_id"] for i in deployed.client.instances())
    shared = {
        "JOB_ID": "by-hand",
        "WORLD_SIZE": "2",
        "MASTER_PORT": "2300",
        "CHECKPOINT_DIR": str(deployed.directory / "hand"),
        "TOTAL_STEPS": "60",
        "STEP_SECONDS": "0.1",
        "COLLECTIVE_TIMEOUT_S": "120",
        "MASTER_ADDR": sandbox.cluster_state(deployed.directory)["instances"][0]["private_ip"],
    }
    first = sandbox.cluster_state(deployed.directory)["instances"][0]["instance_id"]
    for rank, instance_id in enumerate([first, *(i for i in ids if i != first)]):
        environment = [{"name": k, "value": v} for k, v in {**shared, "RANK": str(rank)}.items()]
        ecs.run_task(
            cluster=deployed.state["cluster"],
            taskDefinition=sandbox.TRAINING_FAMILY,
            launchType="EC2",
            startedBy="me",
            placementConstraints=[{"type": "memberOf", "expression": f"ec2InstanceId == {instance_id}"}],
            overrides={"containerOverrides": [{"name": "trainer", "environment": environment, "command": IS_KILLED}]},
        )
    wait_until(lambda: "by-hand" in {job["job_id"] for job in deployed.client.jobs()}, "the adoption")
    deployed.wait("by-hand", lambda job: job["status"] == "RUNNING")
    deployed.until_checkpoint("hand")
    sandbox.fault(deployed.directory, first, "kill")
    job = deployed.ends("by-hand")
    assert (job["status"], job["attempt"], job["origin"]) == ("SUCCEEDED", 2, "ADOPTED")
    assert "resumed from step" in deployed.logs("by-hand", 2)


@ADAPTIVE
def test_a_reboot_that_never_happens_is_escalated_to_a_person(deployed: Deployment) -> None:
    """No proof of the reboot by the deadline: quarantine, DRAINING, e-mail; the job goes on waiting for a place."""
    job_id = deployed.submit("stuck", TRAINER, steps=100_000)
    job = deployed.wait(job_id, lambda job: job["status"] == "RUNNING")
    sick = job["instances"][0]
    sandbox.fault(deployed.directory, sick, "ecc", reboot="ignored")
    wait_until(lambda: deployed.instance(sick)["status"] == "QUARANTINED", "the quarantine")
    wait_until(lambda: deployed.instance(sick)["ecs_status"] == "DRAINING", "the drain")
    wait_until(lambda: any("quarantined" in subject for subject in deployed.subjects(sick)), "the e-mail")
    assert deployed.client.job(job_id)["status"] == "RECOVERING"
    deployed.client.cancel(job_id)
    assert deployed.ends(job_id)["status"] == "CANCELED"


@ADAPTIVE
def test_what_if_replays_the_incidents_of_the_tests_above(
    deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control decides each as it happened. Where exits are retried, only the application error goes otherwise."""
    jobs = {view["job_id"]: deployed.client.job(view["job_id"]) for view in deployed.client.jobs()}
    stopped = {f"{job_id}--a01": job for job_id, job in jobs.items() if "STOPPING" in statuses(job)}
    by_user = {name for name, job in stopped.items() if job["status"] == "CANCELED"}
    [heal], [broken] = ([name for name in stopped if name.startswith(f"{which}-")] for which in ("heal", "broken"))
    assert {heal, broken, "by-hand--a01"} == stopped.keys() - by_user, "run the whole file"

    since = min(job["history"][0]["at"] for job in jobs.values())

    def ends() -> set[tuple[str, str]]:
        events = deployed.client.event_records(since)
        return {(event["data"].get("job_id", ""), event["data"].get("after", "")) for event in events}

    wait_until(lambda: {(job_id, job["status"]) for job_id, job in jobs.items()} <= ends(), "the events in the history")
    monkeypatch.setenv("GPU_RECOVERY_API_URL", deployed.state["api_url"])
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", deployed.state["operator_token"])
    asked = [
        "fleet",
        "what-if",
        "--set",
        "retry_exits=true",
        "--since",
        "1d",
        "--save",
        str(tmp_path / "records"),
        "--json",
    ]
    told = CliRunner().invoke(app.app, asked)
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)

    lines = {line["incident"]: line for line in report["incidents"]}
    assert lines.keys() == stopped.keys() - by_user
    assert {line["incident"] for line in report["not_replayable"]} == by_user
    assert report["not_reproduced"] == []
    number = len(lines)
    assert report["interruptions"] == {"recorded": len(stopped), "replayed": number, "reproduced": number}
    assert lines[heal]["reboots"] == [1, 1] and lines[heal]["checks"] == [3, 3]
    assert [name for name, line in lines.items() if line["difference"]] == [broken]
    assert "-> FAILED: " in lines[broken]["difference"]["control"]
    assert "-> RECOVERING: " in lines[broken]["difference"]["new"]
    # With retries, rank 0 fails on the same instance in three attempts, so that instance is rebooted on suspicion.
    assert lines[broken]["reboots"] == [0, 1] and lines[broken]["checks"] == [2, 7]
    assert (report["control"]["reboots"], report["new"]["reboots"]) == (1, 2)

"""Tasks are real processes: their exit codes, their signals, their machine's reboots and faults."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.cluster.conftest import REPOSITORY

pytestmark = pytest.mark.slow  # real processes, with their real stop times

NAME = "nwcd-gpu-testing"


def is_alive(pid):
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def pid_of(server, arn):
    return next(t["pid"] for t in server.get("state")["tasks"] if arn.endswith(t["task_id"]))


def started(server, script, on, **members):
    """The ARN of a shell task that runs."""
    definition = server.define(["sh", "-c", script], **members.pop("container", {}))
    arn = server.run(definition, on, **members)["tasks"][0]["taskArn"]
    server.until_status(arn, "RUNNING")
    return arn


def test_the_exit_code_is_the_process_s_own(server, instance_id):
    """An exit is its number, a signal is 128 and its number."""
    definition = server.define(["sh", "-c", "exit ${CODE}"])
    codes = {}
    for code in ("0", "3"):
        override = {"environment": [{"name": "CODE", "value": code}]}
        arn = server.run(definition, instance_id, override=override)["tasks"][0]["taskArn"]
        codes[code] = server.until_status(arn, "STOPPED")["containers"][0]["exitCode"]
    arn = server.run(definition, instance_id, override={"command": ["sh", "-c", "kill -SEGV $$"]})["tasks"][0][
        "taskArn"
    ]
    codes["SEGV"] = server.until_status(arn, "STOPPED")["containers"][0]["exitCode"]
    assert codes == {"0": 0, "3": 3, "SEGV": 139}


def test_a_task_sees_its_environment_its_gpus_and_its_machine(server, instance_id):
    """Definition, override and instance are merged; the pinned GPUs win; the folder stands for the host."""
    script = (
        "echo a=$A b=$B gpus=$NVIDIA_VISIBLE_DEVICES boot=$(cat $HOST_PROC/sys/kernel/random/boot_id); "
        "grep btime $HOST_PROC/stat; python -c 'import gpu_recovery, sandbox, boto3; print(\"imports\")'"
    )
    definition = server.define(["sh", "-c", script], environment=[{"name": n, "value": "definition"} for n in "AB"])
    values = {"B": "override", "NVIDIA_VISIBLE_DEVICES": "all"}
    override = {"environment": [{"name": name, "value": value} for name, value in values.items()]}
    task = server.run(definition, instance_id, "2", override=override)["tasks"][0]
    server.until_status(task["taskArn"], "STOPPED")
    boot_id, gpus = server.instance(instance_id)["boot_id"], ",".join(task["containers"][0]["gpuIds"])
    lines = server.log(task["taskArn"]).splitlines()
    assert lines[0] == f"a=definition b=override gpus={gpus} boot={boot_id}"
    assert re.fullmatch(r"btime \d+", lines[1])
    assert lines[2] == "imports"


def test_a_missing_program_is_task_failed_to_start(server, instance_id):
    """No exit code, and docker's words."""
    arn = server.run(server.define(["no-such-program"]), instance_id)["tasks"][0]["taskArn"]
    task = server.until_status(arn, "STOPPED")
    assert task["stopCode"] == "TaskFailedToStart"
    assert "exitCode" not in task["containers"][0]
    assert "executable file not found" in task["containers"][0]["reason"]


def test_stop_task_is_sigterm_first(server, instance_id):
    """A process that dies of it has 143; one that handles it has its own code."""
    plain = started(server, "exec sleep 60", instance_id)
    polite = started(server, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done", instance_id)
    server.until_logged(polite, "ready")
    codes = []
    for arn in (plain, polite):
        server.ecs.stop_task(cluster=NAME, task=arn)
        codes.append(server.until_status(arn, "STOPPED")["containers"][0]["exitCode"])
    assert codes == [143, 0]
    assert server.task(polite)["stopCode"] == "UserInitiated"


def test_stop_task_is_sigkill_after_the_stop_timeout(server, instance_id):
    """A process that ignores SIGTERM has 137."""
    script = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    arn = started(server, script, instance_id, container={"stopTimeout": 1})
    server.until_logged(arn, "ready")
    server.ecs.stop_task(cluster=NAME, task=arn)
    assert server.until_status(arn, "STOPPED")["containers"][0]["exitCode"] == 137


def test_a_task_s_children_end_with_it(server, instance_id):
    """Those that dropped its environment, and those that left its process group for a session of their own."""
    script = "env -i sleep 60 & echo child $!; setsid sleep 60 & echo stray $!; exit 0"
    arn = server.run(server.define(["sh", "-c", script]), instance_id)["tasks"][0]["taskArn"]
    server.until_status(arn, "STOPPED")
    pids = [int(pid) for pid in re.findall(r"(?:child|stray) (\d+)", server.log(arn))]
    assert len(pids) == 2
    server.until(lambda: not any(is_alive(pid) for pid in pids), "the children's end")


def test_a_reboot_kills_the_processes_and_reports_them_when_the_agent_is_back(server, instance_id):
    """No StopTask, no EC2 event; the same ARN, a new boot id in the instance's folder; then tasks run again."""
    arn, before = started(server, "exec sleep 60", instance_id), server.instance(instance_id)
    pid, since = pid_of(server, arn), server.get("events")["next"]
    server.ec2.reboot_instances(InstanceIds=[instance_id])
    server.ec2.reboot_instances(InstanceIds=[instance_id])  # asked again meanwhile, it is still one reboot
    server.until(lambda: server.instance(instance_id)["boot_id"] != before["boot_id"], "the boot")
    task = server.until_status(arn, "STOPPED")
    after = server.instance(instance_id)
    assert not is_alive(pid)
    assert (task["containers"][0]["exitCode"], task["stopCode"]) == (137, "EssentialContainerExited")
    assert after["container_instance_arn"] == before["container_instance_arn"]
    assert after["boot_id"] != before["boot_id"]
    on_disk = Path(after["folder"]) / "proc/sys/kernel/random/boot_id"
    assert on_disk.read_text().strip() == after["boot_id"]
    told = server.get(f"events?after={since}")["events"]
    ours = [e["detail"] for e in told if e["detail"].get("ec2InstanceId") == instance_id]
    assert [d["agentConnected"] for d in ours] == [False, True, True]
    assert {e["source"] for e in told} == {"aws.ecs"}
    started(server, "exec sleep 60", instance_id)


@pytest.mark.parametrize("behaviour", ["silent", "ignored"])
def test_a_reboot_may_never_return_or_never_happen(server, instance_id, behaviour):
    """Silent: the machine boots and its agent stays away. Ignored: nothing happens to the task."""
    arn, before = started(server, "exec sleep 60", instance_id), server.instance(instance_id)
    server.post("fault", instance=instance_id, kind="xid79", reboot=behaviour, gpu=0)
    server.ec2.reboot_instances(InstanceIds=[instance_id])
    if behaviour == "silent":
        server.until(lambda: server.instance(instance_id)["boot_id"] != before["boot_id"], "the boot")
        assert not server.instance(instance_id)["agent_connected"]
        assert server.task(arn)["lastStatus"] == "RUNNING"
    else:
        definition = server.define(["sleep", "0.5"])  # longer than a reboot takes here
        done = server.run(definition, instance_id)["tasks"][0]["taskArn"]
        server.until_status(done, "STOPPED")
        assert server.instance(instance_id)["boot_id"] == before["boot_id"]
        assert server.task(arn)["lastStatus"] == "RUNNING"


def dcgmi(server, instance_id, gpus="ALL"):
    """The document and the exit code of `dcgmi diag` run as a health check on the instance."""
    definition = server.define(["dcgmi", "diag", "-r", "2", "-j"], family="check")
    check = server.run(definition, instance_id, gpus, startedBy=f"check/{instance_id}/1")["tasks"][0]["taskArn"]
    code = server.until_status(check, "STOPPED")["containers"][0]["exitCode"]
    return json.loads(server.log(check)), code


def warnings_in(document):
    categories = document["DCGM Diagnostic"]["test_categories"]
    results = [(t["name"], r) for c in categories for t in c["tests"] for r in t["results"]]
    return {
        (name, r["entity_id"], w["error_id"], w["error_severity"]) for name, r in results for w in r.get("warnings", [])
    }


@pytest.mark.parametrize(
    ("kind", "xid", "expected", "exit_code"),
    [
        ("xid79", 79, {("software", 1, 120, 2)}, 205),
        ("xid119", 119, {("software", 1, 125, 6)}, 226),
        ("ecc", 48, {("memory", 1, 57, 2), ("memory", 1, 52, 2)}, 205),
    ],
)
def test_a_gpu_fault_aborts_its_ranks_and_shows_in_dcgm_until_the_reboot(
    server, instance_id, kind, xid, expected, exit_code
):
    """Exit 134, an Xid in the kernel log, an error of dcgmi with its exit code; healthy and 0 after the reboot."""
    document, code = dcgmi(server, instance_id)
    assert (warnings_in(document), code) == (set(), 0)
    spared = started(server, "exec sleep 60", instance_id, gpus="1")
    hit = started(server, "exec sleep 60", instance_id, gpus="1")
    assert server.post("fault", instance=instance_id, kind=kind, gpu=1)["tasks"] == [hit]
    assert server.until_status(hit, "STOPPED")["containers"][0]["exitCode"] == 134
    assert server.task(spared)["lastStatus"] == "RUNNING"
    kernel_log = Path(server.instance(instance_id)["folder"]) / "dev/kmsg"
    assert re.search(rf"NVRM: Xid \(PCI:[0-9a-f:]+\): {xid},", kernel_log.read_text())
    server.ecs.stop_task(cluster=NAME, task=spared)
    server.until_status(spared, "STOPPED")
    document, code = dcgmi(server, instance_id)
    assert (warnings_in(document), code) == (expected, exit_code)
    boot_id = server.instance(instance_id)["boot_id"]
    server.ec2.reboot_instances(InstanceIds=[instance_id])
    server.until(lambda: server.instance(instance_id)["boot_id"] != boot_id, "the boot")
    document, code = dcgmi(server, instance_id)
    assert (warnings_in(document), code) == (set(), 0)
    assert "Xid" not in kernel_log.read_text()


def reset_by_the_agent(server, instance_id):
    """What the node agent's child process answers when it resets the GPUs of the instance, and its nvidia-smi."""
    folder = Path(server.instance(instance_id)["folder"])
    variables = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": "agent"}
    answer = subprocess.run(
        [sys.executable, "-m", "gpu_recovery_agent.reset_child", folder / "proc", "nvidia-smi", "--gpu-reset"],
        env=variables,
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    query = [folder / "bin/nvidia-smi", "--query-gpu=persistence_mode", "--format=csv,noheader"]
    modes = subprocess.run(query, capture_output=True, check=True, text=True).stdout.split()
    return json.loads(answer.stdout), modes


def test_the_agent_resets_the_gpus_when_no_process_uses_them(server, instance_id):
    """The driver refuses under a process. Then the fault is gone without a boot, and the kernel log keeps it."""
    spared = started(server, "exec sleep 60", instance_id, gpus="1")
    server.post("fault", instance=instance_id, kind="xid119", gpu=1)
    before = server.instance(instance_id)
    gpus = before["gpus"]
    assert before["faults"] == {gpus[1]: "xid119"}
    answer, modes = reset_by_the_agent(server, instance_id)
    assert not answer["done"] and modes == ["Enabled", "Enabled"]
    assert answer["sentence"].endswith("GPU 00000000:10:00.0: In use by another client")
    assert server.instance(instance_id)["faults"] == before["faults"]
    server.ecs.stop_task(cluster=NAME, task=spared)
    server.until_status(spared, "STOPPED")
    answer, modes = reset_by_the_agent(server, instance_id)
    after = server.instance(instance_id)
    assert answer == {"done": True, "sentence": "the GPUs were reset"} and modes == ["Enabled", "Enabled"]
    assert (after["faults"], after["boot_id"], after["booted_at"]) == ({}, before["boot_id"], before["booted_at"])
    assert "Xid (PCI:0000:1b:00): 119" in (Path(after["folder"]) / "dev/kmsg").read_text()
    document, code = dcgmi(server, instance_id)
    assert (warnings_in(document), code) == (set(), 0)


def test_a_health_check_outlives_the_fault_it_looks_at(server, instance_id):
    """A check that is running when the GPU fails is no rank: it is not aborted."""
    check = started(server, "exec sleep 60", instance_id, gpus="2", startedBy=f"check/{instance_id}/1")
    for kind in ("ecc", "kill", "hang"):
        assert server.post("fault", instance=instance_id, kind=kind, gpu=0)["tasks"] == []
    server.ecs.stop_task(cluster=NAME, task=check)
    assert server.until_status(check, "STOPPED")["containers"][0]["exitCode"] == 143


def test_a_check_without_gpus_sees_none(server, instance_id):
    """ECS gives no driver libraries without a GPU requirement."""
    document, code = dcgmi(server, instance_id, gpus="0")
    assert (list(document["DCGM Diagnostic"]), code) == (["runtime_error"], 198)


def test_hang_and_kill_faults_are_signals_to_the_rank(server, instance_id):
    """A hung rank runs on for ECS and needs SIGKILL; a killed one has 137."""
    hung = started(server, "exec sleep 60", instance_id, container={"stopTimeout": 1})
    pid = pid_of(server, hung)
    assert server.post("fault", instance=instance_id, kind="hang")["tasks"] == [hung]
    server.until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T", "the rank to hang")
    assert server.task(hung)["lastStatus"] == "RUNNING"
    server.ecs.stop_task(cluster=NAME, task=hung)
    assert server.until_status(hung, "STOPPED")["containers"][0]["exitCode"] == 137
    killed = started(server, "exec sleep 60", instance_id)
    server.post("fault", instance=instance_id, kind="kill")
    task = server.until_status(killed, "STOPPED")
    assert (task["containers"][0]["exitCode"], task["stopCode"]) == (137, "EssentialContainerExited")


def test_a_lost_agent_leaves_the_processes_running_until_a_reboot(server, instance_id):
    """Stopping does nothing then; a reboot brings the agent back with the truth."""
    arn = started(server, "exec sleep 60", instance_id)
    pid = pid_of(server, arn)
    server.post("fault", instance=instance_id, kind="agent_lost")
    server.ecs.stop_task(cluster=NAME, task=arn)
    task = server.task(arn)
    assert (task["lastStatus"], task["desiredStatus"]) == ("RUNNING", "STOPPED")
    assert is_alive(pid)
    server.ec2.reboot_instances(InstanceIds=[instance_id])
    assert server.until_status(arn, "STOPPED")["stopCode"] == "UserInitiated"
    assert not is_alive(pid)


def test_a_spot_interruption_warns_and_then_terminates(server, instance_id):
    """The warning, shutting-down, terminated; the task ends with its host, without an exit code."""
    arn, since = started(server, "exec sleep 60", instance_id), server.get("events")["next"]
    server.post("fault", instance=instance_id, kind="spot")
    task = server.until_status(arn, "STOPPED")
    assert "exitCode" not in task["containers"][0]
    assert task["stoppedReason"] == f"Host EC2 (instance {instance_id}) terminated."
    told = [e for e in server.get(f"events?after={since}")["events"] if e["source"] == "aws.ec2"]
    assert told[0]["detail-type"] == "EC2 Spot Instance Interruption Warning"
    assert [e["detail"]["state"] for e in told[1:]] == ["shutting-down", "terminated"]


def test_stop_and_start_give_another_machine_with_the_same_registration(server, instance_id):
    """What a replacement in place looks like: a fault that only this cures is gone."""
    server.post("fault", instance=instance_id, kind="xid79", cured_by="replace", reboot="silent")
    server.ec2.stop_instances(InstanceIds=[instance_id])
    server.until(lambda: server.instance(instance_id)["ec2_state"] == "stopped", "stopped")
    assert server.instance(instance_id)["faults"]
    changed = server.ec2.start_instances(InstanceIds=[instance_id])["StartingInstances"][0]
    assert (changed["PreviousState"]["Name"], changed["CurrentState"]["Name"]) == ("stopped", "pending")
    server.until(lambda: server.instance(instance_id)["agent_connected"], "the agent")
    after = server.instance(instance_id)
    assert (after["ec2_state"], after["faults"], after["reboot_behaviour"]) == ("running", {}, "normal")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ending_the_server_leaves_no_process_behind(start_server, number):
    """Not even one that ignores SIGTERM, hangs, or has left its group."""
    server = start_server("--instances", "1")
    (instance_id,) = server.instance_ids
    script = "trap '' TERM; setsid sleep 60 & echo stray $!; while :; do sleep 0.05; done"
    stubborn, hung = started(server, script, instance_id), started(server, "exec sleep 60", instance_id)
    server.until_logged(stubborn, "stray")
    pids = [pid_of(server, stubborn), pid_of(server, hung), int(server.log(stubborn).split()[1])]
    os.kill(pids[1], signal.SIGSTOP)
    os.kill(server.process.pid, number)
    assert server.process.wait(timeout=50) == 0  # before the stray ends by itself
    assert [pid for pid in pids if is_alive(pid)] == []


@pytest.mark.slow
def test_two_clusters_on_one_machine_have_no_address_in_common(start_server):
    """The master process of each binds the same port, because the scheduler of each gives it the first one."""
    program = (
        "import socket, time; server = socket.create_server(('ADDRESS', 2222)); "
        "print('bound', flush=True); time.sleep(60)"
    )
    for server in (start_server("--instances", "1"), start_server("--instances", "1")):
        (instance_id,) = server.instance_ids
        address = server.ec2.describe_instances()["Reservations"][0]["Instances"][0]["PrivateIpAddress"]
        task = started(server, f'exec python -c "{program.replace("ADDRESS", address)}"', instance_id)
        server.until_logged(task, "bound")

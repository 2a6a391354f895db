"""The node agents of a cluster, as processes: each lives and dies with its machine, and says what that one would."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.agent.api import Api, ok, serving

from .test_driver import NAME, is_alive

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]


@pytest.fixture
def api():
    with serving(Api()) as found:
        found.lasting = ok()
        yield found


def heard(api, server, instance_id):
    """The next report of the boot that the instance has now."""
    boot_id = server.instance(instance_id)["boot_id"]
    return api.next(lambda report: report["boot_id"] == boot_id)


def enlist(api, server, *instance_ids, **settings):
    tokens = {one: f"grn_{one[-12:]}_{'s' * 43}" for one in instance_ids}
    server.post("agents", api_url=api.url, tokens=tokens, **settings)
    return tokens


def test_only_an_instance_with_a_token_has_an_agent(start_server, api):
    """It speaks with that token, of that instance's boot and of how long ago that was; no boot gives another one."""
    server = start_server("--instances", "2")
    first, second = server.instance_ids
    assert server.instance(first)["node_agent_pid"] is None
    tokens = enlist(api, server, first)
    report = heard(api, server, first)
    assert api.heard[-1].headers["Authorization"] == f"Bearer {tokens[first]}"
    with open("/proc/uptime", encoding="ascii") as file:
        assert 0 <= report["uptime_s"] < float(file.read().split()[0])
    assert is_alive(server.instance(first)["node_agent_pid"])
    boot_id = server.instance(second)["boot_id"]
    server.ec2.reboot_instances(InstanceIds=[second])
    server.until(lambda: server.instance(second)["boot_id"] != boot_id, "the boot")
    assert server.instance(second)["node_agent_pid"] is None


def test_an_agent_that_may_reset_gpus_says_so(start_server, api):
    """In its first report, so that the control plane can order a reset. The other agents say nothing of resets."""
    server = start_server("--instances", "1")
    (instance_id,) = server.instance_ids
    enlist(api, server, instance_id)
    assert "reset" not in heard(api, server, instance_id)
    enlist(api, server, instance_id, gpu_reset=True)
    assert api.next(lambda report: "reset" in report)["reset"] == {}


def test_a_rank_under_the_wrapper_is_reported_by_the_agent_of_its_instance_alone(start_server, api):
    """The wrapper is on the task's PATH, and both see the same boot."""
    server = start_server("--instances", "2")
    first, second = server.instance_ids
    enlist(api, server, first, second)
    definition = server.define(["gpu-recovery-run", "sleep", "60"])
    rank = {"JOB_ID": "run-1", "ATTEMPT": "2", "RANK": "0", "RUNNING_LOG_ID": "17"}
    server.run(definition, first, override={"environment": [{"name": n, "value": v} for n, v in rank.items()]})
    report = api.next(lambda one: one["running"])
    assert report["boot_id"] == server.instance(first)["boot_id"]
    assert [(one["job"], one["attempt"], one["rank"]) for one in report["running"]] == [("run-1", 2, 0)]
    assert heard(api, server, second)["running"] == []


@pytest.mark.parametrize(("kind", "ends_with"), [("xid79", signal.SIGABRT), ("kill", signal.SIGKILL)])
def test_a_fault_strikes_the_command_under_the_wrapper(server, instance_id, kind, ends_with):
    """A GPU's fault aborts who uses it, and the wrapper lives to say so; a killed container says nothing more."""
    rank = {"JOB_ID": "run-1", "ATTEMPT": "1", "RANK": "0", "RUNNING_LOG_ID": "17"}
    override = {"environment": [{"name": name, "value": value} for name, value in rank.items()]}
    arn = server.run(server.define(["gpu-recovery-run", "sleep", "60"]), instance_id, "2", override=override)
    ranks = Path(server.instance(instance_id)["folder"]) / "ranks"
    server.until((ranks / "17.json").exists, "the rank's file")
    server.post("fault", instance=instance_id, kind=kind)
    task = server.until_status(arn["tasks"][0]["taskArn"], "STOPPED")
    assert task["containers"][0]["exitCode"] == 128 + ends_with
    exits = [json.loads(path.read_text())["signal"] for path in ranks.glob("*.exit")]
    assert exits == ([ends_with] if kind == "xid79" else [])


SAVES = """
import time
from gpu_recovery_client import training
training.receive_suspend_command()
print("asks", flush=True)
while not training.receive_suspend_command():
    time.sleep(0.01)
print("saved", flush=True)
training.go_suspend()
"""


@pytest.mark.parametrize(("rank", "status"), [("0", 75), ("1", 128 + signal.SIGTERM)])
def test_a_stop_of_ecs_is_a_notice_to_rank_0_and_the_end_of_any_other(start_server, rank, status):
    """What a suspension is made of: StopTask, and the exit code that says how the rank took it."""
    server = start_server("--instances", "1", stop_timeout_max_s=30)
    (instance_id,) = server.instance_ids
    variables = {"JOB_ID": "run-1", "ATTEMPT": "1", "RANK": rank, "RUNNING_LOG_ID": "17", "SUSPEND_GRACE_S": "20"}
    override = {"environment": [{"name": name, "value": value} for name, value in variables.items()]}
    definition = server.define(["gpu-recovery-run", "--", "python", "-c", SAVES])
    arn = server.run(definition, instance_id, override=override)["tasks"][0]["taskArn"]
    server.until_status(arn, "RUNNING")
    server.until_logged(arn, "asks")
    server.ecs.stop_task(cluster=NAME, task=arn, reason="suspended")
    task = server.until_status(arn, "STOPPED")
    assert task["containers"][0]["exitCode"] == status
    assert ("saved" in server.log(arn)) == (rank == "0")
    place = Path(server.instance(instance_id)["folder"])
    (told,) = place.glob("ranks/*.exit")
    assert json.loads(told.read_text())["notice"] and list((place / "memory").iterdir()) == []


def test_a_hang_stops_the_command_under_the_wrapper(server, instance_id):
    """It is the command that does not go on."""
    definition = server.define(["gpu-recovery-run", "sh", "-c", "echo $$ >pid; exec sleep 60"], "hangs")
    started = server.run(definition, instance_id)
    server.until_status(started["tasks"][0]["taskArn"], "RUNNING")  # a fault strikes what the cluster knows to run
    (task,) = server.until(lambda: list(server.folder.glob("tasks/*/pid")), "the command's pid")
    pid = int(server.until(task.read_text, "the command's pid"))
    server.post("fault", instance=instance_id, kind="hang")
    server.until(lambda: stopped(pid), "the command to be stopped")


def test_an_agent_dies_with_its_machine_and_another_begins_with_the_next_boot(start_server, api):
    """With the next boot's id, and an uptime that begins anew."""
    server = start_server("--instances", "1")
    (instance_id,) = server.instance_ids
    enlist(api, server, instance_id)
    heard(api, server, instance_id)
    boot_id, asked_at = server.instance(instance_id)["boot_id"], time.clock_gettime(time.CLOCK_BOOTTIME)
    pid = server.instance(instance_id)["node_agent_pid"]
    server.ec2.reboot_instances(InstanceIds=[instance_id])
    server.until(lambda: not is_alive(pid), "the end of the agent")
    server.until(lambda: server.instance(instance_id)["boot_id"] != boot_id, "the boot")
    reports = api.until(lambda reports: any(one["boot_id"] != boot_id for one in reports))
    after = next(one for one in reports if one["boot_id"] != boot_id)
    assert (after["sequence"], after["boot_id"]) == (1, server.instance(instance_id)["boot_id"])
    assert time.clock_gettime(time.CLOCK_BOOTTIME) - after["uptime_s"] > asked_at
    server.ec2.terminate_instances(InstanceIds=[instance_id])
    server.until(lambda: server.instance(instance_id)["node_agent_pid"] is None, "the end of the last agent")


LINE = "gpu-recovery ordered the reboot of this machine; decision: XID 79"
ORDER = {"epoch": 5, "text": LINE}


def reboot(server, instance_id):
    server.ec2.reboot_instances(InstanceIds=[instance_id])


def stop_and_start(server, instance_id):
    server.ec2.stop_instances(InstanceIds=[instance_id])
    server.until(lambda: server.instance(instance_id)["ec2_state"] == "stopped", "the stop")
    server.ec2.start_instances(InstanceIds=[instance_id])


def line_after(server, api, instance_id, restart, hangs=False):
    """What the agent of the next boot reports about the line that the API orders now, and the boot of each agent.

    The order comes with the answer to the next report. Before the restart there is none but the last report of an agent
    that SIGTERM ends.
    """
    api.lasting = ok(next_s=300)
    enlist(api, server, instance_id)
    before = api.next(lambda report: True, since=0)["boot_id"]
    if hangs:
        server.post("fault", instance=instance_id, kind="hang")
    api.lasting = ok(next_s=300, records=[ORDER])
    restart(server, instance_id)
    report = api.next(lambda one: one["boot_id"] != before and "recorded" in one, since=0)
    file = Path(server.instance(instance_id)["folder"]) / "var/log/gpu-recovery/repairs.log"
    assert file.read_text() == f"boot={report['recorded']['boot']} repair=5 {LINE}\n"
    assert (report["recorded"]["epoch"], report["recorded"]["text"]) == (5, LINE)
    return report["recorded"]["boot"], before, report["boot_id"]


@pytest.mark.parametrize("restart", [reboot, stop_and_start], ids=["reboot", "stop and start"])
def test_an_agent_writes_who_ordered_its_restart_before_its_host_is_down(start_server, api, restart):
    """The shutdown sends SIGTERM, as systemd does. The agent of the next boot finds what the last report got."""
    server = start_server("--instances", "1")
    (instance_id,) = server.instance_ids
    written, before, _ = line_after(server, api, instance_id, restart)
    assert written == before


def test_a_host_that_hangs_has_no_shutdown_and_its_agent_hears_of_the_reboot_after_it(start_server, api):
    """The line is on the machine nevertheless, under the next boot."""
    server = start_server("--instances", "1")
    (instance_id,) = server.instance_ids
    written, _, after = line_after(server, api, instance_id, reboot, hangs=True)
    assert written == after


def test_an_agent_that_ignores_sigterm_delays_a_shutdown_no_longer_than_its_grace(start_server, api):
    """Then it gets SIGKILL, and the machine boots."""
    server = start_server("--instances", "1", shutdown_s=0.2)
    (instance_id,) = server.instance_ids
    enlist(api, server, instance_id)
    before = heard(api, server, instance_id)["boot_id"]
    pid = server.instance(instance_id)["node_agent_pid"]
    os.kill(pid, signal.SIGSTOP)
    reboot(server, instance_id)
    server.until(lambda: server.instance(instance_id)["boot_id"] != before, "the boot")
    assert not is_alive(pid)
    heard(api, server, instance_id)


def test_faults_silence_the_agent(start_server, api):
    """`agent_lost` ends it, `hang` leaves it there and dumb; a machine that boots has one that speaks."""
    server = start_server("--instances", "2")
    lost, hung = server.instance_ids
    enlist(api, server, lost, hung)
    for instance_id in (lost, hung):
        heard(api, server, instance_id)
    pid = server.instance(hung)["node_agent_pid"]
    server.post("fault", instance=lost, kind="agent_lost")
    server.post("fault", instance=hung, kind="hang")
    assert server.instance(lost)["node_agent_pid"] is None
    server.until(lambda: stopped(pid), "the agent to be stopped")
    assert server.instance(hung)["node_agent_pid"] == pid
    server.ec2.reboot_instances(InstanceIds=[lost, hung])
    server.until(lambda: server.instance(hung)["node_agent_pid"] not in (pid, None), "the boot of one")
    server.until(lambda: server.instance(lost)["node_agent_pid"] is not None, "the boot of the other")
    for instance_id in (lost, hung):
        heard(api, server, instance_id)


def test_agents_end_with_the_cluster(start_server, api):
    """Also one that is stopped."""
    server = start_server("--instances", "2")
    enlist(api, server, *server.instance_ids)
    pids = [server.instance(one)["node_agent_pid"] for one in server.instance_ids]
    assert all(is_alive(pid) for pid in pids)
    server.post("fault", instance=server.instance_ids[0], kind="hang")
    assert server.end() == 0
    assert not any(is_alive(pid) for pid in pids)


def stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"

"""The whole sandbox: up with a real deployment, used, and down without a trace."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import deployment, processes, sandbox
from sandbox.processes import SandboxError
from tests.sandbox.patience import PATIENCE_S, wait_until

from .ministack_server import ROOT

pytestmark = pytest.mark.slow
SURFACE = {
    "endpoint_url",
    "ecs_endpoint_url",
    "ec2_endpoint_url",
    "aws_access_key_id",
    "aws_secret_access_key",
    "api_url",
    "console_url",
    "operator_token",
    "node_token",
    "node_tokens",
    "cluster",
    "tables",
    "topic_arn",
    "event_source",
    "bus",
}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a sandbox that is up."""
    directory = tmp_path_factory.mktemp("sandbox")
    sandbox.up(directory, agents=True)
    yield directory
    sandbox.down(directory)


def nothing_is_left(directory: Path) -> bool:
    return not list(directory.iterdir()) and not processes.processes_in(directory)


def listeners(pids: list[int]) -> set[str]:
    """The hexadecimal local addresses on which any of the processes listens."""
    sockets = {link.readlink().name for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].partition(":")[0])
    return found


def test_it_says_how_to_reach_everything(running: Path) -> None:
    """Exactly the promised keys; the file that holds the tokens is its owner's alone."""
    state = sandbox.status(running)
    assert state["running"] and state["servers"] == {"ministack": True, "cluster": True}
    assert set(state["sandbox"]) == SURFACE
    assert set(state["sandbox"]["tables"]) == {"jobs", "instances"}
    assert len(set(state["sandbox"]["node_tokens"].values())) == 2
    assert state["sandbox"]["node_token"] == next(iter(state["sandbox"]["node_tokens"].values()))
    assert (running / "state.json").stat().st_mode & 0o777 == 0o600


def test_the_deployed_functions_and_instances_are_there(running: Path) -> None:
    """The production stack's functions are active, and the cluster has the instances that were asked for."""
    reach = sandbox.status(running)["sandbox"]
    functions = sandbox.client("lambda", reach["endpoint_url"], reach).list_functions()["Functions"]
    assert {"gpu-recovery-scheduler", "gpu-recovery-job_api"} <= {f["FunctionName"] for f in functions}
    assert {f["State"] for f in functions} == {"Active"}
    of_package = [f for f in functions if f["FunctionName"] != "gpu-recovery-console"]  # it needs no library
    assert all(layer["CodeSize"] > 0 for f in of_package for layer in f["Layers"])
    assert all(f["Layers"] for f in of_package)
    ecs = sandbox.client("ecs", reach["ecs_endpoint_url"], reach)
    assert len(ecs.list_container_instances(cluster=reach["cluster"])["containerInstanceArns"]) == 2
    families = {arn.rpartition("/")[2] for arn in ecs.list_task_definitions()["taskDefinitionArns"]}
    assert families == {"gpu-training:1", "gpu-health-check:1"}


def test_the_operator_token_is_the_one_the_function_reads(running: Path) -> None:
    """The generated secret is replaced by a token that we know."""
    state = json.loads((running / "state.json").read_text())
    vault = sandbox.client("secretsmanager", state["sandbox"]["endpoint_url"], state["sandbox"])
    held = vault.get_secret_value(SecretId=state["outputs"]["OperatorTokenSecretArn"])["SecretString"]
    assert held == state["sandbox"]["operator_token"] and len(held) >= 32


def test_the_api_address_reaches_the_function(running: Path) -> None:
    """Whatever it answers, it is the function's answer and not a route that does not exist."""
    url = f"{sandbox.status(running)['sandbox']['api_url']}/api/v2/jobs"
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(url)
    assert refusal.value.code != 404


@linux_only
def test_each_instance_is_heard_of_by_its_own_agent(running: Path) -> None:
    """Started with the sandbox, each with the token of its instance: the API shows the boot that the cluster has."""
    reach = sandbox.status(running)["sandbox"]
    boots = {one["instance_id"]: one["boot_id"] for one in sandbox.cluster_state(running)["instances"]}
    with RecoveryClient(reach["api_url"], reach["operator_token"]) as client:
        wait_until(lambda: all(client.instance(one)["heartbeat"] for one in boots))
        assert {one: client.instance(one)["heartbeat"]["boot_id"] for one in boots} == boots


def test_the_mailbox_holds_what_operators_were_sent(running: Path) -> None:
    """In order, with subject and body, as often as one looks."""
    reach = sandbox.status(running)["sandbox"]
    topic = sandbox.client("sns", reach["endpoint_url"], reach)
    for number in range(12):
        topic.publish(TopicArn=reach["topic_arn"], Subject=f"mail {number}", Message=f"body {number}")
    for _ in range(2):
        ours = [mail for mail in sandbox.read_mailbox(running) if mail["subject"].startswith("mail ")]
        assert [mail["body"] for mail in ours] == [f"body {number}" for number in range(12)]


def test_an_impossible_fault_is_refused(running: Path) -> None:
    """With the cluster's own words."""
    with pytest.raises(SandboxError, match="i-nobody"):
        sandbox.fault(running, "i-nobody", "xid79")


@linux_only
def test_it_listens_on_loopback_only(running: Path) -> None:
    """No process of the sandbox has a socket that another machine could reach."""
    pids = processes.processes_in(running)
    assert len(pids) >= 2
    assert listeners(pids) == {"0100007F"}


@linux_only
@pytest.mark.parametrize(
    ("number", "step", "code"),
    [
        (signal.SIGINT, "Starting", 130),
        pytest.param(signal.SIGINT, "Deploying", 130, marks=pytest.mark.full),
        (signal.SIGTERM, "Deploying", 130),
    ],
)
def test_an_interrupted_start_leaves_nothing(tmp_path: Path, number: signal.Signals, step: str, code: int) -> None:
    """Ctrl-C and SIGTERM at any step end the servers, the CDK and the files."""
    command = [str(Path(sys.executable).parent / "gpu-recovery"), "sandbox", "up", "--directory", str(tmp_path)]
    # A shell starts what runs in the background with SIGINT ignored; a person's terminal does not.
    heeding = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **heeding
    ) as up:
        assert up.stderr is not None
        while not up.stderr.readline().startswith(step):
            assert up.poll() is None
        wait_until(lambda: processes.processes_in(tmp_path))
        up.send_signal(number)
        ended_with = up.wait(timeout=PATIENCE_S)
    clean = nothing_is_left(tmp_path)
    sandbox.down(tmp_path)  # a failure of this test must not leave servers for the next
    assert (ended_with, clean) == (code, True)


@linux_only
def test_a_start_that_was_killed_is_cleaned_up_by_down(tmp_path: Path) -> None:
    """Even the CDK that it was running."""
    command = [str(Path(sys.executable).parent / "gpu-recovery"), "sandbox", "up", "--directory", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        while not up.stderr.readline().startswith("Deploying"):
            assert up.poll() is None
        wait_until(lambda: len(processes.processes_in(tmp_path)) >= 3)
        up.kill()
    assert sandbox.down(tmp_path) is True
    assert nothing_is_left(tmp_path)


def test_a_kept_synthesis_is_used_only_for_the_same_sources_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing a byte of a source or a setting asks for a new one; compiled files do not count."""
    for name in deployment.SOURCES:
        path = tmp_path / name
        path.write_text("{}") if path.suffix else path.mkdir(parents=True)
    monkeypatch.setattr(deployment, "ROOT", tmp_path)
    first = deployment.fingerprint({"preset": "adaptive"})
    (tmp_path / "lambdas/__pycache__").mkdir()
    (tmp_path / "lambdas/__pycache__/handler.pyc").write_bytes(b"1")
    assert deployment.fingerprint({"preset": "adaptive"}) == first
    assert deployment.fingerprint({"preset": "classic"}) != first
    (tmp_path / "lambdas/handler.py").write_text("1")
    second = deployment.fingerprint({"preset": "adaptive"})
    assert second != first
    (tmp_path / "lambdas/handler.py").write_text("2")
    assert deployment.fingerprint({"preset": "adaptive"}) not in {first, second}


def test_a_package_is_compiled_once_for_all_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A saved synthesis has the package with compiled files. One that was not compiled by this Python is no help."""
    saved = tmp_path / ".sandbox/cdk.out"
    monkeypatch.setattr(deployment, "ASSEMBLIES", saved)

    def synthesised(name: str, *packages: str) -> Path:
        for package in packages:
            (tmp_path / name / f"asset.{package}").mkdir(parents=True)
            (tmp_path / name / f"asset.{package}/module.py").write_text(f"{package} = 1")
        deployment._store(tmp_path / name, saved / name)
        return saved / name

    def compiled(assembly: Path, package: str) -> Path:
        (found,) = (assembly / f"asset.{package}").rglob(f"*.{sys.implementation.cache_tag}.pyc")
        return found

    first, second = synthesised("first", "kept", "old"), saved / "second"
    compiled(first, "old").rename(first / "asset.old/module.cpython-20.pyc")
    assert synthesised("second", "kept", "old", "new") == second
    assert compiled(first, "kept").samefile(compiled(second, "kept"))
    assert compiled(second, "new").exists() and compiled(second, "old").exists()
    assert sorted(path.name for path in second.iterdir()) == ["asset.kept", "asset.new", "asset.old"]
    assert [path.name for path in saved.parent.iterdir()] == ["cdk.out"]


@linux_only
def test_down_leaves_nothing_even_after_its_servers_were_killed(running: Path) -> None:
    """A task that outlived its cluster is ended too, and no file stays. The last test, because it ends the sandbox."""
    reach = sandbox.status(running)["sandbox"]
    ecs = sandbox.client("ecs", reach["ecs_endpoint_url"], reach)
    wait = {"name": "trainer", "command": ["python", "-c", "import time; time.sleep(600)"]}
    ecs.run_task(cluster=reach["cluster"], taskDefinition="gpu-training", overrides={"containerOverrides": [wait]})
    wait_until(lambda: len(list((running / "run/cluster/tasks").glob("*.log"))) == 1)
    for server in processes.recall(running / "processes.json"):
        processes.stop([server], grace_s=0)
    assert sandbox.status(running)["running"] is False
    assert processes.processes_in(running)
    assert sandbox.down(running) is True
    assert nothing_is_left(running)
    assert sandbox.down(running) is False

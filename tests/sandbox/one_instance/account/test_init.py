"""The verb init against the account of the sandbox: what it finds, what it writes, and what it leaves as it is."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.cli import app, init
from typer.testing import CliRunner, Result

from infra.settings import DeploymentSettings
from infra.settings_file import settings_of
from sandbox import sandbox

pytestmark = pytest.mark.slow
CLUSTER = "nwcd-gpu-testing"


class Init:
    """The verb in a repository without settings files."""

    def __init__(self, root: Path, state: dict[str, Any]) -> None:
        self.root, self.state = root, state
        (root / "cdk.json").write_text("{}")

    def run(self, *words: str, stdin: str | None = None) -> Result:
        """What the verb does."""
        return CliRunner().invoke(app.app, ["init", *words], input=stdin)

    def written(self, name: str) -> dict[str, Any]:
        """The settings of a file, which the deployment accepts."""
        settings_of({"gpu-recovery:settings": name}, self.root, {})
        return tomllib.loads((self.root / f"settings/{name}.toml").read_text())

    def deployed(self, name: str) -> DeploymentSettings:
        """The settings of a deployment with the file."""
        return settings_of({"gpu-recovery:settings": name}, self.root, {})[0]


@pytest.fixture
def verb(state: dict[str, Any], account_folder: Path) -> Init:
    """The verb, with the credentials of the sandbox in the environment."""
    return Init(account_folder, state)


def test_a_script_gets_a_file_for_the_deployment_that_runs(verb: Init) -> None:
    """Without a terminal and without a question: the only cluster, its families, and the names of the stacks."""
    result = verb.run("prod")
    assert result.exit_code == 0, result.output
    assert "1 x p4d.24xlarge (x86_64)" in result.stderr and "gpu-training: network mode host" in result.stderr
    written = verb.written("prod")
    assert {"account": "000000000000", "region": "us-east-1", "cluster_name": CLUSTER}.items() <= written.items()
    assert written["training_task_families"] == ["gpu-training"]
    assert written["training_log_groups"] == ["/ecs/gpu-training"]
    assert (written["adopt"], written["profile"]) == ("off", "dev")
    running, default = verb.deployed("prod"), DeploymentSettings()
    for name in init.NAMES:
        assert getattr(running, name) == getattr(default, name)


def test_roles_of_the_families_are_written(verb: Init) -> None:
    """The first submitted job would fail without them. Options choose, and a rerun adds what is new."""
    iam, ecs = (
        sandbox.client(one, verb.state[f"{url}endpoint_url"], verb.state) for one, url in (("iam", ""), ("ecs", "ecs_"))
    )
    role = iam.create_role(RoleName="execution", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    ecs.register_task_definition(
        family="llm",
        networkMode="host",
        executionRoleArn=role,
        containerDefinitions=[
            {
                "name": "c",
                "image": "i",
                "memory": 1,
                "resourceRequirements": [{"type": "GPU", "value": "1"}],
                "logConfiguration": {"logDriver": "awslogs", "options": {"awslogs-group": "/ecs/llm"}},
            }
        ],
    )
    try:
        assert verb.run("prod", "--family", "llm", "--email", "a@example.com").exit_code == 0
        written = verb.written("prod")
        assert (written["training_task_families"], written["training_role_arns"]) == (["llm"], [role])
        assert written["training_log_groups"] == ["/ecs/llm"] and written["alert_emails"] == ["a@example.com"]
    finally:
        for arn in ecs.list_task_definitions(familyPrefix="llm")["taskDefinitionArns"]:
            ecs.deregister_task_definition(taskDefinition=arn)
        iam.delete_role(RoleName="execution")


def test_an_existing_file_is_changed_only_after_its_difference_was_confirmed(
    verb: Init, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script must give --yes, and comments and other settings stay."""
    verb.run("prod")
    path = verb.root / "settings/prod.toml"
    path.write_text(
        path.read_text() + "# because of the auditors\nlog_retention_days = 365\n\n[policy]\nattempts_max = 5\n"
    )
    before = path.read_text()
    again = verb.run("prod")
    assert again.exit_code == 0 and "is up to date" in again.stdout and path.read_text() == before
    refused = verb.run("prod", "--set", "adopt=recover")
    assert refused.exit_code == 1 and "give --yes" in refused.stderr and path.read_text() == before
    assert '\n-adopt = "off"\n+adopt = "recover"\n' in refused.stderr
    monkeypatch.setattr(init, "is_interactive", lambda: True)
    answers = "\n" * 4
    assert verb.run("prod", "--set", "adopt=recover", stdin=f"{answers}n\n").exit_code == 1
    assert path.read_text() == before
    assert verb.run("prod", "--set", "adopt=recover", stdin=f"{answers}y\n").exit_code == 0
    assert path.read_text() == before.replace('adopt = "off"', 'adopt = "recover"')
    assert verb.deployed("prod").policy == {"attempts_max": 5}


def test_a_terminal_is_asked_with_what_the_account_has(verb: Init, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter accepts each proposal."""
    monkeypatch.setattr(init, "is_interactive", lambda: True)
    result = verb.run("prod", stdin="\n\na@example.com,b@example.com\nobserve\n\n")
    assert result.exit_code == 0, result.output
    assert f"ECS cluster [{CLUSTER}]" in result.output and "[gpu-training]" in result.output
    written = verb.written("prod")
    assert written["alert_emails"] == ["a@example.com", "b@example.com"] and written["adopt"] == "observe"


def test_a_second_deployment_gets_names_of_its_own(verb: Init) -> None:
    """No stack, table, topic, bus, function or family is shared with the deployment that runs, or with a file."""
    verb.run("prod")
    result = verb.run("lab", "--cluster", CLUSTER)
    assert result.exit_code == 0, result.output
    path = verb.root / "settings/lab.toml"
    path.write_text(path.read_text().replace(f'cluster_name = "{CLUSTER}"', 'cluster_name = "lab-gpus"'))
    lab, prod = verb.deployed("lab"), verb.deployed("prod")
    for name in init.NAMES:
        assert getattr(lab, name) != getattr(prod, name)
    assert (lab.stack_name, lab.function_name_prefix) == ("GpuRecovery-lab", "gpu-recovery-lab-")
    assert (lab.adopt, lab.profile) == ("observe", "prod")


def test_settings_of_cdk_json_are_copied(verb: Init) -> None:
    """No setting is lost on the way into the file."""
    context = {"gpu-recovery:adopt": "recover", "gpu-recovery:policy": {"attempts_max": 7}, "@aws-cdk/x": True}
    (verb.root / "cdk.json").write_text(json.dumps({"context": context}))
    result = verb.run("prod")
    assert "Remove them there: adopt, policy" in result.stderr
    settings = verb.deployed("prod")
    assert settings.adopt == "recover" and settings.policy == {"attempts_max": 7}


def test_a_name_that_is_no_file_name_is_refused(verb: Init) -> None:
    """Nothing outside the folder is written."""
    result = verb.run("../prod")
    assert result.exit_code == 2 and "letters, digits, dashes" in result.stderr


def test_the_document_names_the_file(verb: Init) -> None:
    """For scripts."""
    document = json.loads(verb.run("prod", "--json").stdout)
    assert (document["file"], document["written"]) == ("settings/prod.toml", True)
    assert document["settings"]["cluster_name"] == CLUSTER

"""`make deploy`: the command of the CDK for one deployment, and the next steps after it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from infra.deploy import __main__ as deploy

ROOT = Path(__file__).parents[2]
OUTPUTS = {
    "GpuRecoveryState": {"TopicKey": "k"},
    "GpuRecovery": {
        "ApiUrl": "https://abc.execute-api.eu-central-1.amazonaws.com",
        "ConsoleUrl": "https://abc.execute-api.eu-central-1.amazonaws.com/console",
        "TopicArn": "arn:aws:sns:eu-central-1:111122223333:gpu-training-notifications",
        "OperatorTokenSecretArn": "arn:aws:secretsmanager:eu-central-1:111122223333:secret:Token-1",
    },
}
NAMED = "gpu-recovery:cluster_name"
NPX = """#!/bin/sh
echo "$AWS_REGION|$*" > "{called}"
while [ $# -gt 0 ]; do
  [ "$1" = --outputs-file ] && echo '{outputs}' > "$2"
  shift
done
exit {status}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the settings file `prod`, without a region in the environment."""
    (tmp_path / "settings").mkdir()
    text = 'region = "eu-central-1"\ncluster_name = "my-gpus"\nalert_emails = ["oncall@example.com"]\n'
    (tmp_path / "settings/prod.toml").write_text(text)
    shutil.copy(ROOT / "cdk.json", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in deploy.REGION_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(deploy, "OUTPUTS", tmp_path / ".make")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    answer(tmp_path, 0)
    return tmp_path


def answer(root: Path, status: int) -> None:
    """Let the CDK write the outputs and end with this status."""
    (root / "bin").mkdir(exist_ok=True)
    npx = root / "bin/npx"
    npx.write_text(NPX.format(called=root / "called", outputs=json.dumps(OUTPUTS), status=status))
    npx.chmod(0o755)


def called(root: Path) -> str:
    """The region and the words that the CDK got."""
    return (root / "called").read_text().strip()


def test_a_deployment_with_a_name_reads_its_file_and_prints_the_next_steps(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the region of the file, if the environment names none."""
    assert deploy.main(["--name", "prod"], root) == 0
    written = root / ".make/outputs-prod.json"
    expected = f"--no-install cdk deploy --all -c gpu-recovery:settings=prod --outputs-file {written}"
    assert called(root) == f"eu-central-1|{expected}"
    shown = capfd.readouterr().out
    assert "Deployed GpuRecovery in eu-central-1." in shown and "oncall@example.com" in shown
    (login,) = [line.strip() for line in shown.splitlines() if "gpu-recovery login" in line]
    outputs = OUTPUTS["GpuRecovery"]
    assert login == (
        f"aws secretsmanager get-secret-value --region eu-central-1 --secret-id {outputs['OperatorTokenSecretArn']} "
        f"--query SecretString --output text | gpu-recovery login prod --api-url {outputs['ApiUrl']}"
    )
    assert "gpu-recovery doctor prod" in shown and outputs["ConsoleUrl"] in shown


def test_a_file_in_another_folder_is_named_as_it_is(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The next steps name no settings/lab.toml, which does not exist, and no verb that would read that file."""
    (root / "other").mkdir()
    (root / "other/lab.toml").write_text('region = "eu-west-1"\ncluster_name = "lab-gpus"\n')
    assert deploy.main(["--name", "other/lab.toml"], root) == 0
    shown = capfd.readouterr().out
    assert "Set it in other/lab.toml, and deploy again" in shown and "settings/lab.toml" not in shown
    assert "gpu-recovery login lab " in shown and "gpu-recovery --profile lab doctor\n" in shown


def test_options_of_the_context_are_passed_on_and_count_in_the_next_steps(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As before there were settings files; a caller that signs requests needs no token."""
    options = [
        "-c",
        f"{NAMED}=my-gpus",
        "-c",
        "gpu-recovery:api_auth=iam",
        "-c",
        'gpu-recovery:api_roles={"arn:aws:iam::111122223333:role/a": "user"}',
    ]
    assert deploy.main(["--name", "", *options], root) == 0
    assert called(root).endswith(f"{root}/.make/outputs-default.json {' '.join(options)}")
    shown = capfd.readouterr().out
    assert f"gpu-recovery login default --api-url {OUTPUTS['GpuRecovery']['ApiUrl']} --auth iam" in shown
    assert "secretsmanager" not in shown and "No e-mail is sent: alert_emails is empty" in shown


def test_a_name_is_asked_for_where_settings_files_are(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A deployment of the defaults would change the cluster and remove the subscriptions."""
    assert deploy.main(["--name", ""], root) == 2
    assert "make deploy NAME=prod" in capfd.readouterr().err and not (root / "called").exists()
    assert deploy.main(["--name", "", "--require-approval", "never"], root) == 2  # an option that names no setting
    assert not (root / "called").exists()


@pytest.mark.parametrize("options", [[], ["-c", "gpu-recovery:upgrade_from=0.1"], ["-c", "gpu-recovery:cluster_name="]])
def test_a_deployment_that_names_no_cluster_is_refused(
    root: Path, capfd: pytest.CaptureFixture[str], options: list[str]
) -> None:
    """It would be deployed for the default cluster, which the account may not have."""
    (root / "settings/prod.toml").unlink()
    assert deploy.main(["--name", "", *options], root) == 2
    shown = capfd.readouterr().err
    assert "gpu-recovery init NAME" in shown and "make deploy NAME=" in shown
    assert 'CONTEXT="-c gpu-recovery:cluster_name=..."' in shown and not (root / "called").exists()


@pytest.mark.parametrize(
    "options", [["-c", f"{NAMED}=a"], ["--context", f"{NAMED}=a"], [f"--context={NAMED}=a"], [f"-c={NAMED}=a"]]
)
def test_a_cluster_is_named_in_the_options_or_in_cdk_json(root: Path, options: list[str]) -> None:
    """In each form of the option that the CDK reads, also without a settings file."""
    (root / "settings/prod.toml").unlink()
    assert deploy.main(["--name", "", *options], root) == 0
    document = json.loads((root / "cdk.json").read_text())
    document["context"][NAMED] = "my-gpus"
    (root / "cdk.json").write_text(json.dumps(document))
    assert deploy.main(["--name", ""], root) == 0


@pytest.mark.parametrize(
    ("name", "document"),
    [("cdk.context.json", {NAMED: "my-gpus"}), ("home/.cdk.json", {"context": {NAMED: "my-gpus"}})],
)
def test_a_cluster_may_be_named_in_any_file_that_the_cdk_reads(root: Path, name: str, document: dict[str, Any]) -> None:
    """The CDK takes a value of cdk.json first, then that of the project's context, then that of the user."""
    (root / "settings/prod.toml").unlink()
    (root / "home").mkdir()
    (root / name).write_text(json.dumps(document))
    assert deploy.main(["--name", ""], root) == 0
    assert deploy.context_of("", [], root)[NAMED] == "my-gpus"
    (root / "cdk.json").write_text(json.dumps({"context": {NAMED: "other"}}))
    assert deploy.context_of("", [], root)[NAMED] == "other"


def test_a_settings_file_may_be_named_in_the_options(root: Path) -> None:
    """The file names the cluster."""
    assert deploy.main(["--name", "", "-c", "gpu-recovery:settings=prod"], root) == 0


def test_wrong_settings_end_before_the_cdk_starts(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With the message alone, without a traceback."""
    (root / "settings/prod.toml").write_text('adpot = "off"\n')
    assert deploy.main(["--name", "prod"], root) == 2
    assert capfd.readouterr().err == "settings/prod.toml: adpot: there is no such setting; did you mean adopt?\n"
    assert not (root / "called").exists()


def test_a_failed_deployment_prints_no_next_steps(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And ends with the status of the CDK."""
    answer(root, 3)
    assert deploy.main(["--name", "prod"], root) == 3
    assert "Next" not in capfd.readouterr().out


@pytest.mark.parametrize(("found", "told"), [(None, True), ("/usr/bin/python3.13", False)])
def test_a_deployment_without_byte_code_says_how_to_get_it(
    root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, found: str | None, told: bool
) -> None:
    """The functions start slower without the Python of their release, and nothing else shows it."""
    monkeypatch.setattr(deploy, "interpreter", lambda: found)
    assert deploy.main(["--name", "prod"], root) == 0
    assert ("uploaded without byte code" in capfd.readouterr().err) == told


def test_the_region_of_the_environment_is_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app compares it with the file, and refuses another."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    deploy.main(["--name", "prod"], root)
    assert called(root).startswith("us-east-1|")

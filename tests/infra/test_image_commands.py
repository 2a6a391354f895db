"""The commands of the builds, run by a shell with the variables that the function sends, and with stubs of programs.

CodeBuild runs all commands of a build in one shell, which is `sh` on Linux, and ends a phase at the first command that
fails. A failed phase `pre_build` or `build` fails the build, and `push` is the last command. Source: CodeBuild User
Guide, "Build specification reference for CodeBuild" and "Build phase transitions".
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from image_builder import handler as image_builder
from tests.infra.contexts import BASE_IMAGES
from tests.infra.deployment import ACCOUNT, Deployment
from tests.markdown import ROOT

pytestmark = pytest.mark.slow

REGION, REGISTRY = "us-east-1", f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com"
MIRROR_REGION, MIRROR = "us-west-2", "444455556666.dkr.ecr.us-west-2.amazonaws.com"
BUILDS = {
    ("ray", "HealthCheck"): ("health_check", "health_check_base_image", True),
    ("ray", "RayRunner"): ("ray_runner", "ray_base_image", True),
    ("ray", "Agent"): ("agent", "agent_base_image", False),
    ("prod", "HealthCheck"): ("health_check", "", False),
}
"""Set of settings and image of each build: its folder, the setting of its base, and whether that is in `MIRROR`."""
STUB = """
import json, os, shutil, sys
from pathlib import Path

program, *arguments = command = [Path(sys.argv[0]).name, *sys.argv[1:]]
if arguments[0] == "login":
    command.append(sys.stdin.read())
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps(command) + "\\n")
if " ".join(command).startswith(os.environ["FAILING"]):
    sys.exit(1)
if arguments[:2] == ["ecr", "get-login-password"]:
    print("password of", arguments[arguments.index("--region") + 1], end="")
elif arguments[0] == "login" and not command[-1]:
    sys.exit("Error: password is empty")
elif arguments[:2] == ["s3", "cp"]:
    shutil.copy(os.environ["ARCHIVE"], arguments[-1])
elif program == "unzip":
    shutil.unpack_archive(arguments[-3], arguments[-1], "zip")
elif arguments[0] == "inspect":
    print(arguments[-1].partition("@")[0].rpartition(":")[0] + "@sha256:" + 64 * "d")
elif arguments[0] == "build" and not Path(arguments[arguments.index("--file") + 1]).is_file():
    sys.exit("Error: no such Dockerfile")
"""
"""Program that stands for `aws`, `docker` and `unzip`. It records its arguments, and for a login also the password.

Each image that Docker has pulled has the digest ddd...

The command that begins with the variable FAILING fails.
"""
NOTHING = "no command"


def variables(deployment: Deployment, image: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The variables that the function sends for the custom resource of the template, if the image does not exist."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": REGION}
    stubbers = {name: Stubber(boto3.client(name, **keys)) for name in ("codebuild", "ecr")}
    started: list[dict[str, Any]] = []
    stubbers["codebuild"].client.meta.events.register(
        "provide-client-params.codebuild.StartBuild", lambda params, **_: started.append(params)
    )
    stubbers["ecr"].add_client_error("describe_images", "ImageNotFoundException")
    expected = {"projectName": f"Images{image}Project", "idempotencyToken": ANY, "environmentVariablesOverride": ANY}
    stubbers["codebuild"].add_response("start_build", {"build": {"id": "1"}}, expected)
    for stubber in stubbers.values():
        stubber.activate()
    monkeypatch.setattr(image_builder.boto3, "client", lambda name: stubbers[name].client)
    request = dict.fromkeys(image_builder.ANSWERED_BY, "x") | {
        "RequestType": "Create",
        "ResourceProperties": deployment.of_type("Custom::BuiltImage")[f"Images{image}Image"],
    }
    image_builder.handler(request, None)
    return {each["name"]: each["value"] for each in started[0]["environmentVariablesOverride"]}


class Build:
    """A build of the template: its `variables`, its `environment`, and its commands, which `run` executes in `folder`.

    `recorded` has the calls of the programs.
    """

    def __init__(self, assembly: Path, image: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        deployment = Deployment.read(assembly)
        project = deployment.of_type("AWS::CodeBuild::Project")[f"Images{image}Project"]
        phases = json.loads(project["Source"]["BuildSpec"])["phases"]
        assert list(phases) == ["pre_build", "build"], "a phase post_build would run after a failed build"
        self._commands = [command for phase in phases.values() for command in phase["commands"]]
        self.variables = variables(deployment, image, monkeypatch)
        fixed = project["Environment"]["EnvironmentVariables"]
        self.environment = {**{each["Name"]: each["Value"] for each in fixed}, **self.variables, "AWS_REGION": REGION}
        key = self.variables["SOURCE"].rpartition("/")[2]
        self.context = assembly / f"asset.{key.removesuffix('.zip')}"
        self.folder = folder / "build"
        self.folder.mkdir()
        self._record = folder / "record"
        self._programs = folder / "bin"
        self._programs.mkdir()
        for name in ("aws", "docker", "unzip"):
            program = self._programs / name
            program.write_text(f"#!{sys.executable} -S\n{STUB}")
            program.chmod(0o755)
        (self._programs / "sed").symlink_to(shutil.which("sed") or "")
        self._archive = shutil.make_archive(str(folder / "archive"), "zip", self.context)

    def run(self, failing: str = NOTHING) -> int:
        """Run the commands in one shell, which ends at the first that fails. Return its exit status."""
        environment = {
            **self.environment,
            "PATH": str(self._programs),
            "RECORD": str(self._record),
            "ARCHIVE": self._archive,
            "FAILING": failing,
        }
        shell = ["/bin/sh", "-e", "-c", "\n".join(self._commands)]
        return subprocess.run(shell, cwd=self.folder, env=environment, check=False, timeout=60).returncode

    def recorded(self, *beginning: str) -> list[list[str]]:
        """The calls that begin so, in their order. Both programs of a login run at once."""
        calls = [json.loads(line) for line in self._record.read_text().splitlines()]
        return [call for call in calls if call[: len(beginning)] == list(beginning)]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("where", "image"), BUILDS)
def test_the_commands_log_in_build_the_context_on_its_base_and_push_the_tag(
    validated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, image: str
) -> None:
    """In this order. Every stage is built on the digest that the base has now, which labels of the image name.

    The pushed reference is the one that the function looks for when the build has ended.
    """
    folder, setting, in_mirror = BUILDS[where, image]
    build = Build(validated[where], image, tmp_path, monkeypatch)
    assert build.run() == 0
    login = ["docker", "login", "--username", "AWS", "--password-stdin"]
    (default,) = re.findall("^ARG BASE_IMAGE=(.+)", (ROOT / folder / "Dockerfile").read_text(), re.MULTILINE)
    base = BASE_IMAGES["gpu-recovery:" + setting] if setting else default
    digest = "sha256:" + 64 * "d"
    by_digest = f"{base.partition('@')[0].rpartition(':')[0]}@{digest}"
    label = "org.opencontainers.image.base"
    arguments = [
        *("--build-arg", f"BASE_IMAGE={by_digest}"),
        *("--label", f"{label}.name={base}", "--label", f"{label}.digest={digest}"),
    ]
    reference = f"{REGISTRY}/Images{image}Repository:{build.variables['TAG']}"
    assert build.recorded("docker") == [
        [*login, REGISTRY, f"password of {REGION}"],
        *([[*login, MIRROR, f"password of {MIRROR_REGION}"]] if in_mirror else []),
        ["docker", "pull", "--quiet", base],
        ["docker", "inspect", "--format", "{{index .RepoDigests 0}}", base],
        ["docker", "build", *arguments, "--file", f"source/{folder}/Dockerfile", "--tag", reference, "source"],
        ["docker", "push", reference],
    ]
    assert build.recorded("aws", "s3") == [
        ["aws", "s3", "cp", "--only-show-errors", build.variables["SOURCE"], "source.zip"]
    ]
    assert files(build.folder / "source") == files(build.context)
    assert build.environment["BUILDX_NO_DEFAULT_ATTESTATIONS"] == "1", "Lambda accepts no image with an attestation"


@pytest.mark.parametrize(
    "failing",
    ["aws ecr", "docker login", "aws s3 cp", "unzip", "docker pull", "docker inspect", "docker build", "docker push"],
)
def test_a_command_that_fails_ends_the_build_without_an_image(
    validated: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A status of 0 would tell the function that the image exists."""
    build = Build(validated["ray"], "HealthCheck", tmp_path, monkeypatch)
    assert build.run(failing) != 0
    pushes = build.recorded("docker", "push")
    assert pushes == [] or failing == "docker push"
    assert build.recorded(*failing.split()), "the command was reached"

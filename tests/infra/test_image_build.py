"""The images that a deployment builds: what is in them, who may push and pull them, and when they are built again."""

import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from image_builder.handler import ANSWER_WITHIN_S, ANSWERED_BY, BETWEEN_DENIALS_S, DENIALS_MAX
from infra.setting_readers import DIGEST
from tests.infra.conftest import ROOT, run
from tests.infra.contexts import BASE_IMAGES
from tests.infra.deployment import ACCOUNT, IMAGES, Deployment, listed

pytestmark = pytest.mark.slow

BUILT = {"HealthCheck": "health_check", "Agent": "agent", "RayRunner": "ray_runner"}
"""Each image, with its folder."""
BASE_IMAGE_SETTINGS = {
    "HealthCheck": "health_check_base_image",
    "RayRunner": "ray_base_image",
    "Agent": "agent_base_image",
}
"""Each image, with the setting of its base image."""
LOGIN = {("ecr:GetAuthorizationToken", "*")}
PULL = {"ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"}
PUSH = {"ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"}
MIRROR, MIRROR_REGION = "444455556666.dkr.ecr.us-west-2.amazonaws.com", "us-west-2"
"""A registry of ECR that another account has in another region."""
MIRRORED = {"HealthCheck": "dcgm", "RayRunner": "python"}
"""The images whose base is in that registry, each with the end of the repository's name."""
TAGS = """
import json, sys
from pathlib import Path
import aws_cdk as cdk
from infra import image_build
from infra.health_check_task import FILES
from infra.recovery_stack import AGENT_FILES
from infra.settings import DeploymentSettings

def tag(revision="", base_image="", image="HealthCheck", folder="health_check", exclude=FILES):
    app = cdk.App(outdir=str(image_build.ROOT / "out"))
    builder = image_build.ImageBuilder(cdk.Stack(app, "Stack"), "Images", DeploymentSettings(image_revision=revision))
    builder.build(image, dockerfile=f"{folder}/Dockerfile", exclude=exclude, base_image=base_image)
    resources = app.synth().get_stack_by_name("Stack").template["Resources"].values()
    return next(each["Properties"]["Tag"] for each in resources if each["Type"] == "Custom::BuiltImage")

for path in map(Path, sys.argv[1:]):
    image_build.ROOT = path
    tags = [tag()]
    if path.name == "as it is":
        tags += [*(tag(base_image=f"mirror:4@sha256:{64 * digit}") for digit in "12"), tag("2026-12-01")]
    of_agent = tag(image="Agent", folder="agent", exclude=AGENT_FILES)
    Path(path, "tags.json").write_text(json.dumps([tags, of_agent]))
"""
"""Program that writes the tags of the check's image, and the tag of the agent's, for each copy of the repository.

The first tag is that of the image. The copy that is as it is has three more: of two base images that differ in their
digests only, and of another revision.
"""
CLOUDFORMATION_WAITS_MIN = 60
"""Longest time for which CloudFormation waits for a custom resource. Source: CloudFormation, "Custom resources"."""


def granted(deployment: Deployment, role: str) -> set[tuple[str, str]]:
    """(action, resource) of everything that the role may do."""
    (policy,) = (each for each in deployment.of_type("AWS::IAM::Policy").values() if each["Roles"] == [role])
    return {
        (action, resource)
        for statement in policy["PolicyDocument"]["Statement"]
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
    }


def request(deployment: Deployment, image: str) -> dict[str, Any]:
    """The properties of the image's custom resource."""
    return deployment.of_type("Custom::BuiltImage")[f"Images{image}Image"]


def logins(deployment: Deployment, image: str) -> set[tuple[str, ...]]:
    """(region, registry) of each login of the image's build."""
    project = deployment.of_type("AWS::CodeBuild::Project")[f"Images{image}Project"]
    commands = json.loads(project["Source"]["BuildSpec"])["phases"]["pre_build"]["commands"]
    found = [
        re.fullmatch(r"aws ecr get-login-password --region (\S+) \| docker login .* (\S+)", one) for one in commands
    ]
    return {match.groups() for match in found if match}


def context_of(assembly: Path, deployment: Deployment, image: str) -> Path:
    """The folder of the assembly that the build of the image gets."""
    key = request(deployment, image)["Variables"]["SOURCE"].rpartition("/")[2]
    return assembly / f"asset.{key.removesuffix('.zip')}"


@pytest.mark.parametrize("image", BUILT)
def test_a_build_reaches_its_source_its_repository_its_log_and_nothing_else(with_ray: Deployment, image: str) -> None:
    """The login to a registry is the only action on `*`; a base image in ECR adds the permission to pull it."""
    own = f"Images{image}Repository.Arn"
    source = request(with_ray, image)["Variables"]["SOURCE"].removeprefix("s3://")
    logs = {(f"logs:{each}", f"Images{image}Logs.Arn") for each in ("CreateLogStream", "PutLogEvents")}
    base = (
        {(action, f"arn:aws:ecr:{MIRROR_REGION}:444455556666:repository/mirror/{MIRRORED[image]}") for action in PULL}
        if image in MIRRORED
        else set()
    )
    assert granted(with_ray, f"Images{image}Role") == (
        LOGIN | logs | base | {("s3:GetObject", f"arn:aws:s3:::{source}")} | {(action, own) for action in PULL | PUSH}
    )
    assert source.startswith(f"cdk-hnb659fds-assets-{ACCOUNT}-us-east-1/") and source.endswith(".zip")


def test_the_function_starts_builds_of_the_images_and_does_nothing_else(with_ray: Deployment) -> None:
    """It deletes no image, whatever CloudFormation asks."""
    assert granted(with_ray, "ImagesRole") == {
        *((f"logs:{each}", "ImagesLogs.Arn") for each in ("CreateLogStream", "PutLogEvents")),
        *(
            (f"codebuild:{each}", f"Images{image}Project.Arn")
            for each in ("StartBuild", "BatchGetBuilds")
            for image in BUILT
        ),
        *(("ecr:DescribeImages", f"Images{image}Repository.Arn") for image in BUILT),
    }


@pytest.mark.parametrize(("where", "kept"), [("deployment", False), ("in_production", True)])
def test_a_repository_takes_each_tag_once_scans_images_and_goes_with_its_profile(
    request: pytest.FixtureRequest, validated: dict[str, Path], where: str, kept: bool
) -> None:
    """A development stack deletes the repository with its images. Production deletes it only if its creation fails."""
    deployed = Deployment.read(validated["prod"]) if kept else request.getfixturevalue(where)
    repository = deployed.only("AWS::ECR::Repository")
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    (rule,) = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])["rules"]
    assert (rule["selection"]["countType"], rule["action"]) == ("imageCountMoreThan", {"type": "expire"})
    assert rule["selection"]["countNumber"] >= 10
    policies = [
        each["DeletionPolicy"] for each in deployed.resources.values() if each["Type"] == "AWS::ECR::Repository"
    ]
    assert policies == ["RetainExceptOnCreate" if kept else "Delete"]
    assert repository["EmptyOnDelete"] is True, "otherwise the rollback of a first deployment fails"


@pytest.mark.parametrize("image", BUILT)
def test_a_build_gets_what_its_dockerfile_copies_and_little_else(
    validated: dict[str, Path], with_ray: Deployment, image: str
) -> None:
    """A file that is left out breaks the build; a file too many builds the image again without need."""
    context = context_of(validated["ray"], with_ray, image)
    dockerfile = request(with_ray, image)["Variables"]["DOCKERFILE"]
    assert dockerfile == f"{BUILT[image]}/Dockerfile" and (context / dockerfile).is_file()
    text = re.sub(r"\\\n", " ", (context / dockerfile).read_text())
    sources = [source for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M) for source in line.split()[:-1]]
    assert sources and all(list(context.glob(source)) for source in sources)
    copied = {path for source in sources for path in context.glob(source) if path.is_file()}
    folders = [path for source in sources for path in context.glob(source) if path.is_dir()]
    copied |= {path for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert {path for path in context.rglob("*") if path.is_file()} - copied <= {context / dockerfile}
    links = [path for path in context.rglob("*") if path.is_symlink()]
    assert all(path.resolve(strict=True).is_relative_to(context.resolve()) for path in links), "the archive has files"
    for project in context.rglob("pyproject.toml"):
        readme = tomllib.loads(project.read_text())["project"]["readme"]
        assert (project.parent / readme).is_file(), "the build of the wheel reads it"


def test_an_image_is_built_again_only_if_its_files_its_arguments_or_its_revision_change(tmp_path: Path) -> None:
    """The tag is the reason for a build. Another synthesis or a change elsewhere gives an image no other tag."""
    copies = {
        "as it is": (),
        "changed elsewhere": ("health_check/README.md", "lambdas/scheduler.py"),
        "changed": ("health_check/judge.py",),
        "installed from here": ("agent/build/lib/health_check/xid.py", "agent/gpu_recovery_agent.egg-info/PKG-INFO"),
    }
    for name, changed in copies.items():
        for folder in ("agent", "health_check", "image_builder", "lambdas"):
            left = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            shutil.copytree(ROOT / folder, tmp_path / name / folder, symlinks=True, ignore=left)
        for path in changed:
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            with (tmp_path / name / path).open("a") as file:
                file.write("\n")
    run(tmp_path, ["-c", TAGS, *(str(tmp_path / name) for name in copies)], CDK_VALIDATION="false")
    written = [json.loads((tmp_path / name / "tags.json").read_text()) for name in copies]
    as_it_is, elsewhere, (other_file,), installed = (tags for tags, _ in written)
    agent, *_, agent_installed = (tag for _, tag in written)
    assert (installed, agent_installed) == (as_it_is[:1], agent), (
        "pip leaves such files, which would get into the wheel"
    )
    assert elsewhere == as_it_is[:1]
    assert len({*as_it_is, other_file}) == 5


@pytest.mark.parametrize("image", BUILT)
def test_the_base_image_of_the_settings_is_an_argument_of_the_build(with_ray: Deployment, image: str) -> None:
    """By its digest. A build logs in to its own registry, and to that of a base image in ECR."""
    base = BASE_IMAGES[f"gpu-recovery:{BASE_IMAGE_SETTINGS[image]}"]
    assert DIGEST.fullmatch(base)
    assert request(with_ray, image)["Variables"]["BASE_IMAGE"] == base
    mirror = {(MIRROR_REGION, MIRROR)} if image in MIRRORED else set()
    assert logins(with_ray, image) == {('"$AWS_REGION"', '"${REPOSITORY%%/*}"')} | mirror


def test_without_a_setting_the_base_image_is_that_of_the_dockerfile(deployment: Deployment) -> None:
    """The build reads the Dockerfile then."""
    assert "BASE_IMAGE" not in request(deployment, "HealthCheck")["Variables"]
    assert logins(deployment, "HealthCheck") == {('"$AWS_REGION"', '"${REPOSITORY%%/*}"')}


def test_a_build_ends_before_cloudformation_gives_up(deployment: Deployment) -> None:
    """Otherwise the deployment fails without the reason."""
    project = deployment.only("AWS::CodeBuild::Project")
    assert project["TimeoutInMinutes"] >= 30
    assert project["TimeoutInMinutes"] + project["QueuedTimeoutInMinutes"] < CLOUDFORMATION_WAITS_MIN


def test_the_function_has_time_for_its_denials_and_its_answer(deployment: Deployment) -> None:
    """A function that is ended before its answer leaves CloudFormation to wait for an hour."""
    function = deployment.only("AWS::Lambda::Function", "ImagesFunction")
    assert function["Timeout"] > DENIALS_MAX * BETWEEN_DENIALS_S + ANSWER_WITHIN_S


def test_the_end_of_a_build_reaches_the_function_for_every_image(with_ray: Deployment) -> None:
    """Every end of a build, of our projects alone: an end that is not reported is an hour of waiting."""
    rule = with_ray.only("AWS::Events::Rule", IMAGES)
    assert rule["EventPattern"] == {
        "source": ["aws.codebuild"],
        "detail-type": ["CodeBuild Build State Change"],
        "detail": {
            "build-status": ["SUCCEEDED", "FAILED", "FAULT", "STOPPED", "TIMED_OUT"],
            "project-name": [f"Images{image}Project" for image in BUILT],
        },
    }
    assert [target["Arn"] for target in rule["Targets"]] == ["ImagesFunction.Arn"]
    (permission,) = (
        each
        for each in with_ray.of_type("AWS::Lambda::Permission").values()
        if each["FunctionName"] == "ImagesFunction.Arn"
    )
    assert (permission["Principal"], permission["SourceArn"]) == ("events.amazonaws.com", "ImagesEnded.Arn")


@pytest.mark.parametrize("image", BUILT)
def test_an_image_is_requested_when_all_that_builds_it_exists(with_ray: Deployment, image: str) -> None:
    """A build that is started before its rule, or before the policies, would be lost."""
    (resource,) = (each for name, each in with_ray.resources.items() if name.endswith(f"/Images{image}Image"))
    awaited = {re.sub(r"[0-9A-F]{8}$", "", name) for name in resource["DependsOn"]}
    assert {"ImagesEnded", "ImagesRoleDefaultPolicy", f"Images{image}Project"} <= awaited
    assert any(name.startswith("ImagesEndedAllowEventRule") for name in awaited)
    (project,) = (each for name, each in with_ray.resources.items() if name.endswith(f"/Images{image}Project"))
    awaited = {re.sub(r"[0-9A-F]{8}$", "", name) for name in project["DependsOn"]}
    assert f"Images{image}RoleDefaultPolicy" in awaited


@pytest.mark.parametrize("image", BUILT)
def test_the_commands_of_a_build_use_only_variables_that_it_has(with_ray: Deployment, image: str) -> None:
    """A variable that is missing is an empty word in a shell. Arguments may be missing; CodeBuild sets the region."""
    project = with_ray.of_type("AWS::CodeBuild::Project")[f"Images{image}Project"]
    environment = project["Environment"]
    phases = json.loads(project["Source"]["BuildSpec"])["phases"]
    assert [command.split()[:2] for command in phases["build"]["commands"][-2:]] == [
        ["docker", "build"],
        ["docker", "push"],
    ]
    assert environment["PrivilegedMode"] is True and environment["Type"] == "LINUX_CONTAINER"
    used = set(re.findall(r"\$\{?([A-Z_]+)", project["Source"]["BuildSpec"]))
    used -= {match[1] for command in phases["build"]["commands"] if (match := re.match(r"([A-Z_]+)=", command))}
    fixed = {each["Name"]: each["Value"] for each in environment["EnvironmentVariables"]}
    assert used - fixed.keys() - request(with_ray, image)["Variables"].keys() <= {
        "TAG",
        "BASE_IMAGE",
        "AWS_REGION",
    }
    assert fixed["REPOSITORY"] == f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/Images{image}Repository"


def test_the_ray_runner_has_the_built_image_by_its_digest(with_ray: Deployment) -> None:
    """For the architecture of the build, from a repository of which Lambda may pull."""
    function = with_ray.only("AWS::Lambda::Function", "RayFunction")
    assert function["Code"]["ImageUri"].endswith("/ImagesRayRunnerRepository@sha256:ImagesRayRunnerImage.Sha256")
    assert function["Architectures"] == ["x86_64"]
    policy = with_ray.of_type("AWS::ECR::Repository")["ImagesRayRunnerRepository"]["RepositoryPolicyText"]
    (statement,) = policy["Statement"]
    assert statement["Principal"] == {"Service": "lambda.amazonaws.com"} and set(statement["Action"]) == PULL


def test_the_output_of_the_agent_is_the_built_image_by_its_digest(with_ray: Deployment) -> None:
    """`agent/ecs-daemon.json` gets this value."""
    registry = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com"
    outputs = with_ray.outputs("GpuRecovery")
    assert outputs["AgentImageUri"] == f"{registry}/ImagesAgentRepository@sha256:ImagesAgentImage.Sha256"


def test_no_image_is_left_to_docker(validated: dict[str, Path]) -> None:
    """An assembly with a Docker asset would need Docker at the deployment."""
    for folder in validated.values():
        for path in folder.glob("*.assets.json"):
            assert json.loads(path.read_text())["dockerImages"] == {}, path


def test_own_images_need_nothing_that_builds(own_images: Deployment) -> None:
    """The images are those of the settings, and the template has neither a build nor its function."""
    assert not [name for name in own_images.resources if name.split("/")[1].startswith(IMAGES)]
    assert own_images.only("AWS::Lambda::Function", "RayFunction")["Code"]["ImageUri"].endswith(
        f"/ray-runner@sha256:{64 * '8'}"
    )


def test_the_answer_needs_nothing_that_the_request_lacks() -> None:
    """The names are those of CloudFormation's requests. Source: CloudFormation, "Custom resource request objects"."""
    of_cloudformation = {
        "RequestType",
        "ResponseURL",
        "StackId",
        "RequestId",
        "ResourceType",
        "LogicalResourceId",
        "PhysicalResourceId",
        "ResourceProperties",
        "OldResourceProperties",
    }
    assert set(ANSWERED_BY) <= of_cloudformation

"""Images that a deployment builds by itself, so that nobody needs Docker: CodeBuild, ECR and a custom resource.

The files of an image are an asset. The tag of the image is a hash of these files, of the build's commands and base
image, and of the setting `image_revision`. So a deployment builds an image only if one of them has changed. Tags
are immutable, and users of the image refer to its digest.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from aws_cdk import Aws, CustomResource, Duration, IgnoreMode, RemovalPolicy
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.function_properties import function_name, log_as_json
from infra.image_reference import EcrImage, allow_pull, ecr_image
from infra.log_groups import log_group
from infra.settings import DeploymentSettings

ROOT = Path(__file__).parent.parent
NAME = "image_builder"
"""Name of the function in this repository."""
BUILD_IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
"""Image of CodeBuild in which Docker runs: x86_64, because CodeBuild has no ARM in China and GovCloud."""
BUILD_WITHIN_MIN, STARTS_WITHIN_MIN = 30, 25
"""Minutes after which CodeBuild ends a build, and after which CodeBuild drops a build that waits for a machine.

Together they are less than the hour for which CloudFormation waits for a custom resource.
"""
IMAGES_MAX = 20
"""Images that a repository keeps. An upgrade pushes at most one, and the deployed image is among the newest."""
LOGIN = "aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {registry}"


def build_spec(base: EcrImage | None) -> str:
    """Return the build specification of an image: its commands, with a login to the registry of the base image.

    Every stage is built on the digest that the base has at the build. Labels of the image name the base and the digest
    (OCI Image Format Specification, annotations).

    Args:
        base: the base image, if it is in a private registry of ECR, which may belong to another account or region.
    """
    logins = [LOGIN.format(region='"$AWS_REGION"', registry='"${REPOSITORY%%/*}"')]
    if base is not None:
        logins.append(LOGIN.format(region=base.region, registry=base.registry))
    fetch = ['aws s3 cp --only-show-errors "$SOURCE" source.zip', "unzip -q source.zip -d source"]
    build = [
        'BASE="${BASE_IMAGE:-$(sed -n "s/^ARG BASE_IMAGE=//p" "source/$DOCKERFILE")}"',
        'docker pull --quiet "$BASE"',
        'BASE_BY_DIGEST="$(docker inspect --format "{{index .RepoDigests 0}}" "$BASE")"',
        'docker build --build-arg "BASE_IMAGE=$BASE_BY_DIGEST" --label "org.opencontainers.image.base.name=$BASE" '
        '--label "org.opencontainers.image.base.digest=${BASE_BY_DIGEST##*@}" '
        '--file "source/$DOCKERFILE" --tag "$REPOSITORY:$TAG" source',
        'docker push "$REPOSITORY:$TAG"',
    ]
    phases = {"pre_build": {"commands": [*logins, *fetch]}, "build": {"commands": build}}
    return json.dumps({"version": "0.2", "phases": phases}, indent=2)


class BuiltImage(Construct):
    """An image that the deployment builds. `repository` holds it; `sha256` is its digest without the algorithm.

    Args:
        dockerfile: path of the Dockerfile in this repository.
        exclude: files that are no part of the image, in the syntax of .dockerignore.
        base_image: reference of the base image, perhaps of a private repository of ECR. Empty: the base that the
            Dockerfile names.
    """

    def __init__(
        self,
        scope: "ImageBuilder",
        construct_id: str,
        settings: DeploymentSettings,
        *,
        dockerfile: str,
        exclude: Sequence[str],
        base_image: str,
    ) -> None:
        super().__init__(scope, construct_id)
        source = assets.Asset(self, "Source", path=str(ROOT), exclude=list(exclude), ignore_mode=IgnoreMode.DOCKER)
        self.repository = ecr.Repository(
            self,
            "Repository",
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            removal_policy=RemovalPolicy.DESTROY,
            empty_on_delete=True,
            lifecycle_rules=[ecr.LifecycleRule(max_image_count=IMAGES_MAX, description="keep the newest images")],
        )
        if settings.is_prod:  # the images stay, except that a first deployment that fails leaves no repository behind
            self.repository.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        base = ecr_image(base_image)
        self.project = _project(self, settings, source, self.repository, base)
        content = [source.asset_hash, build_spec(base), settings.image_revision]
        self._built = CustomResource(
            self,
            "Image",
            resource_type="Custom::BuiltImage",
            service_token=scope.function.function_arn,
            properties={
                "Project": self.project.ref,
                "Repository": self.repository.repository_name,
                "Tag": hashlib.sha256(json.dumps([*content, dockerfile, base_image]).encode()).hexdigest(),
                "Variables": {
                    "SOURCE": source.s3_object_url,
                    "DOCKERFILE": dockerfile,
                    **({"BASE_IMAGE": base_image} if base_image else {}),
                },
            },
        )
        self._built.node.add_dependency(self.project)
        scope.admit(self)

    @property
    def sha256(self) -> str:
        """The digest of the image, without `sha256:`, as CloudFormation learns it during the deployment."""
        return self._built.get_att_string("Sha256")

    @property
    def uri(self) -> str:
        """The reference of the image by its digest."""
        registry = f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}"
        return f"{registry}/{self.repository.repository_name}@sha256:{self.sha256}"

    def wait_for(self, *constructs: Construct) -> None:
        """Request the image only after these constructs exist."""
        self._built.node.add_dependency(*constructs)


def _project(
    scope: Construct,
    settings: DeploymentSettings,
    source: assets.Asset,
    repository: ecr.Repository,
    base: EcrImage | None,
) -> codebuild.CfnProject:
    """Create the project of one image, whose role reaches its source, its repository, its log and its base image.

    The construct of the CDK would add permissions for other log groups, test reports and the whole bucket of assets.
    """
    logs = log_group(scope, "Logs", settings)
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com"))
    logs.grant_write(role)
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["s3:GetObject"],
            resources=[f"arn:{Aws.PARTITION}:s3:::{source.s3_bucket_name}/{source.s3_object_key}"],
        )
    )
    allow_pull(role, repository.repository_arn)
    if base is not None:
        allow_pull(role, base.arn)
    role.add_to_policy(
        iam.PolicyStatement(
            actions=[
                "ecr:CompleteLayerUpload",
                "ecr:InitiateLayerUpload",
                "ecr:PutImage",
                "ecr:UploadLayerPart",
            ],
            resources=[repository.repository_arn],
        )
    )
    uri = f"{Aws.ACCOUNT_ID}.dkr.ecr.{Aws.REGION}.{Aws.URL_SUFFIX}/{repository.repository_name}"
    project = codebuild.CfnProject(
        scope,
        "Project",
        service_role=role.role_arn,
        artifacts=codebuild.CfnProject.ArtifactsProperty(type="NO_ARTIFACTS"),
        source=codebuild.CfnProject.SourceProperty(type="NO_SOURCE", build_spec=build_spec(base)),
        environment=codebuild.CfnProject.EnvironmentProperty(
            type="LINUX_CONTAINER",
            compute_type="BUILD_GENERAL1_MEDIUM",
            image=BUILD_IMAGE,
            privileged_mode=True,  # Docker runs inside the container of the build
            environment_variables=[
                codebuild.CfnProject.EnvironmentVariableProperty(name="REPOSITORY", value=uri),
                # Lambda accepts no image with an attestation beside it.
                codebuild.CfnProject.EnvironmentVariableProperty(name="BUILDX_NO_DEFAULT_ATTESTATIONS", value="1"),
            ],
        ),
        logs_config=codebuild.CfnProject.LogsConfigProperty(
            cloud_watch_logs=codebuild.CfnProject.CloudWatchLogsConfigProperty(
                status="ENABLED", group_name=logs.log_group_name
            )
        ),
        timeout_in_minutes=BUILD_WITHIN_MIN,
        queued_timeout_in_minutes=STARTS_WITHIN_MIN,
    )
    project.node.add_dependency(role)
    return project


class ImageBuilder(Construct):
    """The function that starts the builds of a stack (`function`), and the rule that tells it of their ends (`rule`).

    The function runs during a deployment only. It has no alarm: its failure is the failure of the deployment.
    """

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        logs = log_group(self, "Logs", settings)
        self._role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        logs.grant_write(self._role)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=function_name(settings, NAME),
            role=self._role,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(ROOT / NAME), exclude=["**/__pycache__/**"], ignore_mode=IgnoreMode.GLOB),
            timeout=Duration.seconds(90),
            memory_size=256,
            log_group=logs,
        )
        log_as_json(self.function, settings)
        self.rule = events.Rule(
            self,
            "Ended",
            event_pattern=events.EventPattern(
                source=["aws.codebuild"],
                detail_type=["CodeBuild Build State Change"],
                detail={"build-status": ["SUCCEEDED", "FAILED", "FAULT", "STOPPED", "TIMED_OUT"]},
            ),
            targets=[targets.LambdaFunction(self.function)],
        )

    def build(self, construct_id: str, *, dockerfile: str, exclude: Sequence[str], base_image: str) -> BuiltImage:
        """Add an image to the deployment, see `BuiltImage`."""
        return BuiltImage(
            self, construct_id, self._settings, dockerfile=dockerfile, exclude=exclude, base_image=base_image
        )

    def admit(self, image: BuiltImage) -> None:
        """Let the function build this image, and have it invoked when a build of the image ends."""
        self._role.add_to_policy(
            iam.PolicyStatement(
                actions=["codebuild:StartBuild", "codebuild:BatchGetBuilds"], resources=[image.project.attr_arn]
            )
        )
        self._role.add_to_policy(
            iam.PolicyStatement(actions=["ecr:DescribeImages"], resources=[image.repository.repository_arn])
        )
        self.rule.add_event_pattern(detail={"project-name": [image.project.ref]})
        image.wait_for(self.rule, self._role)

"""The function that has images built answers each request of CloudFormation once, whatever becomes of the build."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from image_builder import handler as image_builder
from image_builder.handler import REQUEST, handler

TAG = "5b1f"
DIGEST = "sha256:" + "ab" * 32
BUILD = "checks:0f1e"
LOGS = {"groupName": "ImagesHealthCheckLogs", "streamName": "0f1e"}
CREATE = {
    "RequestType": "Create",
    "RequestId": "request-1",
    "StackId": "arn:aws:cloudformation:us-east-1:111122223333:stack/GpuRecovery/1",
    "LogicalResourceId": "ImagesHealthCheckImage",
    "ResourceType": "Custom::BuiltImage",
    "ResourceProperties": {
        "ServiceToken": "arn:aws:lambda:us-east-1:111122223333:function:gpu-recovery-image_builder",
        "Project": "checks",
        "Repository": "health-check",
        "Tag": TAG,
        "Variables": {"SOURCE": "s3://assets/1.zip", "DOCKERFILE": "health_check/Dockerfile"},
    },
}
Answers = list[dict[str, Any]]


@pytest.fixture
def answers() -> Iterator[Answers]:
    """What was sent to the address for the answer, which CREATE gets as `ResponseURL`."""
    received: Answers = []

    class Receiver(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            # The address is signed for a request without a content type.
            assert not self.headers["Content-Type"]
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    CREATE["ResponseURL"] = f"http://127.0.0.1:{server.server_port}/answer"
    yield received
    server.shutdown()
    server.server_close()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Stubber]]:
    """CodeBuild and ECR. A call that a test does not expect is an error, as is an expected call that is missing."""
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    stubbers = {name: Stubber(boto3.client(name, **keys)) for name in ("codebuild", "ecr")}
    for stubber in stubbers.values():
        stubber.activate()
    monkeypatch.setattr(image_builder.boto3, "client", lambda name: stubbers[name].client)
    yield stubbers
    for stubber in stubbers.values():
        stubber.assert_no_pending_responses()


def the_repository_has(aws: dict[str, Stubber], digest: str | None) -> None:
    asked = {"repositoryName": "health-check", "imageIds": [{"imageTag": TAG}]}
    if digest is None:
        aws["ecr"].add_client_error("describe_images", "ImageNotFoundException", expected_params=asked)
    else:
        aws["ecr"].add_response("describe_images", {"imageDetails": [{"imageDigest": digest}]}, asked)


def ended(aws: dict[str, Stubber], status: str, request: dict[str, Any] | None = None, **more: Any) -> None:
    """The build ends, and its event arrives."""
    variables = [{"name": "SOURCE", "value": "s3://assets/1.zip"}]
    if request is not None:
        variables.append({"name": REQUEST, "value": json.dumps(request)})
    environment = {"type": "LINUX_CONTAINER", "image": "x", "computeType": "BUILD_GENERAL1_MEDIUM"}
    build = {
        "id": BUILD,
        "buildStatus": status,
        "logs": LOGS,
        "environment": {**environment, "environmentVariables": variables},
        **more,
    }
    aws["codebuild"].add_response("batch_get_builds", {"builds": [build]}, {"ids": [BUILD]})
    arn = f"arn:aws:codebuild:us-east-1:111122223333:build/{BUILD}"
    handler({"detail-type": "CodeBuild Build State Change", "detail": {"build-id": arn, "build-status": status}}, None)


def identity(answer: dict[str, Any]) -> tuple[str, ...]:
    return answer["StackId"], answer["RequestId"], answer["LogicalResourceId"], answer["PhysicalResourceId"]


OURS = (CREATE["StackId"], "request-1", "ImagesHealthCheckImage", "health-check")


def test_a_requested_image_is_built_and_its_digest_is_the_answer(aws: dict[str, Stubber], answers: Answers) -> None:
    """The build carries the request, and only the end of the build answers CloudFormation."""
    the_repository_has(aws, None)
    expected = {"projectName": "checks", "idempotencyToken": "request-1", "environmentVariablesOverride": ANY}
    started: list[dict[str, Any]] = []
    aws["codebuild"].client.meta.events.register(
        "provide-client-params.codebuild.StartBuild", lambda params, **_: started.append(params)
    )
    aws["codebuild"].add_response("start_build", {"build": {"id": BUILD}}, expected)
    handler(CREATE, None)
    assert answers == []
    variables = {each["name"]: each["value"] for each in started[0]["environmentVariablesOverride"]}
    assert variables.keys() == {"SOURCE", "DOCKERFILE", "TAG", REQUEST}
    assert (variables["TAG"], variables["SOURCE"]) == (TAG, "s3://assets/1.zip")
    the_repository_has(aws, DIGEST)
    ended(aws, "SUCCEEDED", json.loads(variables[REQUEST]))
    (answer,) = answers
    assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Sha256": "ab" * 32})
    assert identity(answer) == OURS


def test_a_new_role_is_denied_until_its_permissions_apply(
    aws: dict[str, Stubber], answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first deployment requests the image seconds after its role exists. It is not rolled back for that."""
    waited: list[float] = []
    monkeypatch.setattr(image_builder.time, "sleep", waited.append)
    aws["ecr"].add_client_error("describe_images", "AccessDeniedException")
    the_repository_has(aws, None)
    aws["codebuild"].add_client_error("start_build", "AccessDeniedException")
    the_repository_has(aws, None)
    aws["codebuild"].add_response("start_build", {"build": {"id": BUILD}})
    handler(CREATE, None)
    assert answers == [] and waited == [image_builder.BETWEEN_DENIALS_S] * 2


def test_a_permission_that_is_missing_is_the_answer(
    aws: dict[str, Stubber], answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function asks a bounded number of times, and says what was denied."""
    waited: list[float] = []
    monkeypatch.setattr(image_builder.time, "sleep", waited.append)
    for _ in range(image_builder.DENIALS_MAX + 1):
        aws["ecr"].add_client_error("describe_images", "AccessDeniedException", "not authorized: ecr:DescribeImages")
    handler(CREATE, None)
    (answer,) = answers
    assert answer["Status"] == "FAILED" and "ecr:DescribeImages" in answer["Reason"]
    assert len(waited) == image_builder.DENIALS_MAX


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_an_image_that_the_repository_has_is_not_built_again(
    aws: dict[str, Stubber], answers: Answers, kind: str
) -> None:
    """An update of other properties, a rollback and a second deployment use the image that is there."""
    the_repository_has(aws, DIGEST)
    handler({**CREATE, "RequestType": kind, "PhysicalResourceId": "health-check"}, None)
    (answer,) = answers
    assert (answer["Status"], answer["Data"], identity(answer)) == ("SUCCESS", {"Sha256": "ab" * 32}, OURS)


@pytest.mark.parametrize("status", ["FAILED", "STOPPED"])
def test_a_build_that_another_build_overtook_is_no_failure(
    aws: dict[str, Stubber], answers: Answers, status: str
) -> None:
    """ECR refuses the second push of an immutable tag. The image that has the tag was made of the same files."""
    the_repository_has(aws, DIGEST)
    ended(aws, status, CREATE)
    (answer,) = answers
    assert (answer["Status"], answer["Data"], identity(answer)) == ("SUCCESS", {"Sha256": "ab" * 32}, OURS)


@pytest.mark.parametrize("status", ["FAILED", "FAULT", "STOPPED", "TIMED_OUT"])
def test_a_build_that_ends_without_an_image_fails_the_deployment_and_names_its_log(
    aws: dict[str, Stubber], answers: Answers, status: str
) -> None:
    """The message has the first error of the build, and the log group and stream with the others."""
    error = "COMMAND_EXECUTION_ERROR: Error while executing command: docker build"
    phases = [{"phaseType": "QUEUED"}, {"phaseType": "BUILD", "contexts": [{"statusCode": "X", "message": error}]}]
    the_repository_has(aws, None)
    ended(aws, status, CREATE, phases=phases)
    (answer,) = answers
    assert (answer["Status"], answer["Data"], identity(answer)) == ("FAILED", {}, OURS)
    assert answer["Reason"] == (
        f"health-check:{TAG} was not built: the build {BUILD} ended with {status} ({error}); "
        "read its log, stream 0f1e of the log group ImagesHealthCheckLogs"
    )


def test_a_build_without_a_push_fails_the_deployment(aws: dict[str, Stubber], answers: Answers) -> None:
    """A task definition must not name an image that does not exist."""
    the_repository_has(aws, None)
    ended(aws, "SUCCEEDED", CREATE)
    (answer,) = answers
    assert answer["Status"] == "FAILED" and "succeeded and pushed no image" in answer["Reason"]


def test_a_long_error_leaves_room_for_the_log(aws: dict[str, Stubber], answers: Answers) -> None:
    """CloudFormation refuses an answer of more than 4,096 bytes, and the deployment would wait for an hour."""
    the_repository_has(aws, None)
    ended(aws, "FAILED", CREATE, phases=[{"contexts": [{"message": "e" * 10_000}]}])
    (answer,) = answers
    assert len(json.dumps(answer)) < 4_096 and answer["Reason"].endswith("log group ImagesHealthCheckLogs")


def test_a_build_that_cannot_be_started_fails_the_deployment_at_once(aws: dict[str, Stubber], answers: Answers) -> None:
    """Without the answer CloudFormation would wait for an hour."""
    the_repository_has(aws, None)
    aws["codebuild"].add_client_error("start_build", "AccountLimitExceededException", "Cannot have more than 0 builds")
    handler(CREATE, None)
    (answer,) = answers
    assert answer["Status"] == "FAILED" and identity(answer) == OURS
    assert f"The build of health-check:{TAG} could not be started: " in answer["Reason"]
    assert "Cannot have more than 0 builds" in answer["Reason"]


def test_a_deletion_touches_no_image(aws: dict[str, Stubber], answers: Answers) -> None:
    """Tasks of an older revision may still pull the image. So neither CodeBuild nor ECR is called."""
    handler({**CREATE, "RequestType": "Delete", "PhysicalResourceId": "health-check"}, None)
    (answer,) = answers
    assert (answer["Status"], answer["Data"], identity(answer)) == ("SUCCESS", {}, OURS)


def test_a_build_that_a_person_started_answers_nobody(aws: dict[str, Stubber], answers: Answers) -> None:
    """It carries no request."""
    ended(aws, "FAILED")
    assert answers == []

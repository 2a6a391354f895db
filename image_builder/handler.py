"""Build an image during a deployment: the custom resource `Custom::BuiltImage` of CloudFormation.

CloudFormation requests an image. The function starts a build of CodeBuild, unless the repository already has the tag,
and returns. The event of the ended build invokes the function again, and the function then answers CloudFormation. The
request travels through a variable of the build, so nothing is stored, and a build may take longer than a function.

Standard library and the boto3 of the Lambda runtime only.
"""

import json
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import boto3
from botocore.exceptions import ClientError

log = logging.getLogger()
Json = Mapping[str, Any]
Answer = TypeVar("Answer")

REQUEST = "CLOUDFORMATION_REQUEST"
"""Variable of the build with the request that the build answers."""
ANSWERED_BY = ("RequestType", "ResponseURL", "StackId", "RequestId", "LogicalResourceId", "ResourceProperties")
"""Fields of a request that its answer needs. The other fields could exceed the limit of a build's variables."""
REASON_CHARACTERS_MAX = 1_000
"""Bound of an error message. CloudFormation accepts 4,096 bytes for the whole answer."""
ANSWER_WITHIN_S = 30
DENIALS_MAX, BETWEEN_DENIALS_S = 9, 5
"""Calls that may be denied, and the seconds between two. The role is new, and IAM applies new permissions late."""


class NotBuilt(Exception):
    """A build has ended without an image."""


def handler(event: Json, _context: object) -> None:
    """Handle a request of CloudFormation, or the end of a build."""
    if "RequestType" in event:
        _requested(event)
    else:
        _ended(event["detail"])


def _requested(request: Json) -> None:
    """Answer a request at once if nothing is to be built. Otherwise start the build.

    A deletion deletes no image: tasks and functions of another revision may still use it. The repository's own removal
    policy decides about the images.
    """
    if request["RequestType"] == "Delete":
        _answer(request)
        return
    try:
        digest = _when_permitted(lambda: _found_or_started(request))
    except Exception as error:  # without an answer the deployment would wait for an hour
        log.exception("the build could not be started")
        _answer(request, error=f"The build of {_image(request)} could not be started: {error}")
    else:
        if digest is not None:
            _answer(request, digest=digest)


def _ended(detail: Json) -> None:
    """Answer the request that started the build. A build that a person started has no request."""
    codebuild = boto3.client("codebuild")
    (build,) = codebuild.batch_get_builds(ids=[detail["build-id"].rpartition(":build/")[2]])["builds"]
    variables = {each["name"]: each["value"] for each in build["environment"]["environmentVariables"]}
    if REQUEST not in variables:
        return
    request = json.loads(variables[REQUEST])
    try:
        digest = _built(build, request)
    except Exception as error:  # without an answer the deployment would wait for an hour
        log.exception("the build made no image")
        _answer(request, error=f"{_image(request)} was not built: {error}")
    else:
        _answer(request, digest=digest)


def _built(build: Json, request: Json) -> str:
    """Return the digest of the image that the build has pushed.

    Raises:
        NotBuilt: the build failed, or pushed no image.
    """
    # The tag is a hash of all that the image is made of: an image that another build has pushed is the same.
    digest = _digest(request)
    if digest is not None:
        return digest
    place = build.get("logs", {})
    where = f"read its log, stream {place.get('streamName', '?')} of the log group {place.get('groupName', '?')}"
    if build["buildStatus"] != "SUCCEEDED":
        messages = [
            each["message"]
            for phase in build.get("phases", [])
            for each in phase.get("contexts", [])
            if each.get("message")
        ]
        first = f" ({messages[0][: REASON_CHARACTERS_MAX // 2]})" if messages else ""
        raise NotBuilt(f"the build {build['id']} ended with {build['buildStatus']}{first}; {where}")
    raise NotBuilt(f"the build {build['id']} succeeded and pushed no image; {where}")


def _found_or_started(request: Json) -> str | None:
    """Return the digest of the requested image. If the repository does not have the image, start its build."""
    digest = _digest(request)
    if digest is None:
        _start(request)
    return digest


def _start(request: Json) -> None:
    properties = request["ResourceProperties"]
    kept = {name: request[name] for name in ANSWERED_BY}
    variables = {**properties["Variables"], "TAG": properties["Tag"], REQUEST: json.dumps(kept)}
    boto3.client("codebuild").start_build(
        projectName=properties["Project"],
        environmentVariablesOverride=[
            {"name": name, "value": value, "type": "PLAINTEXT"} for name, value in sorted(variables.items())
        ],
        idempotencyToken=request["RequestId"],  # Lambda may deliver a request twice
    )


def _when_permitted(call: Callable[[], Answer]) -> Answer:
    """Return the answer of a call, which is repeated while AWS denies the call.

    Raises:
        ClientError: AWS denies the call for more than `DENIALS_MAX` times, or the call fails for another reason.
    """
    for _ in range(DENIALS_MAX):
        try:
            return call()
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("AccessDenied", "AccessDeniedException"):
                raise
            time.sleep(BETWEEN_DENIALS_S)
    return call()


def _digest(request: Json) -> str | None:
    """Return the digest of the requested image, or None if the repository does not have the tag."""
    ecr = boto3.client("ecr")
    properties = request["ResourceProperties"]
    try:
        answer = ecr.describe_images(
            repositoryName=properties["Repository"], imageIds=[{"imageTag": properties["Tag"]}]
        )
    except ecr.exceptions.ImageNotFoundException:
        return None
    return str(answer["imageDetails"][0]["imageDigest"])


def _image(request: Json) -> str:
    properties = request["ResourceProperties"]
    return f"{properties['Repository']}:{properties['Tag']}"


def _answer(request: Json, *, digest: str = "", error: str = "") -> None:
    """Send the answer to the address that CloudFormation gave for it.

    The repository is the identity of the resource, so an update to another image replaces nothing.
    """
    answer = {
        "Status": "FAILED" if error else "SUCCESS",
        "Reason": error[:REASON_CHARACTERS_MAX],
        "PhysicalResourceId": request["ResourceProperties"]["Repository"],
        **{name: request[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
        # Without the algorithm, because CDK and templates write `@sha256:` themselves.
        "Data": {"Sha256": digest.removeprefix("sha256:")} if digest else {},
    }
    sent = urllib.request.Request(
        request["ResponseURL"], data=json.dumps(answer).encode(), method="PUT", headers={"Content-Type": ""}
    )
    with urllib.request.urlopen(sent, timeout=ANSWER_WITHIN_S):
        pass

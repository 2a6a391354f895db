"""Checks of container images in ECR: whether the image exists, and for which processors it is built."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from gpu_recovery_client.account.access import Account, Refused
from gpu_recovery_client.account.findings import Finding, Settings
from gpu_recovery_client.account.instances import ARCHITECTURES, Fleet

ECR = re.compile(
    r"(?P<registry>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/"
    r"(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""A reference of an image in a private registry of ECR."""
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
MISSING = ("RepositoryNotFoundException", "ImageNotFoundException")
BUILT_FOR = "x86_64"
"""Architecture of the images that a deployment builds."""
FORMER_NAME = "gpu-recovery-health-check"
"""Repository of the image of the health check where the setting `health_check_image` is empty; its tag is `latest`."""


def check_health_check_image(account: Account, settings: Settings, fleet: Fleet) -> Iterator[Finding]:
    """Yield findings about the image of the health check."""
    image = settings["health_check_image"]
    if image == "build":
        others = [name for kind, names in fleet.architectures.items() if kind != BUILT_FOR for name in names]
        if others:
            yield Finding(
                "image",
                ", ".join(sorted(others)),
                f"the deployment builds the image of the health check for {BUILT_FOR} only, and these instances are "
                "of another architecture",
                "no health check starts there, so no fault of these instances is found",
                "docker build --platform linux/arm64 -f health_check/Dockerfile . ; push it to ECR; "
                + settings.change("health_check_image", '"...@sha256:..."'),
            )
        return
    name = image or f"{account.account_id}.dkr.ecr.{account.region}.amazonaws.com/{FORMER_NAME}:latest"
    yield from check_image(account, name, fleet.architectures, "image", "the health check")


def check_image(
    account: Account, reference: str, instances: Mapping[str, Sequence[str]], check: str, subject: str
) -> Iterator[Finding]:
    """Yield a finding if an image of this account and region is missing, or is for other processors.

    Args:
        account: the account.
        reference: reference of the image. Images of other registries are left out.
        instances: ids of the instances that run the image, by their architecture.
        check: name of the check.
        subject: the user of the image.
    """
    parts = ECR.fullmatch(reference)
    if parts is None or parts["region"] != account.region or parts["registry"] != account.account_id:
        return
    try:
        kinds = _architectures(account, parts)
    except Refused as error:
        if error.code not in MISSING:
            raise
        kinds = None
    if kinds is None:
        yield Finding(
            check,
            subject,
            f"the image {reference} does not exist",
            "no task with this image starts",
            f"aws ecr describe-images --region {account.region} --repository-name {parts['name']}",
        )
        return
    unserved = sorted(kind for kind in instances if kinds and kind not in kinds)
    if unserved:
        names = ", ".join(sorted(name for kind in unserved for name in instances[kind]))
        yield Finding(
            check,
            subject,
            f"the image {reference} is for {', '.join(sorted(kinds))}, the instances {names} are {', '.join(unserved)}",
            "the container ends at once with `exec format error`",
            f"docker buildx build --platform {','.join(_platform(kind) for kind in unserved)} --push -t {reference} .",
        )


def _architectures(account: Account, parts: re.Match[str]) -> set[str] | None:
    """Return the architectures of an image; None if there is no such image. An empty set: they are unknown."""
    wanted = {"imageDigest": parts["digest"]} if parts["digest"] else {"imageTag": parts["tag"] or "latest"}
    answer = account.call(
        "ecr",
        "batch_get_image",
        registryId=parts["registry"],
        repositoryName=parts["name"],
        imageIds=[wanted],
        acceptedMediaTypes=[*INDEXES, *MANIFESTS],
    )
    if not answer.get("images"):
        return None
    manifest = json.loads(answer["images"][0]["imageManifest"])
    if "manifests" in manifest:
        platforms = [one.get("platform", {}).get("architecture", "") for one in manifest["manifests"]]
        return {ARCHITECTURES.get(one, one) for one in platforms if one not in ("", "unknown")}
    digest = manifest.get("config", {}).get("digest")
    if not digest:
        return set()
    link = account.call(
        "ecr",
        "get_download_url_for_layer",
        registryId=parts["registry"],
        repositoryName=parts["name"],
        layerDigest=digest,
    )
    found = _config(link["downloadUrl"]).get("architecture", "")
    return {ARCHITECTURES.get(found, found)} if found else set()


def _config(url: str) -> Mapping[str, Any]:
    """Return the configuration of an image, from a signed address that ECR gave; {} if it cannot be read."""
    httpx = import_module("httpx")
    try:
        answer = httpx.get(url, timeout=30, follow_redirects=True)
        found = answer.json() if answer.status_code == 200 else {}
    except (httpx.HTTPError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _platform(kind: str) -> str:
    return "linux/arm64" if kind == "arm64" else "linux/amd64"

"""`python -m release.base_images`: the digests of the base images in the Dockerfiles, refreshed or checked.

A tag can be moved to another image, a digest cannot. A release is built on digests, and `check` fails without them.
The registry is asked by the protocol of the OCI Distribution Specification 1.1, without Docker.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from release import ROOT

DOCKERFILES = ("agent/Dockerfile", "health_check/Dockerfile", "ray_runner/Dockerfile")
PLATFORM = ("linux", "amd64")
"""Operating system and processor of the images that a deployment builds."""
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
TIMEOUT_S = 30
_ARGUMENT = re.compile(r"^ARG BASE_IMAGE=(\S+)$", re.MULTILINE)
_FROM = re.compile(r"^FROM (?:--\S+ )*(\S+)", re.MULTILINE)
_REFERENCE = re.compile(
    r"(?P<registry>[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?)/(?P<name>[a-z0-9._/-]+):(?P<tag>[\w.-]+)"
    r"(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class DigestUnknown(RuntimeError):
    """The registry did not say which image a tag is, or not in a way that can be trusted."""


@dataclass(frozen=True)
class Answer:
    """Answer of a registry: HTTP status, header fields by name in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Get = Callable[[str, Mapping[str, str]], Answer]
"""A function that gets a URL with header fields."""


@dataclass(frozen=True)
class BaseImage:
    """Reference of a base image by its tag, and its digest, which is "" if the Dockerfile names none."""

    registry: str
    name: str
    tag: str
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.registry}/{self.name}:{self.tag}" + (f"@{self.digest}" if self.digest else "")


def base_image(dockerfile: str) -> BaseImage:
    """Return the base image of a Dockerfile. Every stage must be built on it.

    Raises:
        ValueError: a stage has another base, or the reference has no registry or no tag.
    """
    argument = _ARGUMENT.findall(dockerfile)
    others = set(_FROM.findall(dockerfile)) - {"${BASE_IMAGE}"}
    if len(argument) != 1 or others:
        raise ValueError(f"one ARG BASE_IMAGE, and every stage FROM it, not {argument} and {sorted(others)}")
    match = _REFERENCE.fullmatch(argument[0])
    if match is None:
        raise ValueError(f"{argument[0]} is not registry/name:tag, with or without @sha256:<digest>")
    return BaseImage(match["registry"], match["name"], match["tag"], match["digest"] or "")


def http_get(url: str, headers: Mapping[str, str]) -> Answer:
    """Get a URL. A refusal is an answer too."""
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as found:
            return Answer(found.status, _lower(found.headers.items()), found.read())
    except urllib.error.HTTPError as refusal:
        return Answer(refusal.code, _lower(refusal.headers.items()), refusal.read())


def _lower(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in fields}


def current_digest(image: BaseImage, get: Get = http_get) -> str:
    """Return the digest that the tag of an image has now. It is computed from the manifest, not taken on trust.

    Raises:
        DigestUnknown: the registry refused the request, or the image is not for the platform of the builds.
    """
    url = f"https://{image.registry}/v2/{image.name}/manifests/{image.tag}"
    headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
    answer = get(url, headers)
    if answer.status == 401:
        answer = get(url, {**headers, "Authorization": f"Bearer {_token(image, answer, get)}"})
    if answer.status != 200:
        raise DigestUnknown(f"{url} answers {answer.status}")
    digest = f"sha256:{hashlib.sha256(answer.body).hexdigest()}"
    if answer.headers.get("docker-content-digest", digest) != digest:
        raise DigestUnknown(f"{url} says {answer.headers['docker-content-digest']}, but its manifest is {digest}")
    manifest = json.loads(answer.body)
    kind = manifest.get("mediaType") or answer.headers.get("content-type", "")
    if kind not in (*INDEXES, *MANIFESTS):
        raise DigestUnknown(f"{url} is {kind}")
    platforms = [(each["platform"]["os"], each["platform"]["architecture"]) for each in manifest.get("manifests", [])]
    if kind in INDEXES and PLATFORM not in platforms:
        raise DigestUnknown(f"{image} has no image for {'/'.join(PLATFORM)}")
    return digest


def _token(image: BaseImage, refusal: Answer, get: Get) -> str:
    """A token for anonymous pulls, from the service that the registry names."""
    challenge = refusal.headers.get("www-authenticate", "")
    fields = dict(_CHALLENGE.findall(challenge))
    if not challenge.lower().startswith("bearer ") or not fields.get("realm", "").startswith("https://"):
        raise DigestUnknown(f"{image.registry} asks for {challenge or 'nothing that is known'}")
    asked = {"service": fields.get("service", ""), "scope": f"repository:{image.name}:pull"}
    answer = get(f"{fields['realm']}?{urlencode(asked)}", {})
    found = json.loads(answer.body) if answer.status == 200 else {}
    if token := found.get("token") or found.get("access_token"):
        return str(token)
    raise DigestUnknown(f"{fields['realm']} gives no token for anonymous pulls: {answer.status}")


def refresh(root: Path, get: Get = http_get) -> list[str]:
    """Write the current digest of each base image into its Dockerfile. Return the references, the changed ones marked.

    Raises:
        DigestUnknown: a digest is unknown. Then no file is changed.
    """
    texts = {name: (root / name).read_text() for name in DOCKERFILES}
    before = {name: base_image(text) for name, text in texts.items()}
    after = {
        name: BaseImage(image.registry, image.name, image.tag, current_digest(image, get))
        for name, image in before.items()
    }
    for name, image in after.items():
        (root / name).write_text(_ARGUMENT.sub(f"ARG BASE_IMAGE={image}", texts[name]))
    return [f"{name}: {image}{'' if image == before[name] else ' (changed)'}" for name, image in after.items()]


def without_digest(root: Path) -> list[str]:
    """Return a line for each Dockerfile whose base image has no digest."""
    found = {name: base_image((root / name).read_text()) for name in DOCKERFILES}
    return [f"{name}: {image} has no digest" for name, image in found.items() if not image.digest]


def main() -> int:
    """Refresh the digests, or return 1 if a base image has none."""
    parser = argparse.ArgumentParser(prog="python -m release.base_images", description="Digests of the base images.")
    parser.add_argument("verb", choices=["refresh", "check"])
    if parser.parse_args().verb == "check":
        missing = without_digest(ROOT)
        print("\n".join([*missing, "make digests writes them"] if missing else ["every base image has a digest"]))
        return 1 if missing else 0
    try:
        print("\n".join(refresh(ROOT)))
    except (DigestUnknown, OSError) as error:
        print(f"no Dockerfile was changed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

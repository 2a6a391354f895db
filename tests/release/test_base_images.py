"""The digests of base images: read from a registry that answers as the specification says, and needed by a release."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from release.base_images import (
    DOCKERFILES,
    INDEXES,
    MANIFESTS,
    Answer,
    BaseImage,
    DigestUnknown,
    base_image,
    current_digest,
    refresh,
    without_digest,
)

ROOT = Path(__file__).parents[2]
IMAGE = BaseImage("registry.example.com", "library/python", "3.11-slim")
BOTH = [{"platform": {"os": "linux", "architecture": name}, "digest": f"sha256:{name}"} for name in ("arm64", "amd64")]


class Registry:
    """A registry with one image under every tag. It gives a manifest only to callers with a token of its service."""

    def __init__(
        self, manifest: object, kind: str, *, digest: str = "", realm: str = "https://auth.example.com/t"
    ) -> None:
        self.body = json.dumps(manifest).encode()
        self.kind, self.realm = kind, realm
        self.digest = digest or f"sha256:{hashlib.sha256(self.body).hexdigest()}"
        self.asked: list[str] = []

    def __call__(self, url: str, headers: Mapping[str, str]) -> Answer:
        self.asked.append(url)
        parts = urlsplit(url)
        if url.startswith(self.realm):
            (scope,) = parse_qs(parts.query)["scope"]
            return Answer(200, {}, json.dumps({"token": f"for {scope}"}).encode())
        match = re.fullmatch(r"/v2/(.+)/manifests/([\w.-]+)", parts.path)
        if parts.scheme != "https" or match is None:
            return Answer(404, {}, b"")
        if headers.get("Authorization") != f"Bearer for repository:{match[1]}:pull":
            challenge = f'Bearer realm="{self.realm}",service="registry.example.com",scope="x"'
            return Answer(401, {"www-authenticate": challenge}, b"")
        if self.kind not in headers["Accept"].split(", "):
            return Answer(406, {}, b"")
        return Answer(200, {"content-type": self.kind, "docker-content-digest": self.digest}, self.body)


def _index(kind: str = INDEXES[0]) -> Registry:
    return Registry({"mediaType": kind, "manifests": BOTH}, kind)


@pytest.mark.parametrize("kind", INDEXES)
def test_the_digest_is_that_of_the_image_of_all_platforms(kind: str) -> None:
    """The digest of one platform would fail a build for another."""
    registry = _index(kind)
    assert current_digest(IMAGE, registry) == registry.digest
    path = "/v2/library/python/manifests/3.11-slim"
    assert [urlsplit(url).path for url in registry.asked] == [path, "/t", path]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_an_image_of_one_platform_has_its_own_digest(kind: str) -> None:
    """nvcr.io has images without an index."""
    registry = Registry({"mediaType": kind, "config": {}}, kind)
    assert current_digest(IMAGE, registry) == registry.digest


@pytest.mark.parametrize(
    ("registry", "reason"),
    [
        (Registry({"manifests": BOTH[:1]}, INDEXES[0]), "no image for linux/amd64"),
        (Registry({"manifests": BOTH}, INDEXES[0], digest="sha256:" + "0" * 64), "but its manifest is sha256:"),
        (Registry({"mediaType": "text/plain"}, MANIFESTS[0]), "is text/plain"),
        (Registry({"manifests": BOTH}, "application/vnd.docker.distribution.manifest.v1+json"), "answers 406"),
        (Registry({"manifests": BOTH}, INDEXES[0], realm="http://auth.example.com/t"), "asks for Bearer realm"),
    ],
)
def test_an_answer_that_cannot_be_trusted_is_no_digest(registry: Registry, reason: str) -> None:
    """A wrong digest would be in every image of a release."""
    with pytest.raises(DigestUnknown, match=reason):
        current_digest(IMAGE, registry)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The Dockerfiles of the repository, in a folder of their own."""
    for name in DOCKERFILES:
        (tmp_path / name).parent.mkdir()
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_refresh_writes_the_digest_behind_each_tag_and_nothing_else(copy: Path) -> None:
    """The tag stays: it tells readers which release the digest is of."""
    registry = _index()
    before = {name: (copy / name).read_text() for name in DOCKERFILES}
    assert all(line.endswith(f"@{registry.digest} (changed)") for line in refresh(copy, registry))
    for name, text in before.items():
        image = base_image(text)
        tagged = str(BaseImage(image.registry, image.name, image.tag))
        assert (copy / name).read_text() == text.replace(f"={image}\n", f"={tagged}@{registry.digest}\n")
    assert without_digest(copy) == []
    assert all(line.endswith(registry.digest) for line in refresh(copy, registry)), "a second refresh changes nothing"


def test_no_dockerfile_is_changed_if_a_digest_is_unknown(copy: Path) -> None:
    """Half of a refresh would be committed as a whole."""
    good, before = _index(), {name: (copy / name).read_text() for name in DOCKERFILES}

    def get(url: str, headers: Mapping[str, str]) -> Answer:
        return Answer(503, {}, b"") if "dcgm" in url else good(url, headers)

    with pytest.raises(DigestUnknown, match="503"):
        refresh(copy, get)
    assert {name: (copy / name).read_text() for name in DOCKERFILES} == before


def test_a_tag_without_a_digest_is_named(copy: Path) -> None:
    """`make release-check` fails with these lines."""
    refresh(copy, _index())
    path = copy / "agent/Dockerfile"
    path.write_text(re.sub(r"@sha256:\w+", "", path.read_text()))
    assert without_digest(copy) == [f"agent/Dockerfile: {base_image(path.read_text())} has no digest"]


def test_every_dockerfile_is_known_and_every_stage_is_built_on_its_argument() -> None:
    """Another base would escape the check. The setting of a deployment reaches every stage."""
    found = {path.relative_to(ROOT).as_posix() for folder in ROOT.iterdir() for path in folder.glob("Dockerfile*")}
    found = {path for path in found if not path.startswith((".", "node_modules"))}
    assert found == set(DOCKERFILES)
    for name in DOCKERFILES:
        assert base_image((ROOT / name).read_text()).registry in ("public.ecr.aws", "nvcr.io")


@pytest.mark.parametrize(
    "text",
    [
        "ARG BASE_IMAGE=public.ecr.aws/a:1\nFROM ${BASE_IMAGE}\nFROM public.ecr.aws/b:1\n",
        "FROM ${BASE_IMAGE}\n",
        "ARG BASE_IMAGE=python:3.11\nFROM ${BASE_IMAGE}\n",
        "ARG BASE_IMAGE=public.ecr.aws/a\nFROM ${BASE_IMAGE}\n",
    ],
)
def test_a_dockerfile_with_another_base_is_refused(text: str) -> None:
    """A second base, no argument, no registry, no tag."""
    with pytest.raises(ValueError, match=r"BASE_IMAGE|registry/name:tag"):
        base_image(text)


def test_every_docker_build_names_its_platform() -> None:
    """An image that is built on a computer with an ARM processor would end every check with `exec format error`."""
    pages = [
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("*/README.md"),
        *(ROOT / name for name in DOCKERFILES),
        ROOT / "README.md",
    ]
    lines = [
        (path.name, line)
        for path in pages
        for line in path.read_text().splitlines()
        if re.search(r"docker build -|docker build \.", line)
    ]
    assert len(lines) >= 4
    assert [line for line in lines if not re.search(r"--platform linux/(amd64|arm64)\b", line[1])] == []

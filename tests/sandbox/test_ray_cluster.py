"""The Ray head of a sandbox: its command, and the package that stands in for the image of `ray_runner`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from sandbox import ray_cluster
from sandbox.processes import SandboxError


def test_the_package_has_the_files_that_the_dockerfile_copies(tmp_path: Path) -> None:
    """The function and the shared package, and no handler of another function."""
    ray_cluster.write_package(tmp_path / "package.zip")
    names = set(zipfile.ZipFile(tmp_path / "package.zip").namelist())
    assert {"ray_runner/handler.py", "ray_runner/cluster.py", "gpu_recovery/recovery.py"} <= names
    assert {name.split("/")[0] for name in names} == {"ray_runner", "gpu_recovery"}
    assert ray_cluster.handler() == "ray_runner.handler.handler"


def test_the_image_is_named_by_the_digest_of_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files have the same name, so that synthesised stacks are used again."""
    first, second = (ray_cluster.write_package(tmp_path / name) for name in ("a.zip", "b.zip"))
    assert first == second
    monkeypatch.setattr(ray_cluster, "_files", lambda: iter([("main.py", Path(__file__))]))
    assert ray_cluster.write_package(tmp_path / "c.zip") != first


def test_the_deployed_addresses_are_those_of_no_sandbox(tmp_path: Path) -> None:
    """Each sandbox has other ports, which the function gets where it runs. The synthesised stacks are used again."""
    image = ray_cluster.write_package(tmp_path / "package.zip")
    given = ray_cluster.settings(image)
    assert (given["gpu-recovery:ray_image"], given["gpu-recovery:ray_dashboard"]) == (image, "http://127.0.0.1:8265")
    ports = ray_cluster.RayPorts(1, 2, 3, 4)
    (variable,) = ray_cluster.function_environment(image, tmp_path / "package.zip", ports).values()
    variables = json.loads(variable)["variables"]
    assert (variables["RAY_DASHBOARD"], variables["RAY_CONTROL_STORE"]) == ("http://127.0.0.1:1", "127.0.0.1:2")


def test_a_sandbox_without_ray_installed_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that a file is missing."""
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(SandboxError, match="make setup"):
        ray_cluster.head_command(ray_cluster.RayPorts(1, 2, 3, 4), 8, tmp_path)

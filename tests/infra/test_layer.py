"""The own Lambda layer: the tested releases, for the platform of the functions, and all that the functions import."""

import hashlib
import re
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from infra.functions import FUNCTIONS, PACKAGE
from infra.layer import PLATFORM, PYTHON, REQUIREMENTS, layer_folder
from infra.layer import build as layer_build
from infra.layer.build import FILE_TIME_S
from infra.settings import DeploymentSettings
from tests.infra.deployment import Deployment

ROOT = Path(__file__).parents[2]
OF_THE_RUNTIME = ("boto3", "botocore", "dateutil", "s3transfer", "six", "urllib3")
"""What the Lambda runtime brings. Its boto3 has a jmespath, which the layer has as well."""
TAG = f"cp{PYTHON.replace('.', '')}-cp{PYTHON.replace('.', '')}-{PLATFORM}"
"""Tag of a wheel for the functions."""
IMPORT = """
import importlib, sys
sys.path += sys.argv[2:]
importlib.import_module(sys.argv[1])
import aws_lambda_powertools
print(aws_lambda_powertools.__file__)
"""


def _pins(path: Path) -> dict[str, str]:
    """The releases that a requirements file pins."""
    return dict(re.findall(r"^([\w-]+)==([\w.]+)", path.read_text(), re.M))


def test_the_layer_has_the_releases_that_the_tests_run_with() -> None:
    """A release that no test has met must not reach an account."""
    pins = _pins(REQUIREMENTS)
    tested = {name: release for path in ROOT.glob("requirements-*.txt") for name, release in _pins(path).items()}
    assert pins.items() <= tested.items()
    assert pins == {name: version(name) for name in pins}


def test_each_package_of_the_layer_has_the_hash_of_its_wheel() -> None:
    """A file that was exchanged at the package index must not reach an account."""
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) == len(_pins(REQUIREMENTS)) > 0
    assert not [line for line in lines if not re.fullmatch(r"[\w-]+==[\w.]+( --hash=sha256:[0-9a-f]{64})+", line)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hashed", "refusal"),
    [("as it is", ""), ("exchanged", "DO NOT MATCH THE HASHES"), ("without", "Hashes are required")],
)
def test_the_build_of_the_layer_refuses_a_wheel_that_has_not_the_hash(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    hashed: str,
    refusal: str,
) -> None:
    """The build without a network, with a wheel for the functions' Python and processor in a folder."""
    wheel = _wheel(tmp_path)
    digest = hashlib.sha256(wheel.read_bytes() if hashed == "as it is" else b"another wheel").hexdigest()
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("tiny==1.0" + (f" --hash=sha256:{digest}" if hashed != "without" else ""))
    monkeypatch.setattr(layer_build, "REQUIREMENTS", requirements)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(subprocess.CalledProcessError) if refusal else nullcontext():
        layer_build.build(tmp_path / "layer")
    assert refusal in capfd.readouterr().err
    assert (tmp_path / "layer/python/tiny.py").is_file() == (not refusal)


def _wheel(folder: Path) -> Path:
    """A wheel of one empty module for the functions."""
    information = {
        "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        "WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {TAG}\n",
        "RECORD": "",
    }
    wheel = folder / f"tiny-1.0-{TAG}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        for name, text in information.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
    return wheel


@pytest.mark.slow
@pytest.mark.parametrize("handler", [row.name for row in FUNCTIONS])
def test_a_function_starts_with_its_package_the_layer_and_the_runtime_alone(handler: str, tmp_path: Path) -> None:
    """Without the packages of this machine: what the layer lacks would fail at the first event."""
    for name in OF_THE_RUNTIME:
        spec = find_spec(name)
        assert spec is not None and spec.origin is not None
        origin = Path(spec.origin)
        (tmp_path / (name if origin.stem == "__init__" else origin.name)).symlink_to(
            origin.parent if origin.stem == "__init__" else origin
        )
    packages = layer_folder() / "python"
    command = [sys.executable, "-I", "-S", "-B", "-c", IMPORT, handler, str(PACKAGE), str(packages), str(tmp_path)]
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).is_relative_to(packages)


@pytest.mark.slow
def test_the_layer_is_built_for_the_runtime_of_the_functions(deployment: Deployment) -> None:
    """A compiled module of another Python or processor is passed over without an error."""
    (layer,) = deployment.of_type("AWS::Lambda::LayerVersion").values()
    functions = deployment.at_run_time("AWS::Lambda::Function").values()
    assert {function["Runtime"] for function in functions} == {f"python{PYTHON}"} == set(layer["CompatibleRuntimes"])
    assert {architecture for function in functions for architecture in function["Architectures"]} == {"arm64"}
    suffix = f".cpython-{PYTHON.replace('.', '')}-aarch64-linux-gnu.so"
    compiled = [path.name for path in layer_folder().rglob("*.so")]
    assert compiled and all(name.endswith(suffix) for name in compiled)


@pytest.mark.slow
def test_two_builds_of_the_layer_are_the_same() -> None:
    """What a build leaves of its machine or its time would change the asset, and with it every function."""
    files = [path for path in layer_folder().rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix == ".pyc" or path.name in ("RECORD", "INSTALLER", "REQUESTED")]
    assert not [path for path in files if str(ROOT).encode() in path.read_bytes()]
    assert {path.stat().st_mtime for path in files} == {FILE_TIME_S}


@pytest.mark.slow
def test_the_licence_of_each_package_is_in_the_layer() -> None:
    """A package is passed on with its licence."""
    information = list(layer_folder().glob("python/*.dist-info"))
    assert len(information) == len(_pins(REQUIREMENTS))
    assert not [path.name for path in information if not list(path.rglob("LICENSE*"))]


@pytest.mark.slow
def test_synthesis_without_the_built_layer_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The newcomer who starts the CDK directly."""
    from infra import powertools  # noqa: PLC0415 - the CDK takes seconds to import

    monkeypatch.setattr(powertools, "layer_folder", lambda: tmp_path / "missing")
    with pytest.raises(powertools.LayerNotBuilt, match="is not built: run"):
        powertools.powertools_layer(None, DeploymentSettings())  # type: ignore[arg-type]

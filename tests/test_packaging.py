"""Packages, wheels and images hold every module that is imported where they are installed."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "agent"
FOLDERS = {
    "gpu_recovery": "lambdas/gpu_recovery",
    "gpu_recovery_agent": "agent/gpu_recovery_agent",
    "gpu_recovery_run": "agent/run/gpu_recovery_run",
    "gpu_recovery_client": "client/gpu_recovery_client",
    "health_check": "health_check",
    "image_builder": "image_builder",
    "infra": "infra",
    "ray_runner": "ray_runner",
    "release": "release",
    "sandbox": "sandbox",
    "simulator": "simulator",
}
"""Each top-level package and its folder in the repository."""
WHEELS = {
    "pyproject.toml": ("gpu_recovery_client", "gpu_recovery.core"),
    "agent/pyproject.toml": ("gpu_recovery_agent",),
    "agent/run/pyproject.toml": ("gpu_recovery_run",),
}
"""Each project that a wheel is built of, with the packages that it holds, each with all packages below it."""
NAMESPACE = "gpu_recovery"
"""Parent of `gpu_recovery.core`. It has no file in a wheel: the modules beside `core` run in AWS Lambda only."""
IMAGES = ("agent", "health_check", "ray_runner")


def _name(folder: str, path: Path) -> str:
    """The dotted name of the module at `path`, which lies below the folder of the package `folder`."""
    parts = path.relative_to(ROOT / FOLDERS[folder]).with_suffix("").parts
    return ".".join((folder, *(part for part in parts if part != "__init__")))


def _files(folder: Path) -> Iterator[Path]:
    """The modules in a folder and below, those behind links included."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files(path)
        elif path.suffix == ".py":
            yield path


MODULES = {_name(folder, path): path for folder, where in FOLDERS.items() for path in _files(ROOT / where)}
"""Each module of the repository's packages by its dotted name."""


def _setuptools(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(path.read_text())["tool"]["setuptools"]
    return found


def _imports_of_the_module(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Import statements, but those for type checkers and those that a module's `__getattr__` makes on request."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        elif not (isinstance(child, ast.FunctionDef) and child.name == "__getattr__"):
            yield from _imports_of_the_module(child)


def _imported(module: str) -> Iterator[str]:
    """The repository's modules that `module` imports, without their parent packages."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in _imports_of_the_module(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join((*above, *([node.module] if node.module else [])))
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if name in MODULES)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _needed(start: Iterable[str]) -> set[str]:
    """The repository's modules that are loaded once all of `start` have been imported, `start` included."""
    needed: set[str] = set()
    pending = [parent for name in start for parent in _with_parents(name)]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += [parent for imported in _imported(name) for parent in _with_parents(imported)]
    return needed


def _below(package: str) -> set[str]:
    return {name for name in MODULES if name == package or name.startswith(f"{package}.")}


# -- the project itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("project", WHEELS)
def test_a_project_lists_every_package_of_its_wheel(project: str) -> None:
    """A folder that the list lacks is missing from an installed project, though every test from the checkout passes."""
    listed = _setuptools(ROOT / project)["packages"]
    modules = set().union(*(_below(package) for package in WHEELS[project]))
    assert sorted(listed) == sorted({_package_of(name, MODULES[name]) for name in modules})


def test_no_two_wheels_own_the_same_package() -> None:
    """The removal of one would break the other."""
    owned = [{name.split(".")[0] for name in _setuptools(ROOT / project)["packages"]} for project in WHEELS]
    assert len(set().union(*owned)) == sum(map(len, owned))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_with_modules_is_a_package(folder: str) -> None:
    """Without `__init__.py` a folder is importable from the checkout alone."""
    folders = {path.parent for path in _files(ROOT / FOLDERS[folder])}
    assert folders and not [str(one) for one in folders if not (one / "__init__.py").exists()]


def test_every_package_is_found_in_its_folder() -> None:
    """`package-dir` names the folder that the tests of this file look into."""
    declared = _setuptools(ROOT / "pyproject.toml")["package-dir"]
    assert declared == {package.split(".")[0]: FOLDERS[package.split(".")[0]] for package in WHEELS["pyproject.toml"]}


def _package_of(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


@pytest.mark.parametrize("project", WHEELS)
def test_a_wheel_holds_every_module_that_it_needs(project: str) -> None:
    """A user's computer, a GPU instance and the image of a training have one wheel each, and no other module."""
    held = set().union(*(_below(package) for package in WHEELS[project]))
    assert sorted(_needed(held) - held - {NAMESPACE}) == []


def test_every_module_of_the_repository_is_on_the_path_of_its_environment() -> None:
    """`gpu-recovery sandbox` is started in any folder. The wheel of the command line does not hold the sandbox."""
    lines = (ROOT / "Makefile").read_text().splitlines()
    (written,) = [line for line in lines if "gpu_recovery_repository.pth" in line]
    folders = re.findall(r"\$\(CURDIR\)([\w/]*)\\n", written)
    on_path = {ROOT / folder.strip("/") for folder in folders}
    installed = {package.split(".")[0] for packages in WHEELS.values() for package in packages} - {NAMESPACE}
    assert {(ROOT / where).parent for name, where in FOLDERS.items() if name not in installed} == on_path


# -- images ------------------------------------------------------------------------------------------------------------


def _image(name: str) -> str:
    """The Dockerfile's instructions, one a line, without comments."""
    text = re.sub(r"\\\n", " ", (ROOT / name / "Dockerfile").read_text())
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def _copied(name: str) -> dict[str, Path]:
    """Path in the image -> file of the repository, for each file that the Dockerfile copies into its build."""
    found: dict[str, Path] = {}
    for line in re.findall(r"^COPY (?!--from)(.*)$", _image(name), re.MULTILINE):
        *sources, target = line.replace("${LAMBDA_TASK_ROOT}/", "").split()
        for source in sources:
            for path in ROOT.glob(source):
                if path.is_dir():
                    inside = {one.relative_to(path).as_posix(): one for one in path.rglob("*") if one.is_file()}
                    found |= {f"{target.rstrip('/')}/{within}": one for within, one in inside.items()}
                else:
                    found[f"{target.rstrip('/')}/{path.name}".lstrip("/")] = path
    return found


def _modules(copied: Mapping[str, Path]) -> set[str]:
    """The modules that are importable in an image where the repository's packages lie in its first folder."""
    paths = (Path(where).with_suffix("") for where in copied if where.endswith(".py"))
    return {".".join(part for part in path.parts if part != "__init__") for path in paths}


@pytest.mark.parametrize("image", IMAGES)
def test_everything_that_a_dockerfile_copies_exists(image: str) -> None:
    """A folder that has moved would break the build of the image, which no test runs."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", _image(image), re.MULTILINE)
    assert lines
    for line in lines:
        *sources, _ = line.split()
        assert not [source for source in sources if not list(ROOT.glob(source))], line


def test_the_agents_image_builds_the_wheel_from_all_of_its_files() -> None:
    """Links lead out of the agent's folder, so the folder that they lead to lies beside it in the build too."""
    copied = _copied("agent")
    needed = {MODULES[name].resolve() for name in _below("gpu_recovery_agent")}
    needed |= {AGENT / name for name in ("pyproject.toml", "README.md", "LICENSE")}
    assert not [path for path in needed if copied.get(path.relative_to(ROOT).as_posix()) != path]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("health_check", "health_check.__main__"),
        ("health_check", "health_check.run"),
        ("ray_runner", "ray_runner.handler"),
    ],
)
def test_an_image_holds_every_module_that_its_program_needs(image: str, program: str) -> None:
    """The image has no other way to the repository's modules."""
    assert sorted(_needed([program]) - _modules(_copied(image))) == []


@pytest.mark.parametrize("image", IMAGES)
def test_what_a_dockerfile_names_is_in_the_image(image: str) -> None:
    """The build imports modules to try them, and the program is a module."""
    text = _image(image)
    tried = [name for names in re.findall(r'python -c "import ([^"]+)"', text) for name in names.split(", ")]
    started = re.findall(r'^CMD \["(?:python", "-m", ")?([\w.]+)"\]$', text, re.MULTILINE)
    programs = [name if name in MODULES else name.rpartition(".")[0] for name in started]
    scripts = _setuptools_scripts() if image == "agent" else {}
    entry = re.findall(r'^ENTRYPOINT \["([\w-]+)"\]$', text, re.MULTILINE)
    assert tried or entry
    assert set(tried) | set(programs) <= _modules(_copied(image))
    assert set(entry) <= scripts.keys()
    assert {target.partition(":")[0] for target in scripts.values()} <= _below("gpu_recovery_agent")


def _setuptools_scripts() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((AGENT / "pyproject.toml").read_text())["project"]["scripts"]
    return found

"""The wheels of a GPU instance and of the image of a training, built as their documents say, without a network."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from release.try_wheels import NEED_TORCH

ROOT = Path(__file__).parents[2]
AGENT, RUN = ROOT / "agent", ROOT / "agent/run"
OLDEST = (3, 9)
"""The oldest Python of a training's image."""
LATER_THAN_3_9 = Path(__file__).parent / "later_than_3_9.py"
"""Program that takes from this Python what Python 3.9 lacks, and then runs another program."""
TYPING_OF_3_9 = {"Any", "BinaryIO", "NamedTuple", "NoReturn", "Optional", "Protocol", "TYPE_CHECKING", "Union", "cast"}
"""What these modules may import of `typing`. All of it is in Python 3.9."""
IGNORED = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")


def instructions() -> str:
    """The Dockerfile of the agent, one instruction a line, without comments."""
    text = re.sub(r"\\\n", " ", (AGENT / "Dockerfile").read_text())
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def wheel(folder: Path, project: str) -> Path:
    """The wheel of a project in `folder`, built by `pip wheel` with the build backend that is installed."""
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "wheel", project, *offline, "-w", str(folder / "wheels")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name = tomllib.loads((folder / re.sub(r"\[.*", "", project) / "pyproject.toml").read_text())["project"]["name"]
    (found,) = (folder / "wheels").glob(f"{name.replace('-', '_')}-*.whl")
    return found


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the agent, built in an empty folder from what the Dockerfile copies there, as its RUN line does."""
    folder = tmp_path_factory.mktemp("image")
    for line in re.findall(r"^COPY (?!--from)(.*)$", instructions(), re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            for path in ROOT.glob(source):
                into = folder / target
                if path.is_dir():
                    shutil.copytree(path, into, ignore=IGNORED, symlinks=True, dirs_exist_ok=True)
                else:
                    into.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, into)
    (project,) = re.findall(r"^RUN pip wheel .* '(\S+)'$", instructions(), re.MULTILINE)
    return wheel(folder, project)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for the images of trainings, built from a copy of the repository's folders."""
    folder = tmp_path_factory.mktemp("training")
    for name in ("agent", "client", "health_check"):
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED, symlinks=True)
    return wheel(folder, "./agent/run")


def scripts(path: Path) -> dict[str, str]:
    """The console scripts of a wheel: name -> module and function."""
    with zipfile.ZipFile(path) as found:
        (name,) = (name for name in found.namelist() if name.endswith("entry_points.txt"))
        return dict(re.findall(r"^(\S+) = (\S+)$", found.read(name).decode(), re.MULTILINE))


def run(
    path: Path, script: str, *arguments: str, before: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A console script of a wheel that alone is on the path of a bare Python."""
    module, _, function = scripts(path)[script].partition(":")
    program = (
        f"{before}\nimport sys; sys.argv[0] = {script!r}\nfrom {module} import {function} as main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", program, *arguments],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_image_of_the_agent_builds_and_its_commands_give_help(agents: Path) -> None:
    """The test of a copy of the repository cannot find a folder that the Dockerfile forgets."""
    assert set(scripts(agents)) == {"gpu-recovery-agent", "gpu-recovery-record"}
    for script in scripts(agents):
        told = run(agents, script, "--help")
        assert (told.returncode, told.stderr) == (0, "") and told.stdout.startswith(f"usage: {script}")


@pytest.mark.slow
def test_the_wrapper_runs_a_command_from_its_wheel_alone(trainings: Path, tmp_path: Path) -> None:
    """The image of a training has this wheel, and nothing else of the repository."""
    assert set(scripts(trainings)) == {"gpu-recovery-run"}
    told = run(trainings, "gpu-recovery-run", "--help")
    assert (told.returncode, told.stderr) == (0, "") and told.stdout.startswith("usage: gpu-recovery-run")
    rank = {"JOB_ID": "j", "ATTEMPT": "1", "RANK": "0", "GPUTASKER_RUNNING_TASKS_DIR": str(tmp_path / "ranks")}
    ran = run(trainings, "gpu-recovery-run", "--", "sh", "-c", "echo trained; exit 3", **rank)
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "trained\n", "")
    assert len(list((tmp_path / "ranks").iterdir())) == 1


@pytest.mark.slow
def test_each_wheel_owns_its_package_and_holds_the_licence(agents: Path, trainings: Path) -> None:
    """A package `health_check` in the image of a training may have the name of a package of the user."""
    for path, package in ((agents, "gpu_recovery_agent"), (trainings, "gpu_recovery_run")):
        with zipfile.ZipFile(path) as found:
            names = found.namelist()
            (licence,) = (name for name in names if name.endswith("/LICENSE"))
            assert found.read(licence) == (ROOT / "LICENSE").read_bytes()
            assert not [each for each in found.infolist() if each.external_attr >> 28 == 0xA], "links"
        owned = {name.split("/")[0] for name in names} - {next(n.split("/")[0] for n in names if "dist-info" in n)}
        assert {name for name in owned if not name.endswith(".data")} == {package}
    with zipfile.ZipFile(agents) as found:
        for file in ("gpu-recovery-agent.service", "gpu-reset.conf"):
            (name,) = (name for name in found.namelist() if name.endswith(f"share/gpu-recovery-agent/{file}"))
            assert found.read(name) == (AGENT / file).read_bytes()
        assert "gpu_recovery_agent/parsers/xid.py" in found.namelist()


def test_the_licences_of_the_projects_are_the_licence_of_the_repository() -> None:
    """A link would lead out of the folder that a wheel is built from."""
    assert {(folder / "LICENSE").read_bytes() for folder in (AGENT, RUN)} == {(ROOT / "LICENSE").read_bytes()}
    for project in (ROOT, AGENT, RUN):
        assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["license-files"] == ["LICENSE"]


# -- Python 3.9 --------------------------------------------------------------------------------------------------------


def in_the_image() -> list[Path]:
    """The modules of the wheel for the images of trainings."""
    listed = tomllib.loads((RUN / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    return [path for package in listed for path in sorted((RUN / package.replace(".", "/")).glob("*.py"))]


def modules() -> list[str]:
    """The dotted names of these modules, without those that need PyTorch."""
    names = [".".join(path.relative_to(RUN).with_suffix("").parts) for path in in_the_image()]
    return [name.removesuffix(".__init__") for name in names if name not in NEED_TORCH]


def _at_run_time(node: ast.AST) -> list[ast.AST]:
    """The nodes of a module that are evaluated. Annotations are not: a future import postpones them."""
    found = [node]
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            found += _at_run_time(child) if isinstance(child, ast.AST) else []
    return found


def _is_type(node: ast.AST) -> bool:
    """Whether an operand looks like a type: None, a subscript, a class of the language or a name in camel case."""
    if isinstance(node, ast.Name):
        return node.id in ("int", "float", "str", "bytes", "bool", "dict", "list", "tuple", "set") or (
            node.id[:1].isupper() and not node.id.isupper()
        )
    return isinstance(node, ast.Subscript) or (isinstance(node, ast.Constant) and node.value is None)


@pytest.mark.parametrize("path", in_the_image(), ids=lambda path: path.relative_to(RUN).as_posix())
def test_a_module_of_a_training_is_python_3_9(path: Path) -> None:
    """Its syntax, and no union of types by `|` where it is evaluated."""
    tree = ast.parse(path.read_text(), feature_version=OLDEST)
    unions = [
        node.lineno
        for node in _at_run_time(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.BitOr)
        and (_is_type(node.left) or _is_type(node.right))
    ]
    assert not unions
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Match)] == []
    typing = {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "typing"
        for alias in node.names
    }
    assert typing <= TYPING_OF_3_9
    postponed = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    annotated = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign | ast.FunctionDef)]
    assert postponed or not annotated


def test_the_wheel_says_the_python_that_the_modules_are_written_for() -> None:
    """ruff holds them to the same release."""
    oldest = ".".join(map(str, OLDEST))
    assert tomllib.loads((RUN / "pyproject.toml").read_text())["project"]["requires-python"] == f">={oldest}"
    held = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["per-file-target-version"]
    assert set(held.values()) == {f"py{oldest.replace('.', '')}"}


def older() -> list[str]:
    """The older interpreters of this machine that can be started."""
    kept = Path.home() / ".pyenv/versions"
    names = ("python3.9", "python3.10")
    found = [path for name in names for path in (shutil.which(name), *kept.glob(f"*/bin/{name}")) if path]
    tried = {str(path): subprocess.run([path, "-c", ""], capture_output=True, check=False) for path in found}
    return [path for path, done in tried.items() if done.returncode == 0]


@pytest.mark.slow
def test_the_library_and_the_wrapper_run_with_an_older_python(trainings: Path, tmp_path: Path) -> None:
    """Python itself says what it lacks, where the machine has one of these releases."""
    if not (interpreters := older()):
        pytest.skip("this machine has no Python 3.9 or 3.10")
    rank = {"JOB_ID": "j", "ATTEMPT": "1", "RANK": "0", "GPUTASKER_RUNNING_TASKS_DIR": str(tmp_path)}
    bare = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(trainings), **rank}
    imports = f"from importlib import import_module\nfor name in {modules()!r}: import_module(name)"
    library = f"{imports}\nfrom gpu_recovery_run import diagnosis\ndiagnosis.progress(1)\nsys.exit(3)"
    program = f"import sys; sys.argv[1:] = ['--', sys.executable, '-c', {'import sys; ' + library!r}]"
    program += "\nfrom gpu_recovery_run.rank.wrapper import main; main()"
    for python in interpreters:
        ran = subprocess.run([python, "-S", "-c", program], env=bare, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (3, "")


@pytest.mark.slow
def test_the_library_and_the_wrapper_run_without_what_python_3_9_lacks(trainings: Path, tmp_path: Path) -> None:
    """Every module is imported, and a rank runs to its end, with the later names taken away."""
    before = LATER_THAN_3_9.read_text()
    program = f"{before}\nfrom importlib import import_module\nfor name in {modules()!r}: import_module(name)"
    program += "\nfrom gpu_recovery_run import diagnosis, training\nassert not training.receive_suspend_command()"
    program += "\nwith diagnosis.stage('rollout'): diagnosis.progress(1)"
    bare = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(trainings)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=bare, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    rank = {"JOB_ID": "j", "ATTEMPT": "1", "RANK": "0", "GPUTASKER_RUNNING_TASKS_DIR": str(tmp_path)}
    ran = run(trainings, "gpu-recovery-run", "--", "sh", "-c", "exit 3", before=before, **rank)
    assert (ran.returncode, ran.stderr) == (3, "")

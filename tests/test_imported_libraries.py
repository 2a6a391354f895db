"""Who may import which library: what each place of the code has where it runs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.source_files import (
    CORE,
    HANDLERS,
    LAMBDAS,
    MODULES,
    ROOT,
    below,
    forget_trees,
    path_in_repository,
    syntax_nodes,
)

IMPORTS = {
    # A policy, priority or principal that no function would accept is refused before it is deployed; a metric that none
    # sends is not shown; the rules select the events of EC2 that the functions read.
    "infra": {
        "infra",
        "aws_cdk",
        "jsii",
        "constructs",
        "cdk_nag",
        "gpu_recovery.auth.principals",
        "gpu_recovery.core.repair_record",
        "gpu_recovery.core.policy",
        "gpu_recovery.core.queue.priority",
        "gpu_recovery.core.errors",
        "gpu_recovery.core.event_origin",
        "gpu_recovery.core.health_signals",
        "gpu_recovery.core.metrics",
    },
    "client": {
        "gpu_recovery_client",
        "httpx",
        "typer",
        "rich",
        "yaml",
        "gpu_recovery.wire",
        "gpu_recovery.core.job.status",
        "gpu_recovery.core.instance.record",
        "gpu_recovery.core.identifiers",
        "gpu_recovery.core.queue.priority",
        "gpu_recovery.core.queue.snapshot",
        "gpu_recovery.core.health_signals",
        "gpu_recovery.core.liveness",
        "gpu_recovery.core.logs",
        "gpu_recovery.core.diagnosis",
        "gpu_recovery.core.diagnosis.case_file",
    },
    "health_check": {"health_check", "boto3", "botocore"},
    # A GPU instance has Python and the driver. The parsers of the kernel's log are links to those of the health check.
    # Memory checkpoints use torch where the training has it.
    "agent": {
        "gpu_recovery_agent",
        "pynvml",
        "torch",
    },
    # The image has Ray's clients, and what they ask the cluster with.
    "ray_runner": {"ray_runner", "gpu_recovery", "ray", "requests"},
    "image_builder": {"image_builder", "boto3", "botocore"},
    "sandbox": {
        "sandbox",
        "gpu_recovery_client",
        "gpu_recovery_run",
        "boto3",
        "botocore",
        "ministack",
        "rich",
        "torch",
    },
    # A simulated check reads what it is told as the real check does, or a request that none can read goes unseen.
    "simulator": {
        "simulator",
        "gpu_recovery",
        "sandbox",
        "botocore",
        "matplotlib",
        "tomli_w",
        "health_check.settings",
        "health_check.remedies",
        # A policy to try may be that of a settings file, which only the settings of a deployment can read.
        "infra.settings",
        "infra.settings_error",
        "infra.settings_file",
        # What a simulated agent reports of a rank is learned as by the real one.
        "gpu_recovery_agent.sensors.activity_history",
        # A simulated standby process starts as many seconds after the training as a real one.
        "gpu_recovery_agent.rank.settings",
    },
}
"""Beyond the standard library, what each place where code runs may import."""
CORE_LIBRARY = {
    "__future__",
    "base64",
    "collections",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "hashlib",
    "hmac",
    "itertools",
    "json",
    "math",
    "re",
    "shlex",
    "struct",
    "types",
    "typing",
}
"""What the core may use of the standard library: nothing with a clock, an environment, a log, or luck."""
LIBRARY_OF_CLASSES = {"lazy_dataclass.py": {"copy", "inspect", "operator", "reprlib", "threading"}}
"""What a module of the core that makes classes may use beside that."""
MODELS = {"pydantic", "pydantic_core"}
AWS_LIBRARIES = {"boto3", "botocore", "aws_lambda_powertools"}


@pytest.fixture(autouse=True, scope="module")
def _forget_trees() -> Iterator[None]:
    """The syntax trees take 60 MB of the worker."""
    yield
    forget_trees()


@cache
def _imports(path: Path) -> set[str]:
    """The absolute names of the modules that `path` imports, relative ones resolved from the lambdas folder."""
    found: set[str] = set()
    for node in syntax_nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found |= {node.module or ""}
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "gpu_recovery.core" else set()
            )
        elif isinstance(node, ast.ImportFrom) and path.is_relative_to(LAMBDAS):
            package = path.relative_to(LAMBDAS).parts[: -node.level]
            base = ".".join((*package, *((node.module or "").split(".") if node.module else ())))
            found |= {base} if node.module else {f"{base}.{alias.name}" for alias in node.names}
    return found


def _is_within(name: str, allowed: set[str]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in allowed)


def _foreign(path: Path) -> set[str]:
    return {name for name in _imports(path) if name.split(".")[0] not in sys.stdlib_module_names}


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_is_pure(path: Path) -> None:
    """It imports itself and a few blameless parts of the standard library, and asks neither clock nor disk."""
    allowed = CORE_LIBRARY | LIBRARY_OF_CLASSES.get(path.name, set())
    for name in _imports(path):
        assert _is_within(name, {"gpu_recovery.core"}) or name.split(".")[0] in allowed, name
    for node in syntax_nodes(path):
        if isinstance(node, ast.Attribute):
            assert node.attr not in ("now", "utcnow", "today") or _is_given_now(node), f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("open", "print", "input", "hash", "id"), f"line {node.lineno}"


def _is_given_now(node: ast.Attribute) -> bool:
    """`context.now` is the time of the decision, which the caller gave."""
    return isinstance(node.value, ast.Name) and node.value.id in ("context", "given")


def test_neither_machine_knows_the_other() -> None:
    """What couples them is an event."""
    for one, other in (("job", "instance"), ("instance", "job")):
        for path in (CORE / one).glob("*.py"):
            assert not any(_is_within(name, {f"gpu_recovery.core.{other}"}) for name in _imports(path)), (
                path_in_repository(path)
            )


def test_only_the_aws_package_and_the_handlers_know_aws_libraries() -> None:
    """The loop reaches AWS through ports, so that a simulator can stand in for it."""
    for path in below("lambdas/gpu_recovery"):
        if path.parent.name != "aws":
            assert not {name.split(".")[0] for name in _imports(path)} & AWS_LIBRARIES, path_in_repository(path)
            assert not any(_is_within(name, {"gpu_recovery.aws"}) for name in _imports(path)), path_in_repository(path)


def test_the_deployed_package_needs_nothing_that_lambda_does_not_bring() -> None:
    """boto3 comes with the runtime, Powertools and pydantic with the layer."""
    for path in below("lambdas"):
        needed = {name for name in _foreign(path) if not _is_within(name, {"gpu_recovery", *AWS_LIBRARIES, *MODELS})}
        assert not needed, path_in_repository(path)


def test_nothing_imports_a_handler() -> None:
    """A handler is where a function begins; only its tests may call it."""
    handlers = {path.stem for path in HANDLERS}
    for path in MODULES:
        if not path.is_relative_to(ROOT / "tests"):
            assert not {name.split(".")[0] for name in _imports(path)} & handlers, path_in_repository(path)


@pytest.mark.parametrize("place", IMPORTS)
def test_each_place_imports_only_what_it_has_where_it_runs(place: str) -> None:
    """A user's machine has no CDK, a deployment no AWS calls, a sandbox no way around the deployed stack."""
    assert below(place)
    for path in below(place):
        assert not {name for name in _foreign(path) if not _is_within(name, IMPORTS[place])}, path_in_repository(path)

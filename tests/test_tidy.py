"""The rules of this house, carried out: who imports whom, how long things are, what is written and what is not."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

ROOT = Path(__file__).parents[1]
LAMBDAS, CORE = ROOT / "lambdas", ROOT / "lambdas" / "gpu_recovery" / "core"
HANDLERS = sorted(LAMBDAS.glob("*.py"))
MODULE_LINES_MAX, FUNCTION_LINES_MAX, HANDLER_LINES_MAX = 500, 70, 40
TEXT = {".py", ".md", ".toml", ".json", ".txt", ".yaml", ".yml", ".sh", ".csv", ""}

IMPORTS = {
    # A policy, priority or principal that no function would accept is refused before it is deployed; a metric that none
    # sends is not shown; the rules select the events of EC2 that the functions read.
    "infra": {
        "infra",
        "aws_cdk",
        "constructs",
        "cdk_nag",
        "gpu_recovery.auth.principals",
        "gpu_recovery.core.policy",
        "gpu_recovery.core.queue.priority",
        "gpu_recovery.core.errors",
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
        "gpu_recovery.core.job.record",
        "gpu_recovery.core.instance.record",
        "gpu_recovery.core.identifiers",
        "gpu_recovery.core.queue.priority",
        "gpu_recovery.core.logs",
        "gpu_recovery.core.diagnosis",
        "gpu_recovery.core.diagnosis.case_file",
    },
    "health_check": {"health_check", "boto3", "botocore"},
    # A GPU instance has Python and the driver; the wheel brings what of the health check reads the kernel's log.
    "agent": {
        "gpu_recovery_agent",
        "pynvml",
        "health_check.boot",
        "health_check.kernel_log",
        "health_check.recovery_action",
        "health_check.xid",
    },
    # The image has Ray's clients, and what they ask the cluster with.
    "ray_runner": {"ray_runner", "gpu_recovery", "ray", "requests"},
    "image_builder": {"image_builder", "boto3", "botocore"},
    "sandbox": {"sandbox", "gpu_recovery_client", "boto3", "botocore", "ministack", "rich", "torch"},
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
    },
}
"""Beyond the standard library, what each place where code runs may import."""
CORE_LIBRARY = {
    "__future__",
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
    "types",
    "typing",
}
"""What the core may use of the standard library: nothing with a clock, an environment, a log, or luck."""
AWS_LIBRARIES = {"boto3", "botocore", "aws_lambda_powertools"}

STATUS_LITERALS = {"lambdas/gpu_recovery/aws/ecs.py": "the `desiredStatus` of ECS, in the words of its API"}
BROAD_EXCEPTS = {
    "lambdas/gpu_recovery/partial_failures.py": "collects every failure and has its caller raise them together",
    "image_builder/handler.py": "reports every failure to CloudFormation, which fails the deployment",
}
BANNED = {
    "unfinished": re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b|NotImplemented" r"Error"),
    "a path of somebody's machine": re.compile(r"(?<![\w.:/}])/(home|Users|root|work)/\w"),
    "a package registry's host": re.compile(
        r"://[^/\s]*(pypi|npmjs|pythonhosted|nexus|artifactory|jfrog|devpi)[^/\s]*/"
    ),
    "a second spelling of authorize": re.compile(r"author" r"is(e|ing)", re.IGNORECASE),
    "an emoji": re.compile("[\U0001f300-\U0001faff\u2705\u274c\u26a0\u2728]"),
}
PRODUCT = (
    *("lambdas", "agent", "client", "health_check", "infra", "image_builder", "ray_runner"),
    *("simulator", "sandbox", "benchmarks"),
)
SENTENCE_WORDS_MAX = 35
FMT_SKIPS_MAX = 40
"""Statements of the whole repository that keep a layout of their own; each has its reason beside it."""
GERUNDS = {
    "diagnosing": "a status of a job",
    "launching": "a phase of a job",
    "recovering": "a status of a job",
    "stopping": "a status of a job",
    "training": "what users import: gpu_recovery_client.training",
    "accounting": "a noun of its own",
    "interning": "a noun of its own",
    "ordering": "Kueue's word for the order of a queue",
    "packing": "bin packing",
    "wiring": "a noun of its own",
    "nvml_reading": "a noun: what NVML read",
    "job_api_wiring": "a noun of its own",
}
"""Modules whose name ends in -ing although they are named after a thing: why."""
METAPHORS = re.compile(
    r"(?:^|_)(desk|kit|door|graves?|errands?|vigil|referee|witness(?:es)?|brakes?|ladder|rung|deaf|unheard|untold"
    r"|tell|telling|told|hear|hearing|heard|silence|standstill|people|lives|theatre|court|whose|whoever|somebody|nobody)"
    r"(?:_|$)"
)
"""Words of former names, which are no words of the field. `docs/glossary.md` has today's."""
STORED_METAPHORS = {"InstanceHeard", "RankHeard", "SilenceReport", "TellInstance", "TellJob"}
"""Classes whose names stand in stored records."""
STORED_MACHINES = {"machine_seen"}
"""Names that pending commands or events are stored under."""
NAMELESS = {"utils", "util", "common", "helpers", "helper", "manager", "service", "processor", "misc"}


def _of_the_repository() -> Iterator[Path]:
    """Every text file that is not a build output: what .gitignore names is left out."""
    ignored = {line.strip().strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.strip()}
    ignored |= {".git"}
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.name in ignored or any(path.match(pattern) for pattern in ignored):
                continue
            if path.is_dir():
                pending.append(path)
            elif path.suffix in TEXT:
                yield path


FILES = list(_of_the_repository())
MODULES = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _below(folder: str) -> list[Path]:
    return [path for path in MODULES if _name(path).startswith(f"{folder}/")]


@pytest.fixture(autouse=True, scope="module")
def _forget_trees() -> Iterator[None]:
    """The syntax trees take 60 MB of the worker."""
    yield
    _tree.cache_clear()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imports(path: Path) -> set[str]:
    """The absolute names of the modules that `path` imports, relative ones resolved from the lambdas folder."""
    found: set[str] = set()
    for node in ast.walk(_tree(path)):
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


# -- who imports whom --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_is_pure(path: Path) -> None:
    """It imports itself and a few blameless parts of the standard library, and asks neither clock nor disk."""
    for name in _imports(path):
        assert _is_within(name, {"gpu_recovery.core"}) or name.split(".")[0] in CORE_LIBRARY, name
    for node in ast.walk(_tree(path)):
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
            assert not any(_is_within(name, {f"gpu_recovery.core.{other}"}) for name in _imports(path)), _name(path)


def test_only_the_aws_package_and_the_handlers_know_aws_libraries() -> None:
    """The loop reaches AWS through ports, so that a simulator can stand in for it."""
    for path in _below("lambdas/gpu_recovery"):
        if path.parent.name != "aws":
            assert not {name.split(".")[0] for name in _imports(path)} & AWS_LIBRARIES, _name(path)
            assert not any(_is_within(name, {"gpu_recovery.aws"}) for name in _imports(path)), _name(path)


def test_the_deployed_package_needs_nothing_that_lambda_does_not_bring() -> None:
    """boto3 comes with the runtime, Powertools with the layer."""
    for path in _below("lambdas"):
        needed = {name for name in _foreign(path) if not _is_within(name, {"gpu_recovery", *AWS_LIBRARIES})}
        assert not needed, _name(path)


def test_nothing_imports_a_handler() -> None:
    """A handler is where a function begins; only its tests may call it."""
    handlers = {path.stem for path in HANDLERS}
    for path in MODULES:
        if not path.is_relative_to(ROOT / "tests"):
            assert not {name.split(".")[0] for name in _imports(path)} & handlers, _name(path)


@pytest.mark.parametrize("place", IMPORTS)
def test_each_place_imports_only_what_it_has_where_it_runs(place: str) -> None:
    """A user's machine has no CDK, a deployment no AWS calls, a sandbox no way around the deployed stack."""
    assert _below(place)
    for path in _below(place):
        assert not {name for name in _foreign(path) if not _is_within(name, IMPORTS[place])}, _name(path)


# -- how long things are -----------------------------------------------------------------------------------------------


@cache
def _functions(path: Path) -> list[tuple[str, int, bool]]:
    """Name, number of lines and whether there is a docstring, of each function.

    The trees of the tests are not kept: they would take 140 MB.
    """
    tree = ast.parse(path.read_text(), str(path)) if _name(path).startswith("tests/") else _tree(path)
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1, ast.get_docstring(node) is not None)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_modules_and_functions_are_short() -> None:
    """What is longer cannot be held in mind at once."""
    long: list[str] = []
    for path in MODULES:
        if len(path.read_text().splitlines()) > MODULE_LINES_MAX:
            long.append(_name(path))
        long += [f"{_name(path)}::{name}" for name, lines, _ in _functions(path) if lines > FUNCTION_LINES_MAX]
    assert not long


def test_handlers_only_hand_over() -> None:
    """Parse, call, raise: whatever is longer is a decision in the wrong place. The API alone has routes."""
    for path in HANDLERS:
        if path.stem != "job_api":
            assert len(path.read_text().splitlines()) <= HANDLER_LINES_MAX, _name(path)


# -- what is never written ---------------------------------------------------------------------------------------------


def test_statuses_are_written_in_their_enums_only() -> None:
    """A status spelt out elsewhere is one that a renaming misses."""
    statuses = {*JobStatus, *InstanceStatus}
    for path in _below("lambdas"):
        if _name(path) in STATUS_LITERALS:
            continue
        tree = _tree(path)
        enums = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and _is_enum(node)]
        spelt = {id(one) for enum in enums for one in ast.walk(enum)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spelt:
                assert node.value not in statuses, f"{_name(path)}:{node.lineno}"


def _is_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in node.bases)


@pytest.mark.parametrize("what", BANNED)
def test_nothing_unfinished_or_foreign_is_left_in_a_file(what: str) -> None:
    """No notes to oneself, no paths of one machine, no registries, no pictures in text."""
    found = {_name(path): BANNED[what].search(path.read_text()) for path in FILES}
    assert not {name: match.group() for name, match in found.items() if match}


def test_nothing_is_found_by_a_scan() -> None:
    """A table is read by key or by index, however small it is today."""
    for path in _below("lambdas"):
        for node in ast.walk(_tree(path)):
            assert not (isinstance(node, ast.Attribute) and node.attr == "scan"), f"{_name(path)}:{node.lineno}"


def test_a_broad_except_raises() -> None:
    """A failure that is swallowed reports success: no retry, no dead letter, no alarm."""
    for path in MODULES:
        if _name(path) in BROAD_EXCEPTS or path.is_relative_to(ROOT / "tests"):
            continue
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                raises = any(isinstance(one, ast.Raise) for one in ast.walk(node))
                assert raises, f"{_name(path)}:{node.lineno}"


def _is_broad(node: ast.ExceptHandler) -> bool:
    return node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))


@pytest.mark.parametrize("excused", [*STATUS_LITERALS, *BROAD_EXCEPTS])
def test_what_is_excused_exists(excused: str) -> None:
    """An excuse outlives its reason easily."""
    assert (ROOT / excused).exists()


def test_no_module_has_a_name_that_says_nothing() -> None:
    """A file is named after the thing in it."""
    assert not [_name(path) for path in MODULES if path.stem in NAMELESS or path.parent.name in NAMELESS]


@pytest.mark.parametrize("place", PRODUCT)
def test_files_are_named_after_things(place: str) -> None:
    """A gerund names an activity and a metaphor names nothing: neither is what a reader searches for."""
    stems = {path.stem: _name(path) for path in _below(place)}
    assert not [name for stem, name in stems.items() if stem.endswith("ing") and stem not in GERUNDS]
    assert not [name for stem, name in stems.items() if METAPHORS.search(stem)]


@pytest.mark.parametrize("place", PRODUCT)
def test_functions_and_parameters_have_names_of_the_field(place: str) -> None:
    """Who greps for a term finds the function; a metaphor must be learnt first."""
    found = []
    for path in _below(place):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.arg):
                name = node.arg if isinstance(node, ast.arg) else node.name
                words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
                if METAPHORS.search(words) and name not in STORED_METAPHORS:
                    found.append(f"{_name(path)}:{node.lineno} {name}")
    assert not found


def test_machine_means_state_machine() -> None:
    """An EC2 instance is an instance: no function, class or file calls it a machine, but for stored names."""
    found = []
    for path in (path for place in PRODUCT for path in _below(place)):
        defined = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef | ast.ClassDef))
        names = {path.stem, *(node.name for node in defined)}
        plain = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names} - STORED_MACHINES
        found += [f"{_name(path)}: {name}" for name in plain if re.search(r"(?<!state_)machine", name)]
    assert not found


def test_the_formatter_is_on() -> None:
    """A statement that is laid out by hand is laid out by hand again at each change."""
    skipped = [line for path in MODULES for line in path.read_text().splitlines() if "# fmt: " + "skip" in line]
    assert len(skipped) < FMT_SKIPS_MAX
    assert not [line for line in skipped if line.endswith("# fmt: " + "skip")], "a reason is missing"


# -- what is documented ------------------------------------------------------------------------------------------------


def test_the_page_of_statuses_is_fresh() -> None:
    """docs/states.md says what the tables say; `python docs/generate_states.py` rewrites it."""
    spec = importlib.util.spec_from_file_location("generate_states", ROOT / "docs" / "generate_states.py")
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert (ROOT / "docs" / "states.md").read_text() == generator.page()


def test_there_is_a_readme() -> None:
    """It is the first thing anybody opens."""
    assert ROOT / "README.md" in PAGES


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_links_lead_somewhere_inside_the_repository(path: Path) -> None:
    """A relative link names a file that is there, for whoever has only this repository."""
    prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        linked = (path.parent / target.split("#")[0]).resolve()
        assert linked.is_relative_to(ROOT), target
        assert linked.exists(), target


def test_every_variable_that_a_function_reads_is_documented() -> None:
    """Whoever looks at a function in the console finds out what each variable does."""
    settings = _tree(LAMBDAS / "gpu_recovery" / "aws" / "settings.py")
    read = {
        node.args[0].value
        for node in ast.walk(settings)
        if isinstance(node, ast.Call)
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and re.fullmatch(r"[A-Z][A-Z_]+", str(node.args[0].value))
    }
    assert "ECS_CLUSTER_NAME" in read
    pages = "\n".join(path.read_text() for path in PAGES)
    assert not {name for name in read if not re.search(rf"\b{name}\b", pages)}


def test_every_test_says_what_it_shows() -> None:
    """A name and one sentence: what must hold, and why it matters."""
    silent = [
        f"{_name(path)}::{name}"
        for path in _below("tests")
        for name, _, documented in _functions(path)
        if name.startswith("test_") and not documented
    ]
    assert not silent


def _public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Public functions, classes and methods of a module or class body, with their qualified names."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from _public(node.body, prefix)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            decorators = {getattr(one, "attr", getattr(one, "id", "")) for one in node.decorator_list}
            if not decorators & {"overload", "setter"}:
                yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("place", PRODUCT)
def test_everything_public_has_a_docstring(place: str) -> None:
    """Modules, classes, functions and methods, those of a Protocol first: what it does, shapes, units, errors."""
    silent = [_name(path) for path in _below(place) if path.read_text().strip() and not ast.get_docstring(_tree(path))]
    for path in _below(place):
        silent += [f"{_name(path)}::{name}" for name, node in _public(_tree(path).body) if not ast.get_docstring(node)]
    assert not silent


def _prose(path: Path) -> Iterator[str]:
    """The docstrings of a module, those below constants included."""
    for node in ast.walk(_tree(path)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


@pytest.mark.parametrize("place", PRODUCT)
def test_sentences_are_short(place: str) -> None:
    """A sentence that must be read twice at 3 a.m. is two sentences."""
    long = [
        f"{_name(path)}: {' '.join(sentence.split())[:60]}"
        for path in _below(place)
        for text in _prose(path)
        for sentence in re.split(r"(?<=[.:;])\s+|\n\s*\n|\n\s*- ", text)
        if len(sentence.split()) > SENTENCE_WORDS_MAX
    ]
    assert not long

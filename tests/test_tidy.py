"""The rules of this house, carried out: how long things are, what is written and what is not."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from tests.source_files import (
    FILES,
    HANDLERS,
    LAMBDAS,
    MODULES,
    PAGES,
    ROOT,
    below,
    forget_trees,
    path_in_repository,
    syntax_nodes,
    syntax_tree,
)

MODULE_LINES_MAX, FUNCTION_LINES_MAX, HANDLER_LINES_MAX = 500, 70, 40
STATUS_LITERALS = {"lambdas/gpu_recovery/aws/ecs.py": "the `desiredStatus` of ECS, in the words of its API"}
BROAD_EXCEPTS = {
    "lambdas/gpu_recovery/partial_failures.py": "collects every failure and has its caller raise them together",
    "lambdas/gpu_recovery/aws/parallel_calls.py": "raises the first failure after all threads have ended",
    "lambdas/gpu_recovery/ports/console_snapshots.py": "logs and measures a snapshot that the console then lacks",
    "lambdas/gpu_recovery/execution/repair_record.py": "records why an instance was not told who ordered its repair",
    "image_builder/handler.py": "reports every failure to CloudFormation, which fails the deployment",
    "agent/run/gpu_recovery_run/memory_checkpoint/checkpoint.py": "tells every process, and `wait` raises it in all",
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
    *("simulator", "sandbox", "benchmarks", "release"),
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
    "api_wiring": "a noun of its own",
    "event_history_wiring": "a noun of its own",
    "node_api_wiring": "a noun of its own",
    "snapshot_wiring": "a noun of its own",
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


@pytest.fixture(autouse=True, scope="module")
def _forget_trees() -> Iterator[None]:
    """The syntax trees take 60 MB of the worker."""
    yield
    forget_trees()


# -- how long things are -----------------------------------------------------------------------------------------------


@cache
def _functions(path: Path) -> list[tuple[str, int, bool]]:
    """Name, number of lines and whether there is a docstring, of each function.

    The trees of the tests are not kept: they would take 140 MB.
    """
    is_test = path_in_repository(path).startswith("tests/")
    nodes = ast.walk(ast.parse(path.read_text(), str(path))) if is_test else syntax_nodes(path)
    return [
        (node.name, (node.end_lineno or 0) - node.lineno + 1, ast.get_docstring(node) is not None)
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("of_tests", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["product", "tests"])
def test_modules_and_functions_are_short(of_tests: bool) -> None:
    """What is longer cannot be held in mind at once."""
    long: list[str] = []
    for path in MODULES:
        if of_tests != path_in_repository(path).startswith("tests/"):
            continue
        if len(path.read_text().splitlines()) > MODULE_LINES_MAX:
            long.append(path_in_repository(path))
        long += [
            f"{path_in_repository(path)}::{name}" for name, lines, _ in _functions(path) if lines > FUNCTION_LINES_MAX
        ]
    assert not long


def test_handlers_only_hand_over() -> None:
    """Parse, call, raise: whatever is longer is a decision in the wrong place. The API alone has routes."""
    for path in HANDLERS:
        if path.stem != "job_api":
            assert len(path.read_text().splitlines()) <= HANDLER_LINES_MAX, path_in_repository(path)


# -- what is never written ---------------------------------------------------------------------------------------------


def test_statuses_are_written_in_their_enums_only() -> None:
    """A status spelt out elsewhere is one that a renaming misses."""
    statuses = {*JobStatus, *InstanceStatus}
    for path in below("lambdas"):
        if path_in_repository(path) in STATUS_LITERALS:
            continue
        nodes = syntax_nodes(path)
        enums = [node for node in nodes if isinstance(node, ast.ClassDef) and _is_enum(node)]
        spelt = {id(one) for enum in enums for one in ast.walk(enum)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spelt:
                assert node.value not in statuses, f"{path_in_repository(path)}:{node.lineno}"


def _is_enum(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "StrEnum" for base in node.bases)


@pytest.mark.parametrize("what", BANNED)
def test_nothing_unfinished_or_foreign_is_left_in_a_file(what: str) -> None:
    """No notes to oneself, no paths of one machine, no registries, no pictures in text."""
    found = {path_in_repository(path): BANNED[what].search(path.read_text()) for path in FILES}
    assert not {name: match.group() for name, match in found.items() if match}


def test_nothing_is_found_by_a_scan() -> None:
    """A table is read by key or by index, however small it is today."""
    for path in below("lambdas"):
        for node in syntax_nodes(path):
            assert not (isinstance(node, ast.Attribute) and node.attr == "scan"), (
                f"{path_in_repository(path)}:{node.lineno}"
            )


def test_a_broad_except_raises() -> None:
    """A failure that is swallowed reports success: no retry, no dead letter, no alarm."""
    for path in MODULES:
        if path_in_repository(path) in BROAD_EXCEPTS or path.is_relative_to(ROOT / "tests"):
            continue
        for node in syntax_nodes(path):
            if isinstance(node, ast.ExceptHandler) and _is_broad(node):
                raises = any(isinstance(one, ast.Raise) for one in ast.walk(node))
                assert raises, f"{path_in_repository(path)}:{node.lineno}"


def _is_broad(node: ast.ExceptHandler) -> bool:
    return node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))


@pytest.mark.parametrize("excused", [*STATUS_LITERALS, *BROAD_EXCEPTS])
def test_what_is_excused_exists(excused: str) -> None:
    """An excuse outlives its reason easily."""
    assert (ROOT / excused).exists()


def test_no_module_has_a_name_that_says_nothing() -> None:
    """A file is named after the thing in it."""
    assert not [path_in_repository(path) for path in MODULES if path.stem in NAMELESS or path.parent.name in NAMELESS]


@pytest.mark.parametrize("place", PRODUCT)
def test_files_are_named_after_things(place: str) -> None:
    """A gerund names an activity and a metaphor names nothing: neither is what a reader searches for."""
    stems = {path.stem: path_in_repository(path) for path in below(place)}
    assert not [name for stem, name in stems.items() if stem.endswith("ing") and stem not in GERUNDS]
    assert not [name for stem, name in stems.items() if METAPHORS.search(stem)]


@pytest.mark.parametrize("place", PRODUCT)
def test_functions_and_parameters_have_names_of_the_field(place: str) -> None:
    """Who greps for a term finds the function; a metaphor must be learnt first."""
    found = []
    for path in below(place):
        for node in syntax_nodes(path):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.arg):
                name = node.arg if isinstance(node, ast.arg) else node.name
                words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
                if METAPHORS.search(words) and name not in STORED_METAPHORS:
                    found.append(f"{path_in_repository(path)}:{node.lineno} {name}")
    assert not found


def test_machine_means_state_machine() -> None:
    """An EC2 instance is an instance: no function, class or file calls it a machine, but for stored names."""
    found = []
    for path in (path for place in PRODUCT for path in below(place)):
        defined = (node for node in syntax_nodes(path) if isinstance(node, ast.FunctionDef | ast.ClassDef))
        names = {path.stem, *(node.name for node in defined)}
        plain = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in names} - STORED_MACHINES
        found += [f"{path_in_repository(path)}: {name}" for name in plain if re.search(r"(?<!state_)machine", name)]
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


@pytest.mark.parametrize("path", PAGES, ids=path_in_repository)
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
    settings = syntax_tree(LAMBDAS / "gpu_recovery" / "aws" / "settings.py")
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
        f"{path_in_repository(path)}::{name}"
        for path in below("tests")
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
    silent = [
        path_in_repository(path)
        for path in below(place)
        if path.read_text().strip() and not ast.get_docstring(syntax_tree(path))
    ]
    for path in below(place):
        silent += [
            f"{path_in_repository(path)}::{name}"
            for name, node in _public(syntax_tree(path).body)
            if not ast.get_docstring(node)
        ]
    assert not silent


def _prose(path: Path) -> Iterator[str]:
    """The docstrings of a module, those below constants included."""
    for node in syntax_nodes(path):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value


@pytest.mark.parametrize("place", PRODUCT)
def test_sentences_are_short(place: str) -> None:
    """A sentence that must be read twice at 3 a.m. is two sentences."""
    long = [
        f"{path_in_repository(path)}: {' '.join(sentence.split())[:60]}"
        for path in below(place)
        for text in _prose(path)
        for sentence in re.split(r"(?<=[.:;])\s+|\n\s*\n|\n\s*- ", text)
        if len(sentence.split()) > SENTENCE_WORDS_MAX
    ]
    assert not long

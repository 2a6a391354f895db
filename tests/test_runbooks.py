"""Runbooks have the same five sections, and every command in them exists: verbs, operations and options."""

from __future__ import annotations

import re
import shlex

import botocore.session
import pytest
import typer
from botocore import xform_name
from gpu_recovery.core.metrics import INSTANCES_ENTERED, JOBS_ENTERED, METRICS, TOTALS
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.redrive import DeadLetterQueue

from tests import command_line
from tests.markdown import ROOT, Page, bare

RUNBOOKS = ROOT / "docs" / "runbooks"
INDEX = Page(RUNBOOKS / "README.md")
PAGES = [Page(path) for path in sorted(RUNBOOKS.glob("*.md")) if path.name not in ("README.md", "README.zh.md")]
ENGLISH = [page for page in PAGES if not page.name.endswith(".zh.md")]
HEADINGS = ["What you see", "What it means", "What to do now", "Why it happens", "How you know that it is over"]
USAGE_ERROR = typer.BadParameter.__mro__[1]
"""What the command line raises for arguments it does not take; typer has no name of its own for it."""
LINES_MAX = 60
"""A page is read at night, on a small screen."""
AWS_CUSTOM = {("logs", "tail"): {"since", "filter-pattern", "follow", "format"}}
"""Commands of the AWS command line that are not API operations, with their options."""
AWS_RENAMED = {("sns", "subscribe"): {"notification-endpoint"}}
"""Options whose name on the AWS command line differs from the API: `--notification-endpoint` is `Endpoint`."""
AWS_GLOBAL = {"output", "query", "region", "profile", "cli-binary-format"}
"""Options that every command of the AWS command line accepts."""
SESSION = botocore.session.get_session()
each_page = pytest.mark.parametrize("page", ENGLISH, ids=lambda page: page.path.stem)


def commands(page: Page, program: str) -> list[list[str]]:
    """Every command line of `program` on the page, in blocks and in running text, as words."""
    joined = page.text.replace("\n   ", " ").replace("\n", " \n")
    spans = re.findall(rf"`({program} [^`]+)`", re.sub(r"```.*?```", "", joined, flags=re.DOTALL))
    blocks = [line for line in page.commands() if re.match(rf"{program} ", line)]
    return [shlex.split(" ".join(line.split())) for line in (*spans, *blocks)]


def parsed(words: list[str]) -> None:
    """Read `words` as the command line does, without doing anything. UsageError for what it would not take."""
    command = command_line.command()
    rest = words[1:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            raise USAGE_ERROR(f"there is no verb {' '.join(words)}")
        command, rest = command.commands[rest[0]], rest[1:]
    if rest or not hasattr(command, "commands"):
        command.make_context(words[0], list(rest))


@each_page
def test_a_runbook_has_the_five_sections(page: Page) -> None:
    """All pages have the same order."""
    (_, *rest) = page.headings()
    assert rest == [(2, heading) for heading in HEADINGS]
    assert page.headings()[0][0] == 1
    for section in re.split(r"^## .*$", page.text, flags=re.MULTILINE)[1:]:
        assert section.strip()


@each_page
def test_a_runbook_is_short(page: Page) -> None:
    """An operator reads it at night."""
    assert len(page.text.splitlines()) <= LINES_MAX


@each_page
def test_a_runbook_is_in_the_index(page: Page) -> None:
    """One row of the two tables has its link."""
    cells = [cell for table in INDEX.tables() for row in table for cell in row]
    assert sum(f"]({page.path.name})" in cell for cell in cells) == 1


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.path.stem)
def test_every_command_of_ours_is_one(page: Page) -> None:
    """Verbs, options and numbers of arguments are those of the command line that is shipped."""
    found = commands(page, "gpu-recovery")
    for words in found:
        parsed(words)
    name = page.path.stem.removesuffix(".zh")
    assert found or name in {"events-lost", "events-not-sent", "function-throttled", "reconciler-not-running"}


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.path.stem)
def test_the_outputs_that_commands_ask_for_are_made(page: Page) -> None:
    """`output X` and `logs F` read the stack's outputs by name."""
    source = (ROOT / "infra" / "recovery_stack.py").read_text() + (ROOT / "infra" / "queues.py").read_text()
    asked = set(re.findall(r"\$\(output (\w+)\)", page.text))
    functions = {f"{name}FunctionName" for name in re.findall(r"^ *logs (\w+)$", page.text, re.MULTILINE)}
    asked |= functions
    known = set(re.findall(r'"(\w+)"', source)) | {f"{name}QueueUrl" for name in re.findall(r'"(\w+)": self\.', source)}
    known |= {
        f"{one}FunctionName"
        for one in (
            "EcsTaskHandler",
            "DcgmTaskMonitor",
            "EcsInstanceMonitor",
            "Reconciler",
            "Scheduler",
            "JobApi",
            "NodeApi",
        )
    }
    assert asked <= known


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.path.stem)
def test_every_command_of_aws_exists(page: Page) -> None:
    """Its service, its operation and each of its options are in the models of botocore."""
    for words in commands(page, "aws"):
        assert not unknown_in_aws(words), words


def unknown_in_aws(words: list[str]) -> set[str]:
    """Return the service, operation or options of an `aws` command line that do not exist."""
    service, verb = words[1:3]
    options = {word.removeprefix("--").partition("=")[0] for word in words[3:] if word.startswith("--")}
    if (service, verb) in AWS_CUSTOM:
        return options - AWS_CUSTOM[service, verb] - AWS_GLOBAL
    if service not in SESSION.get_available_services():
        return {service}
    model = SESSION.get_service_model(service)
    named = {xform_name(name, "-"): name for name in model.operation_names}
    if verb not in named:
        return {verb}
    shape = model.operation_model(named[verb]).input_shape
    members = {xform_name(name, "-") for name in shape.members} if shape is not None else set()
    switches = {f"no-{name}" for name in members}
    return options - members - switches - AWS_GLOBAL - AWS_RENAMED.get((service, verb), set())


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("aws ecz list-tasks", "ecz"),
        ("aws ecs list-task", "list-task"),
        ("aws ecs list-tasks --clusters C", "clusters"),
        ("aws logs tail GROUP --sinze 2h", "sinze"),
    ],
)
def test_a_command_of_aws_that_does_not_exist_is_noticed(line: str, unknown: str) -> None:
    """A wrong service, operation or option fails the test of its page."""
    assert unknown_in_aws(line.split()) == {unknown}


def test_dead_letters_are_looked_at_and_then_given_back() -> None:
    """Those of every queue that `redrive` empties: none of them is thrown away instead."""
    (page,) = [page for page in ENGLISH if page.path.stem == "dead-letters"]
    queues = [row[0] for row in page.tables()[0][1:]]
    assert len(queues) == len(DeadLetterQueue)
    todo = page.text.partition("## What to do now")[2].partition("## Why it happens")[0]
    dry, wet = todo.index("`gpu-recovery redrive --dry-run`"), todo.index("`gpu-recovery redrive`")
    assert dry < wet
    assert not re.search(r"no redrive|Purge the queue", todo)


def test_the_index_explains_every_measure() -> None:
    """The counters of statuses explain themselves, the totals are explained at one priority; the rest has its row."""
    explained = set(METRICS) - set(JOBS_ENTERED) - set(INSTANCES_ENTERED) - set(TOTALS.values())
    assert INDEX.table_of(explained)
    spans = {bare(span) for span in INDEX.spans()}
    assert {name for (_, _, priority), name in TOTALS.items() if priority is Priority.NORMAL} <= spans
    assert spans & set(JOBS_ENTERED) and spans & set(INSTANCES_ENTERED)


@pytest.mark.parametrize(
    "line",
    ["instance", "list --everything", "status", "status one two", "fleet pause", "fleet stop", "redrive --limit x"],
)
def test_a_command_that_would_be_refused_is_noticed(line: str) -> None:
    """A verb, an option, an argument too many or too few, a reason that is missing: the check is no formality."""
    with pytest.raises(USAGE_ERROR):
        parsed(["gpu-recovery", *line.split()])

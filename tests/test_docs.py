"""The documents say what the code does: names, numbers, commands and links are compared, in both languages."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from gpu_recovery.core import health_check
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.deadlines import deadlines as instance_deadlines
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.job.deadlines import deadlines as job_deadlines
from gpu_recovery.core.job.rank_overrides import rank_environment
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import OUR_VARIABLES, JobSpec
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy
from gpu_recovery.core.state_machine import DecisionContext
from gpu_recovery.job_api.router import ROUTES

from docs import generate_settings
from health_check import remedies
from sandbox.cluster.power import FAULT_KINDS
from tests import command_line
from tests.core.notifications.test_messages import messages_about
from tests.markdown import ARCHITECTURE, DECISIONS, DEPLOY, DOCS, PAGES, READMES, ROOT, TRANSLATED, TRY, Page, bare

README_LINES_MAX = 150
FIRST_SCREEN_LINES = 30
PATHS_OF_URLS = {"report_gpu/", "report_tasks/", "dist/"}
"""Ends of addresses that are written like a folder, and the folder that a release is built into."""
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_SETTINGS = {"gpu-recovery:managed", "gpu-recovery:repair", "gpu-recovery:key", "gpu-recovery:settings"}
GENERATORS = sorted(path.stem for path in (ROOT / "docs").glob("generate_*.py") if "screenshots" not in path.stem)
"""The programs that write pages. Pictures differ from run to run."""
FOREIGN_NAMES = {"PutItem"}
"""Names in the documents that are AWS's, written like ours."""
SECONDS = {
    "minute": 60,
    "minutes": 60,
    "分钟": 60,
    "hour": 3_600,
    "hours": 3_600,
    "小时": 3_600,
    "day": 86_400,
    "days": 86_400,
    "天": 86_400,
    "second": 1,
    "seconds": 1,
    "秒": 1,
}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
each_readme = pytest.mark.parametrize("page", READMES, ids=lambda page: page.name)


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def calls(path: str, name: str) -> list[ast.Call]:
    """Every call of the function or method `name` in a module."""
    found = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    return [call for call in found if name in (getattr(call.func, "id", ""), getattr(call.func, "attr", ""))]


def keys(path: str) -> set[str]:
    """Every text that is a key of a dictionary display in a module."""
    found = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Dict)]
    return {key.value for node in found for key in node.keys if isinstance(key, ast.Constant)}


# -- the two languages -------------------------------------------------------------------------------------------------

each_translation = pytest.mark.parametrize(("page", "chinese"), TRANSLATED, ids=lambda page: page.name)


@each_translation
def test_both_languages_have_the_same_sections(page: Page, chinese: Page) -> None:
    """A section that is in one language is in the other, at the same place and depth."""
    assert [level for level, _ in page.headings()] == [level for level, _ in chinese.headings()]


@each_translation
def test_both_languages_give_the_same_commands(page: Page, chinese: Page) -> None:
    """Readers of the other language type the same."""
    assert page.commands() == chinese.commands()
    for kind in ("text", "python", "yaml", "json"):
        plain = [[re.sub(r" *#.*", "", body) for body in one.fences(kind)] for one in (page, chinese)]
        assert plain[0] == plain[1]
    assert len(page.fences("mermaid")) == len(chinese.fences("mermaid"))


@each_translation
def test_both_languages_have_the_same_tables(page: Page, chinese: Page) -> None:
    """The same rows and columns, the same names and the same numbers in each row."""
    for ours, theirs in zip(page.tables(), chinese.tables(), strict=True):
        assert [len(row) for row in ours] == [len(row) for row in theirs]
        for row, other in zip(ours, theirs, strict=True):
            assert _facts(row) == _facts(other)


def _facts(row: list[str]) -> list[str]:
    """What a row says in every language: code, names in capitals, numbers."""
    return sorted(re.findall(r"`[^`]+`|\b[A-Z_]{4,}\b(?<!SEV)|(?<![\w-])\d+(?![\w-])", " ".join(row)))


@each_translation
def test_both_languages_name_the_same_things_and_places(page: Page, chinese: Page) -> None:
    """Inline code and links agree, but for the order, the link to the other language and anchors of its own."""
    assert set(page.spans()) == set(chinese.spans())
    places = [
        {re.sub(r"\.zh(-CN)?\.md(#.*)?$", ".md", link) for link in one.links() if not link.startswith(("#", "README."))}
        for one in (page, chinese)
    ]
    translated = {link for link in places[1] if "#" not in link}
    assert {re.sub(r"#.*", "", link) if re.sub(r"#.*", "", link) in translated else link for link in places[0]} == {
        re.sub(r"#.*", "", link) if re.sub(r"#.*", "", link) in translated else link for link in places[1]
    }


def test_both_readmes_link_the_same_pages_as_often() -> None:
    """So a link to another section of a page is missing in neither."""
    english, chinese = (
        sorted(re.sub(r"(\.zh(-CN)?)?\.md(#.*)?$", ".md", link) for link in page.links() if not link.startswith("#"))
        for page in READMES
    )
    assert english == chinese


@each_translation
def test_a_chinese_paragraph_is_one_line(page: Page, chinese: Page) -> None:
    """A line break between Chinese characters is shown as a space."""
    lines = chinese.prose.splitlines()
    broken = [
        first
        for first, second in itertools.pairwise(lines)
        if re.search(r"[\u4e00-\u9fff，。；：、）]$", first) and re.match(r" *[\u4e00-\u9fff`（]", second)
    ]
    assert not broken, page.name


@each_readme
def test_a_readme_is_short(page: Page) -> None:
    """Longer texts are in docs/."""
    assert len(page.text.splitlines()) <= README_LINES_MAX


@each_readme
def test_the_first_screen_has_the_picture_the_status_and_what_to_type(page: Page) -> None:
    """Before any scrolling."""
    screen = "\n".join(page.text.splitlines()[:FIRST_SCREEN_LINES])
    assert all(text in screen for text in ("make demo", "make test", "docs/screenshots/"))
    assert re.search(r"\*\*(Status: never run in a real AWS account|现状：从未在真实的 AWS 账户)", screen)


# -- commands, links, names --------------------------------------------------------------------------------------------


@each_page
def test_every_verb_of_make_exists(page: Page) -> None:
    """`make <verb>` in a command or in the text is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = {word for text in (*page.commands(), *page.spans()) for word in re.findall(r"\bmake ([a-z-]+)", text)}
    assert told <= targets


@pytest.mark.slow
@each_page
def test_every_verb_and_option_of_the_command_line_exists(page: Page) -> None:
    """`gpu-recovery <verb> --option` is understood by the command line as it is."""
    typed = [text for text in (*page.commands(), *page.spans()) if text.startswith("gpu-recovery ")]
    for line in typed:
        command = command_line.command()
        words = shlex.split(line.split(" -- ")[0], comments=True)[1:]
        if words[:1] == ["VERB"]:
            continue
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, f"{page.name}: {line}"
            command = command.commands[words.pop(0)]
        options = command_line.options_of(command, words)
        assert {word for word in words if re.fullmatch(r"-\w|--[a-z-]+", word)} <= options, f"{page.name}: {line}"


@each_page
def test_every_link_leads_somewhere(page: Page) -> None:
    """A relative link names a file of the repository, and its anchor a heading there."""
    for link in page.links():
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.path.parent / path).resolve() if path else page.path
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in Page(target).anchors(), f"{page.name}: {link}"


@each_page
def test_every_setting_and_threshold_named_exists(page: Page) -> None:
    """A context key of ours is a field of the settings, wherever it is written."""
    told = set(re.findall(r"gpu-recovery:[a-z_]+", page.text)) - NOT_SETTINGS
    assert told <= {f"gpu-recovery:{name}" for name in settings()}


@pytest.mark.parametrize("page", [ARCHITECTURE, *DECISIONS], ids=lambda page: page.name)
def test_every_name_of_the_code_exists(page: Page) -> None:
    """A dotted or capitalised name in the pages about the code is defined in it."""
    named = re.compile(r"[A-Za-z_]+(\.[A-Za-z_]+)+|([A-Z][a-z]+){2,}")
    spans = {span for span in page.spans() if named.fullmatch(span) and not span.endswith((".py", ".md", ".sh"))}
    unknown = {span for span in spans - FOREIGN_NAMES if not set(span.split(".")) <= definitions()}
    assert not unknown


@each_page
def test_every_path_of_the_code_exists(page: Page) -> None:
    """A file or folder named as code is there, from the root or from the package of the functions."""
    paths = {span for span in page.spans() if re.fullmatch(r"[a-z_]+(/[a-z_*.]+)*(/|\.py)", span)} - PATHS_OF_URLS
    roots = (ROOT, ROOT / "lambdas/gpu_recovery", ROOT / "lambdas", ROOT / "simulator/fast")
    assert not {path for path in paths if not any([*root.glob(path)] for root in roots)}


@cache
def definitions() -> frozenset[str]:
    """Every module, class, function, method, field and constant of the functions' package and of the stacks.

    Of the agent and of the client the modules alone.
    """
    names = {"aws", "core", "GpuRecovery", "GpuRecoveryState"}
    for path in (*(ROOT / "agent").rglob("*.py"), *(ROOT / "client").rglob("*.py")):
        names.add(path.parent.name if path.stem == "__init__" else path.stem)
    for path in (*(ROOT / "lambdas").rglob("*.py"), *(ROOT / "infra").glob("*.py")):
        names.add(path.parent.name if path.stem == "__init__" else path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


# -- statuses, presets, faults -----------------------------------------------------------------------------------------


def test_the_statuses_of_jobs_and_how_long_they_wait() -> None:
    """Every status of a job has its row, with the deadline that the core gives it."""
    page = DOCS["statuses"]
    given = DecisionContext(PRESETS[Preset.ADAPTIVE], NOW)
    blank = {"job_id": "j", "spec": JobSpec("sft", 1, 8, "f"), "queued_at": NOW, "status_at": NOW}
    for status, _, most, then in page.table_of(set(JobStatus)):
        deadline, _ = job_deadlines(Job(**blank, status=JobStatus(bare(status))), given)
        assert _seconds(most) == (deadline and deadline - NOW), status
        assert set(re.findall(r"`([A-Z_]+)`", then)) <= set(JobStatus)


def test_the_statuses_of_instances_and_how_long_they_wait() -> None:
    """Every status of an instance has its row, with the deadline that the core gives it."""
    page = DOCS["statuses"]
    given = DecisionContext(PRESETS[Preset.ADAPTIVE], NOW)
    for status, _, most, then in page.table_of(set(InstanceStatus)):
        record = Instance("i-1", NOW, InstanceStatus(bare(status)), reserved_for="j")
        deadline, _ = instance_deadlines(record, given)
        assert _seconds(most) == (deadline and deadline - NOW), status
        assert set(re.findall(r"`([A-Z_]+)`", then)) <= set(InstanceStatus)


def _seconds(text: str) -> timedelta | None:
    found = re.search(r"(\d+) ?([a-z]+|秒|分钟|小时|天)", text)
    return timedelta(seconds=int(found[1]) * SECONDS[found[2]]) if found else None


def test_the_presets() -> None:
    """The table compares every preset, ends jobs in statuses that exist, and states the counts of the policies."""
    page = DOCS["statuses"]
    (table,) = [one for one in page.tables() if {bare(cell) for cell in one[0]} >= set(Preset)]
    policies = [PRESETS[Preset(bare(cell))] for cell in table[0][1:]]
    ends = {word for row in table[1:] for word in re.findall(r"\b[A-Z_]{5,}\b", " ".join(row[1:]))}
    assert ends == {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED}
    counts = [[int(cell) for cell in row[1:]] for row in table[1:] if row[1].isdecimal()]
    assert counts == [
        [getattr(policy, name) for policy in policies]
        for name in ("attempts_max", "uncounted_relaunches_max", "reboots_max")
    ]


def test_the_exit_codes_of_the_check() -> None:
    """The codes are those that the container exits with and those that the core understands."""
    page = DOCS["diagnosis"]
    told = {int(row[0]): bare(row[1]) for row in page.table_of({str(code) for code in health_check.EXIT_CODES})}
    assert told == {code: outcome.value for code, outcome in health_check.EXIT_CODES.items()}
    assert told == {code: outcome.value for outcome, code in remedies.EXIT_CODES.items()}


def test_the_variables_of_a_rank() -> None:
    """The table lists what every rank is told, and nothing that it is not."""
    page = DOCS["training"]
    record = Job("j", JobSpec("sft", 1, 8, "f"), NOW, NOW)
    told = rank_environment(record.spec, Plan("j", 1, ("i-1",), (0,)), 0, "10.0.0.1", "")
    assert set(told) == OUR_VARIABLES
    assert page.table_of(set(told))


def test_the_messages_to_operators() -> None:
    """Every message there is is in the table, with its severity, and no other."""
    page = DOCS["notifications"]
    (table,) = [one for one in page.tables() if any("quarantined, needs an operator" in row[0] for row in one)]
    told = {(_numbered(bare(subject)), severity) for subject, severity, _ in table[1:]}
    made = messages_about("sft-1", "why").values()
    subjects = [one.subject.partition("] ")[2] for one in made]
    endings = [re.sub(r"^[\w-]+: ", "", subject) if "sft-1" in subject else subject for subject in subjects]
    assert len(table) - 1 == len(told)
    assert told == {(_numbered(ending), one.severity) for ending, one in zip(endings, made, strict=True)}


def _numbered(text: str) -> str:
    """The text with one number for another."""
    return re.sub(r"\d+", "1", text)


def test_the_events_on_the_bus() -> None:
    """The detail types named are those that the core publishes."""
    page = DOCS["notifications"]
    modules = [path.relative_to(ROOT).as_posix() for path in (ROOT / "lambdas/gpu_recovery/core").rglob("*.py")]
    published = {call.args[0].value for module in modules for call in calls(module, "PublishEvent")}
    kinds = re.compile(r"(Job|Instance|Recovery|Operator) [A-Z]\w+( [A-Z]\w+)?")
    assert {span for span in page.spans() if kinds.fullmatch(span)} == published


def test_the_demo_moves_as_the_machines_allow() -> None:
    """Each move in the excerpt of the demo is a row of the tables."""
    page = DOCS["try"]
    machines = {
        "job": (job_state_machine.TRANSITIONS, JobStatus),
        "instance": (state_machine.TRANSITIONS, InstanceStatus),
    }
    (excerpt,) = page.fences("text")
    moves = re.findall(r"s +(job|instance) (?: +|i-\w+ )([A-Z_]+) -> ([A-Z_]+):", excerpt)
    assert len(moves) >= 8
    for who, before, after in moves:
        table, statuses = machines[who]
        targets = [row.targets for (status, _), row in table.items() if status == statuses(before)]
        assert any(statuses(after) in one for one in targets), f"{who} {before} -> {after}"


# -- deployment --------------------------------------------------------------------------------------------------------


@cache
def settings() -> dict[str, Any]:
    """The deployment's settings and their defaults, read without importing the CDK."""
    (made,) = [node for node in tree("infra/settings.py").body if getattr(node, "name", "") == "DeploymentSettings"]
    assert isinstance(made, ast.ClassDef)
    found = {}
    for node in made.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            default = ast.literal_eval(node.value.args[0]) if node.value.args else {}
            found[node.target.id] = list(default) if isinstance(default, tuple) else default
    return found


def test_the_settings_and_their_defaults() -> None:
    """The settings of a first deployment exist, with their defaults."""
    rows = [row for table in DOCS["install"].tables() for row in table[1:] if row[0].startswith("`gpu-recovery:")]
    assert len(rows) >= 6
    for key, default, _ in rows:
        text = json.dumps(settings()[bare(key).removeprefix("gpu-recovery:")])
        assert bare(default) in (text, text.strip('"')), key


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generated_page_is_fresh(name: str) -> None:
    """The pages are what `make docs` writes."""
    done = subprocess.run([sys.executable, ROOT / f"docs/{name}.py", "--check"], check=False)
    assert done.returncode == 0, f"python docs/{name}.py"


def test_the_page_of_settings_has_every_setting_and_that_of_thresholds_every_threshold() -> None:
    """Each with its default, and a sentence about its meaning."""
    page = DOCS["settings"]
    rows = page.table_of({f"gpu-recovery:{name}" for name in settings()})
    assert all(json.loads(bare(row[1])) == settings()[bare(row[0]).partition(":")[2]] and row[2] for row in rows)
    names = [field.name for field in fields(RecoveryPolicy) if field.name != "preset"]
    for name, adaptive, classic, unit, meaning in DOCS["thresholds"].table_of(set(names)):
        told = [json.loads(adaptive), json.loads(classic)]
        assert told == [getattr(PRESETS[one], bare(name)) for one in (Preset.ADAPTIVE, Preset.CLASSIC)], name
        assert unit and meaning


def test_every_setting_and_threshold_has_its_chinese_meaning() -> None:
    """A text that changed is translated again in docs/settings.zh.toml. Until then its page shows English."""
    assert generate_settings.untranslated() == []


def test_the_fleet_limits_have_the_values_of_the_policy() -> None:
    """`20 %`, `1 hour`: the default of the threshold in the same row."""
    (table,) = [one for one in DOCS["limits"].tables() if one[0][0] == "Limit"]
    policy = PRESETS[Preset.ADAPTIVE]
    compared = 0
    for _, name, default in table[1:]:
        if not hasattr(policy, bare(name)) or default == "off":
            continue
        wait = _seconds(default)
        told = wait.total_seconds() if wait else int(default.removesuffix(" %"))
        assert told == getattr(policy, bare(name)), name
        compared += 1
    assert compared >= 9


def test_the_fields_of_a_job_are_those_that_the_api_accepts() -> None:
    """The table of docs/submit.md has each field of the model once."""
    (table,) = [one for one in DOCS["submit"].tables() if one[0][0] == "Field"]
    told = [name for row in table[1:] for name in re.findall(r"`(\w+)`", row[0])]
    schema = json.loads((ROOT / "docs/openapi.json").read_text())["components"]["schemas"]["JobSpec"]
    assert sorted(told) == sorted(schema["properties"])


def test_the_faults_of_the_sandbox() -> None:
    """The table of docs/try.md has every kind that `sandbox fault` injects."""
    assert TRY.table_of(set(FAULT_KINDS))


def test_the_results_of_the_readme_are_those_of_the_simulator() -> None:
    """Each row is a row of the race of docs/simulator.md, in the same order, with the same figures."""
    (ours,) = [one for one in READMES[0].tables() if "ETTR" in one[0]]
    theirs = next(one for one in DOCS["simulator"].tables() if "operator calls" in one[0])
    names = ("ETTR", "range", "overhead", "recovery p50", "p90", "operator calls")
    columns = [theirs[0].index(name) for name in names]
    assert [row[1:] for row in ours[1:]] == [[row[column] for column in columns] for row in theirs[1:]]


def test_the_environment_of_the_functions() -> None:
    """The reference lists every variable that the stack sets."""
    assert DEPLOY.table_of({name for name in keys("infra/environment.py") if name.isupper()})


def test_the_functions_and_their_timeouts() -> None:
    """The reference lists every function with its timeout, and each has its handler."""
    made = calls("infra/functions.py", "FunctionRow")
    rows = [[ast.literal_eval(call.args[0]), ast.literal_eval(call.args[2])] for call in made]
    told = DEPLOY.table_of({name for name, _ in rows})
    assert [[bare(row[0]), int(row[2].removesuffix(" s"))] for row in told] == rows
    assert all((ROOT / f"lambdas/{name}.py").exists() for name, _ in rows)


def test_the_routes_of_the_api() -> None:
    """The table of requests is the routes of `job_api`."""
    page = DOCS["api"]
    assert page.table_of({f"{route.method} {route.path}".replace("<", "{").replace(">", "}") for route in ROUTES})


@pytest.mark.parametrize("page", [DEPLOY, DOCS["install"], DOCS["troubleshooting"]], ids=lambda page: page.name)
def test_the_outputs_and_alarms(page: Page) -> None:
    """Outputs that commands ask for, and alarms to look up, are made by the stack under these names."""
    outputs = keys("infra/recovery_stack.py")
    assert set(re.findall(r"\boutput ([A-Z]\w+)", page.text)) <= outputs
    assert {span for span in page.spans() if re.fullmatch(r"[A-Z]\w+(Url|Arn|Name)", span)} <= outputs
    alarms = {f"{name}NotEmpty" for name in keys("infra/queues.py")} | {"ReconcilerNotRunning", "SchedulerLate"}
    assert {span for span in page.spans() if re.fullmatch(r"\w+(NotEmpty|Silent|Late)", span)} <= alarms


# -- the repository ----------------------------------------------------------------------------------------------------


def test_every_top_level_folder_is_explained() -> None:
    """The table of folders is the repository's folders, apart from what is installed or generated."""
    page = DOCS["architecture"]
    generated = {"node_modules", "cdk.out", "build", "__pycache__", "settings"}
    here = {f"{path.name}/" for path in ROOT.iterdir() if path.is_dir() and path.name not in generated}
    assert page.table_of({name for name in here if not name.startswith(".") and not name.endswith(".egg-info/")})


def test_decisions_are_numbered_once_and_listed() -> None:
    """A decision's number is in its name and heading, is its own, and the architecture page links to it."""
    numbers = [int(page.path.name[:4]) for page in DECISIONS]
    assert len(set(numbers)) == len(numbers) > 0
    for number, page in zip(numbers, DECISIONS, strict=True):
        levels, titles = zip(*page.headings(), strict=True)
        assert titles[0].startswith(f"{number}. ") and titles[1:] == ("Context", "Decision", "Consequences")
        assert levels == (1, 2, 2, 2)
        assert f"[{titles[0]}](decisions/{page.path.name})" in ARCHITECTURE.text


def test_the_changelog_and_the_licence_are_those_of_the_package() -> None:
    """The newest entry is the version that is built, under the licence that is shipped."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None and newest[1] == project["version"]
    licence = (ROOT / "LICENSE").read_text()
    assert project["license"] == "Apache-2.0" and "Apache License" in licence and "Version 2.0" in licence

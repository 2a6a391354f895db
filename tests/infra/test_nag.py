"""What cdk-nag finds in the stacks is what `infra/acknowledged.py` gives a reason for: no more, and no less."""

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from infra.acknowledged import ACKNOWLEDGED, Acknowledged
from tests.infra.contexts import PLANTED

PROFILES = {"dev": "dev", "prod": "prod", "everything": "prod", "ray": "dev"}
"""Each set of settings with its profile. The findings of `dev` are those of PLANTED outside the planted topic."""
TOPIC = "GpuRecoveryState/Planted/"
_ACCOUNT = re.compile(r"arn:<AWS::Partition>:(\w+):<AWS::Region>:<AWS::AccountId>:")
_IMPORTED = re.compile(r"\w+:ExportsOutput(?:FnGetAtt|Ref)(\w+?)[0-9A-F]{8}(?:Arn)?[0-9A-F]{8}")
ANNOTATIONS = "Construct Annotations"
"""The part of a report with the warnings that constructs attach to themselves: no rule of cdk-nag finds them."""
Finding = tuple[str, str, str]
"""Rule, path of the construct, and the resource that a finding about a policy names."""


def _packs(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [plugin for plugin in report["pluginReports"] if plugin["pluginName"] != ANNOTATIONS]


def findings(report: dict[str, Any]) -> Iterator[Finding]:
    """Every finding of a report, with errors and warnings alike."""
    for plugin in _packs(report):
        for violation in plugin["violations"]:
            rule, _, detail = violation["ruleName"].partition("[")
            resource = detail.removesuffix("]").removeprefix("Resource::")
            plain = _IMPORTED.sub(r"\1", _ACCOUNT.sub(r"\1:", resource))
            for construct in violation["violatingConstructs"]:
                yield rule, construct["constructPath"], plain


def answers(row: Acknowledged, finding: Finding, profile: str) -> bool:
    """Whether the row is about this finding."""
    rule, path, resource = finding
    return (
        row.rule == rule
        and fnmatchcase(path, row.about)
        and fnmatchcase(resource, row.resource)
        and row.profile in ("", profile)
    )


def unanswered(found: set[Finding], profile: str, table: tuple[Acknowledged, ...] = ACKNOWLEDGED) -> set[Finding]:
    return {each for each in found if not any(answers(row, each, profile) for row in table)}


def stale(found: dict[str, set[Finding]], table: tuple[Acknowledged, ...] = ACKNOWLEDGED) -> list[Acknowledged]:
    """Rows that no finding of any set of settings needs; the keys of `found` name sets."""
    return [
        row
        for row in table
        if not any(answers(row, each, PROFILES[name]) for name, those in found.items() for each in those)
    ]


@pytest.fixture(scope="session")
def reports(validated: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """The report of the validation of each assembly, by the name of the set."""
    return {name: json.loads((folder / "validation-report.json").read_text()) for name, folder in validated.items()}


@pytest.fixture(scope="session")
def found(reports: dict[str, dict[str, Any]]) -> dict[str, set[Finding]]:
    """The findings of each set of settings."""
    every = {name: set(findings(report)) for name, report in reports.items()}
    return every | {"dev": {finding for finding in every[PLANTED] if not finding[1].startswith(TOPIC)}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "own_rules"),
    [(PLANTED, {"CloudFormation Validate": "failure"}), ("prod", {}), ("everything", {}), ("ray", {})],
)
def test_both_rule_packs_have_read_the_stacks(
    reports: dict[str, dict[str, Any]], name: str, own_rules: dict[str, str]
) -> None:
    """A report that lacks a pack would find nothing, and say so in green.

    The CDK's own rules are in a report only if they found something, and they find only what is planted.
    """
    packs = {plugin["pluginName"]: plugin["conclusion"] for plugin in _packs(reports[name])}
    assert packs == {"AwsSolutions": "failure", "Serverless": "failure"} | own_rules


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_every_finding_has_its_reason(found: dict[str, set[Finding]], name: str) -> None:
    """Under the development and the production profile, and with every optional part on."""
    assert unanswered(found[name], PROFILES[name]) == set()


@pytest.mark.slow
def test_no_reason_is_kept_that_nothing_needs(found: dict[str, set[Finding]]) -> None:
    """A finding that was mended takes its row along, or the row would hide the next one."""
    assert stale({name: found[name] for name in PROFILES}) == []


@pytest.mark.slow
def test_a_new_violation_is_seen(found: dict[str, set[Finding]]) -> None:
    """A topic without encryption and TLS is added to the stack: exactly this is found beyond the table.

    Its unknown property is found by the CDK's own rules.
    """
    assert unanswered(found[PLANTED], "dev") == {
        ("AwsSolutions-SNS3", f"{TOPIC}Resource", ""),
        ("F3002", f"{TOPIC}Resource", ""),
    }


def test_a_row_answers_for_its_own_finding_only() -> None:
    """Neither another rule, another construct, a wider resource nor another profile."""
    row = Acknowledged("R1", "Stack/Queue/*", "why", "ecs:task/*/[*]", "dev")
    fits = ("R1", "Stack/Queue/Resource", "ecs:task/a/*")
    assert answers(row, fits, "dev")
    assert not answers(row, fits, "prod")
    for other in (("R2", *fits[1:]), ("R1", "Stack/Topic/Resource", fits[2]), ("R1", fits[1], "ecs:task/*")):
        assert not answers(row, other, "dev")


def test_a_row_that_answers_nothing_is_stale() -> None:
    """It is named; the others are not."""
    needed, idle = Acknowledged("R1", "A", "why"), Acknowledged("R1", "B", "why")
    assert stale({"dev": {("R1", "A", "")}}, (needed, idle)) == [idle]


@pytest.mark.parametrize("row", ACKNOWLEDGED, ids=lambda row: f"{row.rule} {row.resource or row.about}")
def test_a_reason_is_a_sentence(row: Acknowledged) -> None:
    """Somebody has to be able to disagree with it."""
    assert row.reason[0].isupper() and row.reason.endswith(".") and len(row.reason.split()) >= 5

"""Every alarm names a runbook, and every runbook belongs to an alarm or to an action by hand."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.infra.deployment import Deployment
from tests.infra.event_pattern import matches
from tests.infra.watched_metrics import alarms
from tests.markdown import ROOT, Page

pytestmark = pytest.mark.slow

RUNBOOKS = ROOT / "docs" / "runbooks"
INDEX = RUNBOOKS / "README.md"
MANUAL = {"pausing-recovery", "quarantining", "replacing-an-instance", "stale-running-tasks", "stuck-stopping"}
"""Runbooks of what people do by hand: no alarm leads to them."""


@pytest.fixture(scope="module")
def named(production: Deployment, with_ray: Deployment) -> dict[str, str]:
    """The runbook that each alarm of a deployment with everything in it names."""
    found = alarms(production) | alarms(with_ray)
    return {name: alarm["AlarmDescription"].rsplit("docs/runbooks/", 1)[-1] for name, alarm in found.items()}


def test_every_alarm_names_a_runbook_that_is_there(named: dict[str, str]) -> None:
    """An e-mail at night that leads nowhere is worse than none."""
    assert {name: page for name, page in named.items() if not (RUNBOOKS / page).is_file()} == {}


def test_every_runbook_is_of_an_alarm_or_of_an_act_by_hand(named: dict[str, str]) -> None:
    """A page that nothing leads to grows old unread."""
    assert {page.stem for page in RUNBOOKS.glob("*.md") if page != INDEX and ".zh" not in page.name} == {
        Path(page).stem for page in named.values()
    } | MANUAL
    assert not MANUAL & {Path(page).stem for page in named.values()}


def test_the_second_way_to_hear_of_alarms_is_open_to_every_one(production: Deployment) -> None:
    """The rule of the page catches each alarm that rings, and neither its end nor anybody else's."""
    (command,) = [line for line in Page(RUNBOOKS / "notifications-not-delivered.md").commands() if "put-rule" in line]
    pattern = json.loads(shlex.split(command)[-1])

    def caught(name: str, state: str = "ALARM") -> bool:
        detail = {"alarmName": name, "state": {"value": state}}
        return matches(
            pattern, {"source": "aws.cloudwatch", "detail-type": "CloudWatch Alarm State Change", "detail": detail}
        )

    # CloudFormation names an alarm after its stack and its logical id.
    names = [
        name.replace("/", "-") + "8D1C2A3B-A1B2C3D4E5F6"
        for name, resource in production.resources.items()
        if resource["Type"] == "AWS::CloudWatch::Alarm"
    ]
    assert len(names) == len(alarms(production))
    assert [name for name in names if not caught(name)] == []
    assert not caught(names[0], "OK")
    assert not caught("SomebodyElses-Alarms")


LINES = {
    '{"level": "ERROR", "message": "the event is refused"}': True,
    "[ERROR] 2026-11-21T03:00:00Z 8f2c KeyError: 'detail'": True,
    "2026-11-21T03:00:00Z 8f2c Task timed out after 110.00 seconds": True,
    '{"level": "INFO", "message": "the event is handled"}': False,
}
"""Lines of a log, in JSON and in text as in GovCloud, each with whether an operator looks for it."""


def test_the_shell_function_for_logs_finds_errors_and_timeouts_in_json_and_in_text() -> None:
    """CloudWatch Logs User Guide, "Filter pattern syntax": a line matches if it has one of the terms after `?`."""
    (command,) = [line for line in Page(INDEX).commands() if line.startswith("logs() ")]
    words = shlex.split(command)
    pattern = words[words.index("--filter-pattern") + 1].removesuffix(";")
    terms = [quoted or term for quoted, term in re.findall(r'\?(?:"([^"]+)"|(\S+))', pattern)]
    assert {line: any(term in line for term in terms) for line in LINES} == LINES


def test_the_index_leads_from_each_alarm_to_its_runbook(named: dict[str, str]) -> None:
    """The table is what one has when the e-mail is gone."""
    rows = next(table for table in Page(INDEX).tables() if table[0][0] == "Alarm")[1:]
    leads = {
        span: re.findall(r"\]\(([a-z-]+\.md)\)", row[-1]) for row in rows for span in re.findall(r"`([^`]+)`", row[0])
    }
    assert leads == {name: [page] for name, page in named.items()}


def test_a_runbook_begins_with_the_alarms_that_lead_to_it(named: dict[str, str]) -> None:
    """The first section, What you see, names exactly the alarms that link to the page."""
    for page in sorted(set(named.values())):
        head = Page(RUNBOOKS / page).text.split("\n## ")[1]
        begun = set(re.findall(r"`([A-Z]\w+)`", head))
        assert begun == {name for name, to in named.items() if to == page}, page

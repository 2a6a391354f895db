"""Health checks of an instance: the list, and the verdict document of one check."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.ecs_requests import verdict_key
from gpu_recovery.core.instance.record import CheckRefusal, CheckRun, InstanceStatus
from gpu_recovery.core.launch_signature import verdict_name

from tests.aws.records import A, B, instance
from tests.lambdas.api_gateway import Api, refused, user_token

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
FIRST, SECOND, THIRD = (f"check/{A}/{number}" for number in (1, 2, 3))


def secret_name(api: Api, check: str) -> str:
    """The key of a check's document in S3."""
    return verdict_key(check, verdict_name(api.functions.store.launch_key(), check))


def document(check: str, **more: Any) -> dict[str, Any]:
    """A verdict as far as it is shown in the list, and a serial number."""
    return {
        "check_id": check,
        "outcome": "REBOOT",
        "summary": "GPU 3 failed",
        "level": 2,
        "started_at": "2026-11-21T09:00:00Z",
        "ended_at": "2026-11-21T09:02:00Z",
        "driver": {"gpus": [{"index": 3, "serial": "1650122001234", "uuid": "GPU-3"}]},
        **more,
    }


def path(check: str) -> str:
    """The path of a check of A, which ends with its number."""
    return f"/instances/{A}/checks/{check.rpartition('/')[2]}"


@pytest.fixture
def checked(api: Api) -> Api:
    """An instance with three checks: the first without a document, the second failed, the third under way."""
    run = CheckRun(THIRD, job_id="sft-1", task_id="t-3", signed=True)
    api.functions.store.save_instance(instance(A, status=InstanceStatus.CHECKING, checks=3, check=run))
    api.functions.aws.documents[secret_name(api, SECOND)] = document(SECOND)
    return api


def test_the_checks_are_listed_the_newest_first(checked: Api) -> None:
    """With the result of those whose document is there."""
    body = checked.get(f"/instances/{A}/checks").body
    assert [(one["check_id"], one["state"], one["outcome"]) for one in body["checks"]] == [
        (THIRD, "RUNNING", None),
        (SECOND, "ENDED", "REBOOT"),
        (FIRST, "NO_DOCUMENT", None),
    ]
    assert (body["total"], body["next_cursor"], body["checks"][0]["job_id"]) == (3, None, "sft-1")
    assert body["checks"][1]["summary"] == "GPU 3 failed" and "driver" not in body["checks"][1]


def test_the_list_is_paged(checked: Api) -> None:
    """The documents of one page are read."""
    first = checked.get(f"/instances/{A}/checks", limit="1").body
    assert len(checked.functions.aws.asked("GetObject")) == 1
    second = checked.get(f"/instances/{A}/checks", limit="1", cursor=first["next_cursor"]).body
    third = checked.get(f"/instances/{A}/checks", limit="1", cursor=second["next_cursor"]).body
    assert [page["checks"][0]["number"] for page in (first, second, third)] == [3, 2, 1]
    assert third["next_cursor"] is None
    refused(checked.get(f"/instances/{A}/checks", limit="21"), 400, "limit")


def test_a_check_that_ecs_refuses_says_why(api: Api) -> None:
    """It waits, and may be started later."""
    run = CheckRun(FIRST, refusal=CheckRefusal("RESOURCE:GPU"))
    api.functions.store.save_instance(instance(A, status=InstanceStatus.CHECKING, checks=1, check=run))
    (one,) = api.get(f"/instances/{A}/checks").body["checks"]
    assert (one["state"], one["refused"]) == ("WAITING", "RESOURCE:GPU")


def test_only_an_operator_receives_serial_numbers(checked: Api) -> None:
    """The rest of the document is the same."""
    whole = checked.get(path(SECOND)).body["document"]
    cut = checked.call("GET", f"/api/v2{path(SECOND)}", token=user_token(checked, "vi", "viewer")).body["document"]
    assert whole == document(SECOND)
    assert cut["driver"] == {"gpus": [{"index": 3, "uuid": "GPU-3"}]} and cut["summary"] == whole["summary"]


def test_the_secret_name_of_a_document_is_in_no_answer(checked: Api) -> None:
    """Whoever knows it could write the document of a check."""
    secret = verdict_name(checked.functions.store.launch_key(), SECOND)
    for answer in (checked.get(path(SECOND)), checked.get(f"/instances/{A}/checks"), checked.get(path(THIRD))):
        assert secret not in str(answer.body)


def test_a_document_under_another_name_is_not_shown(checked: Api) -> None:
    """Every check may write documents anywhere in the folder."""
    checked.functions.aws.documents[f"verdicts/{FIRST}.json"] = document(FIRST, outcome="HEALTHY")
    checked.functions.aws.documents[f"verdicts/{FIRST}/{'0' * 32}.json"] = document(FIRST, outcome="HEALTHY")
    assert checked.get(f"/instances/{A}/checks").body["checks"][2]["state"] == "NO_DOCUMENT"
    refused(checked.get(path(FIRST)), 404)


def test_a_document_of_another_check_is_unreadable(checked: Api) -> None:
    """The list goes on without it."""
    checked.functions.aws.documents[secret_name(checked, FIRST)] = document(SECOND)
    assert checked.get(f"/instances/{A}/checks").body["checks"][2]["state"] == "UNREADABLE"
    refused(checked.get(path(FIRST)), 502)


@pytest.mark.parametrize("number", ["0", "4", "01", "-1", "x", "1%2F2", f"check%2F{A}%2F2", "9" * 30])
def test_a_check_that_the_instance_has_not_is_not_found(checked: Api, number: str) -> None:
    """Nothing is read for it."""
    refused(checked.get(f"/instances/{A}/checks/{number}"), 404)
    assert checked.functions.aws.asked("GetObject") == []


def test_an_unknown_instance_has_no_checks(api: Api) -> None:
    """As every route of an instance says."""
    refused(api.get(f"/instances/{B}/checks"), 404)
    refused(api.get(f"/instances/{B}/checks/1"), 404)

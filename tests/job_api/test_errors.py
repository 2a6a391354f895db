"""What the job API answers when AWS is busy, a record is contended or unreadable, or a route is unknown."""

from __future__ import annotations

from importlib import import_module

import pytest
from gpu_recovery.ports.errors import StaleRecord, TryAgainSoon

from tests.aws.records import JOB, A, instance, job
from tests.lambdas.api_gateway import Api, refused

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_an_aws_that_is_too_busy_is_named_and_may_be_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with the seconds to wait, and the log knows of it."""

    def busy(*_: object) -> None:
        raise TryAgainSoon("dynamodb GetItem: ThrottlingException")

    monkeypatch.setattr(import_module("gpu_recovery.aws.wiring").recovery().store, "load_job", busy)
    answer = api.get(f"/jobs/{JOB}")
    assert "dynamodb GetItem" in refused(answer, 503)
    assert int(answer.headers["retry-after"]) > 0
    assert len(api.functions.logged("busy")) == 1


def test_a_record_that_others_write_all_the_time_may_be_asked_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a busy AWS: 503 with the seconds to wait."""
    api.functions.store.create_job(job(), "")

    def overtaken(*_: object, **__: object) -> None:
        raise StaleRecord(JOB)

    monkeypatch.setattr(import_module("gpu_recovery.aws.wiring").recovery().store, "save_job", overtaken)
    answer = api.post(f"/jobs/{JOB}/cancel")
    assert "all the time" in refused(answer, 503)
    assert int(answer.headers["retry-after"]) > 0


def test_a_record_that_nobody_can_read_is_named(api: Api) -> None:
    """500 as a problem document with the record's name and what is wrong with it; asking again does not help."""
    api.functions.store.save_instance(instance())
    kept = api.functions.kept()
    kept[A]["schema"] = {"N": "999"}
    api.functions.restore(kept)
    answer = api.get(f"/instances/{A}")
    detail = refused(answer, 500)
    assert A in detail and "newer release" in detail
    assert "retry-after" not in answer.headers
    assert len(api.functions.logged("unreadable")) == 1


@pytest.mark.parametrize(
    ("code", "status", "answered"),
    [
        ("ValidationException", 400, 500),
        ("AccessDeniedException", 400, 500),
        ("ResourceNotFoundException", 400, 500),
        ("ThrottlingException", 400, 503),
        ("ProvisionedThroughputExceededException", 400, 503),
        ("InternalServerError", 500, 503),
    ],
)
def test_a_refused_read_is_an_error_and_an_unanswered_read_is_busy(
    api: Api, code: str, status: int, answered: int
) -> None:
    """The console backs off after a 503. A read that DynamoDB refuses fails again, and other reads work."""
    refusal = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    table = "gpu-recovery-event-history"
    api.functions.aws.dynamodb = {"Query": lambda asked: refusal if asked["TableName"] == table else None}
    answer = api.get("/incidents")
    detail = refused(answer, answered)
    assert ("retry-after" in answer.headers) == (answered == 503)
    if answered == 500:
        (logged,) = api.functions.logged("failed")
        assert logged["function_request_id"] in detail and code in logged["exception"]


def test_a_defect_is_named_by_its_request(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 as a problem document with the id that the log has, and without the text of the error."""

    def broken(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(import_module("gpu_recovery.aws.wiring").recovery().store, "load_job", broken)
    answer = api.get(f"/jobs/{JOB}")
    detail = refused(answer, 500)
    (logged,) = api.functions.logged("failed")
    assert logged["function_request_id"] in detail and "secret" not in detail
    assert "secret" in logged["exception"]


def test_an_unknown_route_is_a_problem(api: Api) -> None:
    """404 with what was asked for; 405 with the methods of a path that has others."""
    assert "/api/v2/nothing" in refused(api.get("/nothing"), 404)
    assert "it has GET" in refused(api.call("DELETE", f"/api/v2/jobs/{JOB}"), 405)

"""An e-mail is sent once, although two reconcilers run at once or DynamoDB throttles the removal of the command."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset, duration
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.counted_aws import THROTTLED
from tests.aws.ecs_events import rank_event
from tests.aws.records import JOB, A, instance, later, pending
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
MESSAGE = NotifyOperator("incident-1", "SEV2", "GPU 3 is lost", "It is repaired.")


def emails(functions: Functions) -> list[str]:
    """The subjects of the e-mails that the functions send from now on."""
    sent: list[str] = []

    def publish(asked: dict[str, Any]) -> dict[str, Any]:
        sent.append(asked["Subject"])
        return {"MessageId": str(len(sent))}

    functions.aws.answers["Publish"] = publish
    return sent


@pytest.mark.parametrize("record", ["job", "instance"])
@pytest.mark.parametrize("meanwhile", ["the first sends the e-mail", "the first has not taken the command over yet"])
def test_two_reconcilers_at_once_send_the_email_of_a_killed_function_once(
    functions: Functions, record: str, meanwhile: str
) -> None:
    """The first reconciler renews the lease of the command before it sends, and the second leaves the command alone."""
    if record == "job":
        gang(functions, status=JobStatus.STOPPING, commands=(pending(JOB, 1, MESSAGE, until=180),))
    else:
        functions.store.save_instance(instance(commands=(pending(A, 1, MESSAGE, until=180),)))
    functions.now = later(180)
    sent, second = emails(functions), list[str]()
    publish = functions.aws.answers["Publish"]

    def reconcile_too(asked: dict[str, Any]) -> None:
        if not second:
            second.append("reconciler")
            functions.call("reconciler", {})

    def publish_and_reconcile(asked: dict[str, Any]) -> dict[str, Any]:
        answer = publish(asked)
        reconcile_too(asked)
        return answer

    if meanwhile == "the first sends the e-mail":
        functions.aws.answers["Publish"] = publish_and_reconcile
    else:
        functions.aws.dynamodb["PutItem"] = reconcile_too
    functions.call("reconciler", {})
    assert second == ["reconciler"]
    assert sent == [MESSAGE.subject]
    assert (functions.job() if record == "job" else functions.instance()).commands == ()


def test_an_email_is_not_sent_again_when_the_removal_of_its_command_is_throttled_twice(functions: Functions) -> None:
    """The function tries the removal a third time, so that the reconciler finds no command when the lease is over."""
    gang(functions)
    sent, refusals = emails(functions), [THROTTLED, THROTTLED]

    def throttle(asked: dict[str, Any]) -> dict[str, Any] | None:
        return refusals.pop() if refusals and asked["Key"] == {"job_id_rank": {"S": JOB}} else None

    functions.aws.dynamodb["UpdateItem"] = throttle
    with suppress(TryAgainSoon):
        functions.call("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=139))
    functions.aws.dynamodb.clear()
    functions.now += duration(PRESETS[Preset.ADAPTIVE].command_lease_s)
    functions.call("reconciler", {})
    assert len(sent) == 1
    assert refusals == []

"""Reboots, stops, starts and replacements: refusals are read, and a lost answer is told apart from a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber
from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.ports.errors import OutcomeUnknown, TryAgainSoon
from gpu_recovery.ports.values import Refusal

from tests.aws.described_instances import reserved, shown
from tests.aws.records import A

GROUP = "gpus"
BY_NAME = {"reboot": "reboot_instances", "stop": "stop_instances", "start": "start_instances"}
TERMINATE = "terminate_instance_in_auto_scaling_group"


# -- the reboot, which has no token ------------------------------------------------------------------------------------


def silenced(client: Any, operation: str, error: Exception) -> list[str]:
    """Let every HTTP request of `operation` fail with `error`; the list of those that were made."""
    made: list[str] = []

    def fail(request: Any, **_: Any) -> None:
        made.append(request.url)
        raise error

    client.meta.events.register(f"before-send.*.{operation}", fail)
    return made


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="https://ec2"),
        ConnectTimeoutError(endpoint_url="https://ec2"),
        EndpointConnectionError(endpoint_url="https://ec2"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_reboot_that_is_not_answered_is_unknown_and_not_asked_for_again(
    ec2: Ec2, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One HTTP request, while a call that may be repeated makes five."""
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    made = silenced(ec2.once, "RebootInstances", error)
    with pytest.raises(OutcomeUnknown):
        ec2.reboot(A)
    assert len(made) == 1
    repeated = silenced(ec2.client, "StopInstances", error)
    with pytest.raises(type(error)):
        ec2.replace(A, "")
    assert len(repeated) == 5


def test_a_reboot_names_its_instance(ec2: Ec2) -> None:
    """Nothing else is asked of EC2."""
    with Stubber(ec2.once) as once:
        once.add_response("reboot_instances", {}, {"InstanceIds": [A]})
        assert ec2.reboot(A) is None
        once.assert_no_pending_responses()


def order(ec2: Ec2, verb: str) -> Refusal | None:
    """The order, and EC2's no."""
    return {"reboot": lambda: ec2.reboot(A), "stop": lambda: ec2.replace(A, ""), "start": lambda: ec2.start(A)}[verb]()


def refused(ec2: Ec2, verb: str, code: str, status: int = 400) -> Refusal | None:
    """What becomes of an order that EC2 answers with an error and this HTTP status."""
    with Stubber(ec2.once if verb == "reboot" else ec2.client) as stub:
        stub.add_client_error(BY_NAME[verb], code, "not this one", http_status_code=status)
        return order(ec2, verb)


@pytest.mark.parametrize("verb", BY_NAME)
@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidInstanceID.NotFound", "UnsupportedOperation"])
def test_what_ec2_refuses_is_a_lasting_no(ec2: Ec2, verb: str, code: str) -> None:
    """It is neither done nor unknown, and asking again does not help."""
    assert refused(ec2, verb, code) == Refusal(f"EC2 will not {verb} it: {code}: not this one", lasting=True)


@pytest.mark.parametrize("verb", BY_NAME)
@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling"])
def test_an_order_given_too_often_is_told_apart(ec2: Ec2, verb: str, code: str) -> None:
    """It was refused unread, so it may be given again."""
    with pytest.raises(TryAgainSoon, match=code):
        refused(ec2, verb, code)


@pytest.mark.parametrize(("verb", "error"), [("reboot", OutcomeUnknown), ("stop", ClientError), ("start", ClientError)])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("Unavailable", 400),
        ("InternalError", 400),
        ("RequestExpired", 400),
        ("InternalServerError", 500),
        ("NeverHeardOf", 502),
        ("500", 500),
    ],
)
def test_an_order_to_an_ec2_in_trouble_may_have_been_heard(
    ec2: Ec2, verb: str, error: type[Exception], code: str, status: int
) -> None:
    """A stop or a start may be asked for again; whether a reboot was heard is found out at the machine."""
    with pytest.raises(error, match=code):
        refused(ec2, verb, code, status)


# -- replacing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["stop", "start"])
def test_a_machine_is_stopped_and_started_by_name(ec2: Ec2, told: Stubber, verb: str) -> None:
    """One outside a group gets another host that way; asked again, EC2 says the same."""
    for _ in range(2):
        told.add_response(BY_NAME[verb], {}, {"InstanceIds": [A]})
        assert order(ec2, verb) is None


@pytest.mark.parametrize("code", ["InsufficientInstanceCapacity", "IncorrectInstanceState"])
def test_a_start_for_which_there_is_no_host_may_be_asked_for_again(ec2: Ec2, code: str) -> None:
    """GPUs are scarce, which EC2 says with a server's error; the same no to a stop is for good."""
    start, scarce, stop = refused(ec2, "start", code), refused(ec2, "start", code, 500), refused(ec2, "stop", code)
    assert start is not None and not start.lasting and scarce == start
    assert stop is not None and stop.lasting


TERMINATION = {"InstanceId": A, "ShouldDecrementDesiredCapacity": False}


def test_a_machine_of_a_group_is_terminated_in_it(ec2: Ec2, groups: Stubber) -> None:
    """The group keeps its size, and so launches another."""
    groups.add_response(TERMINATE, {}, TERMINATION)
    assert ec2.replace(A, GROUP) is None


@pytest.mark.parametrize(
    ("shown_states", "is_refused"),
    [(["shutting-down"], False), (["terminated"], False), ([], False), (["running"], True), (["stopped"], True)],
)
def test_a_group_that_no_longer_has_the_machine_is_asked_by_a_fresh_look(
    ec2: Ec2, told: Stubber, groups: Stubber, shown_states: list[str], is_refused: bool
) -> None:
    """A repeated order finds it gone, which is what was wanted; one that was never in the group is a no."""
    groups.add_client_error(TERMINATE, "ValidationError", "No managed instance found")
    told.add_response("describe_instances", reserved(*(shown(state=state) for state in shown_states)))
    refusal = ec2.replace(A, GROUP)
    said = "EC2 will not replace it: ValidationError: No managed instance found"
    assert refusal == (Refusal(said, lasting=True) if is_refused else None)


@pytest.mark.parametrize("code", ["ScalingActivityInProgress", "ResourceContention"])
def test_a_group_that_is_busy_is_raised(ec2: Ec2, groups: Stubber, code: str) -> None:
    """It says nothing about the machine; the order stays and is tried again."""
    groups.add_client_error(TERMINATE, code)
    with pytest.raises(ClientError, match=code):
        ec2.replace(A, GROUP)

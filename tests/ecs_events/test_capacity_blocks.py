"""The end of a Capacity Block: one event that names a reservation, for every instance that runs in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.health_signals import CAPACITY_BLOCK_WARNINGS, DepartureKind
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.ports.errors import TryAgainSoon

from tests.aws.ecs_events import ours
from tests.aws.records import JOB, claim, instance, later, plan
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
MACHINES = "ecs_instance_monitor"
BLOCK = "cr-0123456789abcdef0"
INSIDE, OUTSIDE, GONE, FOREIGN = (
    plan().instances[0],
    "i-0aaaaaaaaaaaaaaa1",
    "i-0aaaaaaaaaaaaaaa2",
    "mi-0aaaaaaaaaaaaaaa3",
)
SENTENCE = f"EC2 terminates the instances of the Capacity Block {BLOCK} from 09:10:00 UTC on"


def ending(
    reservation: Any = BLOCK, time: str = "2026-11-21T09:00:00Z", detail_type: str = CAPACITY_BLOCK_WARNINGS[0]
) -> dict[str, Any]:
    """The event, 40 minutes before the end of the block, in the shape that EC2's user guide shows."""
    return {
        **ours({"source": "aws.ec2", "detail-type": detail_type}),
        "time": time,
        "resources": [f"arn:aws:ec2:us-east-1:111122223333:capacity-reservation/{reservation}"],
        "detail": {"capacity-reservation-id": reservation, "end-date": "2026-11-21T09:40:00Z"},
    }


@pytest.fixture
def fleet(functions: Functions) -> Functions:
    """A running job with an instance in the block, and instances elsewhere."""
    gang(functions)
    functions.store.save_instance(instance(INSIDE, claims={JOB: claim()}))
    functions.store.save_instance(instance(OUTSIDE))
    functions.store.save_instance(instance(GONE, status=InstanceStatus.GONE))
    functions.store.save_instance(instance(FOREIGN))

    def described(asked: dict[str, Any]) -> dict[str, Any]:
        named = [value for one in asked["Filters"] for value in one["Values"]]
        within = {INSIDE: {"CapacityReservationId": BLOCK}, OUTSIDE: {"CapacityReservationId": "cr-0fedcba9876543210"}}
        return {
            "Reservations": [
                {"Instances": [{"InstanceId": one, "State": {"Name": "running"}, **within.get(one, {})}]}
                for one in named
            ]
        }

    functions.aws.answers["DescribeInstances"] = described
    return functions


@pytest.mark.parametrize(
    "detail_type", ["Capacity Block Reservation Expiration Warning", "Capacity Block Expiration Warning"]
)
def test_jobs_leave_the_instances_of_a_block_ten_minutes_before_they_are_terminated(
    fleet: Functions, detail_type: str
) -> None:
    """Time to save a checkpoint: the warning to each instance comes two minutes before its end."""
    fleet.call(MACHINES, ending(detail_type=detail_type))
    departure = fleet.instance(INSIDE).departure
    assert departure is not None
    assert (departure.kind, departure.leaves_at, departure.sentence) == (
        DepartureKind.INTERRUPTION,
        later(600),
        SENTENCE,
    )
    assert fleet.job().status is JobStatus.STOPPING
    assert SENTENCE in fleet.job().reason
    assert fleet.instance(OUTSIDE).departure is None and fleet.instance(FOREIGN).departure is None


def test_a_warning_that_comes_late_is_compared_with_ec2_until_the_announced_end(fleet: Functions) -> None:
    """EC2 shows an instance in the block after that only if the block was extended: nothing leaves it."""
    before = fleet.kept()
    fleet.call(MACHINES, ending(time="2026-11-21T08:20:00Z"))
    assert fleet.kept() == before and fleet.aws.calls == []
    fleet.call(MACHINES, ending(time="2026-11-21T08:20:01Z"))
    assert fleet.instance(INSIDE).departure is not None and fleet.instance(OUTSIDE).departure is None


def all_in_the_block(fleet: Functions) -> None:
    """EC2 shows every instance in the block."""
    fleet.aws.answers["DescribeInstances"] = lambda asked: {
        "Reservations": [
            {"Instances": [{"InstanceId": one, "State": {"Name": "running"}, "CapacityReservationId": BLOCK}]}
            for filter_ in asked["Filters"]
            for one in filter_["Values"]
        ]
    }


def mails(fleet: Functions) -> list[dict[str, Any]]:
    """The messages of the last call about the block."""
    return [asked for asked in fleet.aws.asked("Publish") if BLOCK in asked["Subject"]]


def test_operators_get_one_message_that_names_the_instances_and_the_time(fleet: Functions) -> None:
    """Not one for each instance of the block: there may be 64."""
    all_in_the_block(fleet)
    fleet.call(MACHINES, ending())
    (mail,) = mails(fleet)
    assert "2 instance(s) leave it" in mail["Subject"]
    assert SENTENCE in mail["Message"] and INSIDE in mail["Message"] and OUTSIDE in mail["Message"]


@pytest.mark.parametrize("failing", [INSIDE, OUTSIDE])
def test_an_instance_that_fails_keeps_neither_the_others_nor_the_operators_waiting(
    fleet: Functions, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """All others leave, the one message names every instance of the block, and the error has the event retried."""
    all_in_the_block(fleet)
    save = DynamoStore.save_instance

    def saved(store: DynamoStore, record: Instance, *more: Any) -> Instance:
        if record.instance_id == failing:
            raise TryAgainSoon("DynamoDB throttled the write")
        return save(store, record, *more)

    with monkeypatch.context() as patch:
        patch.setattr(DynamoStore, "save_instance", saved)
        with pytest.raises(ExceptionGroup, match=BLOCK):
            fleet.call(MACHINES, ending())
    (other,) = {INSIDE, OUTSIDE} - {failing}
    assert fleet.instance(failing).departure is None and fleet.instance(other).departure is not None
    (mail,) = mails(fleet)
    assert "2 instance(s) leave it" in mail["Subject"]
    assert f"The warning could not be processed for {failing}." in mail["Message"]
    fleet.call(MACHINES, ending())
    assert fleet.instance(failing).departure is not None and mails(fleet) == []


def test_an_instance_whose_record_is_unreadable_has_the_warning_retried(fleet: Functions) -> None:
    """All others leave and operators are notified. The error keeps the event until the record can be read."""
    all_in_the_block(fleet)
    fleet.store.table.update(OUTSIDE, "SET epoch = :text", "attribute_exists(epoch)", {}, {":text": "first"})
    with pytest.raises(ExceptionGroup, match=f"the end of {BLOCK} could not be announced to every instance"):
        fleet.call(MACHINES, ending())
    assert fleet.instance(INSIDE).departure is not None and len(mails(fleet)) == 1
    fleet.store.table.update(OUTSIDE, "SET epoch = :number", "attribute_exists(epoch)", {}, {":number": 0})
    fleet.call(MACHINES, ending())
    assert fleet.instance(OUTSIDE).departure is not None


def test_operators_hear_once_of_a_warning_that_is_delivered_again(fleet: Functions) -> None:
    """EventBridge, Lambda's retries and a redrive may repeat it; a block that was extended has another warning."""
    fleet.call(MACHINES, ending())
    assert len(mails(fleet)) == 1
    fleet.call(MACHINES, ending())
    assert mails(fleet) == []
    fleet.now = later(86_400)  # the block was extended by a day
    fleet.call(MACHINES, ending(time="2026-11-22T09:00:00Z"))
    assert len(mails(fleet)) == 1


def test_the_message_advises_what_operators_can_still_do(fleet: Functions) -> None:
    """EC2 takes an extension of a block only long before it sends this warning."""
    fleet.call(MACHINES, ending())
    (mail,) = mails(fleet)
    assert "too late to extend the block" in mail["Message"]
    assert "add other GPU instances to the cluster" in mail["Message"]


def test_only_instances_of_ec2_that_exist_are_asked_about(fleet: Functions) -> None:
    """One call for the fleet; EC2 refuses ids that are none of its own."""
    asked: list[str] = []
    answer = fleet.aws.answers["DescribeInstances"]

    def noted(request: dict[str, Any]) -> Any:
        asked.extend(value for one in request["Filters"] for value in one["Values"])
        return answer(request)

    fleet.aws.answers["DescribeInstances"] = noted
    fleet.call(MACHINES, ending())
    assert Counter(asked) == Counter([INSIDE, OUTSIDE])


def test_a_repeated_warning_changes_nothing(fleet: Functions) -> None:
    """EventBridge may deliver it twice."""
    fleet.call(MACHINES, ending())
    before = fleet.kept()
    fleet.call(MACHINES, ending())
    assert fleet.kept() == before


def test_a_block_of_others_is_logged_and_nothing_more(fleet: Functions) -> None:
    """The rule cannot select by instance, so every block of the account arrives."""
    before = fleet.kept()
    fleet.call(MACHINES, ending("cr-00000000000000000"))
    assert fleet.kept() == before
    (line,) = fleet.logged("signal_passed_over")
    assert line["reason"] == "no instance of ours leaves with cr-00000000000000000"


def test_an_instance_that_outlives_its_warning_is_used_on(fleet: Functions) -> None:
    """A replayed warning, or a block that was extended since."""
    before = fleet.kept()
    fleet.call(MACHINES, ending(time="2026-11-20T09:00:00Z"))
    assert fleet.kept() == before
    assert "Publish" not in fleet.aws.operations()


@pytest.mark.parametrize("value", [None, "", "i-0123456789abcdef0", "[ODCR ID]", 7])
def test_a_warning_that_names_no_reservation_is_unreadable(fleet: Functions, value: Any) -> None:
    """The dead letters keep it."""
    with pytest.raises(EventUnreadable, match=r"detail\.capacity-reservation-id"):
        fleet.call(MACHINES, ending(value))

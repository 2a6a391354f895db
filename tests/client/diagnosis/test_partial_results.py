"""Going on with most of the workers (row 17)."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from gpu_recovery_client.diagnosis import most_results

from tests.client.training_process import Ear


def calls(done: int, late: int = 0, raised: int = 0) -> dict[str, Future[int]]:
    """The calls of workers: so many have a result, have none yet, have raised."""
    found: dict[str, Future[int]] = {f"w{number}": Future() for number in range(done + late + raised)}
    for number, call in enumerate(found.values()):
        if number < done:
            call.set_result(number)
        elif number >= done + late:
            call.set_exception(ZeroDivisionError(f"w{number}"))
    return found


def test_four_fifths_are_enough_and_the_rest_is_cancelled(ear: Ear) -> None:
    """The results are those of the others, by worker; the late one is told of at once."""
    waiting = calls(done=4, late=1)
    assert most_results(waiting, "generate", timeout_s=0.0) == {f"w{number}": number for number in range(4)}
    assert waiting["w4"].cancelled()
    told = {one.worker: (one.method, one.timed_out, one.status) for one in ear.reports()}
    assert told == {f"w{n}": ("generate", False, 200) for n in range(4)} | {"w4": ("generate", True, None)}


def test_fewer_than_four_fifths_are_a_timeout(ear: Ear) -> None:
    """In the words of the seed."""
    with pytest.raises(TimeoutError, match=r"^more than 20% of workers timed out → suspected network failure$"):
        most_results(calls(done=7, late=3), timeout_s=0.0)
    assert sum(one.timed_out for one in ear.reports()) == 3


def test_an_error_ends_the_wait_for_nobody_else(ear: Ear) -> None:
    """The defect: the specified wait ends at the first exception, and counts it as done."""
    assert len(most_results(calls(done=8, raised=2), timeout_s=0.0)) == 8
    with pytest.raises(TimeoutError) as late:
        most_results(calls(done=7, late=1, raised=2), timeout_s=0.0)
    assert isinstance(late.value.__cause__, ZeroDivisionError)


def test_if_nobody_is_late_the_error_of_a_call_is_raised(ear: Ear) -> None:
    """It is no timeout, and no network is suspected."""
    with pytest.raises(ZeroDivisionError, match=r"^w7$"):
        most_results(calls(done=7, raised=3), timeout_s=0.0)
    assert not any(one.timed_out for one in ear.reports())


def test_how_many_are_enough_can_be_said(ear: Ear) -> None:
    """All of them, or half."""
    assert len(most_results(calls(done=5, late=5), timeout_s=0.0, enough=0.5)) == 5
    with pytest.raises(TimeoutError, match=r"^more than 0% of workers"):
        most_results(calls(done=9, late=1), timeout_s=0.0, enough=1.0)

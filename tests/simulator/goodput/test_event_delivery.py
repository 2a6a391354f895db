"""Delays of events and wake-ups in a goodput run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from simulator.goodput import assumptions_file
from simulator.goodput.production import WARM_S, EventDelivery
from simulator.lambda_runtime import WAKE

CONDITIONS = assumptions_file.read().conditions
START = datetime(2026, 11, 21, tzinfo=UTC)


def test_a_wake_up_is_fast_only_while_the_function_is_warm() -> None:
    """The first wake-up, and each after a long pause, starts the function. An event always takes `event_s`."""
    now, delays = [START], list[float]()
    delivery = EventDelivery(CONDITIONS, lambda: now[0])
    for seconds in (0, 10, 10 + WARM_S - 1, 10 + 2 * WARM_S - 1):
        now[0] = START + timedelta(seconds=seconds)
        delays += delivery({"detail-type": WAKE})
        assert delivery({"detail-type": "ECS Task State Change"}) == (CONDITIONS.event_s,)
    assert delays == [CONDITIONS.event_s, CONDITIONS.wake_s, CONDITIONS.wake_s, CONDITIONS.event_s]

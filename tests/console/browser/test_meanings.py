"""What a page says about a value: its unit, that it is not known yet, and which kind of quarantine it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser.conftest import Visit
from tests.console.browser.examples import (
    INSTANCE,
    OTHER,
    THIRD,
    answer_with_examples,
    example,
    places_of_orders,
)

pytestmark = [pytest.mark.slow, pytest.mark.console]
WEEK = {
    **dict.fromkeys(("running_share", "ettr", "ettr_share", "recovery_s_p50", "recovery_s_p90")),
    **dict.fromkeys(("recovery_s_longest", "fleet_available", "mttf_gpu_h")),
    **dict.fromkeys(("gpu_h_held", "gpu_h_running", "gpu_h_in_line", "gpu_h_lost", "incidents", "recoveries"), 0),
}


def week(tab: Visit, **figures: Any) -> dict[str, str]:
    """Return what the overview says about the last 7 days, by the words beside it."""
    answer_with_examples(tab.page, read_overview={"week": {**WEEK, **figures}})
    tab.see("#/jobs")
    tab.see("#/")
    section = tab.page.get_by_role("region", name="Last 7 days")
    section.locator("dl").wait_for()
    names, values = (section.locator(part).all_inner_texts() for part in ("dt", "dd:not(.note)"))
    return dict(zip(names, values, strict=True))


def test_a_figure_has_a_unit_that_fits_or_is_not_known(opened_tabs: Any, examples_url: str) -> None:
    """No short time and no small loss is shown as 0."""
    with opened_tabs(examples_url) as open_:
        tab = open_()
        answer_with_examples(tab.page)
        tab.sign_in("any text")
        said = week(tab)
        unknown = {name for name, value in said.items() if value == "not known yet"}
        assert unknown == {*said} - {"GPU time from failure to failure"}
        assert said["GPU time from failure to failure"] == "no failure yet"

        said = week(tab, gpu_h_held=5, gpu_h_lost=0)
        assert said["GPU time lost to failures"] == "0 GPU-hours"
        assert week(tab, gpu_h_held=5, incidents=1)["GPU time lost to failures"] == "not known yet"
        times = {"recovery_s_p50": 0.4, "recovery_s_p90": 42.0}
        said = week(tab, gpu_h_held=5, gpu_h_lost=0.004, incidents=1, mttf_gpu_h=0.5, **times)
        assert said["time to recover"] == "less than 1 s (p50), 42 s (p90)"
        assert said["GPU time lost to failures"] == "14 GPU-seconds"
        assert said["GPU time from failure to failure"] == "30 GPU-minutes"
        said = week(tab, gpu_h_lost=1_204.4, incidents=1, recovery_s_p50=360, recovery_s_p90=8_000)
        assert said["GPU time lost to failures"] == "1,204 GPU-hours"
        assert said["time to recover"] == "6 min (p50), 2 h (p90)"


def test_a_quarantine_says_who_ordered_it_and_until_when(opened_tabs: Any, examples_url: str) -> None:
    """By an operator, by the system for a fault, or because a limit holds the repair back."""
    with opened_tabs(examples_url) as open_:
        tab = open_()
        page = tab.page
        answer_with_examples(page)
        tab.sign_in("any text")
        tab.see("#/instances")
        meant = {INSTANCE: "by gpu-recovery, for a fault", THIRD: "by eve", OTHER: "repair held back"}
        for name, words in meant.items():
            row = page.locator("tbody tr", has=page.get_by_role("link", name=name)).first
            row.get_by_text(words, exact=True).wait_for()
        tab.see("#/fleet")
        waiting = page.get_by_label("Instances that need a person")
        for name in (INSTANCE, THIRD):
            waiting.get_by_role("row").filter(has_text=name).get_by_text(meant[name], exact=True).wait_for()
        tab.see(f"#/instances/{INSTANCE}")
        facts = page.locator(".head .facts").first
        assert "by eve" in facts.inner_text() and "until an operator releases it" in facts.inner_text()
        held = {
            "held": {"since": "2026-11-21T09:00:00.000Z", "because": "the budget is used up"},
            "quarantined_by": None,
        }
        answer_with_examples(page, read_instance=held)
        tab.see(f"#/instances/{OTHER}")
        assert "repair held back" in facts.inner_text() and "until the fleet limits allow" in facts.inner_text()


def test_the_answer_to_must_you_act_comes_first(opened_tabs: Any, examples_url: str) -> None:
    """On the first screen of a telephone, above every other fact of an incident, a job or an instance."""
    with opened_tabs(examples_url) as open_:
        tab = open_(width=390, height=844)
        answer_with_examples(tab.page)
        tab.sign_in("any text")
        for place in places_of_orders():
            tab.see(place)
            act = tab.page.locator(".head .act")
            assert act.evaluate("(one) => one.previousElementSibling.matches('h1')"), place
            box = act.bounding_box()
            assert box is not None and box["y"] + box["height"] < 844 / 2, (place, box)


def test_the_examples_are_answers_of_the_present_api() -> None:
    """Each operation that a page asks for has an example."""
    for name in ("read_overview", "read_limits", "read_queue", "read_job", "read_instance", "read_incident"):
        assert example(name)

"""The mode "GPU utilisation" of the map: as pixels, as words, and as a table; and why it is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from console.fake.model import Size
from console.fake.server import FakeServer, running
from tests.console.browser.test_large_fleet import canvas, inked, of_colour
from tests.console.browser.visit import Visit, checked_visits
from tests.console.browser.windows import Windows
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
BUSY = "GPU 0: 0 %, GPU 1: ≤ 20 %, GPU 2: ≤ 40 %, GPU 3: ≤ 60 %, GPU 4: ≤ 80 %, GPU 5: ≤ 100 %, GPU 6: unknown"
"""The GPUs of an instance with a job, as the fake deployment reports them."""
UNKNOWN_COLOUR = of_colour("#6b6b6b")


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    """A fake deployment whose cells have room for each GPU."""
    with running(Size(instances=500, jobs=100, events_a_second=0.0)) as server:
        yield server


@pytest.fixture
def tab(windows: Windows, fake: FakeServer) -> Iterator[Visit]:
    """A tab with the console, before the sign-in."""
    with checked_visits(windows) as opened:
        opened.append(Visit.of(windows.tab(1280, 900), fake.url))
        opened[-1].go()
        yield opened[-1]


def asked_with_gpus(tab: Visit) -> int:
    """How often the page has asked for the utilisation."""
    return sum(url.endswith("/fleet/map?gpu=1") for _, url, _ in tab.requests)


def test_each_gpu_is_shown_and_what_is_unknown_is_not_idle(tab: Visit, fake: FakeServer) -> None:
    """By pixels, by the legend, by the element with the focus, on the card and in the table."""
    tab.sign_in("any text")
    canvas(tab)
    assert UNKNOWN_COLOUR not in inked(tab) and asked_with_gpus(tab) == 0
    tab.page.get_by_label("GPU utilisation").check()
    legend = tab.page.locator(".heatmap .legend")
    legend.get_by_text("unknown").wait_for()
    assert "0 % (idle)" in legend.inner_text() and asked_with_gpus(tab) == 1
    wait_until(lambda: UNKNOWN_COLOUR in inked(tab))  # the canvas is drawn in the next frame
    working = sum(bool(record.claims) for record in fake.deployment.instances.values())
    assert inked(tab)[UNKNOWN_COLOUR] >= 3 * working, "in each cell with a job one GPU is unknown"
    ids = fake.deployment.members()["ids"]
    at = next(number for number, name in enumerate(ids) if fake.deployment.instances[name].claims)
    tab.page.locator(".heatmap input[type=search]").fill(ids[at])
    tab.page.locator(f".heatmap .cursor[aria-label*='{ids[at]}'][aria-label*='{BUSY}']").wait_for(state="attached")
    tab.page.locator(".heatmap .card").get_by_text(BUSY).wait_for()
    tab.page.get_by_role("button", name="Show as a table").click()
    row = tab.page.locator(".heatmap tbody tr")
    assert BUSY in row.inner_text() and row.count() == 1


def test_without_the_history_the_mode_says_why_it_is_not_there(tab: Visit, fake: FakeServer) -> None:
    """It cannot be chosen, and the page does not ask for it."""
    fake.deployment.gpu_history = False
    tab.sign_in("any text")
    canvas(tab)
    mode = tab.page.get_by_label("GPU utilisation (not kept: gpu-recovery:gpu_history is off)")
    assert mode.is_disabled()
    with tab.page.expect_response("**/fleet/map*"):
        tab.page.get_by_role("button", name="Refresh now").click()
    assert asked_with_gpus(tab) == 0


def test_a_small_cell_has_the_mean_and_lines_where_nothing_is_known(tab: Visit, fake: FakeServer) -> None:
    """On a phone a cell has no room for each GPU."""
    tab.page.set_viewport_size({"width": 390, "height": 800})
    tab.sign_in("any text")
    canvas(tab)
    tab.page.get_by_label("GPU utilisation").check()
    tab.page.locator(".heatmap .legend").get_by_text("unknown").wait_for()
    repaired = sum(record.status != "AVAILABLE" for record in fake.deployment.instances.values())
    assert repaired > 0
    wait_until(lambda: inked(tab).get(UNKNOWN_COLOUR, 0) >= 10 * repaired)

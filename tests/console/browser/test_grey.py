"""What the console shows without colours: screenshots in grey, with the same darkest and lightest value in each."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from gpu_recovery.core.event_history.incidents import IncidentOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from console.fake.model import Size
from console.fake.server import running
from tests.console.browser.conftest import Visit
from tests.console.browser.examples import answer_with_examples, example

pytestmark = [pytest.mark.slow, pytest.mark.console]
SHAPE = """
async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  const grey = [];
  for (let at = 0; at < data.length; at += 4) grey.push(0.299 * data[at] + 0.587 * data[at + 1] + 0.114 * data[at + 2]);
  const [dark, light] = [Math.min(...grey), Math.max(...grey)];
  return grey.map((value) => (value - dark > (light - dark) / 2 ? " " : "#")).join("");
}
"""
"""The shape that a screenshot shows: which pixels are nearer to its darkest than to its lightest grey."""


def shape_of(tab: Visit, element: Any) -> str:
    """Return the shape of an element of the page, whatever its colours."""
    return str(tab.page.evaluate(SHAPE, base64.b64encode(element.screenshot()).decode()))


@pytest.fixture(scope="module")
def tab(opened_tabs: Any) -> Iterator[Visit]:
    """A tab whose lists have every status, and whose map has most of them."""
    jobs, instances, incidents = (
        example(name)[key][0]
        for name, key in (("list_jobs", "jobs"), ("list_instances", "instances"), ("list_incidents", "incidents"))
    )
    every = {
        "list_jobs": {"jobs": [{**jobs, "job_id": str(one), "status": one} for one in JobStatus]},
        "list_instances": {"instances": [{**instances, "instance_id": one, "status": one} for one in InstanceStatus]},
        "list_incidents": {
            "incidents": [{**incidents, "incident_id": one, "outcome": one} for one in (*IncidentOutcome, None)]
        },
    }
    with running(Size(instances=2_000, jobs=200, events_a_second=0)) as fake, opened_tabs(fake.url) as open_:
        opened = open_()
        answer_with_examples(opened.page, **every)
        opened.sign_in("any text")
        yield opened


def test_squares_of_different_states_have_different_patterns(tab: Visit) -> None:
    """In the legend of the map, which has the same squares as the map."""
    tab.see("#/")
    tab.page.locator(".heatmap .area canvas[data-drawn]").wait_for()
    squares = tab.page.locator(".heatmap .legend li")
    shapes = {square.inner_text(): shape_of(tab, square.locator("canvas")) for square in squares.all()}
    assert len(shapes) >= 6
    assert [pair for pair in combinations(shapes, 2) if shapes[pair[0]] == shapes[pair[1]]] == []


def test_statuses_of_different_colours_have_different_signs(tab: Visit) -> None:
    """And each status has words of its own."""
    shapes: dict[str, tuple[str, str, str]] = {}
    words: dict[str, set[str]] = {}
    for place in ("#/jobs", "#/instances", "#/incidents"):
        tab.see(place)
        tab.page.locator("main .status").first.wait_for()
        for badge in tab.page.locator("main .status").all():
            state, tone = str(badge.get_attribute("title")), str(badge.get_attribute("class")).split()[-1]
            if state not in shapes:
                sign = badge.locator(".sign")
                shapes[state] = (tone, sign.inner_text(), shape_of(tab, sign))
                words.setdefault(badge.inner_text().strip(), set()).add(state)
    assert set(shapes) >= {*JobStatus, *InstanceStatus, *IncidentOutcome}
    pairs = [pair for pair in combinations(shapes, 2) if shapes[pair[0]][0] != shapes[pair[1]][0]]
    for part in (1, 2):  # the sign as text, and as it is drawn
        assert [(one, other) for one, other in pairs if shapes[one][part] == shapes[other][part]] == []
    same = [states for states in words.values() if len({state.lower() for state in states}) > 1]
    assert same == []

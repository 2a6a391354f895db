"""The figures of a day, from its events and from what stood at its beginning."""

from __future__ import annotations

import random
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core.event_history.day_codec import (
    DAYS,
    DayProgress,
    day_items,
    day_texts,
    figures_of,
    figures_text,
    progress_of,
    progress_text,
    standing_of,
    standing_text,
)
from gpu_recovery.core.event_history.recorded_event import EventKind, RecordedEvent
from gpu_recovery.core.event_history.roll_up import (
    FLEET,
    Figures,
    Standing,
    add_events,
    begin_day,
    end_day,
    roll_up,
    sum_of,
)
from gpu_recovery.core.event_history.streams import StoredItem

from tests.core.event_history.recorded import COURSE, JOB, OPENED, SICK, at, instance_moved, job_moved, read, recovery

BEGIN = OPENED.replace(hour=0, minute=0, second=0)
END = BEGIN + timedelta(days=1)
BEFORE = [
    read(event)
    for event in (
        job_moved(1, "", "QUEUED", -7_200, attempt=0, incident_id=None, opened_at=None),
        job_moved(2, "QUEUED", "SUBMITTING", -3_700, incident_id=None, opened_at=None),
        job_moved(3, "SUBMITTING", "SUBMITTED", -3_650, incident_id=None, opened_at=None),
        job_moved(4, "SUBMITTED", "RUNNING", -3_600, incident_id=None, opened_at=None),
        instance_moved(1, "", "AVAILABLE", -7_200, job_id=None, attempt=None),
    )
]
EVENTS = [*BEFORE, *map(read, COURSE), read(job_moved(12, "RUNNING", "SUCCEEDED", 3_600, attempt=2, incident_id=None))]


def test_a_day_with_an_incident() -> None:
    """Every figure, by hand: 16 GPUs run for an hour, are down for 550 s, and run until an hour after the failure."""
    figures, after = roll_up(Standing(), EVENTS, BEGIN, END)
    fleet = figures[FLEET]
    assert fleet.running == pytest.approx(16 * (3_600 + 3_050) / 3_600)
    # Until the diagnosis is over the instances are held: 150 s; then again from the next launch: 40 s.
    assert fleet.held == pytest.approx(fleet.running + 16 * (100 + 150 + 40) / 3_600)
    assert fleet.in_line == pytest.approx(16 * 360 / 3_600)
    assert fleet.lost == pytest.approx(16 * 550 / 3_600)
    assert fleet.recoveries == [550]
    assert (fleet.incidents, fleet.recovered, fleet.given_up) == (1, 1, 0)
    assert (fleet.succeeded, fleet.failed, fleet.canceled) == (1, 0, 0)
    assert fleet.mttf_gpu_h == pytest.approx(fleet.running)
    present = (END - OPENED).total_seconds() + 7_200
    assert fleet.fleet_available == pytest.approx(1 - 487 / present)
    assert figures["ana", "HIGH"].running == fleet.running
    assert after == Standing({}, {SICK: "AVAILABLE"})


def test_nothing_is_known_without_events() -> None:
    """Null, and not one or zero."""
    fleet = roll_up(Standing(), [], BEGIN, END)[0][FLEET]
    assert (fleet.running_share, fleet.fleet_available, fleet.mttf_gpu_h, fleet.recovery_s(0.5)) == (None,) * 4


@pytest.mark.parametrize("seed", range(5))
def test_order_and_repetition_change_nothing(seed: int) -> None:
    """Only the set of events counts."""
    shuffled = [*EVENTS, *EVENTS[:7]]
    random.Random(seed).shuffle(shuffled)
    assert roll_up(Standing(), shuffled, BEGIN, END) == roll_up(Standing(), EVENTS, BEGIN, END)


@pytest.mark.parametrize("seconds", [-5_000, -3_680, 0, 5, 200, 530, 600, 3_000])
def test_a_day_may_be_cut_anywhere(seconds: float) -> None:
    """What stands at the cut is all that the rest needs, also in the middle of a recovery."""
    cut = datetime.fromisoformat(at(seconds)).astimezone(UTC)
    first, middle = roll_up(Standing(), EVENTS, BEGIN, cut)
    middle = standing_of(standing_text(middle))
    second, last = roll_up(middle, EVENTS, cut, END)
    whole, end = roll_up(Standing(), EVENTS, BEGIN, END)
    assert last == end
    for key, group in whole.items():
        both = first.get(key, type(group)())
        both.add(second.get(key, type(group)()))
        for name in ("held", "running", "in_line", "lost", "available", "present"):
            assert getattr(both, name) == pytest.approx(getattr(group, name)), (key, name)
        for name in ("recoveries", "incidents", "recovered", "succeeded"):
            assert getattr(both, name) == getattr(group, name), (key, name)


def test_a_job_that_runs_all_day_has_no_event_and_counts() -> None:
    """Most jobs of most days are like this."""
    _, standing = roll_up(Standing(), BEFORE, BEGIN, END)
    figures, after = roll_up(standing, [], END, END + timedelta(days=1))
    assert figures[FLEET].running == pytest.approx(16 * 24)
    assert figures[FLEET].present == figures[FLEET].available == pytest.approx(24)
    assert after == standing and standing.jobs[JOB].status == "RUNNING"


def test_a_job_that_began_before_the_history_counts_from_its_first_event() -> None:
    """The event says since when the job ran, so the day on which the history began is whole."""
    first = read(job_moved(90, "RUNNING", "STOPPING", 0, since="2026-11-20T00:00:00Z"))
    figures, _ = roll_up(Standing(), [first], BEGIN, END)
    assert figures[FLEET].running == pytest.approx(16 * (OPENED - BEGIN).total_seconds() / 3_600)


def test_a_missing_event_is_bridged_by_the_next() -> None:
    """It tells which status the job had before, and since when."""
    events = [*BEFORE[:3], read(job_moved(5, "RUNNING", "STOPPING", -1, since=at(-3_600)))]
    figures, _ = roll_up(Standing(), events, BEGIN, OPENED)
    assert figures[FLEET].running == pytest.approx(16 * 3_599 / 3_600)


def test_figures_are_the_same_after_they_were_stored() -> None:
    """To a few decimal places."""
    figures, standing = roll_up(Standing(), EVENTS[:10], BEGIN, END)
    again = figures_of(figures_text(figures))
    assert again.keys() == figures.keys()
    assert again[FLEET].running == pytest.approx(figures[FLEET].running, abs=1e-6)
    assert standing_of(standing_text(standing)) == standing


def test_a_large_text_has_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An item of the table holds 400 KB. A day with a missing part, or with parts of two writes, is not read."""
    monkeypatch.setattr("gpu_recovery.core.event_history.day_codec.PART_CHARACTERS_MAX", 1_000)
    text = "".join(random.Random(1).choices("abcdefghij", k=9_000))

    def stored(until: datetime) -> list[StoredItem]:
        return [StoredItem(item.position, item.attributes) for item in day_items(DAYS, BEGIN.date(), until, text)]

    whole = stored(END)
    assert len(whole) > 3
    assert day_texts(reversed(whole)) == {BEGIN.date(): (END, text)}
    assert day_texts(whole[:-1]) == {}
    mixed: list[Any] = [*stored(END)[:1], *stored(END + timedelta(1))[1:]]
    assert day_texts(mixed) == {}


# -- a day in pieces ---------------------------------------------------------------------------------------------------

BRIDGED = [
    read(event)
    for event in (
        *COURSE[:-1],
        recovery(11, "Succeeded", 4_500, attempt=2, kept_until=at(-600)),  # more than an hour after the run began
        job_moved(13, "STOPPING", "RECOVERING", 5_000, attempt=2, since=at(4_800)),  # version 12 is missing
        recovery(14, "Failed", 5_100, attempt=2),
        job_moved(15, "RECOVERING", "FAILED", 5_100, attempt=2),
    )
]
UNKNOWN = [
    read(event)
    for event in (
        job_moved(5, "RUNNING", "STOPPING", 0, since=at(-5_000)),
        instance_moved(3, "AVAILABLE", "GONE", 100, since=at(-4_000)),
        job_moved(7, "RECOVERING", "SUCCEEDED", 200, opened_at=at(-500)),
        recovery(8, "Succeeded", 900, kept_until=at(-100)),
    )
]


@pytest.mark.parametrize("late_s", [-600, -1_800, None])
@pytest.mark.parametrize("events", [EVENTS, [*BEFORE, *BRIDGED], UNKNOWN], ids=["incident", "bridged", "unknown"])
def test_pieces_give_the_figures_of_the_whole_day(events: list[RecordedEvent], late_s: float | None) -> None:
    """Every figure, for cuts at and between any two events, each alone and all at once, and after each is stored."""
    kept = None if late_s is None else datetime.fromisoformat(at(late_s))
    events = [
        replace(event, kept_until=kept) if event.kind is EventKind.RECOVERY_SUCCEEDED else event for event in events
    ]
    times = sorted({event.at for event in events})
    cuts = sorted({time + timedelta(seconds=more) for time in times for more in (0, 1, 29, 3_700)} - {BEGIN, END})
    whole, standing = roll_up(Standing(), events, BEGIN, END)
    for some in (*([cut] for cut in cuts), cuts):
        total, after = _in_pieces(events, some)
        assert after == standing
        assert total.keys() == whole.keys()
        for key, group in whole.items():
            assert asdict(total[key]) == {n: pytest.approx(v, abs=1e-4) for n, v in asdict(group).items()}, (some, key)


def _in_pieces(events: list[RecordedEvent], cuts: list[datetime]) -> tuple[dict[tuple[str, str], Figures], Standing]:
    progress, since = DayProgress(BEGIN, begin_day(Standing(), BEGIN), {}, "", "", END), BEGIN
    for cut in (*cuts, END):
        figures, part = add_events(progress.part, events, since, cut)
        progress = replace(progress, at=cut, part=part, figures=sum_of(progress.figures, figures))
        progress, since = progress_of(progress_text(progress)), cut
    figures, after = end_day(progress.part, END)
    return sum_of(progress.figures, figures), after


# -- work that is done again -------------------------------------------------------------------------------------------


def course(*events: tuple[str, dict[str, Any]]) -> list[RecordedEvent]:
    """The job before the incident, and these events instead of the whole incident."""
    return [*BEFORE, *map(read, events)]


RECOVERED = (*COURSE[:-1], recovery(11, "Succeeded", 610, attempt=2, kept_until=at(-600)))
"""The incident, after which the training goes on from a checkpoint 600 s before it."""
SUCCESS = job_moved(12, "RUNNING", "SUCCEEDED", 3_600, attempt=2, incident_id=None)


def test_work_that_is_done_again_counts_against_the_ettr() -> None:
    """What 16 GPUs did in the 600 s before the incident; held, and in line for the second attempt."""
    fleet = roll_up(Standing(), course(*RECOVERED, SUCCESS), BEGIN, END)[0][FLEET]
    assert fleet.ettr == pytest.approx((fleet.running - 16 * 600 / 3_600) / (fleet.held + fleet.in_line))
    assert fleet.ettr_share == 1.0


def test_an_ettr_that_is_not_known_is_not_made_up() -> None:
    """The program reports no progress, so nobody knows up to when its work was kept."""
    fleet = roll_up(Standing(), EVENTS, BEGIN, END)[0][FLEET]
    assert (fleet.ettr, fleet.ettr_share) == (None, 0.0)


def test_a_job_that_was_never_relaunched_did_no_work_again() -> None:
    """Whether it reports progress or not. It waits for nothing after its first start."""
    fleet = roll_up(Standing(), BEFORE, BEGIN, OPENED)[0][FLEET]
    assert fleet.ettr == fleet.running_share == pytest.approx(3_600 / 3_700)


def test_an_attempt_that_fails_before_it_goes_on_is_lost_as_a_whole() -> None:
    """Its 100 s of running, beside the 600 s before the incident."""
    between = (
        job_moved(11, "RUNNING", "STOPPING", 650, attempt=2),
        job_moved(12, "STOPPING", "RECOVERING", 660, attempt=2),
        job_moved(13, "RECOVERING", "SUBMITTING", 700, attempt=3),
        job_moved(14, "SUBMITTING", "RUNNING", 720, attempt=3),
        recovery(15, "Succeeded", 800, attempt=3, kept_until=at(-600)),
    )
    fleet = roll_up(Standing(), course(*COURSE[:-1], *between), BEGIN, END)[0][FLEET]
    assert fleet.ettr == pytest.approx((fleet.running - 16 * 700 / 3_600) / (fleet.held + fleet.in_line))


@pytest.mark.parametrize("seconds", [-5_000, -300, 3_000])
def test_the_ettr_of_two_days_is_that_of_both(seconds: float) -> None:
    """Also if some of the work that is lost was done before midnight."""
    events, cut = course(*RECOVERED, SUCCESS), datetime.fromisoformat(at(seconds)).astimezone(UTC)
    first, middle = roll_up(Standing(), events, BEGIN, cut)
    second, _ = roll_up(standing_of(standing_text(middle)), events, cut, END)
    both = figures_of(figures_text(first))[FLEET]
    both.add(figures_of(figures_text(second))[FLEET])
    assert both.ettr == pytest.approx(roll_up(Standing(), events, BEGIN, END)[0][FLEET].ettr, abs=1e-6)


@pytest.mark.parametrize("seconds", [5, 200, 530, 600])
def test_a_day_that_ends_in_a_recovery_is_left_out(seconds: float) -> None:
    """Up to when its work was kept is known on the next day, on which the lost work no longer counts."""
    events, cut = course(*RECOVERED, SUCCESS), datetime.fromisoformat(at(seconds)).astimezone(UTC)
    first, middle = roll_up(Standing(), events, BEGIN, cut)
    second, _ = roll_up(standing_of(standing_text(middle)), events, cut, END)
    assert first[FLEET].ettr_share == 0.0 and second[FLEET].ettr_share == 1.0
    spent = second[FLEET].held + second[FLEET].in_line
    assert second[FLEET].ettr == pytest.approx(second[FLEET].running / spent)


def test_a_day_with_a_resumption_of_unknown_loss_is_left_out_and_the_next_counts() -> None:
    """A suspended job resumes without a recovery that says up to when its work was kept."""
    events = course(
        job_moved(5, "RUNNING", "SUSPENDING", 0, incident_id=None),
        job_moved(6, "SUSPENDING", "SUSPENDED", 20, incident_id=None),
        job_moved(7, "SUSPENDED", "SUBMITTING", 500, attempt=2, incident_id=None),
        job_moved(8, "SUBMITTING", "RUNNING", 540, attempt=2, incident_id=None),
    )
    figures, standing = roll_up(Standing(), events, BEGIN, END)
    assert (figures[FLEET].ettr, figures[FLEET].ettr_share) == (None, 0.0)
    later, _ = roll_up(standing_of(standing_text(standing)), [], END, END + timedelta(days=1))
    assert (later[FLEET].ettr, later[FLEET].ettr_share) == (1.0, 1.0)
    # A failure on the day of the resumption makes nothing known of that resumption.
    failed = job_moved(9, "RUNNING", "STOPPING", 20_000, attempt=2)
    assert roll_up(Standing(), [*events, read(failed)], BEGIN, END)[0][FLEET].ettr is None

"""What a GPU and its ranks show in each phase of a training, and the table of it in docs/hangs.md."""

from __future__ import annotations

from statistics import median

import pytest

from tests.markdown import ROOT
from tests.recorded_gpu.recorded import rows

NAMES = {
    "training": ("training", "训练"),
    "checkpoint": ("checkpoint", "写检查点"),
    "evaluation": ("evaluation", "评估"),
    "spinning kernel": ("a kernel that never ends", "永不结束的内核"),
    "sleep": ("the rank sleeps", "rank 休眠"),
    "one of two ranks sleeps": (
        "one of two ranks sleeps, the other waits in gloo",
        "两个 rank 之一休眠，另一个在 gloo 中等待",
    ),
}
"""Phases of the tables by their names in the course."""
COURSE, ACTIVITY = rows("course.csv"), rows("course_activity.csv")


def spread(values: list[float]) -> str:
    """The median, and the lowest and the highest value."""
    low, middle, high = (f"{value:.0f}" for value in (min(values), median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def cores(phase: str, rank: str) -> float:
    """The processor time of a rank, as a number of cores."""
    mine = [row for row in COURSE if (row["phase"], row["rank"]) == (phase, rank)]
    course = [(float(row["t_s"]), float(row["cpu_s"])) for row in mine]
    (begin_s, before), (end_s, after) = course[0], course[-1]
    return (after - before) / (end_s - begin_s)


def cells(phase: str) -> str:
    """The measured cells of one row."""
    gpu = {row["t_s"]: row for row in COURSE if row["phase"] == phase}.values()
    activity = [row for row in ACTIVITY if row["phase"] == phase]
    ranks = sorted({row["rank"] for row in COURSE if row["phase"] == phase and row["rank"]})
    measured = [
        spread([float(row["utilization_percent"]) for row in gpu]),
        spread([float(row["power_w"]) for row in gpu]),
        spread([float(row["sm_percent"]) for row in activity]),
        spread([float(row["tensor_percent"]) for row in activity]),
        ", ".join(f"{cores(phase, rank):.1f}" for rank in ranks),
    ]
    return " | ".join(measured)


@pytest.mark.parametrize(("page", "column"), [("docs/hangs.md", 0), ("docs/hangs.zh.md", 1)])
def test_the_table_of_the_page_is_that_of_the_records(page: str, column: int) -> None:
    """Six rows, one for each phase."""
    text = (ROOT / page).read_text(encoding="utf-8").translate({ord("（"): " (", ord("）"): ")", ord("到"): "to"})
    expected = [f"| {names[column]} | {cells(phase)} |" for phase, names in NAMES.items()]
    assert [row for row in expected if row not in text] == []


def test_utilization_alone_does_not_show_a_hang_and_power_does() -> None:
    """A training and an endless kernel both have all of the utilization; their power differs by a factor of five."""

    def middle(phase: str, column: str) -> float:
        return median(float(row[column]) for row in COURSE if row["phase"] == phase)

    assert middle("spinning kernel", "utilization_percent") >= middle("training", "utilization_percent") >= 97
    assert middle("training", "power_w") > 5 * middle("spinning kernel", "power_w")
    assert middle("spinning kernel", "power_w") == middle("sleep", "power_w")
    assert cores("spinning kernel", "0") > 0.95 and cores("sleep", "0") < 0.05

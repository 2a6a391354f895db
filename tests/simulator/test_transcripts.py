"""Whole incidents, word for word: what was decided, why, what was ordered, and what operators were told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator.incidents import INCIDENTS

FOLDER = Path(__file__).resolve().parents[1] / "transcripts"


@pytest.mark.parametrize("name", INCIDENTS)
def test_incident_goes_as_written(name: str, update_transcripts: bool) -> None:
    """The transcript of the incident is the one that was reviewed."""
    world, _ = INCIDENTS[name]()
    path = FOLDER / f"{name}.txt"
    if update_transcripts:
        path.write_text(world.transcript.text())
    assert world.transcript.text() == path.read_text()
    assert world.failures == []


def test_every_transcript_belongs_to_an_incident() -> None:
    """No file is left over from an incident that is gone."""
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(INCIDENTS)


def test_a_run_can_be_repeated_to_the_letter() -> None:
    """Two runs of the same arguments are the same."""
    first, second = (INCIDENTS["adaptive_two_of_eight_faulty"]()[0] for _ in range(2))
    assert first.transcript.text() == second.transcript.text()
    assert [step.name for step in first.invocations.steps] == [step.name for step in second.invocations.steps]

"""Scenario files: each is kept by the product, says what it says, and can be written and read again."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from simulator.faults.catalogue import KINDS
from simulator.trials import scenario
from simulator.trials.campaign import play_seed
from simulator.trials.scenario import FOLDER, ScenarioInvalid, parse, read, written
from simulator.trials.trial import play
from tests.tiers import sampled

FILES = sorted(FOLDER.glob("*.toml"))
LARGEST = [FOLDER / f"gang_of_{nnodes}_hangs.toml" for nnodes in (417, 512, 1_024, 3_000)]
"""The scenarios that take longer than all others together. The tier `full` plays them."""


@pytest.mark.full
@pytest.mark.parametrize("path", LARGEST, ids=lambda path: path.stem)
def test_a_large_gang_ends_as_its_scenario_says(path: Path) -> None:
    """The largest has as many ranks as are admitted."""
    assert play(read(path)).violations == []


@pytest.mark.parametrize(
    "path",
    sampled([path for path in FILES if path not in LARGEST], fast=20, default=len(FILES)),
    ids=lambda path: path.stem,
)
def test_every_scenario_ends_as_it_says(path: Path) -> None:
    """Nothing breaks, what the file expects is so, and every fault strikes: else the file says more than it shows."""
    told = read(path)
    assert told.why and told.expect != scenario.Expected()
    played = play(told)
    assert played.violations == []
    assert len(played.took) + len(played.struck) == len(told.faults)


def test_a_fault_that_finds_nothing_has_not_struck() -> None:
    """A rank cannot exit, and a job cannot be canceled, once all is over."""
    late = [{"kind": "exit", "at_s": 3000}, {"kind": "cancel", "at_s": 3000}]
    assert play(parse({"fault": late})).took == []
    assert len(play(parse({"fault": [GPU]})).took) == 1


@pytest.mark.parametrize("train_s", [600, 20_000])
def test_an_orphan_that_is_only_observed_is_ended_by_the_operator(train_s: int) -> None:
    """StopTask does not reach it, and nothing proves its own end: the operator terminates the instance."""
    faults = [
        {"kind": "deregister_by_hand", "at_s": 300, "machines": [1], "registers_every_s": 1.0},
        {"kind": "exit", "at_s": 310, "code": 139},
    ]
    cluster = {"instances": 2, "policy": {"observe_only": True}}
    played = play(
        parse(
            {
                "train_s": train_s,
                "cluster": cluster,
                "job": [{"nnodes": 2}],
                "fault": faults[:1] if train_s == 600 else faults,
            }
        )
    )
    assert played.violations == []
    assert "which may run an orphan" in played.world.transcript.text()


def test_a_scenario_that_expects_something_else_is_broken() -> None:
    """Each expectation can fail."""
    wrong = {"jobs": ["FAILED"], "attempts": [2], "reboots": 1, "quarantined": 1}
    for name, value in wrong.items():
        found = play(parse({"expect": {name: value}})).violations
        assert len(found) == 1 and f"expected {name}" in found[0]
    assert "at most 0 mails" in play(parse({"expect": {"mails": 0}, "fault": [GPU]})).violations[0]


MAILS = [
    {"subject": "attempt 1 failed, recovering", "severity": "SEV3"},
    {"subject": "recovered on attempt 2", "severity": "SEV4"},
]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, ""),
        ({"subject": "FAILED"}, "expected mail 0 to be SEV3 FAILED in thread 0, found"),
        ({"severity": "SEV2"}, "expected mail 0 to be SEV2 attempt 1 failed, recovering in thread 0"),
        ({"thread": 1}, "in thread 1, found"),
        ({"has": ["XID 48"]}, "to have 'XID 48'"),
        ({"has": ["exit code 134"], "lacks": ["exit code 134"]}, "not to have 'exit code 134'"),
    ],
)
def test_each_part_of_an_expected_mail_can_fail(change: dict[str, object], sentence: str) -> None:
    """Subject, severity, thread and words."""
    mails = [{**MAILS[0], **change}, MAILS[1]]
    found = play(parse({"expect": {"mail": mails}, "fault": [GPU]})).violations
    assert (len(found) == 1 and sentence in found[0]) if sentence else found == []


def test_mails_that_are_not_expected_are_named() -> None:
    """With their subjects."""
    (found,) = play(parse({"expect": {"mail": MAILS[:1]}, "fault": [GPU]})).violations
    assert "expected 1 mails, found 2" in found and "recovered on attempt 2" in found


GPU = {"kind": "gpu", "at_s": 120}


@pytest.mark.parametrize("seed", sampled(range(5, 205, 10), fast=2, default=3))
def test_a_written_scenario_reads_as_it_was(seed: int) -> None:
    """With every fault that the seed drew."""
    told, played = play_seed(seed)
    whole = played.as_scenario(told)
    assert parse(tomllib.loads(written(whole))) == whole


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ("[[fault]]\nkind = 'flood'", "a fault's kind must be one of"),
        ("[[fault]]\nat_s = 1", "not None"),
        ("[[fault]]\nkind = 'gpu'", "fault gpu needs 'at_s'"),
        ("[[fault]]\nkind = 'gpu'\nat_s = 1\ncolour = 'red'", "fault gpu has no 'colour'"),
        ("[[fault]]\nkind = 'cancel'\nat_s = 1\nmachines = [1]", "fault cancel has no 'machines'"),
        (
            "[[fault]]\nkind = 'log_says'\nat_s = 1\nmachines = [0]\nsays = 'gpus'",
            "fault log_says: says must be one of",
        ),
        (
            "[[fault]]\nkind = 'rank_tells'\nat_s = 1\nmachines = [0]\nof = 'gpus'",
            "fault rank_tells: of must be notice",
        ),
        ("[cluster]\nmachines = 3", "cluster has no 'machines'"),
        ("[cluster]\nadopt = 'perhaps'", "adopt"),
        ("[cluster.policy]\nkindness = 3", "kindness"),
        ("[[job]]\nnodes = 3", "job has no 'nodes'"),
        ("speed = 3", "scenario has no 'speed'"),
        ("[[job", "Expected"),
    ],
)
def test_a_scenario_that_cannot_be_says_why(document: str, sentence: str, tmp_path: Path) -> None:
    """The file and what is wrong in it are named."""
    path = tmp_path / "wrong.toml"
    path.write_text(document)
    with pytest.raises(ScenarioInvalid, match=r"wrong\.toml: ") as raised:
        read(path)
    assert sentence in str(raised.value)


EVERY_KIND = (27, 34, 42, 62, 68, 89, 106, 122, 130, 1538)
"""Seeds that together have faults of every kind. A change of what is drawn may need other seeds."""


def test_every_kind_of_fault_can_be_said_and_strikes() -> None:
    """A kind that no seed ever draws, or that never finds anything, would be forgotten."""
    played = [play_seed(seed)[1] for seed in EVERY_KIND]
    assert {fault.kind for one in played for fault in (*one.took, *one.struck)} == set(KINDS)


def test_every_field_of_a_fault_is_something_a_file_can_say() -> None:
    """TOML has numbers, words, truth values and lists of them."""
    for kind in KINDS.values():
        for one in fields(kind):
            assert one.type in ("str", "int", "float", "bool", "int | None", "tuple[int, ...]"), (kind, one)

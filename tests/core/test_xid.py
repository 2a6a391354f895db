"""The class of an XID by its number alone."""

from __future__ import annotations

import csv

import pytest
from gpu_recovery.core.xid import REPEATS, SUSPICIOUS_ALONE, XidClass, XidProfile, class_of
from gpu_recovery.core.xid_names import XID_NAMES, with_xid_names

from health_check import xid_table
from health_check.xid_table import TABLES, XidPolicy

AFTER_THE_CATALOGUE = (173, 174, 175, 176, 179, 185)
"""XIDs that only the driver's sources name. NVIDIA's action for them is not known."""


@pytest.mark.parametrize("profile", XidProfile)
def test_the_number_has_the_class_of_the_health_checks_table(profile: XidProfile) -> None:
    """Two places that cannot import each other, one table: every row of it, and every number around it."""
    table = TABLES[XidPolicy(profile.value)]
    assert set(table) == {*range(1, 173), *AFTER_THE_CATALOGUE}
    for code in range(300):
        expected = table[code].xid_class if code in table else xid_table.UNKNOWN.xid_class
        assert class_of(code, profile).value == expected.value, code


def test_what_is_suspicious_alone_is_in_the_health_checks_table() -> None:
    """Every other XID that follows another XID is harmless alone."""
    alone = {code: row.alone for code, row in TABLES[XidPolicy.NVIDIA].items() if row.alone}
    assert {code for code, xid_class in alone.items() if xid_class is xid_table.XidClass.DIAG} == SUSPICIOUS_ALONE
    assert set(alone) - SUSPICIOUS_ALONE == {45}


def test_the_profiles_are_the_same_and_differ_where_the_table_says_so() -> None:
    """By name; each has rules of repetition; the rows with a word of AWS's are all of the difference."""
    assert [one.value for one in XidProfile] == [one.value for one in XidPolicy] and set(REPEATS) == set(XidProfile)
    ours = {code for code, row in TABLES[XidPolicy.AWS].items() if row.fixed}
    differ = {code for code in range(300) if class_of(code) is not class_of(code, XidProfile.AWS)}
    assert ours and differ == {
        c for c in ours if TABLES[XidPolicy.AWS][c].xid_class != TABLES[XidPolicy.NVIDIA][c].xid_class
    }


@pytest.mark.parametrize("policy", XidPolicy)
def test_both_tables_are_the_catalogues_rows(policy: XidPolicy) -> None:
    """Every number once, in order, each with its mnemonic and the class of its column."""
    with xid_table._TABLE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["code"]) for row in rows] == [*range(1, 173), *AFTER_THE_CATALOGUE]
    for row in rows:
        known = TABLES[policy][int(row["code"])]
        wanted = (row["aws"] if policy is XidPolicy.AWS else "") or row["class"]
        assert (known.mnemonic, known.xid_class.value) == (row["mnemonic"], wanted), row["code"]


def test_the_classes_are_the_same_words() -> None:
    """In the same order, for the order is that of gravity."""
    assert [one.value for one in XidClass] == [one.value for one in xid_table.XidClass]


@pytest.mark.parametrize("code", [0, -1, 177, *AFTER_THE_CATALOGUE, 10**9])
def test_an_unknown_number_asks_for_a_diagnosis(code: int) -> None:
    """A driver of tomorrow reports errors that nobody has a row for."""
    assert class_of(code) is XidClass.DIAG


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (13, XidClass.APP),
        (31, XidClass.APP),
        (43, XidClass.IGNORE),
        (45, XidClass.FOLLOW_OTHER),
        (48, XidClass.REBOOT),
        (54, XidClass.REPLACE),
        (63, XidClass.WATCH),
        (74, XidClass.DIAG),
        (78, XidClass.CONFIG),
        (79, XidClass.REBOOT),
        (94, XidClass.APP),
        (119, XidClass.REBOOT),
        (149, XidClass.DIAG),
        (154, XidClass.DIAG),
    ],
)
def test_the_numbers_that_operators_know_by_heart(code: int, expected: XidClass) -> None:
    """74, 144 to 150 and 154 are told apart by their messages only, so their number asks for a diagnosis."""
    assert class_of(code) is expected


def test_a_name_in_a_mail_is_that_of_the_catalogue() -> None:
    """Every XID that asks for a reboot, a replacement or another configuration has one."""
    table = TABLES[XidPolicy.NVIDIA]
    for code, name in XID_NAMES.items():
        assert table[code].mnemonic.removeprefix("ROBUST_CHANNEL_") == name
    grave = (XidClass.REBOOT, XidClass.REPLACE, XidClass.CONFIG)
    assert {code for code in table if class_of(code) in grave} <= set(XID_NAMES)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("XID 79 on 0000:10:00; it is lost", "XID 79 on 0000:10:00 (GPU_HAS_FALLEN_OFF_THE_BUS); it is lost"),
        ("XID 48 on GPU GPU-1b2c (REBOOT)", "XID 48 on GPU GPU-1b2c (GPU_ECC_DBE) (REBOOT)"),
        ("XID 79", "XID 79 (GPU_HAS_FALLEN_OFF_THE_BUS)"),
        ("XID 79 on a, XID 48 on b.", "XID 79 on a (GPU_HAS_FALLEN_OFF_THE_BUS), XID 48 on b (GPU_ECC_DBE)."),
        ("XID_79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "XID_79: ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"),
        ("XID 79: GPU_HAS_FALLEN_OFF_THE_BUS", "XID 79: GPU_HAS_FALLEN_OFF_THE_BUS"),
        ("XID 999 on 0000:10:00", "XID 999 on 0000:10:00"),
    ],
)
def test_an_xid_gets_its_name_once(written: str, expected: str) -> None:
    """Behind the GPU, so that the number and its GPU stay one text."""
    assert with_xid_names(written) == expected

"""What carriers put around a line is taken off, and no text, however made, takes long or breaks anything."""

from __future__ import annotations

import pytest
from gpu_recovery.core.logs.classify import SIGNATURES, classify
from gpu_recovery.core.logs.kinds import CLASSES, LineKind, policy_of
from gpu_recovery.core.logs.line_normalization import LINE_MAX, LineLevel, definite, read
from gpu_recovery.core.logs.noise import ADVICE, FINE
from gpu_recovery.core.logs.signature import Signatures
from hypothesis import given
from hypothesis import strategies as st

from tests.core.logs.pattern_texts import repeats_within_repeats, wordings
from tests.tiers import sampled, scaled

ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
TABLES = (*SIGNATURES, *FINE, *ADVICE)


@pytest.mark.parametrize(
    ("prefix", "tag"),
    [
        ("[rank3]: ", "[rank3]:"),
        ("[default0]:", "[default0]:"),
        ("12: ", "12:"),
        ("[1,4]<stderr>: ", "[1,4]<stderr>:"),
        ("(WorkerDict pid=27497) ", "(WorkerDict pid=27497)"),
        ("(raylet) ", "(raylet)"),
        ("(RayTrainWorker pid=7, ip=10.0.0.3) [rank1]: ", "(RayTrainWorker pid=7, ip=10.0.0.3)[rank1]:"),
        ("\x1b[36m(Worker pid=9)\x1b[0m ", "(Worker pid=9)"),
        ("gpu003: ", "gpu003:"),
        ("10.0.0.7: ", "10.0.0.7:"),
        ("[ 1632.420956] ", ""),
        ("[Fri Aug 30 11:43:14 2024] ", ""),
        ("<3>[ 12.5] ", ""),
        ("kern  :warn  : 2025-01-21T04:41:44,285060+00:00 ", ""),
        ("Feb 14 05:03:41 gpu-1 kernel: ", ""),
        ("2026-11-22T10:00:00.123456Z stderr F ", ""),
        ("2026-11-22 10:00:00,123 ", ""),
        ("trainer-1  | ", "trainer-1  |"),
    ],
)
def test_the_marks_of_carriers_are_taken_off(prefix: str, tag: str) -> None:
    """torchrun, Slurm, mpirun, Ray, pdsh, the kernel, journald, container runtimes; who wrote it is kept."""
    line = read(prefix + ERROR)
    assert (line.text, line.tag) == (ERROR, tag)
    assert classify([prefix + ERROR]).kind is LineKind.CUDA_OOM


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("INFO 11-22 10:00:00 x.py:1] y", LineLevel.INFORMS),
        ("[rank0]:[I321 02:07:08.4 x.cpp:1] y", LineLevel.INFORMS),
        ("level=info msg=y", LineLevel.INFORMS),
        ("2026-11-22 10:00:00 - INFO - y", LineLevel.INFORMS),
        ("WARNING:root:y", LineLevel.WARNS),
        ("/a/b.py:3: UserWarning: y", LineLevel.WARNS),
        ("h:1:2 [0] NCCL WARN y", LineLevel.NONE),
        ("ERROR y", LineLevel.NONE),
        ("INFO: task x:1 blocked for more than 120 seconds.", LineLevel.NONE),
        ("y", LineLevel.NONE),
    ],
)
def test_a_line_says_how_much_it_means(line: str, level: LineLevel) -> None:
    """What calls itself information is no failure; NCCL and the kernel use these words otherwise."""
    assert read(line).level is level


def test_what_is_only_thought_possible_is_left_out() -> None:
    """But never what an exception begins with."""
    assert definite("it failed. this might be caused by x. see y.") == "it failed. see y."
    assert definite("runtimeerror: it may be gone") == "runtimeerror: it may be gone"
    assert definite("it could not be read") == "it could not be read"
    assert definite(r'"message": "link failed\nthis might be caused by x"') == '"message": "link failed'


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe\x00RuntimeError: CUDA error: out of memory\x00\x00",
        "\x00\x00CUDA error: out of memory",
        "\x1b[31mCUDA error: out of memory\x1b[0m",
        " 45%|####5     | 9/20 [00:01<00:01]\rCUDA error: out of memory",
        "CUDA error: out of memory\r\n",
        "x" * 9_000 + " CUDA error: out of memory",
        "CUDA error: out of memory " + "x" * 9_000,
    ],
)
def test_garbage_around_a_message_does_not_hide_it(line: str | bytes) -> None:
    """Bytes that are no text, NULs, colours, progress bars, Windows' line ends, lines without end."""
    assert classify([line]).kind is LineKind.CUDA_OOM


ODD = st.lists(st.one_of(st.text(max_size=200), st.binary(max_size=200)), max_size=20)


@given(ODD, ODD)
def test_no_text_breaks_it(before: list[str | bytes], after: list[str | bytes]) -> None:
    """Whatever comes around a failure, it is found on its line, each finding is of its own, and the same each time."""
    lines = [*before, ERROR, *after]
    found = classify(lines)
    assert LineKind.CUDA_OOM in {one.kind for one in found.findings if one.number == len(before) + 1}
    assert all(one.line == read(lines[one.number - 1]).raw for one in found.findings)
    assert classify(lines) == found


# -- what it costs -----------------------------------------------------------------------------------------------------

WORDS = "error nccl cuda timeout failed xid: 7 ecc nan loss: gpu connection reset checkpoint no space left oom killed "
MEGABYTE = 1 << 20
MADE_TO_BE_SLOW = scaled(fast=MEGABYTE // 4, default=MEGABYTE // 4, full=MEGABYTE)
"""Characters of a log that was made to be slow."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    sampled(
        [WORDS, "nccl " * 20 + "a" * 4_000, "loss nan ", "\x1b[", "(pid=1) ", "[ 1.1] ", "a.", " "], fast=1, default=4
    ),
)
def test_a_megabyte_made_to_be_slow_is_as_many_searches_as_it_has_lines(unit: str) -> None:
    """Each line is cut, and compared with each signature three times at most: the cost grows with the length alone."""
    text = (unit * (LINE_MAX // len(unit) + 1))[:LINE_MAX]
    lines = [text] * (MADE_TO_BE_SLOW // LINE_MAX)
    searches = classify(lines).searches
    assert searches <= 3 * len(TABLES) * len(lines)
    assert classify(lines[:8]).searches * (len(lines) // 8) == searches


def test_a_line_without_end_is_read_at_both_its_ends_only() -> None:
    """Half of the limit at each."""
    assert len(read("a" * 10 * MEGABYTE).text) <= LINE_MAX + 1


def test_no_pattern_repeats_what_repeats() -> None:
    """A repetition without a bound within another makes a line of a hundred letters take years."""
    assert not [row.pattern.pattern for row in TABLES if repeats_within_repeats(row.pattern.pattern)]
    assert repeats_within_repeats(r"(?:a+b?)+c")


# -- the tables --------------------------------------------------------------------------------------------------------


def test_what_a_line_must_have_hides_no_wording() -> None:
    """Each wording of a pattern has one of the texts that are looked for first."""
    hidden = [
        (row.needs[0], text)
        for row in TABLES
        for text in wordings(row.pattern.pattern)
        if row.pattern.search(text) and not any(need in text for need in row.needs)
    ]
    assert not hidden


def test_every_signature_says_who_writes_so_and_is_in_lower_case() -> None:
    """Lines are compared in lower case: a capital would never be met."""
    for row in TABLES:
        assert row.source and row.needs
    with pytest.raises(ValueError, match="lower case"):
        Signatures().add("x", LineKind.BENIGN, "Error", "error")


def test_every_kind_has_its_class_and_policy() -> None:
    """The table of the reference, part 4.1."""
    assert set(CLASSES) == set(LineKind)
    assert all(policy_of(kind) for kind in LineKind)
    assert policy_of(LineKind.SCHEDULER_TIME_LIMIT) != policy_of(LineKind.SCHEDULER_PREEMPT)


def test_every_kind_can_be_found() -> None:
    """A kind that no signature and no XID leads to is a word without a meaning."""
    found = {row.kind for row in SIGNATURES} | {LineKind.BENIGN}
    found |= {classify([f"NVRM: Xid (PCI:0000:3b:00): {code}, x"]).kind for code in range(1, 173)}
    assert found == set(LineKind)

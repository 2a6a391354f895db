"""Our reader of YAML against PyYAML's: whatever it accepts, the other reads the same."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import yaml
from gpu_recovery.job_api.yaml_reader import DEPTH_MAX, YamlInvalid, read_yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples

WHOLE = """\
--- # a job
workload: sft
nnodes: 2
n_gpus_per_node: 8 # eight
task_definition: 'gpu-training:3'
command: [python, "train.py", '--lr=1e-5', "a: b", {x: 1, "y": ~}]
env:
  LR: "0.1"
  URL: s3://bucket/x#y
  QUOTED: 'it''s'
  ESCAPED: "tab\\t \\u00e9 \\x41 \\"q\\" \\\\"
runtime_env:
  pip:
  - torch==2.1.0
  - name: x
    v: 1.5
  -   - a
      - b
entrypoint: |
  python train.py \\
    --x # no comment

  echo done
note: >-
  one
  two

  three

nothing:
tilde: ~
yes_or_no: true
address: 10.0.0.1:2222
"""
PIECES = [
    "a",
    "b: ",
    "- ",
    "  ",
    "\n",
    "\n  ",
    "\n- ",
    "\n  - ",
    ": ",
    "'",
    '"',
    "[",
    "]",
    "{",
    "}",
    ",",
    " #c",
    "#",
    "|",
    "|-",
    ">",
    ">-",
    "x y",
    "1",
    "0",
    "-",
    "+",
    ".",
    "e",
    "yes",
    "null",
    "~",
    "2026-01-01",
    "\\n",
    "\\u0041",
    "?",
    "&a",
    "*a",
    "!",
    "!!str ",
    "---",
    "...",
    "key: ",
    "\nkey: ",
    "\nb: ",
    "\n  c: ",
    "@",
    "`",
    "%",
    "<<",
    ":",
    "=",
    "\n\n",
    "\n   ",
    "0x1",
    "1:30",
    "true",
    "\nd: |\n  t\n",
    "\nf: >\n  t\n",
    "e5",
    "_",
    "1.5",
    "/x",
    "\n'k': ",
    "''",
    "\r\n",
    "\u00e9",
    "\t",
    "\u2028",
    "0o7",
    "1_000",
    ".inf",
    "-.5",
    "12e03",
    "\n    ",
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=12)
    | st.sampled_from(["yes", "0777", "1e5", "2026-01-01", "1:30", "- a", "a: b", "# x", "", " ", "null", "<<", "*a"])
)


def test_a_whole_specification_is_read() -> None:
    """Comments, quotes, lists and mappings of both kinds, text blocks, nothing."""
    found = read_yaml(WHOLE)
    assert found == yaml.safe_load(WHOLE)
    assert found["entrypoint"] == "python train.py \\\n  --x # no comment\n\necho done\n"
    assert (found["note"], found["nothing"], found["env"]["QUOTED"]) == ("one two\nthree", None, "it's")


def test_whatever_is_accepted_means_the_same_to_every_reader() -> None:
    """Fragments in any order: refused, or read as PyYAML reads them, types included."""
    seen: Counter[str] = Counter()

    @examples(10)
    @given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.booleans())
    def each(text: str, keyed: bool) -> None:
        text = f"k: {text}" if keyed else text
        try:
            found = read_yaml(text)
        except YamlInvalid as refusal:
            assert re.match(r"line \d+: ", str(refusal))
            seen["refused"] += 1
            return
        assert repr(found) == repr(yaml.safe_load(text)), text
        seen["read"] += 1

    each()
    assert min(seen["read"], seen["refused"]) > seen.total() / 10, seen


def test_whatever_pyyaml_writes_quoted_is_read_back() -> None:
    """In block style and in flow style, as long as each value has a line."""
    seen: Counter[str] = Counter()

    @given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), scalars, min_size=1, max_size=6))
    def each(document: dict[str, object]) -> None:
        text = yaml.safe_dump(document, default_style='"', width=10**9, allow_unicode=False)
        if "!!" in text:  # PyYAML tags what is no text when it quotes everything
            text = yaml.safe_dump(document, width=10**9, allow_unicode=False)
        try:
            found = read_yaml(text)
        except YamlInvalid:
            seen["refused"] += 1
            return
        assert repr(found) == repr(yaml.safe_load(text))
        seen["read"] += 1

    each()
    assert seen["read"] > seen.total() / 4, seen


def test_no_text_breaks_the_reader() -> None:
    """Any characters: a value or YamlInvalid, nothing else."""

    @given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
    def each(text: str) -> None:
        try:
            read_yaml(text)
        except YamlInvalid as refusal:
            assert str(refusal).startswith("line ")

    each()


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x",
        "a: !!python/name:os.system",
        "a: !x 1",
        "<<: {a: 1}",
        "? a\n: b",
        "%YAML 1.1\n---\na: 1",
        "a: 1\n---\nb: 2",
        "a: 1\n...",
        "a:\n  b: 1\n c: 2",
        "a: 1\n  b: 2",
        "a: b\n  c",
        "a: 'b\n  c'",
        "- a\nb: 1",
        "a: [1,\n  2]",
        "a: [1, 2",
        "a: {b: 1",
        "a: {b}",
        "a: [b: 1]",
        "a: |2\n  x",
        "a: |\n",
        "a: >\n  x\n   y\n",
        "a: 'x' y",
        'a: "\\q"',
        'a: "\\ud800"',
        "1: a",
        "true: a",
        "null: a",
        "a: b: c",
        "a: -",
        "a: - b",
    ],
)
def test_what_needs_more_of_the_language_is_refused(text: str) -> None:
    """With its line, rather than read by half."""
    with pytest.raises(YamlInvalid, match=r"^line \d+: "):
        read_yaml(text)


@pytest.mark.parametrize(
    "word",
    [
        "yes",
        "No",
        "ON",
        "off",
        "0777",
        "0o17",
        "0x1f",
        "1_000",
        "1:30",
        "12:30:45",
        "1e5",
        "1.e3",
        ".5",
        ".inf",
        "-.Inf",
        ".NaN",
        "2026-11-21",
        "2026-11-21T09:00:00Z",
        "=",
        "08",
    ],
)
def test_what_readers_differ_about_must_be_quoted(word: str) -> None:
    """YAML 1.1 and 1.2 make different values of it; quoted it is a text to both."""
    with pytest.raises(YamlInvalid, match="quote it"):
        read_yaml(f"a: {word}")
    assert read_yaml(f"a: '{word}'") == {"a": word} == read_yaml(f'a: ["{word}"]') | {"a": word}


def test_a_key_is_given_once() -> None:
    """Whichever of two values were taken, the other may have been meant."""
    for text in ("a: 1\na: 2", "a: {b: 1, b: 2}", "a:\n  b: 1\n  'b': 2"):
        with pytest.raises(YamlInvalid, match="twice"):
            read_yaml(text)


def test_depth_is_bounded() -> None:
    """In blocks and in brackets; a small text never stands for a large or deep value."""
    deep = "".join("  " * n + "a:\n" for n in range(DEPTH_MAX + 5))
    for text in (deep, "a: " + "[" * 50_000, "- " * 50_000, "a: " + "{a: " * 20_000):
        with pytest.raises(YamlInvalid):
            read_yaml(text)
    fine = "".join("  " * n + "a:\n" for n in range(DEPTH_MAX))
    assert read_yaml(fine) == yaml.safe_load(fine)


def test_empty_texts_are_nothing() -> None:
    """As for every reader."""
    for text in ("", "\n\n", "# only a comment", "---\n", "   "):
        assert read_yaml(text) is None

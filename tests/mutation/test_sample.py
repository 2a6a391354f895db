"""The sample of mutants: which defects it has, and that it is the same for the same seed and code."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from cosmic_ray.mutating import mutate_code

from benchmarks.mutation.__main__ import mixed
from benchmarks.mutation.mutants import PRODUCT, files_of, mutants_of, sample
from benchmarks.mutation.operators import RemoveCall, operators

LIMITS, RECOVERY = f"{PRODUCT}/core/limits.py", f"{PRODUCT}/recovery.py"


def test_a_group_has_its_files_only(tree: Path) -> None:
    """The core has a goal of its own."""
    assert files_of(tree, "core") == [f"{PRODUCT}/core/__init__.py", LIMITS]
    assert files_of(tree, "elsewhere") == [f"{PRODUCT}/node_api/router.py", RECOVERY]


def test_each_place_is_drawn_once_and_changes_the_meaning(tree: Path) -> None:
    """A number has two mutants and one place; the `|` of an annotation does nothing and is no mutant."""
    drawn = {(mutant.line, mutant.column): source for mutant, source in sample(tree, 1, "core")}
    assert sorted(drawn) == [(3, 8), (7, 17), (7, 29), (7, 39)]
    assert drawn[7, 29].splitlines()[-1] == "    return count is not None or count > LIMIT"


def test_options_of_dataclass_are_not_changed(tree: Path) -> None:
    """A record that could be changed, and is not, is no defect that a user would see."""
    (tree / LIMITS).write_text("@dataclass(frozen=True)\nclass Limit:\n    on: bool = True\n")
    assert [(mutant.line, mutant.operator) for mutant, _ in sample(tree, 1, "core")] == [(3, "ReplaceTrueWithFalse")]


def test_a_seed_draws_the_same_mutants_again(tree: Path) -> None:
    """A score can be compared with that of the run before."""
    seeds = [[mutant for mutant, _ in sample(tree, seed, "elsewhere")] for seed in (1, 1, 2)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_a_change_of_a_file_leaves_the_sample_of_the_others(tree: Path) -> None:
    """Or a test added for a survivor would be judged by other mutants."""
    before = [mutant for mutant, _ in sample(tree, 1, "elsewhere") if mutant.file == RECOVERY]
    (tree / PRODUCT / "node_api/router.py").write_text("def reply():\n    return 1 + 2 + 3\n")
    assert [mutant for mutant, _ in sample(tree, 1, "elsewhere") if mutant.file == RECOVERY] == before


def test_groups_are_tried_in_turns(tree: Path) -> None:
    """A run that stops at its limit of time has a score for both groups."""
    groups = [group for group, _, _ in mixed(tree, 1, {"core": 3, "elsewhere": 2})]
    assert groups == ["core", "elsewhere", "core", "elsewhere", "core"]


def test_every_operator_does_what_its_examples_say() -> None:
    """A new release of the library may not change an operator into one that does nothing."""
    for name, operator in operators().items():
        for example in type(operator).examples():
            if example.pre_mutation_code != example.post_mutation_code:
                mutated = mutate_code(example.pre_mutation_code, operator, example.occurrence)
                assert mutated == example.post_mutation_code, name


def test_the_removal_of_a_call_leaves_calls_whose_value_is_used() -> None:
    """Only a statement can be replaced with `pass`."""
    code = "def f(a):\n    # why\n    a.b(1)\n    c = a.d()\n    return c.e\n"
    assert mutate_code(code, RemoveCall(), 0) == code.replace("a.b(1)", "pass")
    assert mutate_code(code, RemoveCall(), 1) is None


def test_a_mutant_names_the_place_of_its_defect(tree: Path) -> None:
    """The list of survivors leads to the line."""
    found = {str(mutant) for place in mutants_of(tree, LIMITS) for mutant in place}
    assert f"{LIMITS}:7:39 ReplaceComparisonOperator_Gt_GtE #0" in found
    assert len(list(islice(sample(tree, 1, "core"), 2))) == 2

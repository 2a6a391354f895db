"""Mutation operators: those of Cosmic Ray that make plausible defects, and the removal of a call.

Left out are operators whose result is a type error (`<<` for `+`), operators that change nothing for enums and None
(`==` for `is`), and a second way to negate the same comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import Keyword

LOGIC = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
)
COMPARISONS = (
    "Eq_NotEq",
    "NotEq_Eq",
    "Is_IsNot",
    "IsNot_Is",
    "Lt_LtE",
    "Lt_GtE",
    "LtE_Lt",
    "LtE_Gt",
    "Gt_GtE",
    "Gt_LtE",
    "GtE_Gt",
    "GtE_Lt",
)
ARITHMETIC = (
    "Add_Sub",
    "Sub_Add",
    "Mul_Div",
    "Div_Mul",
    "FloorDiv_Mul",
    "Mod_FloorDiv",
    "BitOr_BitAnd",
    "BitAnd_BitOr",
)


class RemoveCall(Operator):  # type: ignore[misc]
    """Replace a statement that is only a call with `pass`: what the call was for does not happen."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield the position of `node` if it is such a call."""
        if node.type == "atom_expr" and node.parent.type == "simple_stmt":
            last = node.children[-1]
            if last.type == "trailer" and last.children[0] == "(":
                yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Return the statement that replaces the call."""
        return Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return what the operator does to a piece of code."""
        return (Example("if a:\n    save(b)\n", "if a:\n    pass\n"),)


def operators() -> Mapping[str, Operator]:
    """Return the operators by name."""
    known = OperatorProvider()
    names = (
        *LOGIC,
        *(f"ReplaceComparisonOperator_{pair}" for pair in COMPARISONS),
        *(f"ReplaceBinaryOperator_{pair}" for pair in ARITHMETIC),
    )
    return {name: known[name]() for name in names} | {"RemoveCall": RemoveCall()}

"""Mutants of the product, and a sample of them that is the same for the same seed and the same code.

The sample takes one mutant of a place in the code, because some places have many mutants. Places and mutants are
ordered by a hash of the seed and of their names. So a change of one file leaves the sample of other files as it was.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

from benchmarks.mutation.operators import operators

PRODUCT = "lambdas/gpu_recovery"
GROUPS: Mapping[str, tuple[str, ...]] = {
    "core": ("core/**/*.py",),
    "elsewhere": ("recovery.py", "aws/*store*.py", "job_api/routes/*.py", "node_api/*.py"),
}
"""Files of each group, below PRODUCT."""
OPERATORS = operators()


@dataclass(frozen=True, order=True)
class Mutant:
    """One defect that can be put into the product.

    Attributes:
        file: path from the root of the repository.
        line, column: where the changed code begins; lines count from 1, columns from 0.
        operator: name of the operator.
        occurrence: which of the operator's mutants of the file this is, from 0.
    """

    file: str
    line: int
    column: int
    operator: str
    occurrence: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.operator} #{self.occurrence}"

    def source(self, original: str) -> str | None:
        """Return the source of the file with the defect, or None if its meaning is the same or it is no Python."""
        if original.splitlines()[self.line - 1].lstrip().startswith("@dataclass("):
            return None  # `frozen` and `slots` hold no behaviour
        mutated = mutate_code(original, OPERATORS[self.operator], self.occurrence)
        if mutated is None:
            raise ValueError(f"there is no {self}")
        try:
            return None if _meaning(mutated) == _meaning(original) else str(mutated)
        except SyntaxError:
            return None


class _WithoutAnnotations(ast.NodeTransformer):
    """Removes annotations: the product postpones their evaluation, so an operator in them does nothing."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _meaning(source: str) -> str:
    return ast.dump(_WithoutAnnotations().visit(ast.parse(source)))


def files_of(root: Path, group: str) -> list[str]:
    """Return the files of a group in the tree at `root`, as paths from there."""
    found = {path for pattern in GROUPS[group] for path in (root / PRODUCT).glob(pattern)}
    return sorted(path.relative_to(root).as_posix() for path in found)


def mutants_of(root: Path, file: str) -> list[list[Mutant]]:
    """Return the mutants of a file, one list for each place in the code."""
    places = defaultdict[tuple[tuple[int, int], tuple[int, int]], list[Mutant]](list)
    seen = Counter[str]()
    for node in ast_nodes(get_ast((root / file).read_text(encoding="utf-8"))):
        for name, operator in OPERATORS.items():
            for begin, end in operator.mutation_positions(node):
                places[begin, end].append(Mutant(file, begin[0], begin[1], name, seen[name]))
                seen[name] += 1
    return list(places.values())


def sample(root: Path, seed: int, group: str) -> Iterator[tuple[Mutant, str]]:
    """Yield mutants of a group in random order, one for each place, with the source of the file with the defect."""

    def rank(mutant: Mutant) -> bytes:
        return sha256(f"{seed} {mutant.file} {mutant.operator} {mutant.occurrence}".encode()).digest()

    places = [sorted(place, key=rank) for file in files_of(root, group) for place in mutants_of(root, file)]
    for place in sorted(places, key=lambda place: rank(place[0])):
        original = (root / place[0].file).read_text(encoding="utf-8")
        for mutant in place:
            source = mutant.source(original)
            if source is not None:
                yield mutant, source
                break

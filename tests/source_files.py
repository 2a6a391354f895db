"""The text files of the repository, and the syntax trees of its modules, for the tests that read them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAMBDAS, CORE = ROOT / "lambdas", ROOT / "lambdas" / "gpu_recovery" / "core"
HANDLERS = sorted(LAMBDAS.glob("*.py"))
TEXT = {".py", ".md", ".toml", ".json", ".txt", ".yaml", ".yml", ".sh", ".csv", ""}


def of_the_repository() -> Iterator[Path]:
    """Every text file that is not a build output: what .gitignore names is left out."""
    ignored = {line.strip().strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.strip()}
    ignored |= {".git"}
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.name in ignored or any(path.match(pattern) for pattern in ignored) or path.is_symlink():
                continue  # a link of a package leads to a file that is read in its own place
            if path.is_dir():
                pending.append(path)
            elif path.suffix in TEXT:
                yield path


FILES = list(of_the_repository())
MODULES = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]


def path_in_repository(path: Path) -> str:
    """The path inside the repository."""
    return path.relative_to(ROOT).as_posix()


def below(folder: str) -> list[Path]:
    """The modules in a folder of the repository."""
    return [path for path in MODULES if path_in_repository(path).startswith(f"{folder}/")]


@cache
def syntax_tree(path: Path) -> ast.Module:
    """The syntax tree of a module, kept until `forget_trees()`: all of them take 60 MB."""
    return ast.parse(path.read_text(), str(path))


@cache
def syntax_nodes(path: Path) -> list[ast.AST]:
    """All nodes of the syntax tree of a module, in the order of `ast.walk`, kept until `forget_trees()`."""
    return list(ast.walk(syntax_tree(path)))


def forget_trees() -> None:
    """Forget the syntax trees of all modules."""
    syntax_tree.cache_clear()
    syntax_nodes.cache_clear()

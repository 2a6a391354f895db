"""The modules that are compiled before the workers start are those that pytest loads."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.compiled import ROOT, compile_test_modules, compiled, rewritten_modules

MODULE = "def test_a() -> None:\n    assert [1] == [2]\n"


def _loaded(module: Path) -> None:
    """Load the module as the collection does."""
    hook = next(one for one in sys.meta_path if isinstance(one, rewrite.AssertionRewritingHook))
    spec = spec_from_file_location(module.stem, module, loader=hook)
    assert spec is not None
    hook.exec_module(module_from_spec(spec))


def test_pytest_loads_what_was_compiled_and_rewrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the text of the module changes."""
    module = tmp_path / "test_compiled_before.py"
    module.write_text(MODULE)
    compile_test_modules([module])
    assert compiled(module).exists()
    rewritten: list[Path] = []
    rewrite_test = rewrite._rewrite_test
    monkeypatch.setattr(
        rewrite, "_rewrite_test", lambda file, config: (rewritten.append(file), rewrite_test(file, config))[1]
    )
    _loaded(module)
    assert rewritten == []
    module.write_text(MODULE + "\n")
    _loaded(module)
    assert rewritten == [module]


def test_the_modules_of_the_suite_are_those_that_pytest_rewrites() -> None:
    """Tests and the files conftest.py, not the modules that tests import."""
    found = {path.relative_to(ROOT).as_posix() for path in rewritten_modules(ROOT / "tests")}
    assert {"tests/conftest.py", "tests/test_compiled.py"} <= found
    assert not found & {"tests/compiled.py", "tests/tiers.py"}

"""The committed build of the console: what the source builds, small, and without anything of a deployment."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSOLE, STATIC = ROOT / "console", ROOT / "console/served/static"
FIRST_PAGE_KB, EVERYTHING_KB = 100, 150
"""Budgets of the gzipped files, in kB: what the first page loads, and all files."""


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=CONSOLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


@pytest.mark.slow
def test_the_committed_files_are_what_the_source_builds(tmp_path: Path) -> None:
    """Byte for byte. After a change of the source: `make console`."""
    _run("npx", "--no-install", "vite", "build", "--outDir", str(tmp_path / "static"), "--logLevel", "error")
    assert _files(tmp_path / "static") == _files(STATIC), "run `make console` and commit what it builds"


@pytest.mark.slow
def test_the_types_are_those_of_the_api(tmp_path: Path) -> None:
    """The page cannot ask for a field that is not there: TypeScript refuses it."""
    _run("npx", "--no-install", "openapi-typescript", "../docs/openapi.json", "--output", str(tmp_path / "schema.d.ts"))
    assert (tmp_path / "schema.d.ts").read_text() == (CONSOLE / "src/schema.d.ts").read_text(), "run `make console`"
    _run("npx", "--no-install", "tsc", "--noEmit")


def _kb(content: bytes) -> float:
    return len(gzip.compress(content, 9)) / 1_000


def test_the_files_are_small() -> None:
    """The first page is what `index.html` names; other pages load when they are opened."""
    files = _files(STATIC)
    page = files["index.html"].decode()
    first = ["index.html", *(name for name in files if name != "index.html" and name in page)]
    assert len(first) >= 4
    assert sum(_kb(files[name]) for name in first) <= FIRST_PAGE_KB
    assert sum(map(_kb, files.values())) <= EVERYTHING_KB


def test_the_licence_of_every_bundled_package_is_served() -> None:
    """With its text."""
    text = (STATIC / "console/licences.txt").read_text(encoding="utf-8")
    bundled = json.loads((CONSOLE / "package.json").read_text())["dependencies"]
    assert bundled and all(f"{name} {version} (" in text for name, version in bundled.items())
    assert text.count("Permission is hereby granted") >= len(bundled) - 1


def test_the_source_puts_no_text_into_markup() -> None:
    """Text of jobs, logs and people reaches the page as text nodes only."""
    sources = [path for path in (CONSOLE / "src").rglob("*.ts*") if path.name != "schema.d.ts"]
    assert sources
    for path in sources:
        forbidden = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(", path.read_text()
        )
        assert not forbidden, path


def test_a_session_is_kept_in_the_tab_alone() -> None:
    """The one choice that outlives the tab is the language."""
    kept = {
        path.name: path.read_text().count("localStorage")
        for path in (CONSOLE / "src").rglob("*.ts*")
        if "localStorage" in path.read_text()
    }
    assert set(kept) == {"texts.ts"}


def test_the_built_files_hold_nothing_of_a_deployment() -> None:
    """They are the same for everybody: no account, no address, no instance."""
    text = "".join(content.decode(errors="replace") for content in _files(STATIC).values())
    assert not re.findall(r"\bi-[0-9a-f]{17}\b|\b\d{12}\b|execute-api\.\w|127\.0\.0\.1", text)

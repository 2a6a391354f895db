"""What the tests of the documents read out of a Markdown page: headings, fences, tables, links, code spans."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
Table = list[list[str]]


class Page:
    """One Markdown file of the repository. `prose` is its text without fenced blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path.relative_to(ROOT))
        self.text = path.read_text(encoding="utf-8")
        self.prose = FENCE.sub("", self.text)

    def headings(self) -> list[tuple[int, str]]:
        """(level, title) in order."""
        return [(len(marks), title) for marks, title in HEADING.findall(self.prose)]

    def anchors(self) -> set[str]:
        """The headings as a link names them: lower case, spaces to dashes, no punctuation."""
        plain = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for _, title in self.headings()]
        return set(plain)

    def fences(self, language: str) -> list[str]:
        """The bodies of the fenced blocks in `language`."""
        return [body for _, kind, body in FENCE.findall(self.text) if kind == language]

    def commands(self) -> list[str]:
        """The shell commands, comments left out and continued lines joined."""
        joined = "\n".join(self.fences("sh")).replace("\\\n", " ")
        lines = (re.sub(r"(^|\s)#\s.*", "", line) for line in joined.splitlines())
        return [" ".join(line.split()) for line in lines if line.strip()]

    def links(self) -> list[str]:
        """The targets of the links."""
        return LINK.findall(self.prose)

    def spans(self) -> list[str]:
        """The inline code."""
        return SPAN.findall(self.prose)

    def tables(self) -> list[Table]:
        """Each table as rows of cells, its header first."""
        found: list[Table] = []
        inside = False
        for line in self.prose.splitlines():
            bare = line.strip()
            if not bare.startswith("|"):
                inside = False
                continue
            cells = [cell.strip() for cell in bare.strip("|").split("|")]
            if not inside:
                found.append([])
            inside = True
            if not set(bare) <= set("|-: "):
                found[-1].append(cells)
        return found

    def table_of(self, names: set[str]) -> Table:
        """The rows, without header, of the table whose first column is exactly the code spans `names`."""
        firsts = [{bare(row[0]) for row in table[1:]} for table in self.tables()]
        assert names in firsts, f"{self.name}: no table lists exactly {sorted(names)}; near: {_nearest(names, firsts)}"
        return self.tables()[firsts.index(names)][1:]


def bare(cell: str) -> str:
    """A cell without the marks of code."""
    return cell.strip("`")


def _nearest(names: set[str], firsts: list[set[str]]) -> str:
    best = max(firsts, key=lambda column: len(column & names))
    return f"missing {sorted(names - best)}, too many {sorted(best - names)}"


README, README_ZH = Page(ROOT / "README.md"), Page(ROOT / "README.zh-CN.md")
READMES = [README, README_ZH]
DOCS = {path.stem: Page(path) for path in sorted((ROOT / "docs").glob("*.md"))}
"""The pages directly below docs/, by name without `.md`. A Chinese page is named like the English page with `.zh`."""
DEPLOY, ARCHITECTURE, CLI, TRY = DOCS["deploy"], DOCS["architecture"], DOCS["cli"], DOCS["try"]
DECISIONS = [Page(path) for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
RUNBOOKS = [Page(path) for path in sorted((ROOT / "docs/runbooks").glob("*.md"))]
OTHERS = [
    Page(ROOT / f"{name}.md")
    for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG", "agent/README", "agent/run/README", "health_check/README")
]
PAGES = [*READMES, *DOCS.values(), Page(ROOT / "docs/events/README.md"), *DECISIONS, *RUNBOOKS, *OTHERS]
"""Every page of the documentation."""
TRANSLATED = [
    (README, README_ZH),
    *(
        (Page(path.with_name(path.name.replace(".zh.md", ".md"))), Page(path))
        for path in sorted((ROOT / "docs").rglob("*.zh.md"))
    ),
]
"""Pairs of an English page and its Chinese translation."""

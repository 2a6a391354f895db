"""Build the documentation as a web site: both languages, search, no network when it is read.

`make site` calls this module with the Python of .make/site. It copies every page into build/site-pages, with links
between the pages, and runs `mkdocs build --strict`, which fails on a link or an anchor that leads nowhere.

A Chinese page `x.zh.md` stands beside its English page. A page without a Chinese version is shown in English there,
with a notice. The headings of a Chinese page get the anchors of the English headings, so that links work in both
languages.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "site-pages"
CACHE = ROOT / ".make" / "site" / "scripts"
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "agent/README.md": "agent.md",
    "agent/run/README.md": "agent-run.md",
    "health_check/README.md": "health-check.md",
    "docs/runbooks/README.md": "runbooks/index.md",
    "docs/events/README.md": "events/index.md",
    "docs/decisions": "decisions/index.md",
}
"""Places of pages on the site that differ from their places below docs/, by path in the repository."""
ASSETS = ("*.json", "screenshots/*", "charts/*", "events/*.json")
SCRIPTS = {
    "mermaid.min.js": (
        "mermaid@11.17.2",
        "package/dist/mermaid.min.js",
        "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8",
    ),
    "iframe-worker-shim.js": (
        "iframe-worker@1.0.4",
        "package/shim/index.js",
        "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609",
    ),
}
"""Scripts of the pages, from npm: package, file, and SHA-256 of the file. The site loads no script from elsewhere."""
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) (.+)$")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
NOTICE = '!!! note ""\n    本页尚无中文版，以下为英文原文。\n\n'


def main() -> int:
    """Copy the pages, build the site, and return the exit code of mkdocs."""
    shutil.rmtree(PAGES, ignore_errors=True)
    places = site_places()
    for source, place in places.items():
        if source.endswith(".md"):
            _write(place, page(source, places))
    _write("decisions/index.md", decisions_index())
    for path in sorted(PAGES.rglob("*.md")):
        chinese = path.with_suffix(".zh.md")
        if not path.name.endswith(".zh.md") and not chinese.exists():
            chinese.write_text(_with_notice(path.read_text(encoding="utf-8")), encoding="utf-8")
    for pattern in ASSETS:
        for path in (ROOT / "docs").glob(pattern):
            _copy(path, PAGES / path.relative_to(ROOT / "docs"))
    for name in SCRIPTS:
        _copy(script(name), PAGES / "assets" / name)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", "docs/site/mkdocs.yml"]
    done = subprocess.run(command, cwd=ROOT, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    if done.returncode == 0:
        print("build/site/index.html (English), build/site/zh/index.html (中文)")
    return done.returncode


def site_places() -> dict[str, str]:
    """Return the place on the site of each page, by its path in the repository."""
    places = dict(MOVED)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        source = path.relative_to(ROOT).as_posix()
        places.setdefault(source, source.removeprefix("docs/"))
    for source in list(places):
        if source.endswith(".zh.md"):
            english = places[english_of(source)]
            places[source] = english.replace(".md", ".zh.md")
    places["README.zh-CN.md"] = "index.zh.md"
    return places


def page(source: str, places: dict[str, str]) -> str:
    """Return the text of a page with links as the site needs them."""
    text = (ROOT / source).read_text(encoding="utf-8")
    english = english_of(source)
    if english != source:
        text = with_anchors(text, (ROOT / english).read_text(encoding="utf-8"))
    parts, last = [], 0
    for fence in FENCE.finditer(text):
        parts += [_links(text[last : fence.start()], source, places), fence.group()]
        last = fence.end()
    text = "".join([*parts, _links(text[last:], source, places)])
    if "```mermaid" in text:
        up = "../" * places[source].count("/")
        # Pages of the other language are one folder deeper.
        up += "../" if english != source else ""
        text += f'\n\n<script src="{up}assets/mermaid.min.js"></script>\n'
    return text


def _links(text: str, source: str, places: dict[str, str]) -> str:
    """Rewrite the relative links of a text without fences. A link to a file outside the site becomes text."""

    def rewritten(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        label = _links(label, source, places)
        if re.match(r"[a-z]+:", target):
            return f"{mark}[{label}]({target})"
        path, _, anchor = target.partition("#")
        whole = os.path.normpath(Path(source).parent / path) if path else source
        anchor = english_anchor(whole, anchor)
        end = f"#{anchor}" if anchor else ""
        if whole == source:
            return f"[{label}]({end or os.path.basename(places[source]).replace('.zh.md', '.md')})"
        place = places.get(whole) or (whole.removeprefix("docs/") if _is_asset(whole) else None)
        if place is None and not (ROOT / whole).exists():
            raise ValueError(f"{source} has a link to {target}, which does not exist")
        if place is None:
            return label if label.strip("`") == whole or "`" in label else f"{label} (`{whole}`)"
        start = os.path.dirname(places[source])
        if place.startswith("index.") and (whole == "README.zh-CN.md") != (source.endswith((".zh.md", ".zh-CN.md"))):
            # The site has a switch for the other language.
            return label
        # The plugin chooses the language of the page that a link names.
        place = place.replace(".zh.md", ".md")
        return f"{mark}[{label}]({os.path.relpath(place, start or '.')}{end})"

    return LINK.sub(rewritten, text)


def english_of(source: str) -> str:
    """Return the path of the English page of a page."""
    return source.replace(".zh-CN.md", ".md").replace(".zh.md", ".md")


def english_anchor(source: str, anchor: str) -> str:
    """Return the anchor of the English page for an anchor of its Chinese page."""
    if not anchor or english_of(source) == source:
        return anchor
    theirs, ours = (_headings((ROOT / path).read_text(encoding="utf-8")) for path in (source, english_of(source)))
    anchors = {slug(title): slug(other) for title, other in zip(theirs, ours, strict=True)}
    return anchors.get(anchor, anchor)


def with_anchors(chinese: str, english: str) -> str:
    """Return the Chinese page with the anchor of the English heading at each heading."""
    anchors = iter([slug(title) for title in _headings(english)])
    lines, inside = [], False
    for line in chinese.splitlines():
        inside ^= line.lstrip().startswith("```")
        heading = None if inside else HEADING.match(line)
        lines.append(f"{line} {{ #{next(anchors)} }}" if heading else line)
    return "\n".join(lines) + "\n"


def _headings(text: str) -> list[str]:
    return [match[2] for line in FENCE.sub("", text).splitlines() if (match := HEADING.match(line))]


def slug(title: str) -> str:
    """Return the anchor of a heading as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def decisions_index() -> str:
    """Return the list of the decisions."""
    rows = ["# Decisions", "", "A decision has a page with its context, the decision, and its consequences.", ""]
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        rows.append(f"- [{title}]({path.name})")
    return "\n".join(rows) + "\n"


def _with_notice(text: str) -> str:
    """Return an English page with a notice below its title. The search finds the page in English only."""
    title, _, rest = text.partition("\n")
    text = f"{title}\n\n{NOTICE}{rest.lstrip()}".replace('src="assets/', 'src="../assets/')
    return f"---\nsearch:\n  exclude: true\n---\n\n{text}"


def _is_asset(whole: str) -> bool:
    return any((ROOT / whole).match(f"docs/{pattern}") for pattern in ASSETS) and (ROOT / whole).is_file()


def script(name: str) -> Path:
    """Return the path of a script, which npm downloads once.

    Raises:
        ValueError: the file is not the one whose hash is recorded.
    """
    package, member, digest = SCRIPTS[name]
    path = CACHE / f"{package}-{name}"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
            (archive,) = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as files:
                content = files.extractfile(member)
                assert content is not None
                body = content.read()
        found = hashlib.sha256(body).hexdigest()
        if found != digest:
            raise ValueError(f"{member} of {package} has SHA-256 {found}, not {digest}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return path


def _write(place: str, text: str) -> None:
    path = PAGES / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


if __name__ == "__main__":
    raise SystemExit(main())

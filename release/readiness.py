"""`python -m release.readiness v0.2.0`: what a tag lacks for a release, before anything is built or published."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from release import ROOT, version
from release.base_images import without_digest


def missing_for(tag: str, root: Path = ROOT) -> list[str]:
    """Return a line for each thing that has to be changed before this tag is released."""
    expected = f"v{version()}"
    missing = [] if tag == expected else [f"the tag is {tag or 'missing'}, and pyproject.toml says {expected}"]
    heading = rf"^## \[{re.escape(expected[1:])}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        missing.append(f"CHANGELOG.md has no section {expected[1:]} with a date")
    digests = without_digest(root)
    return [*missing, *digests, *(["make digests writes the digests"] if digests else [])]


def main() -> int:
    """Print what is missing. Return 1 if anything is."""
    missing = missing_for(sys.argv[1] if len(sys.argv) > 1 else "")
    print("\n".join(missing or ["ready for a release"]))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

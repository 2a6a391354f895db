"""What makes a release: the wheels, the quick start, and the digests of base images.

It runs on a developer's computer and in CI.

- wheels.py          builds the three wheels into dist/
- wheel_metadata.py  what an index would refuse or show badly in the metadata of a wheel
- quick_start.py     writes the quick start: one CloudFormation template and the files that it needs
- quick_start_template.py    that template, made of the templates of both stacks
- quick_start_parameters.py  the parameters of that template, and their places in it
- archives.py        archives and checksums of files
- base_images.py     the digests of the base images in the Dockerfiles
- readiness.py       what a tag lacks for a release
- try_wheels.py      installs the wheels into a fresh environment, uses them and removes each alone
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The folder of the repository."""


def version() -> str:
    """Return the version of this release."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return found

"""Checks of the metadata of a wheel: what an index refuses, and what it would show badly."""

from __future__ import annotations

import re
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.metadata import ExceptionGroup, Metadata
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

PYTHON = "Programming Language :: Python :: "
RELATIVE_LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s]+)\)")
"""A relative link of a Markdown page."""


def metadata_errors(wheel: Path) -> list[str]:
    """Return an error message for each thing in the metadata of a wheel that has to be changed."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        raw = archive.read(name)
        files = set(archive.namelist())
    try:
        metadata = Metadata.from_email(raw, validate=True)
    except ExceptionGroup as group:
        return [str(error) for error in group.exceptions]
    errors = [
        f"{field} is missing"
        for field in ("summary", "description", "license_expression", "license_files", "requires_python", "classifiers")
        if not getattr(metadata, field)
    ]
    if metadata.description_content_type != "text/markdown":
        errors.append(f"the page is {metadata.description_content_type}, not text/markdown")
    folder = name.removesuffix("/METADATA")
    errors += [
        f"the licence file {one} is not in the wheel"
        for one in metadata.license_files or []
        if f"{folder}/licenses/{one}" not in files
    ]
    errors += [error for one in metadata.requires_dist or [] for error in _pinned(one)]
    return errors + _pythons(metadata) + _dead_links(raw)


def _pinned(requirement: Requirement) -> list[str]:
    """A pin of a library conflicts with the pin of another, and a library without a bound may be too old."""
    operators = {each.operator for each in requirement.specifier}
    if operators & {">=", "~=", ">"} and "==" not in operators:
        return []
    return [f"{requirement} needs a lower bound and no pin"]


def _pythons(metadata: Metadata) -> list[str]:
    """The classifiers name the releases of Python that the wheel may be installed for, the oldest among them."""
    named = [each.removeprefix(PYTHON) for each in metadata.classifiers or [] if each.startswith(PYTHON)]
    minors = sorted(int(each[2:]) for each in named if each.startswith("3."))
    allowed = metadata.requires_python or SpecifierSet()
    errors = [
        f"the classifier of Python 3.{minor} is outside {allowed}" for minor in minors if f"3.{minor}" not in allowed
    ]
    if not minors:
        errors.append("no classifier names a release of Python")
    elif f"3.{minors[0] - 1}" in allowed:
        errors.append(f"{allowed} admits Python 3.{minors[0] - 1}, which no classifier names")
    return errors


def _dead_links(raw: bytes) -> list[str]:
    """A relative link leads nowhere on the page of an index, so an address makes all of them absolute."""
    message = message_from_bytes(raw)
    if not message.get_all("Project-URL"):
        return []
    text = message.get_payload()
    assert isinstance(text, str)
    return [f"a relative link: {link}" for link in RELATIVE_LINK.findall(text)]

"""`gpu-recovery diagnose`: what is wrong, by a log; no deployment is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Annotated, Any, BinaryIO

import typer
from gpu_recovery.core.logs.classify import Classified, Finding, classify
from gpu_recovery.core.logs.kinds import CLASSES, policy_of

from .errors import ClientError
from .output import AsJson, print_json, terminal_width
from .table import line, table

STDIN = "-"
PIECE_MAX = 1 << 20
"""Bytes of a line that are held at once; what is longer counts as several."""
HEADER = ("LINE", "ROLE", "KIND", "TEXT")


def diagnose(
    log: Annotated[
        str | None, typer.Option("--log", metavar="FILE", help="What a rank or a machine wrote; - is standard input.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell from a log what is wrong, and which line is the cause.

    The first root is the cause. A cascade, which follows from something else, is it only where there is no root.
    """
    if log is None:
        raise typer.BadParameter("a log is needed", param_hint="--log")
    found = _classified(log)
    if as_json:
        print_json(_document(found))
    else:
        typer.echo(_page(found, terminal_width()), nl=False)


def _classified(log: str) -> Classified:
    try:
        with nullcontext(sys.stdin.buffer) if log == STDIN else open(log, "rb") as stream:
            return classify(_lines(stream))
    except OSError as error:
        raise ClientError(f"{log} cannot be read: {error.strerror or error}") from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.readline(PIECE_MAX):
        yield piece


def _document(found: Classified) -> dict[str, Any]:
    """findings: number, line, kind and role of each; verdict: the kind of the cause; cause: its line, None if none."""
    cause = found.verdict
    more = {"class": CLASSES[cause.kind], "policy": policy_of(cause.kind)} if cause else {}
    return {
        "findings": [_view(one) for one in found.findings],
        "verdict": found.kind,
        "cause": {**_view(cause), **more} if cause else None,
    }


def _view(one: Finding) -> dict[str, Any]:
    return {"number": one.number, "line": one.line, "kind": one.kind, "role": one.role}


def _page(found: Classified, width: int | None) -> str:
    cause = found.verdict
    if cause is None:
        return line("nothing in this log says that anything is wrong")
    rows = [(str(one.number), one.role, one.kind, one.line) for one in found.findings]
    told = line(f"verdict: {cause.kind} ({CLASSES[cause.kind]}), line {cause.number} ({cause.role})")
    return table(HEADER, rows, width) + "\n" + told + line(f"then: {policy_of(cause.kind)}")

"""Commands for several records: one request each, and errors that do not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer

from gpu_recovery_client.cli.error_hints import error_lines
from gpu_recovery_client.cli.output import FAILED, print_view
from gpu_recovery_client.errors import RequestRefused

View = dict[str, Any]
SERVER_ERROR = 500
"""Lowest status of an error of the server. After such an error the other records are not tried."""


def for_each(
    names: Sequence[str],
    act: Callable[[str], View],
    text: Callable[[View], str],
    key: str,
    as_json: bool,
) -> None:
    """Call `act` for each id and print the views. One id prints its view alone, as before.

    Args:
        names: ids, each of which is used once.
        act: sends the request for an id and returns the view.
        text: returns the text of a view.
        key: member of the JSON document that holds the views, `jobs` or `instances`.
        as_json: print a document.

    Raises:
        typer.Exit: at least one id was refused.
    """
    unique = list(dict.fromkeys(names))
    if len(unique) == 1:
        view = act(unique[0])
        print_view(view, lambda: text(view), as_json)
        return
    views: list[View] = []
    failed: list[View] = []
    for name in unique:
        try:
            views.append(act(name))
        except RequestRefused as refusal:
            if refusal.status >= SERVER_ERROR:
                _print(views, failed, text, key, as_json)
                raise
            failed.append({"id": name, "status": refusal.status, "error": str(refusal)})
            for line in error_lines(refusal):
                typer.echo(line, err=True)
    _print(views, failed, text, key, as_json)
    if failed:
        raise typer.Exit(FAILED)


def _print(views: list[View], failed: list[View], text: Callable[[View], str], key: str, as_json: bool) -> None:
    print_view({key: views, "failed": failed}, lambda: "".join(map(text, views)), as_json)

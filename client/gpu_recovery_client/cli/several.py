"""Commands for several records: one request each, and errors that do not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

import typer

from gpu_recovery_client.cli.error_hints import error_lines
from gpu_recovery_client.cli.output import FAILED, print_view, say
from gpu_recovery_client.errors import ClientError, RequestRefused
from gpu_recovery_client.texts import tr

View = dict[str, Any]


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

    After an error of the server, or without a response, the other ids are not tried. What is known is printed: the
    views, the failed ids, and the ids that were not tried.

    Raises:
        typer.Exit: at least one id was refused.
        ClientError: the error after which the other ids were not tried.
    """
    unique = list(dict.fromkeys(names))
    if len(unique) == 1:
        view = act(unique[0])
        print_view(view, lambda: text(view), as_json)
        return
    views: list[View] = []
    failed: list[View] = []
    for number, name in enumerate(unique, start=1):
        try:
            views.append(act(name))
        except ClientError as error:
            failed.append(_failure(name, error))
            if not isinstance(error, RequestRefused) or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _print(views, failed, unique[number:], text, key, as_json)
                raise
            for line in error_lines(error):
                typer.echo(line, err=True)
    _print(views, failed, (), text, key, as_json)
    if failed:
        raise typer.Exit(FAILED)


def _failure(name: str, error: ClientError) -> View:
    return {"id": name, "status": error.status if isinstance(error, RequestRefused) else None, "error": str(error)}


def _print(
    views: list[View],
    failed: list[View],
    not_tried: Sequence[str],
    text: Callable[[View], str],
    key: str,
    as_json: bool,
) -> None:
    """Print a document, or the views; the errors and the ids that were not tried are on stderr then."""
    document = {key: views, "failed": failed, "not_tried": list(not_tried)}
    print_view(document, lambda: "".join(map(text, views)), as_json)
    if not_tried:
        say(tr("gpu-recovery: not tried: {names}", names=", ".join(not_tried)))

"""`gpu-recovery fleet what-if`: the recorded incidents of an account, replayed under another policy."""

from __future__ import annotations

import os
from datetime import datetime
from importlib import import_module
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.options import moment_of
from gpu_recovery_client.cli.output import USAGE, AsJson, now, print_view, say, terminal_width
from gpu_recovery_client.cli.simulate import error_sentence
from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.render.what_if import what_if as rendered
from gpu_recovery_client.texts import tr

EXAMPLES = (
    "gpu-recovery fleet what-if --set replace=true",
    "gpu-recovery fleet what-if --policy new.toml --since 90d --save records",
    "gpu-recovery fleet what-if --records records --set gang_check=always --json",
)
"""Examples of the help."""


def what_if(
    context: typer.Context,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the policy to try.")
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The whole policy to try, as JSON or TOML.")
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="Collect the events since then, such as 30d or a date.")
    ] = "30d",
    records: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Replay the records in this folder; the API is not called.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also save the collected records in this folder.")
    ] = None,
    spares: Annotated[
        int | None, typer.Option(min=0, help="Spare instances of each job. Default: those that the records show.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded incidents under another policy.

    The production code decides again, in the simulator. First it replays the incidents under the recorded policy, as a
    control, and lists each incident that it does not decide as recorded. Nothing in the account is changed.
    """
    if not settings and policy is None:
        raise typer.BadParameter(tr("give --set or --policy: the policy to try"))
    if records is not None and save is not None:
        raise typer.BadParameter(tr("give either --records or --save"))
    try:
        command = import_module("simulator.replay.command")
        store = import_module("simulator.replay.records")
    except ModuleNotFoundError as error:
        sentence = tr("the simulator runs from the repository, after `make setup` ({error})", error=error)
        raise ClientError(sentence) from error
    try:
        changed = command.settings_of(settings or ())
        whole = None if policy is None else command.policy_file(policy)
        with TemporaryDirectory() as scratch:
            folder = records
            if folder is None:
                folder = save or Path(scratch) / "records"
                _collect(context, since, folder, store)
            report = command.answer(folder, changed, whole, spares, os.cpu_count() or 1)
    except command.ERRORS as error:
        say(error_sentence(error))
        raise typer.Exit(USAGE) from error
    print_view(report, lambda: rendered(report, terminal_width()), as_json)


def _collect(context: typer.Context, since: str, folder: Path, store: Any) -> None:
    """Save the events of the account since a time as a folder of records. The folder is checked before any request.

    Raises:
        typer.Exit: the folder cannot be written.
    """
    until = now()
    begin = datetime.fromisoformat(moment_of(since, until))
    with context.obj.client() as client:
        texts = (dumps(record, ensure_ascii=False) for record in client.event_records(begin.isoformat()))
        try:
            number = store.write_records(folder, texts, begin, until)
        except OSError as error:
            file = error.filename or folder
            message = tr("{file} cannot be written: {error}", file=file, error=error.strerror)
            say(tr("Error: {message}", message=message))
            raise typer.Exit(USAGE) from error
    say(tr("{number} events since {since} were collected", number=number, since=begin.isoformat(timespec="minutes")))

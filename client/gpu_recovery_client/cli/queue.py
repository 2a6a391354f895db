"""`gpu-recovery queue` and `gpu-recovery quota`: the queue, and the limits of each user."""

from __future__ import annotations

import re
from typing import Annotated, Any, NoReturn

import typer
from gpu_recovery.core.queue.priority import Priority

from gpu_recovery_client.cli.confirmation import confirm
from gpu_recovery_client.cli.options import Group, User, Yes, examples
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, now, print_view, terminal_width
from gpu_recovery_client.job_document import read_document
from gpu_recovery_client.render import queue as render_queue
from gpu_recovery_client.texts import tr

NO_LIMIT = "none"
"""The text that removes a limit."""
ENTRY = re.compile(r"(?P<key>.*/[A-Za-z_*]+/[^/]*)=(?P<number>[0-9]{1,9}|none)")
app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and set how many instances each user may use at once."
)
Jobs = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Running jobs at once, of all users; none for no limit.")
]
EachUsersJobs = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Running jobs at once, of each user; none for no limit.")
]


def queue(context: typer.Context, user: User = None, group: Group = None, as_json: AsJson = False) -> None:
    """Show waiting jobs with their wait reasons, and running jobs.

    In the order of the queue: the position, the wait reason, the earliest start; then running jobs, totals by priority,
    and quotas as used/total.
    """
    with context.obj.client() as client:
        view = client.queue()
    view = {name: _chosen(part, user, group) for name, part in view.items()}
    if user is not None or group is not None:
        view["totals"] = render_queue.totals_of(view)
    print_view(view, lambda: render_queue.queue(view, now(), terminal_width()), as_json)
    if not is_complete(view.get("unreadable") or ()):
        raise typer.Exit(FAILED)


def _chosen(part: Any, user: str | None, group: str | None) -> Any:
    """Return the entries of one part of the queue's view that belong to that user and group; other parts stay whole."""
    if not isinstance(part, list) or not all(isinstance(entry, dict) for entry in part):
        return part
    return [
        entry
        for entry in part
        if (user is None or entry.get("user", user) == user) and (group is None or entry.get("group") == group)
    ]


@app.command("show", epilog=examples("gpu-recovery quota show", "gpu-recovery queue --json    # its quotas"))
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the limits as they are set, and their usage."""
    with context.obj.client() as client:
        view = client.quotas()
        if not as_json:  # a document is the API's own answer
            view = {**view, "used": client.queue()["quotas"]}
    _print_quotas(view, as_json)


@app.command(
    "set",
    epilog=examples(
        "gpu-recovery quota set ana/NORMAL/a100=4",
        "gpu-recovery quota set '*/LOW/*=10' --max-running-jobs 50",
        "gpu-recovery quota set ana/NORMAL/a100=none",
        "gpu-recovery quota set --file limits.yaml",
    ),
)
def change(
    context: typer.Context,
    entries: Annotated[
        list[str] | None,
        typer.Argument(metavar="USER/PRIORITY/GROUP=NUMBER", help="* stands for any; none removes a limit."),
    ] = None,
    max_running_jobs: Jobs = None,
    max_running_jobs_per_user: EachUsersJobs = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="A document in JSON or YAML that replaces all limits."),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Set limits; limits that are not named stay. Refused if another caller changes them at the same time.

    A terminal asks for confirmation, a script does not.
    """
    wanted = [_entry(entry) for entry in entries or ()]
    jobs = {"max_running_jobs": max_running_jobs, "max_running_jobs_per_user": max_running_jobs_per_user}
    numbers = {name: _number(name, text) for name, text in jobs.items() if text is not None}
    if not wanted and not numbers and file is None:
        _usage(tr("give at least one limit, such as ana/NORMAL/a100=4"))
    document = None if file is None else read_document(file, "--file").fields
    if document is not None:
        confirm(tr("Replace all limits by those of {file}?", file=file), yes)
    else:
        confirm(tr("Change {limits}?", limits=", ".join([*(entries or ()), *numbers])), yes)
    with context.obj.client() as client:
        view = client.quotas()
        limits: dict[str, Any] = dict(view["limits"] if document is None else document)
        if not isinstance(limits.get("instances") or {}, dict):
            _usage(tr("the field instances is not an object"), "--file")
        instances = dict(limits.get("instances") or {})
        for key, number in wanted:
            if number is None:
                instances.pop(key, None)
            else:
                instances[key] = number
        view = client.put_quotas({**limits, "instances": instances, **numbers}, view["revision"])
    _print_quotas(view, as_json)


def _entry(text: str) -> tuple[str, int | None]:
    """Parse `user/PRIORITY/group=number`: return its key and number, None for no limit.

    A user's name may contain slashes.
    """
    spelt = ENTRY.fullmatch(text)
    if spelt is None:
        _usage(tr("{text} is not USER/PRIORITY/GROUP=NUMBER, such as ana/NORMAL/a100=4", text=repr(text)))
    user, name, group = spelt["key"].rsplit("/", 2)
    priority = name.upper()
    if priority != "*" and priority not in Priority.__members__:
        known = ", ".join(Priority.__members__)
        _usage(tr("{name} is no priority: one of {known}, or *", name=repr(name), known=known))
    return f"{user}/{priority}/{group}", None if spelt["number"] == NO_LIMIT else int(spelt["number"])


def _number(name: str, text: str) -> int | None:
    if text == NO_LIMIT:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        _usage(tr("must be a whole number of at least 1, or none"), f"--{name.replace('_', '-')}")
    return int(text)


def _print_quotas(view: dict[str, Any], as_json: bool) -> None:
    print_view(view, lambda: render_queue.quotas(view, terminal_width()), as_json)


def _usage(message: str, hint: str | None = None) -> NoReturn:
    raise typer.BadParameter(message, param_hint=hint)

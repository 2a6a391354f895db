"""`gpu-recovery diagnose`: what is wrong with a job, or with a file of reports, a log or flight-recorder dumps.

Files need no deployment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from gpu_recovery.core.diagnosis.case import History
from gpu_recovery.core.diagnosis.case_file import CaseInvalid, read_case
from gpu_recovery.core.diagnosis.diagnose import diagnose as judge
from gpu_recovery.core.diagnosis.report_text import Language, as_document, report_text
from gpu_recovery.core.logs.classify import Classified, classify
from gpu_recovery.core.logs.findings_document import findings_document, policy_after
from gpu_recovery.core.logs.kinds import CLASSES

from gpu_recovery_client.cli.flight_folder import diagnose_folder, read_sentences
from gpu_recovery_client.cli.job_names import job_id_of
from gpu_recovery_client.cli.options import jobs_like
from gpu_recovery_client.cli.output import AsJson, print_document, print_view, terminal_width
from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.render.table import table
from gpu_recovery_client.render.text import line
from gpu_recovery_client.texts import heads, tr
from gpu_recovery_client.texts import language as language_in_use

STDIN, WORKER = "-", "worker"
PIECE_MAX = 1 << 20
"""Bytes of a line that are read at once; a longer line counts as several lines."""


def diagnose(
    context: typer.Context,
    job: Annotated[
        str | None, typer.Argument(help="Id or name of a job whose attempt failed.", autocompletion=jobs_like)
    ] = None,
    attempt: Annotated[int | None, typer.Option(min=1, help="Number of the attempt; else the latest.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Diagnose these reports, one JSON object per line; needs no deployment."),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="FILE", help="Diagnose the log of a rank or an instance; - is standard input."),
    ] = None,
    flight: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Diagnose the dumps of PyTorch's flight recorder in this folder; needs no deployment."
        ),
    ] = None,
    language: Annotated[
        Language | None, typer.Option(help="Language of the report; else that of the command line.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the cause of a failure from reports, a log or dumps.

    Dumps are those of PyTorch's flight recorder. Files are diagnosed here, without a deployment.

    In a log, the cause is the `root` line that explains how the log ends, by time and by kind. A `cascade` line is a
    consequence of another error: it counts only if no `root` line explains the end. A `warning` never counts, because
    the program continued after it.
    """
    if sum(source is not None for source in (job, file, log, flight)) != 1:
        raise typer.BadParameter(tr("give one of a job, --file, --log and --flight"), param_hint="JOB")
    if log is not None:
        classified = _classified(log)
        print_view(findings_document(classified), lambda: _page(classified, terminal_width()), as_json)
        return
    if flight is not None:
        view = diagnose_folder(flight)
    else:
        view = _judged(file) if file is not None else _of_job(context, job or "", attempt)
    if as_json:
        print_document(view)
    else:
        typer.echo(view["page"][(language or language_in_use()).value], nl=False)
        for sentence in read_sentences(view) if flight is not None else ():
            typer.echo(line(sentence), nl=False)
        for rank, why in view.get("unread_logs", {}).items():
            typer.echo(line(tr("the log of rank {rank} was not read: {why}", rank=rank, why=why)), nl=False)


def _of_job(context: typer.Context, job: str, attempt: int | None) -> dict[str, Any]:
    with context.obj.client() as client:
        view: dict[str, Any] = client.diagnose(job_id_of(client, job), attempt)
    return view


def _judged(path: Path) -> dict[str, Any]:
    """Return the diagnosis of a file of reports. A line of type `worker` says where a worker runs."""
    reports: list[Any] = []
    workers: list[Any] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(tr("{file} cannot be read: {error}", file=path, error=error)) from error
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            report = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ClientError(
                tr("{file}, line {number}: not JSON: {error}", file=path, number=number, error=error)
            ) from error
        if isinstance(report, dict) and report.get("type") == WORKER:
            workers.append({name: value for name, value in report.items() if name != "type"})
        else:
            reports.append(report)
    try:
        case = read_case({"reports": reports, "workers": workers})
    except CaseInvalid as error:
        raise ClientError(f"{path}: {error}") from error
    diagnosis = judge(case.observations, case.topology, History(), case.at_s)
    return {
        **as_document(diagnosis),
        "page": {language.value: report_text(diagnosis, language) for language in Language},
    }


def _classified(log: str) -> Classified:
    try:
        with nullcontext(sys.stdin.buffer) if log == STDIN else open(log, "rb") as stream:
            return classify(_lines(stream))
    except OSError as error:
        raise ClientError(tr("{file} cannot be read: {error}", file=log, error=error.strerror or error)) from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    while piece := stream.readline(PIECE_MAX):
        yield piece


def _page(classified: Classified, width: int | None) -> str:
    cause = classified.verdict
    if cause is None:
        return line(tr("no line of this log is a known error"))
    rows = [(str(finding.number), finding.role, finding.kind, finding.line) for finding in classified.findings]
    of_cause = {"kind": cause.kind, "of": CLASSES[cause.kind], "number": cause.number, "role": cause.role}
    verdict = line(tr("verdict: {kind} ({of}), line {number} ({role})", **of_cause))
    return (
        table(heads("LINE", "ROLE", "KIND", "TEXT"), rows, width)
        + "\n"
        + verdict
        + line(tr("next: {policy}", policy=policy_after(cause)))
    )

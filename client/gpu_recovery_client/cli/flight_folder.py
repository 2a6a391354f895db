"""Diagnosis of a folder with the dumps of PyTorch's flight recorder, without a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_recovery.core.diagnosis.case import History, Topology
from gpu_recovery.core.diagnosis.diagnose import diagnose
from gpu_recovery.core.diagnosis.observation_codec import from_json
from gpu_recovery.core.diagnosis.report_text import Language, as_document, report_text

from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.flight_recorder.dump import Dump, read_dump
from gpu_recovery_client.flight_recorder.dump_files import dump_files, read_file
from gpu_recovery_client.flight_recorder.pickled import Unreadable
from gpu_recovery_client.flight_recorder.rank_text import rank_text
from gpu_recovery_client.flight_recorder.reports import reports
from gpu_recovery_client.texts import tr

AT_S = 0.0
"""Time of all records. A copied file has lost the time of its dump, so all dumps count as dumps of one hang."""


def diagnose_folder(folder: Path) -> dict[str, Any]:
    """Return the diagnosis of the dumps in a folder, with what was read.

    Raises:
        ClientError: the folder cannot be read, a rank has two dumps, or no dump can be read.
    """
    dumps, unread = _dumps(folder)
    observations = []
    for rank, dump in dumps.items():
        for number, fields in enumerate(reports(dump, rank)):
            document = {"type": "flight", "id": f"rank-{rank}-{number}", "at_s": AT_S, **fields}
            observations.append(from_json(document))
    known = [observation for observation in observations if observation is not None]
    diagnosis = diagnose(known, Topology(), History(), AT_S)
    world = max((dump.world for dump in dumps.values()), default=0)
    without = [rank for rank in range(world) if rank not in dumps]
    return {
        **as_document(diagnosis),
        "page": {language.value: report_text(diagnosis, language) for language in Language},
        "flight": {
            "dumps": len(dumps),
            "ranks": world or None,
            "without_dump": rank_text(without),
            "versions": sorted({dump.version for dump in dumps.values()}),
            "unread": unread,
        },
    }


def read_sentences(view: dict[str, Any]) -> list[str]:
    """Return what was read and what is missing, one sentence a line."""
    flight = view["flight"]
    if flight["ranks"]:
        lines = [tr("Read: {dumps} dumps of {ranks} ranks", dumps=flight["dumps"], ranks=flight["ranks"])]
    else:
        lines = [tr("Read: {dumps} dumps", dumps=flight["dumps"])]
    if flight["without_dump"]:
        lines.append(tr("Without a dump: rank {ranks}", ranks=flight["without_dump"]))
    return lines + [tr("Not read: {file}: {why}", file=name, why=why) for name, why in flight["unread"].items()]


def _dumps(folder: Path) -> tuple[dict[int, Dump], dict[str, str]]:
    """Return the dumps by rank, and the reason for each file that is no dump."""
    try:
        files = dump_files(folder)
    except OSError as error:
        raise ClientError(f"{folder} cannot be read: {error.strerror or error}") from error
    dumps: dict[int, Dump] = {}
    unread: dict[str, str] = {}
    for rank, paths in files.items():
        for path in paths:
            try:
                dump = read_dump(read_file(path))
            except (OSError, Unreadable) as error:
                unread[path.name] = str(getattr(error, "strerror", None) or error)
                continue
            if rank in dumps:
                names = " and ".join(each.name for each in paths)
                raise ClientError(f"{folder} has two dumps of rank {rank}: {names}")
            dumps[rank] = dump
    if not dumps:
        why = "".join(f"; {name}: {reason}" for name, reason in list(unread.items())[:3])
        raise ClientError(f"{folder} has no dump of a flight recorder: a name ends with the rank, as PyTorch's do{why}")
    return dumps, unread

"""Parses the output of `dcgmi diag -j` into a DiagnosticReport. Pure; never raises.

DCGM publishes no stable schema, so no value is trusted. A value of an unexpected type counts as missing. For text that
is not a diagnostic, `unreadable` of the report says why. Three shapes are known: 3.x ("DCGM GPU Diagnostic", `gpu_id`
or a comma-separated list `gpu_ids`; before 3.3 its warnings have sentences only, see `error_sentences`); 4.x
("DCGM Diagnostic", entities, `test_summary`, `runtime_error`); and the shape of `--iterations`, a list of either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from health_check.error_sentences import error_id_of
from health_check.report import DiagnosticError, DiagnosticReport, DiagnosticResult, Status

BODY_KEYS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
ITERATIONS = "iterations"
GPU_ENTITY = "gpu"
GPUS_MAX = 1_024
TEXT_MAX = 500
STARTS_MAX = 100


def parse(text: str) -> DiagnosticReport:
    """Return the report of a diagnostic's standard output, which may include banner lines."""
    root = _json_object(text)
    if root is None:
        return DiagnosticReport(unreadable="there is no complete JSON object in the output of dcgmi")
    pairs = _bodies(root)
    if not pairs:
        return DiagnosticReport(unreadable="the JSON of dcgmi holds no diagnostic")
    bodies = [body for body, _ in pairs]
    results = tuple(result for body in bodies for result in _results(body))
    seen = frozenset(gpu for result in results for gpu in result.gpus or ())
    listed = [_listed_gpus(body, document) for body, document in pairs]
    counts = [count for count, _ in listed if count is not None]
    return DiagnosticReport(
        dcgm_version=_first(_text(holder.get("version")) for holder in _holders(pairs)),
        driver_version=_first(_text(holder.get("Driver Version Detected")) for holder in _holders(pairs)),
        gpus=seen.union(*(gpus for _, gpus in listed)),
        gpu_count=max(*counts, len(seen)) if counts else None,
        results=results,
        runtime_error=_first(_text(body.get("runtime_error")) for body in bodies),
    )


def _json_object(text: str) -> dict[str, Any] | None:
    """Return the first complete JSON object that begins at the start of a line.

    An object elsewhere may be a complete part of a truncated document, and would give an incomplete report.
    """
    decoder = json.JSONDecoder()
    for start in islice(re.finditer(r"^\{", text, re.MULTILINE), STARTS_MAX):
        try:
            value, _ = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue  # a banner with a brace, a truncated document, or nesting too deep for a diagnostic
        return value if isinstance(value, dict) else None
    return None


def _bodies(root: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return (body, document around it) of every diagnostic in the output: one, or one per iteration."""
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    level = [root]
    for _ in range(2):
        inner: list[Any] = []
        for document in level:
            named = [document[key] for key in BODY_KEYS if isinstance(document.get(key), dict)]
            bare = [document] if {"test_categories", "runtime_error"} & document.keys() else []
            pairs += [(body, document) for body in named + bare if not isinstance(body.get(ITERATIONS), list)]
            inner += [item for holder in [document, *named] for item in _list(holder.get(ITERATIONS))]
        level = [item for item in inner if isinstance(item, dict)]
    return pairs


def _holders(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Yield the objects that may hold the versions: the body (3.x) and the metadata beside it (4.x)."""
    for body, document in pairs:
        yield _dict(document.get("metadata"))
        yield body


def _results(body: dict[str, Any]) -> Iterator[DiagnosticResult]:
    for category in map(_dict, _list(body.get("test_categories"))):
        for test in map(_dict, _list(category.get("tests"))):
            names = (_text(test.get("name")) or "unnamed", _text(category.get("category")) or "")
            results = [_result(*names, _dict(item)) for item in _list(test.get("results"))]
            yield from results
            summary = _result(*names, _dict(test.get("test_summary")))
            # A summary repeats its results. It counts only if it has a complaint that they lack.
            listed = {error for result in results for error in result.errors}
            repeats = any(result.failed for result in results) and not set(summary.errors) - listed
            if summary.failed and not repeats:
                yield summary


def _result(test: str, category: str, item: dict[str, Any]) -> DiagnosticResult:
    word = (_text(item.get("status")) or "").casefold()
    return DiagnosticResult(
        test=test,
        category=category,
        gpus=_gpus(item),
        status=Status(word) if word in set(Status) else Status.UNKNOWN,
        errors=tuple(_errors(item.get("warnings"))),
        info=_joined(item.get("info")),
    )


def _gpus(item: dict[str, Any]) -> tuple[int, ...] | None:
    entity_group = _text(item.get("entity_group"))
    if entity_group is not None:
        index = _whole(item.get("entity_id"), most=GPUS_MAX)
        return () if entity_group.casefold() != GPU_ENTITY or index is None else (index,)
    value = item.get("gpu_id", item.get("gpu_ids"))
    parts = value.split(",") if isinstance(value, str) else _list(value) or [value]
    indices = (_whole(part, most=GPUS_MAX) for part in parts[: GPUS_MAX + 1])
    return tuple(sorted({index for index in indices if index is not None})) or None


def _errors(value: Any) -> Iterator[DiagnosticError]:
    for entry in _list(value) or [value]:
        if isinstance(entry, dict):
            message = _joined(entry.get("warning")) or _joined(entry.get("warnings"))
            error_id = _whole(entry.get("error_id"), most=1_000_000)
            severity = _whole(entry.get("error_severity"), most=1_000)
            if error_id is None and severity is None:
                error_id = error_id_of(message)
            if message or error_id is not None or severity is not None:
                yield DiagnosticError(error_id, severity, message)
        elif text := _text(entry):
            yield DiagnosticError(error_id_of(text), None, text)


def _listed_gpus(body: dict[str, Any], document: dict[str, Any]) -> tuple[int | None, frozenset[int]]:
    """Return how many GPUs the diagnostic lists (None if it lists none), and their indices if it gives them."""
    for group in map(_dict, _list(document.get("entity_groups"))):
        if (_text(group.get("entity_group")) or "").casefold() == GPU_ENTITY:
            entities = _list(group.get("entities"))
            indices = (_whole(_dict(item).get("entity_id"), most=GPUS_MAX) for item in entities)
            return len(entities), frozenset(index for index in indices if index is not None)
    serials, devices = body.get("GPU Device Serials"), body.get("GPU Device IDs")
    if not isinstance(serials, dict) and not isinstance(devices, list):
        return None, frozenset()
    keys = [_whole(key, most=GPUS_MAX) for key in _dict(serials)]
    gpus = frozenset(index for index in keys if index is not None)
    return max(len(gpus), len(_list(devices))), gpus


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    """Return one line of at most TEXT_MAX characters; None for a value that is no text."""
    if not isinstance(value, str):
        return None
    return " ".join(value[: 4 * TEXT_MAX].split())[:TEXT_MAX] or None


def _joined(value: Any) -> str:
    """Return a text, or a list of texts as one text: releases differ in which of the two they print."""
    return _text(value) or _text("; ".join(item for item in _list(value) if isinstance(item, str))) or ""


def _whole(value: Any, *, most: int) -> int | None:
    """Return an integer from 0 to `most`, also from a string of digits; None for any other value."""
    if isinstance(value, str):
        digits = value.strip()
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _first(values: Iterator[str | None]) -> str | None:
    return next((value for value in values if value), None)

"""Answers of the job API beside their models: every test that calls the API also checks its description."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from gpu_recovery.job_api.models.base import Problem
from gpu_recovery.job_api.models.responses import RESPONSES
from gpu_recovery.job_api.router import ROUTES
from pydantic import BaseModel


@cache
def _routes() -> list[tuple[str, re.Pattern[str], dict[int, str]]]:
    """Method, path and answers of each route. The longest path comes first, as in the resolver."""
    ordered = sorted(ROUTES, key=lambda route: -route.path.count("/"))
    return [
        (route.method, re.compile(re.sub(r"<\w+>", "(.+)", route.path)), dict(route.answers))
        for route in ordered
        if route.answers
    ]


def _model(method: str, path: str, status: int) -> type[BaseModel] | None:
    for route_method, pattern, answers in _routes():
        if route_method == method and status in answers and pattern.fullmatch(path):
            return RESPONSES[answers[status]]
    return None


def check_answer(method: str, path: str, status: int, body: Any) -> None:
    """Compare an answer with its model: no property is missing, none is unknown, and each has its type."""
    model = Problem if status >= 400 else _model(method, path, status)
    if model is None:
        return
    read = model.model_validate(body).model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert read == body, f"{method} {path} is not described by {model.__name__}"

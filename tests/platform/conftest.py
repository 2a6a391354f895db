"""The undisturbed incident, what disturbs it, and an environment in which botocore does not sleep."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.aws import user_agents  # noqa: F401 - importing it is what it is for
from tests.aws.environment import CREDENTIALS
from tests.platform import incident
from tests.platform.cloud import Sleeps, nobody_sleeps
from tests.platform.incident import Heal, Incident


@pytest.fixture(scope="session")
def undisturbed() -> Incident:
    """The incident on a platform without faults."""
    with pytest.MonkeyPatch.context() as patch:
        return incident.heal(patch)


@pytest.fixture
def heal(monkeypatch: pytest.MonkeyPatch) -> Heal:
    """The incident against a fault."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return partial(incident.heal, monkeypatch)


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sleeps]:
    """A function's environment in which nobody sleeps."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with nobody_sleeps() as noted:
        yield noted

"""Observations for a diagnosis in the job table: one item for each instance, `<job>#a01#reports#<instance>`.

An item is read, extended and written with optimistic locking by revision, and only for a heartbeat with new
observations. The observations are stored as compressed JSON, because DynamoDB charges a write by the kilobyte.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gpu_recovery.aws.attempt_store import DynamoAttemptStore
from gpu_recovery.aws.clients import as_unavailable
from gpu_recovery.aws.item_codec import SCHEMA, TTL, reading
from gpu_recovery.aws.progress_items import progress_key
from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer, added
from gpu_recovery.core.diagnosis.observation_codec import from_json, to_json
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.ports.errors import TryAgainSoon

OBSERVATION_WRITE_ATTEMPTS_MAX = 3
"""Tries to add observations to an item."""


def observations_key(job_id: str, attempt: int, instance_id: str) -> str:
    """Return the key of an attempt's observations on an instance."""
    return f"{progress_key(job_id, attempt)}#reports#{instance_id}"


OBSERVATIONS_TTL_S = 28 * 86_400
"""Seconds after the latest observation until DynamoDB deletes the item: 28 days, as long as the fault history."""


class DynamoObservationStore(DynamoAttemptStore):
    """The observations of the store; see `ports.store.ObservationStore` for the contract of each method."""

    def add_observations(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Observation], lost: int = 0
    ) -> None:
        """Add observations of the attempt's processes on one instance. Known observations are skipped.

        Args:
            job_id: the job.
            attempt: the number of the attempt.
            instance_id: the instance.
            reports: the observations.
            lost: number of observations that were lost before they arrived. Counted only with a new observation.

        Raises:
            TryAgainSoon: other writers changed the item at every try.
        """
        key = observations_key(job_id, attempt, instance_id)
        for _ in range(OBSERVATION_WRITE_ATTEMPTS_MAX):
            item = self.jobs.get(key)
            before, revision = _stored(item) if item else (ObservationBuffer(), 0)
            after = added(before, reports, lost)
            if after is None:
                return
            text = json.dumps([to_json(report) for report in after.reports], separators=(",", ":"), ensure_ascii=False)
            changed = {
                "job_id_rank": key,
                "schema": SCHEMA,
                "revision": revision + 1,
                "lost": after.lost,
                "reports": zlib.compress(text.encode(errors="replace"), 6),
                TTL: int(max(report.at_s for report in after.reports)) + OBSERVATIONS_TTL_S,
            }
            condition = "revision = :read" if item else "attribute_not_exists(job_id_rank)"
            if self.jobs.put(changed, condition, {":read": revision} if item else {}):
                return
        raise TryAgainSoon(f"the reports of {key} were written {OBSERVATION_WRITE_ATTEMPTS_MAX} times meanwhile")

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        """Return the stored observations by instance id, consistently read. Instances without any are left out."""
        keys = {observations_key(job_id, attempt, instance_id): instance_id for instance_id in instance_ids}
        return {keys[key]: _stored(item)[0] for key, item in self.jobs.get_all(list(keys)).items()}

    def reading_for_figures(self) -> AbstractContextManager[None]:
        """Raise Unavailable for each read inside that AWS did not answer, throttled or refused."""
        return as_unavailable("the job table")


def _stored(item: Mapping[str, Any]) -> tuple[ObservationBuffer, int]:
    """Return the observations of an item and its revision. Observations of an unknown kind are left out."""
    with reading(f"reports {item['job_id_rank']}", item, "revision", "reports"):
        try:
            documents = json.loads(zlib.decompress(bytes(item["reports"])))
        except zlib.error as error:
            raise ValueError(f"its reports cannot be unpacked: {error}") from error
        reports = tuple(report for report in map(from_json, documents) if report is not None)
        return ObservationBuffer(reports, int(item.get("lost", 0))), int(item["revision"])

"""What trainings tell for a diagnosis, beside their attempt: `<job>#a01#reports#<instance>`, one item for an instance.

It is read, added to and written under its revision, and only for a heartbeat that brings something. The reports lie in
it as JSON, compressed: a write costs by the kilobyte.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_recovery.aws.attempt_store import DynamoAttemptStore, progress_key
from gpu_recovery.aws.item_codec import SCHEMA, TTL, reading
from gpu_recovery.core.diagnosis.observation_buffer import ObservationBuffer, added
from gpu_recovery.core.diagnosis.observation_codec import from_json, to_json
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.ports.errors import TryAgainSoon

OBSERVATION_WRITE_ATTEMPTS_MAX = 3


def observations_key(job_id: str, attempt: int, instance_id: str) -> str:
    """The key of what was told of an attempt on an instance."""
    return f"{progress_key(job_id, attempt)}#reports#{instance_id}"


OBSERVATIONS_TTL_S = 28 * 86_400
"""DynamoDB takes them away four weeks after the last was told: as long as the history of a machine reaches."""


class DynamoObservationStore(DynamoAttemptStore):
    """The part of the store that keeps reports for diagnoses; see `ports.Store` for what each function promises."""

    def add_observations(
        self, job_id: str, attempt: int, instance_id: str, reports: Sequence[Observation], lost: int = 0
    ) -> None:
        key = observations_key(job_id, attempt, instance_id)
        for _ in range(OBSERVATION_WRITE_ATTEMPTS_MAX):
            item = self.jobs.get(key)
            before, read = _stored(item) if item else (ObservationBuffer(), 0)
            after = added(before, reports, lost)
            if after is None:
                return
            told = json.dumps([to_json(one) for one in after.reports], separators=(",", ":"), ensure_ascii=False)
            written = {
                "job_id_rank": key,
                "schema": SCHEMA,
                "revision": read + 1,
                "lost": after.lost,
                "reports": zlib.compress(told.encode(errors="replace"), 6),
                TTL: int(max(one.at_s for one in after.reports)) + OBSERVATIONS_TTL_S,
            }
            condition = "revision = :read" if item else "attribute_not_exists(job_id_rank)"
            if self.jobs.put(written, condition, {":read": read} if item else {}):
                return
        raise TryAgainSoon(f"the reports of {key} were written {OBSERVATION_WRITE_ATTEMPTS_MAX} times meanwhile")

    def observations_of(
        self, job_id: str, attempt: int, instance_ids: Sequence[str]
    ) -> Mapping[str, ObservationBuffer]:
        keys = {observations_key(job_id, attempt, one): one for one in instance_ids}
        return {keys[key]: _stored(item)[0] for key, item in self.jobs.get_all(list(keys)).items()}


def _stored(item: Mapping[str, Any]) -> tuple[ObservationBuffer, int]:
    """What is kept, and its revision. Reports of a kind that this release does not know are passed over."""
    with reading(f"reports {item['job_id_rank']}", item, "revision", "reports"):
        try:
            told = json.loads(zlib.decompress(bytes(item["reports"])))
        except zlib.error as error:
            raise ValueError(f"its reports cannot be unpacked: {error}") from error
        found = tuple(one for one in map(from_json, told) if one is not None)
        return ObservationBuffer(found, int(item.get("lost", 0))), int(item["revision"])

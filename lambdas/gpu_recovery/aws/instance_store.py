"""Instance records in the table of seed 001 (`ecs_container_instance`), keyed by EC2 instance id.

Container instance ids are aliases: small items of their own that point at the instance. The fleet's brakes are one more
item, because an instance joins and leaves them in the transaction that begins or ends its repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.aws.dynamodb import Put
from gpu_recovery.aws.item_codec import decode, encode, item_of, readable, reading
from gpu_recovery.aws.pending_commands import RecordTable, commands_list, commands_map, due_keys
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Claim, EcsStatus, Instance, InstanceStatus
from gpu_recovery.ports.errors import StaleRecord

FLEET = "fleet"
"""The key of the fleet's brakes: EC2 and ECS never give such an id."""
CLAIM_ATTEMPTS_MAX = 5
LEFT = "gpus_left"
"""How many GPUs no claim holds: kept beside the claims, because a condition can compare but not add up."""


def instance_in(item: Mapping[str, Any] | None) -> Instance | None:
    """The instance that an item holds; None if it holds none. Raises ItemUnreadable."""
    return _instance(item) if item is not None and "status" in item else None


class DynamoInstanceStore:
    """The part of the store that keeps instances; see `ports.Store` for what each function promises."""

    def __init__(self, client: Any, table_name: str) -> None:
        self.table = RecordTable(client, table_name, "container_inst_id")

    def load_instance(self, instance_id: str) -> Instance | None:
        return instance_in(self.table.get(instance_id))

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        saved = replace(instance, revision=instance.revision + 1)
        puts = [_put(_item(saved), instance.revision)]
        read = f"instance {instance.instance_id} was written since revision {instance.revision}"
        if fleet is not None:
            puts.append(_put(_fleet_item(fleet), fleet.revision))
            read = f"{read}, or the fleet since revision {fleet.revision}"
        if not self.table.put_all(puts):
            raise StaleRecord(read)
        return saved

    def load_fleet(self) -> Fleet:
        item = self.table.get(FLEET)
        if item is None:
            return Fleet()
        with reading("the fleet's brakes", item):
            fleet: Fleet = decode(Fleet, item)
            return fleet

    def save_fleet(self, fleet: Fleet) -> Fleet:
        if not self.table.put_all([_put(_fleet_item(fleet), fleet.revision)]):
            raise StaleRecord(f"the fleet's brakes were written since revision {fleet.revision}")
        return replace(fleet, revision=fleet.revision + 1)

    def remember_registration(self, instance: Instance) -> None:
        alias = {"container_inst_id": instance.container_instance_id, "instance_id": instance.instance_id}
        self.table.put(alias, "attribute_not_exists(container_inst_id)")

    def remove_finished_instance_commands(
        self, instance: Instance, done: Sequence[str], deferred: Mapping[str, datetime]
    ) -> None:
        self.table.remove_finished(instance.instance_id, instance, done, deferred)

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        found = self.table.get_all(list(dict.fromkeys(instance_ids)))
        read = readable(_instance, (item for item in found.values() if "status" in item), [])
        return {instance.instance_id: instance for instance in read}

    def claim_instance(self, instance_id: str, job_id: str, claim: Claim, epoch: int | None) -> bool:
        if epoch is None:
            return self._claim_for_operator(instance_id, job_id, claim)
        names = {"#c": "claims", "#j": job_id, "#rev": "revision", "#left": LEFT, "#s": "status"}
        values: dict[str, Any] = {
            ":c": encode(claim),
            ":one": 1,
            ":nobody": "",
            ":g": claim.gpus,
            ":epoch": epoch,
            ":job": job_id,
            ":available": InstanceStatus.AVAILABLE,
            ":active": EcsStatus.ACTIVE,
            ":none": {},
        }
        change = "SET #c.#j = :c, reserved_for = :nobody, #rev = #rev + :one, #left = if_not_exists(#left, gpus) - :g"
        free = (
            "#s = :available AND ecs_status = :active AND epoch = :epoch"
            " AND (reserved_for = :nobody OR reserved_for = :job) AND attribute_not_exists(#c.#j)"
            " AND (#left >= :g OR (attribute_not_exists(#left) AND #c = :none))"
        )
        if self.table.update(instance_id, change, free, names, encode(values)) is not None:
            return True
        return self._has_claim(instance_id, job_id, claim, epoch)

    def _claim_for_operator(self, instance_id: str, job_id: str, claim: Claim) -> bool:
        """Whatever is left: they hold the GPUs already. Their next claim takes the place of the last."""
        for _ in range(CLAIM_ATTEMPTS_MAX):
            instance = self.load_instances([instance_id]).get(instance_id)
            if instance is None:
                return False
            before = instance.claims.get(job_id)
            names = {"#c": "claims", "#j": job_id, "#rev": "revision", "#left": LEFT}
            left = instance.gpus_unclaimed - claim.gpus + (before.gpus if before is not None else 0)
            values: dict[str, Any] = {
                ":c": encode(claim),
                ":one": 1,
                ":nobody": "",
                ":left": left,
                ":read": instance.revision,
            }
            change = "SET #c.#j = :c, reserved_for = :nobody, #rev = #rev + :one, #left = :left"
            if self.table.update(instance_id, change, "#rev = :read", names, values) is not None:
                return True
        raise StaleRecord(f"instance {instance_id} was written {CLAIM_ATTEMPTS_MAX} times while it was to be claimed")

    def _has_claim(self, instance_id: str, job_id: str, claim: Claim, epoch: int) -> bool:
        """Whether an earlier try of the same claim was heard, and the instance is still as it must be for it."""
        instance = self.load_instances([instance_id]).get(instance_id)
        return (
            instance is not None
            and instance.claims.get(job_id) == claim
            and instance.status is InstanceStatus.AVAILABLE
            and instance.ecs_status == EcsStatus.ACTIVE
            and instance.epoch == epoch
            and instance.reserved_for in ("", job_id)
        )

    def release_instance(
        self,
        instance_id: str,
        job_id: str,
        keep_claim: bool,
        attempt: int | None = None,
        left_out_at: datetime | None = None,
    ) -> None:
        names = {"#rev": "revision", "#c": "claims", "#j": job_id}
        values: dict[str, Any] = {":one": 1}
        if not keep_claim:
            names["#left"] = LEFT
            claimed = "attribute_exists(#c.#j)"
            if attempt is not None:
                names["#a"], values[":a"] = "attempt", attempt
                claimed += " AND #c.#j.#a <= :a"
            noted = ""
            if left_out_at is not None:
                values[":seen"] = [encode(signal_at(left_out_at, LemonSignal.LEFT_OUT))]
                names["#past"], values[":nothing"] = "past", []
                noted = ", #past = list_append(if_not_exists(#past, :nothing), :seen)"
            change = f"SET #rev = #rev + :one, #left = #left + #c.#j.gpus{noted} REMOVE #c.#j"
            counted = self.table.update(instance_id, change, f"{claimed} AND attribute_exists(#left)", names, values)
            if counted is None:  # nothing to give back, or an item of a release that did not count
                change, uncounted = f"SET #rev = #rev + :one{noted} REMOVE #c.#j", "attribute_not_exists(#left)"
                self.table.update(instance_id, change, f"{claimed} AND {uncounted}", names, values)
        names = {"#rev": "revision"}
        values = {":one": 1, ":nobody": "", ":job": job_id}
        change = "SET #rev = #rev + :one, reserved_for = :nobody"
        self.table.update(instance_id, change, "reserved_for = :job", names, values)

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None = None
    ) -> tuple[Instance, ...]:
        names = {"#s": "status"}
        items = (
            item
            for status in statuses
            for item in self.table.query("by_status", "#s = :s", names, {":s": status.value})
        )
        found = readable(_instance, items, unreadable)
        return tuple({instance.instance_id: instance for instance in found}.values())

    def instance_of(self, container_instance_id: str) -> str | None:
        item = self.table.get(container_instance_id)
        return item.get("instance_id") if item else None

    def due_instances(self, now: datetime) -> Iterable[str]:
        return self.table.due(now)


def _put(item: Mapping[str, Any], read: int) -> Put:
    """The write of a whole record that was read at revision `read`; 0 says that it did not exist."""
    if read == 0:
        return Put(item, "attribute_not_exists(container_inst_id)")
    return Put(item, "revision = :read", {":read": read})


def _fleet_item(fleet: Fleet) -> dict[str, Any]:
    return {**item_of(replace(fleet, revision=fleet.revision + 1)), "container_inst_id": FLEET}


def _item(instance: Instance) -> dict[str, Any]:
    item = item_of(instance)
    item["commands"] = commands_map(instance.commands)
    due = due_keys(instance.instance_id, instance.deadline_at, instance.look_at, instance.commands)
    item[LEFT] = instance.gpus_unclaimed
    return {**item, "container_inst_id": instance.instance_id, **due}


def _instance(item: Mapping[str, Any]) -> Instance:
    with reading(f"instance {item['container_inst_id']}", item, "commands"):
        instance: Instance = decode(Instance, {**item, "commands": []})
        return replace(instance, commands=commands_list(item["commands"]))

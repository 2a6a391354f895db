"""Instance records in the instance table (`ecs_container_instance`), keyed by EC2 instance id.

An ECS container instance id is an alias: a small item of its own that holds the EC2 instance id. The fleet record is an
item of the same table, because the transaction that begins or ends a repair writes both the instance and the fleet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpu_recovery.aws.dynamodb import Put
from gpu_recovery.aws.instance_index import InstanceIndex, listing_keys
from gpu_recovery.aws.item_codec import decode, encode, item_of, readable, reading
from gpu_recovery.aws.pending_commands import RecordTable, commands_list, commands_map, due_keys
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Claim, EcsStatus, Instance, InstanceStatus, ListedInstance
from gpu_recovery.ports.errors import StaleRecord
from gpu_recovery.ports.values import InstancePage, RefusedCheck, StartedCheck

FLEET = "fleet"
"""Key of the fleet record. EC2 and ECS never issue such an id."""
CLAIM_ATTEMPTS_MAX = 5
"""Tries to add the claim of an adopted rank."""
LEFT = "gpus_left"
"""Attribute with the number of unclaimed GPUs. A DynamoDB condition can compare numbers, but cannot add up claims."""


def instance_in(item: Mapping[str, Any] | None) -> Instance | None:
    """Return the instance that an item holds; None if there is no item, or if it holds no instance.

    Raises:
        ItemUnreadable: the item is malformed, or a newer release wrote it.
    """
    return _instance(item) if item is not None and "status" in item else None


class DynamoInstanceStore:
    """The instances and the fleet record of the store.

    See `ports.store.InstanceStore` and `FleetStore` for the contract of each method.
    """

    def __init__(self, client: Any, table_name: str) -> None:
        self.table = RecordTable(client, table_name, "container_inst_id")
        self.index = InstanceIndex(self.table)

    def load_instance(self, instance_id: str) -> Instance | None:
        """Return the record of an instance, consistently read; None if there is none."""
        return instance_in(self.table.get(instance_id))

    def save_instance(self, instance: Instance, fleet: Fleet | None = None) -> Instance:
        """Save the instance, and a changed fleet record in the same transaction. Return the instance as it is stored.

        Raises:
            StaleRecord: another writer saved the instance, or the fleet record, since it was read.
        """
        saved = replace(instance, revision=instance.revision + 1)
        puts = [_put(instance_item(saved), instance.revision)]
        reason = f"instance {instance.instance_id} was written since revision {instance.revision}"
        if fleet is not None:
            puts.append(_put(_fleet_item(fleet), fleet.revision))
            reason = f"{reason}, or the fleet since revision {fleet.revision}"
        if not self.table.put_all(puts):
            raise StaleRecord(reason)
        return saved

    def load_fleet(self) -> Fleet:
        """Return the fleet record, consistently read; an empty record if none is stored."""
        item = self.table.get(FLEET)
        if item is None:
            return Fleet()
        with reading("the fleet limits", item):
            fleet: Fleet = decode(Fleet, item)
            return fleet

    def save_fleet(self, fleet: Fleet) -> Fleet:
        """Save the fleet record and return it as it is stored. Raises StaleRecord."""
        if not self.table.put_all([_put(_fleet_item(fleet), fleet.revision)]):
            raise StaleRecord(f"the fleet limits were written since revision {fleet.revision}")
        return replace(fleet, revision=fleet.revision + 1)

    def remember_registration(self, instance: Instance) -> None:
        """Store the alias from the container instance id to the EC2 instance id, unless it exists."""
        alias = {"container_inst_id": instance.container_instance_id, "instance_id": instance.instance_id}
        self.table.put(alias, "attribute_not_exists(container_inst_id)")

    def remove_finished_instance_commands(
        self,
        instance: Instance,
        done: Sequence[str],
        deferred: Mapping[str, datetime],
        check_request: StartedCheck | RefusedCheck | None = None,
    ) -> None:
        """Remove finished commands from the stored instance, defer others, and record the answer about a check."""
        self.table.remove_finished(instance.instance_id, instance, done, deferred, check_request)

    def load_instances(self, instance_ids: Sequence[str]) -> Mapping[str, Instance]:
        """Return these instances by id, consistently read. Missing and unreadable records are left out."""
        items = self.table.get_all(list(dict.fromkeys(instance_ids)))
        instances = readable(_instance, (item for item in items.values() if "status" in item), [])
        return {instance.instance_id: instance for instance in instances}

    def claim_instance(self, instance_id: str, job_id: str, claim: Claim, epoch: int | None, replaces: int = 0) -> bool:
        """Add the claim of an attempt to an instance. Repeating the same claim succeeds and changes nothing.

        Args:
            instance_id: the instance.
            job_id: the job that claims GPUs.
            claim: the claim.
            epoch: the epoch at which the instance was placed; None for an adopted rank, which holds its GPUs already.
            replaces: an earlier attempt of the job, whose claim becomes the claim of this attempt; 0 for none.

        Returns:
            False if the claim was refused.

        Raises:
            StaleRecord: only without `epoch`, if other writers saved the instance at every try.
        """
        if epoch is None:
            return self._claim_adopted(instance_id, job_id, claim)
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
        usable = "#s = :available AND ecs_status = :active AND epoch = :epoch"
        usable += " AND (reserved_for = :nobody OR reserved_for = :job)"
        if replaces and self._replace_claim(instance_id, usable, replaces, names, values):
            return True
        change = "SET #c.#j = :c, reserved_for = :nobody, #rev = #rev + :one, #left = if_not_exists(#left, gpus) - :g"
        free = (
            f"{usable} AND attribute_not_exists(#c.#j)"
            " AND (#left >= :g OR (attribute_not_exists(#left) AND #c = :none))"
        )
        if self.table.update(instance_id, change, free, names, encode(values)) is not None:
            return True
        return self._has_claim(instance_id, job_id, claim, epoch)

    def _replace_claim(
        self, instance_id: str, usable: str, replaces: int, names: Mapping[str, str], values: Mapping[str, Any]
    ) -> bool:
        """Turn the claim of the attempt `replaces` into the new claim. The number of unclaimed GPUs stays."""
        used = {name: place for name, place in names.items() if name != "#left"} | {"#a": "attempt", "#g": "gpus"}
        given = {name: value for name, value in values.items() if name != ":none"} | {":before": replaces}
        same = f"{usable} AND #c.#j.#a = :before AND #c.#j.#g = :g"
        change = "SET #c.#j = :c, reserved_for = :nobody, #rev = #rev + :one"
        return self.table.update(instance_id, change, same, used, encode(given)) is not None

    def _claim_adopted(self, instance_id: str, job_id: str, claim: Claim) -> bool:
        """Add the claim of an adopted rank in place of an earlier claim of the job, even without unclaimed GPUs."""
        for _ in range(CLAIM_ATTEMPTS_MAX):
            instance = self.load_instances([instance_id]).get(instance_id)
            if instance is None:
                return False
            before = instance.claims.get(job_id)
            if before == claim:
                return True
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
        """Return whether an earlier try added the same claim, and the instance still meets its conditions."""
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
        """Remove the job's reservation from the instance and, unless `keep_claim`, its claim.

        Args:
            instance_id: the instance.
            job_id: the job.
            keep_claim: whether the claim stays.
            attempt: the attempt that ends. The claim of a later attempt stays.
            left_out_at: when the job left the instance out of its next launch. The time is added to the fault history.
        """
        names = {"#rev": "revision", "#c": "claims", "#j": job_id}
        values: dict[str, Any] = {":one": 1}
        if not keep_claim:
            names["#left"] = LEFT
            claimed = "attribute_exists(#c.#j)"
            if attempt is not None:
                names["#a"], values[":a"] = "attempt", attempt
                claimed += " AND #c.#j.#a <= :a"
            history = ""
            if left_out_at is not None:
                values[":seen"] = [encode(signal_at(left_out_at, LemonSignal.LEFT_OUT))]
                names["#past"], values[":nothing"] = "past", []
                history = ", #past = list_append(if_not_exists(#past, :nothing), :seen)"
            change = f"SET #rev = #rev + :one, #left = #left + #c.#j.gpus{history} REMOVE #c.#j"
            counted = self.table.update(instance_id, change, f"{claimed} AND attribute_exists(#left)", names, values)
            if counted is None:  # no claim to release, or an item of an older release without the attribute LEFT
                change, uncounted = f"SET #rev = #rev + :one{history} REMOVE #c.#j", "attribute_not_exists(#left)"
                self.table.update(instance_id, change, f"{claimed} AND {uncounted}", names, values)
        names = {"#rev": "revision"}
        values = {":one": 1, ":nobody": "", ":job": job_id}
        change = "SET #rev = #rev + :one, reserved_for = :nobody"
        self.table.update(instance_id, change, "reserved_for = :job", names, values)

    def instances_in(
        self, statuses: Sequence[InstanceStatus], unreadable: list[Exception] | None = None
    ) -> tuple[ListedInstance, ...]:
        """Return every instance in one of `statuses`, GONE excepted. The index may lag behind the latest writes."""
        return self.index.instances_in(statuses, unreadable)

    def list_instances(
        self, limit: int, cursor: str | None, unreadable: list[Exception] | None = None, prefix: str = ""
    ) -> InstancePage:
        """Return a page of at most `limit` present instances with ids that begin with `prefix`, in the order of ids."""
        return self.index.page(limit, cursor, unreadable, prefix)

    def complete_listing(self, now: datetime) -> None:
        """Add records that an older release wrote to the listing."""
        self.index.complete(now)

    def add_to_listing(self, instance_ids: Sequence[str]) -> None:
        """Add those of these instances to the listing that have a record without it."""
        self.index.add(instance_ids)

    def instance_of(self, container_instance_id: str) -> str | None:
        """Return the EC2 instance id behind a container instance id; None if no alias is stored."""
        item = self.table.get(container_instance_id)
        return item.get("instance_id") if item else None

    def due_instances(self, now: datetime) -> Iterable[str]:
        """Return the ids of instances with a deadline, a poll time or an end of a command lease at or before `now`."""
        return self.table.due(now)


def _put(item: Mapping[str, Any], revision: int) -> Put:
    """Return the write of a whole record that was read at `revision`; 0 means that no record may exist."""
    if revision == 0:
        return Put(item, "attribute_not_exists(container_inst_id)")
    return Put(item, "revision = :read", {":read": revision})


def _fleet_item(fleet: Fleet) -> dict[str, Any]:
    return {**item_of(replace(fleet, revision=fleet.revision + 1)), "container_inst_id": FLEET}


def instance_item(instance: Instance) -> dict[str, Any]:
    """Return the item of an instance, with its key and its index entries, as plain values."""
    item = item_of(instance)
    item["commands"] = commands_map(instance.commands)
    due = due_keys(instance.instance_id, instance.deadline_at, instance.look_at, instance.commands)
    item[LEFT] = instance.gpus_unclaimed
    return {**item, "container_inst_id": instance.instance_id, **due, **listing_keys(instance)}


def _instance(item: Mapping[str, Any]) -> Instance:
    with reading(f"instance {item['container_inst_id']}", item, "commands"):
        instance: Instance = decode(Instance, {**item, "commands": []})
        return replace(instance, commands=commands_list(item["commands"]))

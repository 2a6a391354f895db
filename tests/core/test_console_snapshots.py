"""The fleet map says what the records say: every column is decoded and compared with the instances."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.core.console_snapshots import STATUSES, MapFlag, map_document, members_document, totals
from gpu_recovery.core.gpu_utilisation import utilisation_text
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus
from gpu_recovery.core.instance.record import (
    Claim,
    HealthReport,
    InstanceStatus,
    Interruption,
    ListedInstance,
    RepairHold,
)
from hypothesis import given
from hypothesis import strategies as st

AT = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
LEAVES = Interruption(DepartureKind.INTERRUPTION, "spot", AT, "Spot takes it back")
IMPAIRED = HealthReport(HealthStatus.IMPAIRED, AT, "XID 79")


def column(text: str, kind: str) -> list[int]:
    """The numbers of a column, read as a client reads them."""
    raw = base64.b64decode(text)
    return [value for (value,) in struct.iter_unpack(f"<{kind}", raw)]


@st.composite
def fleets(draw: st.DrawFn) -> list[ListedInstance]:
    """A fleet of up to 30 instances in two zones."""

    def one(number: int) -> ListedInstance:
        gpus = draw(st.sampled_from([0, 1, 8]))
        claims = {job: Claim(1, 1) for job in draw(st.sets(st.sampled_from(["a", "b", "c"]), max_size=min(2, gpus)))}
        return ListedInstance(
            f"i-{number:03x}",
            AT + timedelta(seconds=draw(st.integers(0, 10**6))),
            draw(st.sampled_from(InstanceStatus)),
            gpus=gpus,
            availability_zone=draw(st.sampled_from(["", "a", "b"])),
            rack=draw(st.sampled_from(["", "1", "2"])),
            group=draw(st.sampled_from(["", "a100"])),
            claims=claims,
            reserved_for=draw(st.sampled_from(["", "a"])),
            silent_since=draw(st.none() | st.just(AT)),
            held=draw(st.none() | st.just(RepairHold(AT, "the budget"))),
            departure=draw(st.none() | st.just(LEAVES)),
            health=draw(
                st.sampled_from(
                    [{}, {HealthKind.NODE_AGENT: IMPAIRED}, {HealthKind.NODE_AGENT: replace(IMPAIRED, cleared=True)}]
                )
            ),
            agent_connected=draw(st.booleans()),
        )

    return [one(number) for number in draw(st.permutations(range(draw(st.integers(0, 30)))))]


PERCENTAGES = st.lists(st.none() | st.integers(0, 100), max_size=10)


@given(fleets(), st.lists(PERCENTAGES, min_size=30, max_size=30))
def test_the_map_has_the_utilisation_of_each_gpu(fleet: list[ListedInstance], drawn: list[list[int | None]]) -> None:
    """In steps of ten percent, rounded up, so that only an idle GPU is 0. 255 is unknown."""
    reported = {one.instance_id: values for one, values in zip(fleet, drawn, strict=False)}
    texts = {name: utilisation_text(values) for name, values in reported.items()}
    members = members_document(fleet)
    shown = column(map_document(fleet, members["members"], texts)["utilisation"], "B")
    assert len(shown) == 8 * len(fleet)
    for at, name in enumerate(members["ids"]):
        for gpu, value in enumerate(shown[8 * at : 8 * at + 8]):
            percent = reported[name][gpu] if gpu < len(reported[name]) else None
            if percent is None:
                assert value == 255
            else:
                assert value % 10 == 0 and percent <= value < percent + 10


def test_a_utilisation_in_another_form_is_unknown() -> None:
    """A newer release may write it so; the rest of the map is shown."""
    shown = map_document([ListedInstance("i-1", AT)], "", {"i-1": "97 %"})
    assert column(shown["utilisation"], "B") == [255] * 8


@given(fleets())
def test_the_map_decodes_to_what_the_records_say(fleet: list[ListedInstance]) -> None:
    """By position, through JSON, as the browser reads it."""
    members: dict[str, Any] = json.loads(json.dumps(members_document(fleet)))
    assert_decodes(json.loads(json.dumps(map_document(fleet, members["members"]))), members, fleet)


def assert_decodes(shown: Mapping[str, Any], members: Mapping[str, Any], fleet: Iterable[ListedInstance]) -> None:
    """Each column of a map and of its members says what the records say."""
    records = {one.instance_id: one for one in fleet}
    assert sorted(members["ids"]) == sorted(records) and shown["members"] == members["members"]
    status, flags, job = (column(shown[name], kind) for name, kind in (("status", "B"), ("flags", "B"), ("job", "H")))
    status_at, gpus = column(shown["status_at"], "I"), column(members["gpus"], "B")
    places = {name: column(members[name], "H") for name in ("group", "zone", "rack")}
    for at, instance_id in enumerate(members["ids"]):
        record = records[instance_id]
        assert shown["statuses"][status[at]] == record.status.value and gpus[at] == record.gpus
        assert status_at[at] == int(record.status_at.timestamp())
        assert (shown["jobs"][job[at] - 1] if job[at] else "") == min(record.claims, default="")
        assert bool(flags[at] & MapFlag.SILENT) == (record.silent_since is not None)
        assert bool(flags[at] & MapFlag.HELD) == (record.held is not None and record.status == "QUARANTINED")
        impaired = any(
            report.status is HealthStatus.IMPAIRED and not report.cleared for report in record.health.values()
        )
        assert bool(flags[at] & MapFlag.SUSPECTED) == (impaired or bool(record.orphaned_ranks))
        assert bool(flags[at] & MapFlag.LEAVING) == (record.departure is not None)
        assert bool(flags[at] & MapFlag.RESERVED) == bool(record.reserved_for)
        assert bool(flags[at] & MapFlag.UNPLACEABLE) == (record.drained_by_others or not record.agent_connected)
        assert members["zones"][places["zone"][at]] == record.availability_zone
        assert members["racks"][places["rack"][at]] == record.rack
        assert members["groups"][places["group"][at]] == record.group


@given(fleets())
def test_the_totals_count_each_instance_and_each_gpu_once(fleet: list[ListedInstance]) -> None:
    """In use, free and out of use make up all GPUs."""
    counted = totals(fleet)
    assert counted["instances"] == sum(counted["by_status"].values()) == len(fleet)
    present = [one for one in fleet if one.status is not InstanceStatus.GONE]
    counted = totals(present)
    assert counted["gpus_in_use"] + counted["gpus_free"] + counted["gpus_out_of_use"] == counted["gpus"]


def test_cells_of_a_rack_are_neighbours() -> None:
    """The order is by group, zone and rack, whatever the ids."""
    fleet = [
        ListedInstance(f"i-{n}", AT, availability_zone=zone, rack=rack)
        for n, (zone, rack) in enumerate([("b", "2"), ("a", "1"), ("b", "2"), ("a", "2"), ("a", "1")])
    ]
    assert members_document(fleet)["ids"] == ["i-1", "i-4", "i-3", "i-0", "i-2"]


def test_the_members_change_with_the_membership_alone() -> None:
    """A page that knows the digest need not ask for the ids again."""
    fleet = [ListedInstance("i-1", AT, gpus=8), ListedInstance("i-2", AT, gpus=8)]
    known = members_document(fleet)["members"]
    moved = [replace(fleet[1], status=InstanceStatus.CHECKING, claims={"a": Claim(1, 8)}), fleet[0]]
    assert members_document(moved)["members"] == known
    assert members_document(fleet[:1])["members"] != known
    assert members_document([replace(fleet[0], rack="2"), fleet[1]])["members"] != known


def test_a_gpu_that_ecs_no_longer_registers_is_still_shown() -> None:
    """An instance that registers 7 of 8 GPUs has lost one; the page must not call it whole."""
    assert column(members_document([ListedInstance("i-1", AT, gpus=7, gpus_most=8)])["gpus"], "B") == [8]


def test_statuses_fit_into_a_byte_and_keep_their_numbers_in_the_document() -> None:
    """A later release may add statuses; clients read the names from the document."""
    document = map_document([], "")
    assert document["statuses"] == [status.value for status in STATUSES] and len(STATUSES) < 256

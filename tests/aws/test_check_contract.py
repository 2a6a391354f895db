"""Whatever the control plane sends a health check, the check can read: the request against the real reader."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from gpu_recovery.aws.ecs_requests import FOCUS_MAX, CheckTask, check_request
from gpu_recovery.core.identifiers import gpu_name
from gpu_recovery.core.instance.record import CheckRun
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.xid import NAMED_XID
from hypothesis import example, given
from hypothesis import strategies as st

from health_check import settings as health_check
from tests.aws.environment import CHECK_TASK, CLUSTER
from tests.aws.records import A, instance
from tests.aws.test_ecs_requests import environment_of

CHECK = f"check/{A}/7"
HEX = st.text("0123456789abcdefABCDEF", min_size=1, max_size=9)
NAMES = st.one_of(
    st.text(max_size=30),
    st.text("0123456789:.-PCIGUabcdef \n", max_size=20),
    st.integers(-1, 1_200).map(str),
    st.uuids().map(lambda one: f"GPU-{one}"),
    st.uuids().map(lambda one: f"MIG-{one}"),
    st.tuples(HEX, st.sampled_from(["10", "FF", "1"]), st.sampled_from(["00", "1f"])).map(":".join),
)
"""Whatever may stand as the name of a GPU in a report: an agent's, a training's, or half of a sentence."""


@given(
    focus=st.lists(NAMES, max_size=80).map(tuple),
    since=st.none() | st.datetimes(timezones=st.just(UTC)),
    level=st.integers(1, 4),
    timeout_s=st.integers(1, 10**9),
    gpus=st.integers(0, 1_024),
    passive=st.booleans(),
)
@example(("0000:10:00", "an", "00000000:AB:00.0", "cuda:3", "GPU-5e"), datetime.max.replace(tzinfo=UTC), 2, 1, 8, False)
def test_every_request_for_a_check_is_one_that_the_check_can_read(
    focus: tuple[str, ...], since: datetime | None, level: int, timeout_s: int, gpus: int, passive: bool
) -> None:
    """No variable is left out, and each says what was meant."""
    run = CheckRun(CHECK, passive=passive, since=since, focus=focus, signed=True)
    machine = replace(instance(gpus=gpus), gpus_most=gpus, check=run)
    sent = environment_of(
        check_request(CLUSTER, CheckTask(CHECK_TASK, "bucket", level, True, timeout_s), machine, CHECK, 0, "key")
    )
    read = health_check.CheckSettings.from_environment(sent)
    assert read.unread == ()
    assert (read.check_id, read.instance_id, read.expected_gpus) == (CHECK, A, gpus)
    assert (read.level, read.since) == (0 if passive else level, since)
    meant = tuple(dict.fromkeys(name for one in focus if (name := gpu_name(one))))
    assert read.focus == meant[:FOCUS_MAX]


@given(NAMES)
@example("PCI:0000:3B:00.7")
@example("٣")
def test_a_gpu_has_the_same_name_on_both_sides(text: str) -> None:
    """The control plane sends no other than those that the check knows, and as the check writes them."""
    assert gpu_name(text) == (health_check.gpu_name(text) or "")


def test_the_limits_are_those_of_the_check() -> None:
    """The longest time is what the check takes for one, and so are the most suspects."""
    assert FOCUS_MAX == health_check.FOCUS_MAX
    slow = replace(PRESETS[Preset.ADAPTIVE], check_timeout_s=10**6)
    task = CheckTask(CHECK_TASK, "bucket", 4, True, slow.check_timeout_s)
    sent = environment_of(check_request(CLUSTER, task, instance(), CHECK, 0, "key"))
    assert health_check.CheckSettings.from_environment(sent).timeout_s == int(sent["CHECK_TIMEOUT_S"])


@pytest.mark.parametrize("said", ["XID 79 on an unknown GPU", "XID 79 on 0000:10:00, 3 times within a day"])
def test_what_the_control_plane_says_of_an_xid_names_a_gpu_or_none(said: str) -> None:
    """It reads its own sentences again, and no word of them is taken for a GPU."""
    (found,) = NAMED_XID.finditer(said)
    assert gpu_name(found["gpu"]) in ("", "0000:10:00")

"""docs/seeds.md: each name of ours in it is in the code, and no word of the specifications is forgotten."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import SUSPEND_GRACE_S
from gpu_recovery.core.policy import policy_from
from gpu_recovery.core.ray.driver import TOO_FEW_GPUS
from gpu_recovery.core.task import FailureKind
from gpu_recovery.wire.event_types import EventType

from tests.markdown import ROOT, SPAN, Page

PAGE = Page(ROOT / "docs/seeds.md")
CODE = ("lambdas", "infra", "agent", "client", "health_check", "ray_runner")
SAME = "the same"
"""Words of a cell that stands for the names of the seed."""
FIXED = {"suspend_grace_s": SUSPEND_GRACE_S, "MASTER_PORT": 2222}
"""Numbers that no policy and no threshold holds."""
WORDS_OF_SEEDS = {
    *("STOPPED", "complete", "FAILED", "fail", "Other", "REBOOTING", "AVAILABLE"),
    *("task_id", "state", "created_at", "updated_at", "latest_attempt", "attempts", "error_summary", "attempt_no"),
    *("ray_submission_id", "failure_kind", "next_run_at", "jobspec_yaml", "event_type", *EventType, *TOO_FEW_GPUS),
    *("v2.scheduler.tick_s", "v2.scheduler.retry_interval_s", "v2.scheduler.max_running_tasks", "v2.auth.token_env"),
    *("GPUTASKER_SERVER_URL", "GPUTASKER_TASKS_API_URL", "GPUTASKER_REPORT_TASKS", "GPUTASKER_REPORT_INTERVAL"),
    *("GPUTASKER_GPU_UPDATE_MODE", "GPUTASKER_TASK_HEARTBEAT_STALE_SECONDS", "GPUTASKER_RUNNING_TASKS_DIR"),
    *("hfai.client.receive_suspend_command", "hfai.client.go_suspend", "hfai.distributed.get_rank"),
    *("hfai.multiprocessing.spawn", "MASTER_IP", "MASTER_PORT", "WORLD_SIZE", "RANK"),
    *("TRAINING_JOB_TABLE_NAME", "CONTAINER_INSTANCE_TABLE_NAME", "ECS_CLUSTER_NAME", "DCGM_HEALTH_CHECK_TASK"),
    *("SNS_TOPIC_ARN", "job_id_rank", "container_inst_id", "running_log_id", "remote_pid", "remote_pgid"),
}


def column(table: list[list[str]], title: str) -> list[str]:
    """The cells of a column."""
    at = table[0].index(title)
    return [row[at] for row in table[1:]]


def mapped() -> list[tuple[str, str]]:
    """(words of a seed, names here) of each row of the page."""
    found = []
    for table in PAGE.tables():
        if "Here" in table[0]:
            words = next(title for title in table[0] if title in ("Word of the seed", "Number of the seed"))
            found += zip(column(table, words), column(table, "Here"), strict=True)
    return found


@cache
def code() -> str:
    """The source of everything that is deployed or installed, and the document of the API."""
    paths = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") + path.name for path in paths if "build" not in path.parts]
    return "\n".join([*texts, (ROOT / "docs/openapi.json").read_text(encoding="utf-8")])


def names(cell: str) -> set[str]:
    """The names in a cell, each as the code has it: a verb of the command line, a setting, a path or an identifier."""
    spans = {span.removeprefix("gpu-recovery:") for span in SPAN.findall(cell)}
    return {span.removeprefix("gpu-recovery ").partition(" --")[0] for span in spans}


def is_in_the_code(name: str) -> bool:
    """Whether the code has the name as a whole word.

    The pattern begins with the word, because `re` searches fast for a text at the beginning of a pattern. What comes
    before the word is looked at afterwards.
    """
    words = map(re.escape, name.removeprefix("POST ").split(" "))
    return all(re.search(rf"{word}(?<![\w-]{word})(?![\w-])", code()) for word in words)


@pytest.mark.parametrize(("word", "here"), mapped(), ids=lambda cell: cell[:40])
def test_every_name_of_ours_is_in_the_code(word: str, here: str) -> None:
    """A name that is changed must be changed on the page. A row names something, or says that there is nothing."""
    ours = names(word if here.startswith(SAME) else here)
    assert ours or here == "none"
    assert {name for name in ours if not is_in_the_code(name)} == set()


def test_no_word_of_the_specifications_is_forgotten() -> None:
    """Who searches the page for a word of a seed finds it."""
    told = {span for word, _ in mapped() for span in SPAN.findall(word)}
    assert {word for word in WORDS_OF_SEEDS if word not in told} == set()


def test_every_status_and_kind_of_failure_is_on_the_page() -> None:
    """A new status needs a word of a seed, or a row that says where it stands."""
    here = {span for _, cell in mapped() for span in SPAN.findall(cell)} | set(PAGE.spans())
    assert {status for status in JobStatus if status not in here} <= {JobStatus.RECOVERING}
    assert {kind for kind in FailureKind if kind not in here} == set()


@pytest.mark.parametrize("row", next(t for t in PAGE.tables() if "Value" in t[0])[1:], ids=lambda row: row[2])
def test_the_numbers_are_those_of_the_code(row: list[str]) -> None:
    """Each is a threshold of the policy or of the diagnosis, or a constant."""
    name, *of = SPAN.findall(row[2])
    policy: Any = policy_from({"preset": of[0]} if of else {})
    holders = [holder for holder in (policy, Thresholds()) if hasattr(holder, name)]
    value = getattr(holders[0], name) if holders else FIXED[name]
    assert float(row[3]) == value

"""`RayCluster` against a real Ray head: what Ray answers, and what is made of its traps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from gpu_recovery.core.ray.driver import DriverState, DriverStatus, ending_of
from gpu_recovery.core.ray.submission import DriverSubmission
from gpu_recovery.core.task import FailureKind, failure_kind_of
from gpu_recovery.ports.errors import TryAgainSoon
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
from ray.job_submission import JobSubmissionClient

from ray_runner import cluster as cluster_module
from ray_runner.cluster import RayCluster
from tests.ray_runner.head import GPUS, Head

pytestmark = [pytest.mark.slow, pytest.mark.ray]
PATIENCE_S = 300
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster(head: Head) -> RayCluster:
    """The cluster under test."""
    return RayCluster(head.dashboard, head.control_store)


@pytest.fixture(scope="module")
def jobs(head: Head) -> JobSubmissionClient:
    """Ray's own client, for what a stranger would do."""
    return JobSubmissionClient(head.dashboard)


@pytest.fixture
def end(tmp_path: Path) -> Iterator[Path]:
    """The file that ends the drivers of a test; they end with it in any case."""
    path = tmp_path / "end"
    yield path
    path.touch()


class Troubled:
    """Ray's client on a bad day: whatever it is asked, it raises what Ray's client would raise."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __getattr__(self, name: str) -> Callable[..., None]:
        def fails(*given: object, **more: object) -> None:
            raise RuntimeError(self._words)

        return fails


def order(entrypoint: str, **changes: object) -> DriverSubmission:
    """An order under a name of its own."""
    given = {"submission_id": f"cluster-{next(_numbers)}--a01", "resources": {"worker_node": 1}, **changes}
    return DriverSubmission(entrypoint=entrypoint, **given)  # type: ignore[arg-type]


def until(question: Callable[[], bool]) -> None:
    """Wait for Ray, which works beside us."""
    patience = time.monotonic() + PATIENCE_S
    while not question():
        assert time.monotonic() < patience, "Ray did not come to it"
        time.sleep(0.1)


def ended(cluster: RayCluster, submission_id: str) -> DriverStatus:
    """The status of a driver once it has ended."""
    until(lambda: cluster.status(submission_id).has_ended)
    return cluster.status(submission_id)


def taken(cluster: RayCluster, entrypoint: str, **changes: object) -> str:
    """The submission id of a driver that Ray has taken."""
    made = order(entrypoint, **changes)
    assert cluster.submit(made) is None
    return made.submission_id


def test_a_driver_runs_with_its_variables_and_says_what_it_wrote(cluster: RayCluster) -> None:
    """Seed 004: submit, status, logs."""
    name = taken(cluster, "sleep 0.3; echo one; echo attempt $ATTEMPT", runtime_env={"env_vars": {"ATTEMPT": "7"}})
    status = ended(cluster, name)
    assert (status.state, status.exit_code) == (DriverState.SUCCEEDED, 0)
    assert status.started_at and status.ended_at and status.started_at < status.ended_at
    assert "one\nattempt 7" in cluster.logs(name, 100)
    assert cluster.logs(name, 1) == "attempt 7\n"


def test_a_second_submit_of_the_same_attempt_is_the_first_one(cluster: RayCluster, tmp_path: Path) -> None:
    """Ray answers it with HTTP 500; an answer that was lost must not make a second driver, nor a failure."""
    made = order(f"echo ran >> {tmp_path / 'runs'}")
    assert cluster.submit(made) is None
    assert cluster.submit(made) is None
    ended(cluster, made.submission_id)
    assert cluster.submit(made) is None
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_a_stop_ends_the_driver_and_a_second_one_is_no_error(cluster: RayCluster) -> None:
    """Ray answers the second with False."""
    name = taken(cluster, "sleep 300")
    until(lambda: cluster.status(name).state is DriverState.RUNNING)
    cluster.stop(name)
    assert ended(cluster, name).state is DriverState.STOPPED
    cluster.stop(name)
    assert cluster.status(name).state is DriverState.STOPPED


def test_a_driver_that_nobody_can_start_stays_pending_even_when_stopped(cluster: RayCluster) -> None:
    """Ray says that it stops it, and does not: so a stop is believed only when the end is seen."""
    name = taken(cluster, "true", resources={"a-resource-that-nobody-has": 1})
    cluster.stop(name)
    cluster.stop(name)
    assert not cluster.status(name).has_ended


def test_what_ray_does_not_know_is_gone(cluster: RayCluster) -> None:
    """Its 404 is plain text; there is nothing to stop and nothing to read."""
    assert cluster.status("never--a01") == DriverStatus(DriverState.GONE)
    assert cluster.logs("never--a01", 10) == ""
    cluster.stop("never--a01")


def test_a_job_that_a_stranger_deleted_has_ended(cluster: RayCluster, jobs: JobSubmissionClient) -> None:
    """However Ray words it: gone, or failed with a dead supervisor and neither entrypoint nor metadata."""
    name = taken(cluster, "sleep 300")
    until(lambda: cluster.status(name).state is DriverState.RUNNING)
    jobs.stop_job(name)
    until(lambda: cluster.status(name).has_ended)
    jobs.delete_job(name)
    status = ended(cluster, name)
    assert failure_kind_of(ending_of(status, "", None, GPUS)) is FailureKind.UNKNOWN


@pytest.mark.parametrize(
    ("entrypoint", "changes", "kind", "words"),
    [
        ("exit 3", {}, FailureKind.RUNTIME_ERROR, "code 3"),
        ("kill -SEGV $$", {}, FailureKind.RUNTIME_ERROR, "code -11"),
        ("no-such-command --x", {}, FailureKind.USER_ERROR, "entrypoint cannot be run"),
        (
            "true",
            {"runtime_env": {"working_dir": "https://127.0.0.1:9/code.zip"}},
            FailureKind.USER_ERROR,
            "runtime_env could not be set up",
        ),
        ("true", {"resources": {"worker_node": -1}}, FailureKind.USER_ERROR, "cannot be negative"),
    ],
)
def test_a_failure_says_who_is_to_blame(
    cluster: RayCluster, entrypoint: str, changes: dict[str, object], kind: FailureKind, words: str
) -> None:
    """By Ray's own error types and exit codes."""
    end = ending_of(ended(cluster, taken(cluster, entrypoint, **changes)), "", GPUS, GPUS)
    assert failure_kind_of(end) is kind and words in end.sentence


@pytest.mark.parametrize(
    "runtime_env", [{"env_vars": {"A": 1}}, {"working_dir": "."}, {"pip": "/etc/hostname"}], ids=str
)
def test_a_runtime_env_that_cannot_be_is_refused(cluster: RayCluster, runtime_env: dict[str, object]) -> None:
    """With a reason, before Ray has it; nothing of this machine is read for it."""
    made = order("true", runtime_env=runtime_env)
    refusal = cluster.submit(made)
    assert refusal is not None and refusal.lasting and refusal.reason
    assert cluster.status(made.submission_id).state is DriverState.GONE


BAD_REQUEST = (
    "Request failed with status code 500: Traceback\n  Request failed with status code 400: ValueError: not so."
)
NO_AGENT = "Request failed with status code 500: No available agent to submit job, please try again later."


@pytest.mark.parametrize("trouble", [NO_AGENT, "Request failed with status code 503: ."])
@pytest.mark.parametrize("asked", ["submit", "status", "stop"])
def test_rays_own_trouble_is_no_fault_of_the_job(head: Head, asked: str, trouble: str) -> None:
    """A head that has just begun has no agent yet: asked again, it takes what it could not take."""
    young = RayCluster(head.dashboard, head.control_store)
    young._client = Troubled(trouble)
    made = order("true")
    with pytest.raises(TryAgainSoon):
        getattr(young, asked)(made if asked == "submit" else made.submission_id)


def test_what_ray_calls_a_bad_request_is_refused(head: Head) -> None:
    """The agent's 400 arrives inside the head's 500."""
    strict = RayCluster(head.dashboard, head.control_store)
    strict._client = Troubled(BAD_REQUEST)
    refusal = strict.submit(order("true"))
    assert refusal is not None and refusal.lasting and "not so" in refusal.reason


def test_what_a_driver_says_early_is_found_behind_all_that_follows(cluster: RayCluster, head: Head, end: Path) -> None:
    """Ray's message repeats the last ten lines only, as long as they are."""
    name = taken(cluster, head.driver(GPUS + 1, end, lines_after=40))
    status = ended(cluster, name)
    assert "Total available" not in status.message and status.needs_its_log
    found = ending_of(status, cluster.logs(name, 1_000), GPUS + 1, GPUS)
    assert failure_kind_of(found) is FailureKind.INSUFFICIENT_RESOURCES and f"of the {GPUS + 1}" in found.sentence


def test_free_gpus_are_counted_as_verl_counts_them(cluster: RayCluster, head: Head, end: Path) -> None:
    """By the same function of Ray that verl asks, at the same time."""
    verls = GlobalState()
    verls._initialize_global_state(
        GcsClientOptions.create(head.control_store, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )

    def verl_counts() -> dict[str, float]:
        nodes = verls.available_resources_per_node()
        return {name: free["GPU"] for name, free in nodes.items() if free.get("GPU")}

    until(lambda: sum(cluster.free_gpus_per_node().values()) == GPUS)
    assert cluster.free_gpus_per_node() == verl_counts()
    name = taken(cluster, head.driver(5, end))
    until(lambda: "holds 5 GPUs" in cluster.logs(name, 10))
    until(lambda: sum(cluster.free_gpus_per_node().values()) == GPUS - 5)
    assert cluster.free_gpus_per_node() == verl_counts()
    assert cluster.total_gpus() == GPUS
    end.touch()
    ended(cluster, name)
    until(lambda: sum(cluster.free_gpus_per_node().values()) == GPUS)


def test_a_log_that_is_too_long_is_not_read(cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray sends it whole, and a function has only so much memory."""
    name = taken(cluster, "sleep 0.3; seq 1 20000")
    ended(cluster, name)
    assert cluster.logs(name, 1) == "20000\n"
    monkeypatch.setattr(cluster_module, "LOG_BYTES_MAX", 10_000)
    assert "too long" in cluster.logs(name, 1)


@pytest.mark.parametrize(
    "asked",
    [
        lambda nobody: nobody.status("x--a01"),
        lambda nobody: nobody.stop("x--a01"),
        lambda nobody: nobody.logs("x--a01", 1),
        lambda nobody: nobody.submit(DriverSubmission("x--a01", "true")),
        lambda nobody: nobody.free_gpus_per_node(),
        lambda nobody: nobody.total_gpus(),
    ],
    ids=["status", "stop", "logs", "submit", "free_gpus_per_node", "total_gpus"],
)
def test_a_cluster_that_does_not_answer_is_asked_again_soon(asked: Callable[[RayCluster], object]) -> None:
    """Its head restarts: that is no failure of any job."""
    with pytest.raises(TryAgainSoon):
        asked(RayCluster("http://127.0.0.1:9", "127.0.0.1:9"))

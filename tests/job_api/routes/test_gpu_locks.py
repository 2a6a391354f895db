"""Locks of jobs over the API: acquired, renewed, released, read; by whom, and what a dead holder leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.gpu_lock import LOCKS_MAX, TooManyLocks
from gpu_recovery.core.gpu_lock import GpuLockRecord as Kept
from gpu_recovery.core.heartbeat import Heartbeat
from gpu_recovery.ports.errors import StaleRecord
from gpu_recovery.ports.store import Store
from gpu_recovery_client.diagnosis import GpuLock
from gpu_recovery_client.diagnosis.leases import Lease

from simulator.memory_store.store import MemoryStore
from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, later
from tests.lambdas.api_gateway import Answer, Api, refused, user_token
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
HERE = "/locks/gpu-0"
TRAIN = {"job_id": JOB, "owner": "train", "holder": "0a1b2c3d", "rank": 0}
ROLLOUT = {"job_id": JOB, "owner": "rollout", "holder": "4e5f6a7b", "rank": 1}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API, and a job that runs on two instances."""
    gang(functions, instances=(A, B))
    return Api(functions)


def acquire(api: Api, who: dict[str, Any] = TRAIN, **more: Any) -> Answer:
    return api.post(f"{HERE}/acquire", who | more)


def test_a_lock_is_acquired_read_renewed_and_given_back(api: Api) -> None:
    """Each with the token; the server's clock counts."""
    assert api.get(HERE, job_id=JOB).body["owner"] is None
    got = acquire(api, lease_s=30)
    assert got.status == 200
    assert {name: got.body[name] for name in ("owner", "token", "instance_id", "has_ended")} == {
        "owner": "train",
        "token": 1,
        "instance_id": A,
        "has_ended": False,
    }
    assert got.body["expires_at"] == "2026-11-21T09:00:30.000Z"
    api.functions.now = later(20)
    own = {"job_id": JOB, "owner": "train", "token": 1}
    assert api.post(f"{HERE}/renew", own | {"lease_s": 60}).body["expires_at"] == "2026-11-21T09:01:20.000Z"
    assert api.get(HERE, job_id=JOB).body["owner"] == "train"
    assert api.post(f"{HERE}/release", own).body["owner"] is None
    assert acquire(api, ROLLOUT).body["token"] == 2


def test_another_owner_is_refused_and_hears_who_has_it(api: Api) -> None:
    """409 with the lock as it stands; row 48's sentence for who gives back what is another's."""
    acquire(api)
    answer = acquire(api, ROLLOUT)
    assert refused(answer, 409) == "GPU locked by train"
    assert (answer.body["code"], answer.body["lock"]["owner"]) == ("locked", "train")
    own = {"job_id": JOB, "owner": "rollout", "token": 1}
    assert refused(api.post(f"{HERE}/release", own), 409) == "GPU owned by train, cannot release"
    assert refused(api.post(f"{HERE}/renew", own), 409) == "GPU owned by train, cannot renew"


@pytest.mark.parametrize("heard", [True, False, None])
def test_a_holder_is_dead_when_its_instance_is_not_heard_of(api: Api, heard: bool | None) -> None:
    """Its lease is over and its heartbeat stale: the next one gets it. Else, and if nobody knows, a while later."""
    acquire(api)
    if heard is not None:
        api.functions.store.save_heartbeat(Heartbeat(A, later(175 if heard else 0), "b", later(-9), 1), True)
    api.functions.now = later(179)
    # The lease was over at 60; 180 is the end of the grace. The heartbeat is stale after 180 s of silence.
    assert refused(acquire(api, ROLLOUT), 409).startswith("GPU locked by train, whose lease is over")
    own = {"job_id": JOB, "owner": "train", "token": 1}
    assert api.post(f"{HERE}/renew", own | {"lease_s": 60}).status == 200
    api.functions.now = later(245)
    assert acquire(api, ROLLOUT).status == (200 if heard is False else 409)
    api.functions.now = later(360)
    assert (acquire(api, ROLLOUT).body["token"], acquire(api, TRAIN).status) == (2, 409)


def test_a_lock_is_of_a_job_and_so_of_its_user(api: Api) -> None:
    """A stranger can neither take nor see it; the same name in another job is another lock."""
    stranger = user_token(api, "eve")
    for answer in (
        api.post(f"{HERE}/acquire", TRAIN, token=stranger),
        api.call("GET", f"/api/v2{HERE}", token=stranger, job_id=JOB),
    ):
        assert answer.status == 403 and answer.body["code"] == "foreign_job"
    assert api.post(f"{HERE}/acquire", TRAIN, token=None).status == 401
    assert api.post(f"{HERE}/acquire", TRAIN, token=user_token(api, "vera", "viewer")).status == 403
    assert refused(acquire(api, job_id="sft-none"), 404)


def test_an_acquisition_is_two_reads_and_one_write(api: Api) -> None:
    """The job, the lock, and the lock again; a heartbeat is read only where a lease is over.

    The first use of a name also writes the name, in one transaction.
    """
    acquire(api)
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 2, "TransactWriteItems": 1}
    api.functions.now = later(1)
    acquire(api)
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 2, "PutItem": 1}
    acquire(api, ROLLOUT)
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 2}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("acquire", TRAIN | {"owner": "a b"}, "owner"),
        ("acquire", TRAIN | {"owner": None}, "owner"),
        ("acquire", TRAIN | {"holder": "xyz"}, "holder"),
        ("acquire", TRAIN | {"rank": -2}, "rank"),
        ("acquire", TRAIN | {"rank": "0"}, "rank"),
        ("acquire", TRAIN | {"lease_s": 4}, "lease_s"),
        ("acquire", TRAIN | {"lease_s": 3_601}, "lease_s"),
        ("acquire", TRAIN | {"ttl": 1}, "ttl"),
        ("acquire", {"owner": "train"}, "job_id"),
        ("acquire", [], "body"),
        ("renew", {"job_id": JOB, "owner": "train"}, "token"),
        ("renew", {"job_id": JOB, "owner": "train", "token": 0}, "token"),
        ("release", {"job_id": JOB, "owner": "train", "token": True}, "token"),
        ("release", {"job_id": JOB, "owner": "train", "token": 1, "lease_s": 9}, "lease_s"),
    ],
)
def test_what_is_asked_wrongly_is_named(api: Api, path: str, body: Any, field: str) -> None:
    """And changes nothing."""
    assert refused(api.post(f"{HERE}/{path}", body), 422, field)
    assert api.get(HERE, job_id=JOB).body["token"] == 0


def test_a_name_that_is_none_is_not_found(api: Api) -> None:
    """It is part of a key."""
    assert refused(api.post("/locks/a%23b/acquire", TRAIN), 404)
    assert refused(api.call("GET", f"/api/v2{HERE}"), 422, "job_id")


# -- where they are kept -----------------------------------------------------------------------------------------------


def test_two_that_take_it_at_once_do_not_both_get_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the read and the write another was there: it is read anew, and refused."""
    store_type = type(api.functions.store)
    save, came = store_type.save_lock, []

    def meddled(self: Any, lock: Any, now: Any) -> None:
        if not came:
            came.append(lock)
            acquire(api, ROLLOUT)
        save(self, lock, now)

    monkeypatch.setattr(store_type, "save_lock", meddled)
    assert refused(acquire(api), 409) == "GPU locked by rollout"


def test_one_that_is_overtaken_each_time_may_ask_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """503, and nothing was written."""

    def stale(self: Any, lock: Any, now: Any) -> None:
        raise StaleRecord("written since")

    monkeypatch.setattr(type(api.functions.store), "save_lock", stale)
    answer = acquire(api)
    assert (answer.status, answer.body["code"]) == (503, "busy")


def test_both_stores_refuse_a_writer_that_is_late(api: Api) -> None:
    """In memory as on DynamoDB, and each field survives."""
    stores: tuple[Store, ...] = (MemoryStore(), api.functions.store)
    for store in stores:
        lock = Kept(JOB, "gpu-1", "train", "0a1b2c3d", A, 3, later(0), later(60))
        assert store.load_lock(JOB, "gpu-1") == Kept(JOB, "gpu-1")
        store.save_lock(lock, NOW)
        found = store.load_lock(JOB, "gpu-1")
        assert found == replace(lock, revision=1)
        store.save_lock(replace(found, owner=""), NOW)
        with pytest.raises(StaleRecord):
            store.save_lock(found, NOW)
        with pytest.raises(StaleRecord):
            store.save_lock(lock, NOW)


@pytest.mark.slow
def test_a_job_has_locks_of_256_names_at_most(api: Api) -> None:
    """422 for the next name; the names in use are served on, and another job has names of its own."""
    for number in range(LOCKS_MAX):
        assert api.post(f"/locks/gpu-{number}/acquire", TRAIN).status == 200
    kept = len(api.functions.kept())
    answer = api.post("/locks/one-more/acquire", TRAIN)
    assert "256 names" in refused(answer, 422, "name") and len(api.functions.kept()) == kept
    assert api.get("/locks/one-more", job_id=JOB).body["token"] == 0
    assert acquire(api).status == 200
    assert api.post(f"{HERE}/release", {"job_id": JOB, "owner": "train", "token": 1}).status == 200
    gang(api.functions, instances=(A, B), job_id=OTHER_JOB)
    assert api.post("/locks/one-more/acquire", TRAIN | {"job_id": OTHER_JOB}).status == 200


def test_a_lock_that_was_deleted_keeps_its_name(api: Api) -> None:
    """The name counts once, so the lock may be taken again even if the job has no name left."""
    for number in range(LOCKS_MAX):
        api.post(f"/locks/gpu-{number}/acquire", TRAIN)
    jobs = next(table for table in api.functions.aws.tables.tables.values() if f"{JOB}#lock#gpu-0" in table.items)
    jobs.delete(f"{JOB}#lock#gpu-0")
    assert acquire(api).body["token"] == 1


def test_a_lock_is_stored_until_90_days_after_its_last_use(api: Api) -> None:
    """Each use writes the time anew: acquisition, renewal and release."""
    own = {"job_id": JOB, "owner": "train", "token": 1}
    for at, (request, body) in enumerate((("acquire", TRAIN), ("renew", own), ("release", own))):
        api.functions.now = later(10 * at)
        assert api.post(f"{HERE}/{request}", body).status == 200
        expires = api.functions.kept()[f"{JOB}#lock#gpu-0"]["expires_s"]["N"]
        assert int(expires) == int((later(10 * at) + timedelta(days=90)).timestamp())


def test_both_stores_bound_the_names_of_a_job(api: Api) -> None:
    """In memory as on DynamoDB."""
    stores: tuple[Store, ...] = (MemoryStore(), api.functions.store)
    for store in stores:
        for number in range(LOCKS_MAX):
            store.save_lock(Kept(JOB, f"gpu-{number}"), NOW)
        with pytest.raises(TooManyLocks):
            store.save_lock(Kept(JOB, "one-more"), NOW)
        store.save_lock(replace(store.load_lock(JOB, "gpu-0"), owner="train"), NOW)
        store.save_lock(Kept("another-job", "one-more"), NOW)


# -- from the side of a training ---------------------------------------------------------------------------------------


@dataclass
class Trainer:
    """Processes of the job on the two instances, which speak to the API; their clock and the server's are one."""

    api: Api
    at: float = 0.0
    away: bool = False
    pauses: int = 0

    def lock(self, owner: str, rank: int, holder: str = "") -> GpuLock:
        lease = Lease(
            self.call, JOB, "gpu_0", owner, holder or f"0a1b2c3{rank}", rank, now=lambda: self.at, renews=False
        )
        return GpuLock(owner, lease=lease, now=lambda: self.at, sleep=self.sleep)

    def call(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if self.away:
            raise TimeoutError
        self.api.functions.now = later(self.at)
        where, _, query = path.partition("?")
        given = dict([query.split("=")]) if query else {}
        answer = self.api.call(method, f"/api/v2{where}", body, **given)
        return answer.status, answer.body

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.at += seconds


@pytest.fixture
def trainer(api: Api) -> Trainer:
    """The job's processes."""
    return Trainer(api)


def test_a_distributed_lock_is_had_by_one_owner_at_a_time(trainer: Trainer) -> None:
    """With a token that grows; who waits asks every second and gives up after a minute; row 48 as on one instance."""
    train, rollout = trainer.lock("train", 0), trainer.lock("rollout", 1)
    assert train.acquire() and train.acquire() and (train.token, rollout.token) == (1, None)
    assert (train.holder(), rollout.holder()) == ("train", "train")
    assert not rollout.release()
    train._lease.renew()
    with pytest.raises(TimeoutError, match=r"^Failed to acquire GPU for rollout$"):
        rollout.acquire(30)
    assert trainer.pauses == 30
    assert train.release() and train.token == 1 and train.release() and train.token is None
    with rollout:
        assert rollout.token == 2
    assert train.holder() is None


def test_the_lock_of_a_dead_holder_is_anothers_once_its_instance_is_silent(trainer: Trainer) -> None:
    """It never renewed, and nothing is heard of it. The one that only slept finds out, and cannot give it back."""
    trainer.api.functions.store.save_heartbeat(Heartbeat(A, later(-200), "b", later(-900), 1), True)
    train, rollout = trainer.lock("train", 0), trainer.lock("rollout", 1)
    train.acquire()
    assert rollout.acquire(timeout_s=100) and trainer.at == 60.0
    assert rollout.token == 2 and not train._lease.is_held
    assert not train._lease.renew() and train.token is None
    assert not train.release() and rollout.holder() == "rollout"


def test_an_api_that_is_away_is_asked_again_and_a_lease_is_not_believed_beyond_its_end(trainer: Trainer) -> None:
    """Neither an error in the training, nor a lock that is had by two."""
    train, rollout = trainer.lock("train", 0), trainer.lock("rollout", 1)
    train.acquire()
    trainer.away = True
    assert train._lease.renew() and train._lease.is_held
    with pytest.raises(TimeoutError):
        rollout.acquire(3)
    trainer.at = 60.0
    assert not train._lease.is_held
    trainer.away = False
    assert train._lease.renew() and train._lease.is_held


def test_what_will_never_be_allowed_is_an_error(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job's name, or a token that is not wanted: waiting a minute would not help."""
    lease = Lease(trainer.call, "sft-none", "gpu_0", "train", "0a1b2c3d", 0, now=lambda: 0.0, renews=False)
    with pytest.raises(RuntimeError, match="404"):
        GpuLock("train", lease=lease).acquire()
    for name in ("JOB_ID", "GPU_RECOVERY_API_URL", "GPU_RECOVERY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="JOB_ID"):
        GpuLock("train", distributed=True)
    monkeypatch.setenv("JOB_ID", JOB)
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", "secret")
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "http://example.com")
    with pytest.raises(ValueError, match="https") as error:
        GpuLock("train", distributed=True)
    assert "secret" not in str(error.value)
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "https://example.com")
    assert GpuLock("train", distributed=True).token is None

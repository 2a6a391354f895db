"""Console snapshots in S3: what is asked, what an answer becomes, and what the functions do with a refusal."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber
from gpu_recovery.aws.clients import ONE_SHORT_TRY
from gpu_recovery.aws.console_snapshots import S3ConsoleSnapshots
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.ports.errors import StorageFailed, Unavailable

from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.lambdas.conftest import Functions, functions

__all__ = ["functions"]
BUCKET = FUNCTION["VERDICT_BUCKET"]
KEY = {"Bucket": "b", "Key": "console/map.json.gz"}


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> S3ConsoleSnapshots:
    """The storage, without AWS."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    return S3ConsoleSnapshots("b")


def test_what_is_saved_is_loaded_again(snapshots: S3ConsoleSnapshots) -> None:
    """Compressed, under the prefix that the roles and the lifecycle rule name."""
    document = {"as_of": "2026-11-21T09:00:00+00:00", "jobs": ["sft-1"] * 100}
    sent: list[dict[str, Any]] = []
    snapshots._s3.meta.events.register("before-parameter-build.s3.PutObject", lambda params, **_: sent.append(params))
    with Stubber(snapshots._s3) as s3:
        s3.add_response("put_object", {}, {**KEY, "Body": ANY, "ContentType": "application/gzip"})
        snapshots.save(SnapshotName.MAP, json.dumps(document))
        body = sent[0]["Body"].getvalue()
        assert len(body) < 150 and json.loads(gzip.decompress(body)) == document
        s3.add_response("get_object", {"Body": StreamingBody(io.BytesIO(body), len(body))}, KEY)
        assert snapshots.load(SnapshotName.MAP) == document


def test_a_snapshot_that_was_never_written_is_none(snapshots: S3ConsoleSnapshots) -> None:
    """A new deployment has none. Any other answer is an error that the port declares."""
    with Stubber(snapshots._s3) as s3:
        s3.add_client_error("get_object", "NoSuchKey", http_status_code=404)
        assert snapshots.load(SnapshotName.MAP) is None
        s3.add_client_error("get_object", "SlowDown", http_status_code=503)
        with pytest.raises(Unavailable):
            snapshots.load(SnapshotName.MAP)
        s3.add_client_error("get_object", "AccessDenied", http_status_code=403)
        with pytest.raises(StorageFailed):
            snapshots.load(SnapshotName.MAP)
        for body in (b"", b"no gzip", gzip.compress(b"no JSON"), gzip.compress(b"{}")[:-1]):
            s3.add_response("get_object", {"Body": StreamingBody(io.BytesIO(body), len(body))}, KEY)
            with pytest.raises(StorageFailed):
                snapshots.load(SnapshotName.MAP)


def test_a_call_ends_within_a_second_and_a_half() -> None:
    """One try: the next run writes again."""
    assert ONE_SHORT_TRY.retries["total_max_attempts"] == 1
    assert ONE_SHORT_TRY.connect_timeout + ONE_SHORT_TRY.read_timeout <= 1.5


def test_the_reconciler_writes_three_snapshots(functions: Functions) -> None:
    """With the permissions of its role, after everything else, and again only when they are old."""
    functions.call("reconciler", {})
    written = [asked["Key"] for asked in functions.aws.asked("PutObject")]
    assert sorted(written) == [f"console/{name}.json.gz" for name in ("limits", "map", "members")]
    assert [operation for _, operation, _ in functions.aws.calls[-3:]] == ["PutObject"] * 3
    assert not functions.logged("snapshot_failed")
    functions.call("reconciler", {})
    assert functions.aws.operations()["PutObject"] == 0


def test_a_refused_snapshot_is_logged_and_measured_and_fails_nothing(
    functions: Functions, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reconciler ends as if there were no console."""

    def refuse(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")

    functions.aws.answers["PutObject"] = refuse
    functions.call("reconciler", {})
    assert sorted(line["snapshot"] for line in functions.logged("snapshot_failed")) == ["limits", "map", "members"]
    measured = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    assert [document["SnapshotFailed"] for document in measured] == [[1.0, 1.0, 1.0]]

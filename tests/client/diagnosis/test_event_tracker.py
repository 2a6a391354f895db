"""Notices between train and rollout, rows 41-45: every state, every sentence, and how far a failed one had come."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.observations import Delivery
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis.event_tracker import KEPT_MAX, EventTracker, Http

from tests.client.training_process import Clock, Ear

READY: tuple[int, Mapping[str, Any]] = (200, {"state": "gpu_ready"})
BUSY, PROCESSING = (200, {"state": "gpu_busy"}), (200, {"state": "processing"})


class Worker:
    """A rollout worker that answers what it was told to; an answer that is an exception is raised."""

    def __init__(self, *answers: Any, posted: Any = (200, {})) -> None:
        self.answers, self.posted = list(answers), posted
        self.asked: list[tuple[str, float]] = []
        self.body: Mapping[str, Any] = {}

    def post(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Any:
        self.asked.append((path, timeout_s))
        self.body = body
        return self._said(self.posted)

    def get(self, path: str, timeout_s: float) -> Any:
        self.asked.append((path, timeout_s))
        return self._said(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    @staticmethod
    def _said(answer: Any) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer


def tracker(worker: Worker, clock: Clock) -> EventTracker:
    """A tracker of one rollout worker."""
    return EventTracker(worker, "rollout-0", now=clock.now, sleep=clock.sleep)


def states(ear: Ear) -> list[tuple[Delivery, Delivery]]:
    """(state, last state) of each report."""
    return [(one.state, one.last_state) for one in ear.reports()]


S, D, A, F = Delivery.SENT, Delivery.DELIVERED, Delivery.ACKNOWLEDGED, Delivery.FAILED


def test_rows_41_and_42_a_notice_is_sent_delivered_and_acknowledged(
    ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Each state is told; the times that a call may take are those of the seed."""
    worker = Worker((200, {"gpu_state": "busy"}))
    found = tracker(worker, clock).send("rollout_start", 7)
    assert worker.asked == [("/events", 600.0), (f"/event_ack/{found.request_id}", 10.0)]
    assert worker.body == {"event": "rollout_start", "global_step": 7, "request_id": found.request_id}
    assert (found.state, found.gpu_state, found.deliver_time, found.ack_time) == ("acknowledged", "busy", 1_000, 1_000)
    reports = ear.reports()
    assert [(one.state, one.gpu_state) for one in reports] == [(S, ""), (D, ""), (A, "busy")]
    assert {(one.event, one.step, one.request_id, one.worker, one.instance_id) for one in reports} == {
        ("rollout_start", 7, found.request_id, "rollout-0", "")
    }
    assert "Event rollout_start acknowledged, GPU state: busy" in caplog.messages


@pytest.mark.parametrize(
    ("worker", "error", "how_far"),
    [
        (Worker(READY, posted=TimeoutError("600 s")), TimeoutError, [(S, S), (F, S)]),
        (Worker(READY, posted=(503, {})), RuntimeError, [(S, S), (F, S)]),
        (Worker((404, {})), RuntimeError, [(S, S), (D, D), (F, D)]),
        (Worker(ConnectionResetError("gone")), ConnectionResetError, [(S, S), (D, D), (F, D)]),
    ],
)
def test_row_43_a_notice_that_failed_keeps_how_far_it_had_come(
    ear: Ear, clock: Clock, worker: Worker, error: type[Exception], how_far: Any
) -> None:
    """The defect: `failed` overwrites what the diagnosis needs."""
    followed = tracker(worker, clock)
    with pytest.raises(error):
        followed.send("rollout_start", 1)
    assert states(ear) == how_far
    (kept,) = followed.events.values()
    assert (kept.state, kept.last_state, bool(kept.error)) == ("failed", how_far[-1][1].value, True)


def test_row_44_the_gpu_is_waited_for_second_by_second(
    ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Busy is said, processing and what is unknown are waited through, ready ends it."""
    worker = Worker(PROCESSING, BUSY, (200, {}), (500, {}), READY)
    found = tracker(worker, clock).send_and_wait("rollout_start", 7)
    assert clock.slept == [1.0] * 4
    assert worker.asked[1:] == [(f"/event_status?request_id={found.request_id}", 5.0)] * 5
    assert states(ear) == [(S, S), (D, D), (A, A)] and found.gpu_state == "ready"
    assert [one for one in caplog.messages if "GPU" in one] == [
        "GPU still busy, waiting...",
        "Event rollout_start confirmed, GPU ready",
    ]


def test_row_44_a_gpu_that_is_never_ready_is_a_timeout(ear: Ear, clock: Clock) -> None:
    """After 600 s in all, however often it was asked; that it was busy is told with it."""
    with pytest.raises(TimeoutError, match=r"^Event rollout_start ACK timeout$"):
        tracker(Worker(BUSY), clock).send_and_wait("rollout_start", 7)
    assert clock.at == 1_600.0
    last = ear.reports()[-1]
    assert (last.state, last.last_state, last.gpu_state) == (F, D, "busy")


def test_row_44_a_switch_that_failed_is_an_error(ear: Ear, clock: Clock) -> None:
    """In the words of the seed."""
    with pytest.raises(RuntimeError, match=r"^GPU switch failed: CUDA out of memory$"):
        tracker(Worker((200, {"state": "error", "error": "CUDA out of memory"})), clock).send_and_wait("rollout_start")


@pytest.mark.parametrize("event", ["rollout_start", "rollout_end", "train_end"])
def test_row_41_there_are_three_events_and_an_unknown_one_is_refused(ear: Ear, clock: Clock, event: str) -> None:
    """train_end is the one whose lack is the root cause; what is refused is neither sent nor kept."""
    followed = tracker(Worker((200, {})), clock)
    followed.send(event)
    with pytest.raises(ValueError, match=r"^Invalid event type: rollout$"):
        followed.send("rollout")
    with pytest.raises(ValueError, match=r"^Invalid event type: $"):
        followed.send_and_wait("")
    assert len(followed.events) == 1


def test_row_45_no_success_is_said_without_an_acknowledgement(
    ear: Ear, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """`notify_rollout_start_event succeeded` only meant that a function had returned."""
    with pytest.raises(RuntimeError):
        tracker(Worker((404, {})), clock).send("rollout_start")
    assert caplog.messages == ["Event rollout_start failed: ACK failed"]


def test_what_is_remembered_of_notices_is_bounded(ear: Ear, clock: Clock) -> None:
    """A run of a million steps sends two million."""
    followed = tracker(Worker((200, {})), clock)
    for _ in range(KEPT_MAX + 10):
        last = followed.send("rollout_end").request_id
    assert len(followed.events) == KEPT_MAX and last in followed.events


def test_a_worker_is_reached_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON there and back; a refusal is a status and no exception, and what is no JSON is nothing."""
    monkeypatch.undo()  # this one speaks to a server of its own, on the loopback
    seen: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self._says(200, b"no json")

        def do_GET(self) -> None:
            self._says(404 if "none" in self.path else 200, b'{"state": "gpu_ready"}')

        def _says(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        worker = Http(f"http://127.0.0.1:{server.server_port}/")
        assert worker.post("/events", {"event": "rollout_start"}, 5.0) == (200, {})
        assert worker.get("/event_status?request_id=x", 5.0) == (200, {"state": "gpu_ready"})
        assert worker.get("/none", 5.0) == (404, {})
    finally:
        server.shutdown()
        server.server_close()
    assert seen == [("/events", {"event": "rollout_start"})]


def test_an_address_is_one_of_http(ear: Ear) -> None:
    """A path of a file would be opened."""
    with pytest.raises(ValueError, match="not an address"):
        diagnosis.event_tracker("file:///etc/passwd")
    assert diagnosis.event_tracker("http://10.0.0.7:8000").events == {}

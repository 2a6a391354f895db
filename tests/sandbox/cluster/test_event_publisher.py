"""Events reach EventBridge in order, in full, and as badly as the chaos setting asks."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sandbox.cluster.event_publisher import Chaos, Disturbance, Publisher, entry_of, event_bridge
from tests.sandbox.cluster.conftest import KEYS
from tests.sandbox.patience import PATIENCE_S, wait_until


def event(number):
    return {
        "source": "aws.ecs",
        "detail-type": "ECS Task State Change",
        "time": "2026-11-21T09:00:00Z",
        "resources": [f"arn:{number}"],
        "detail": {"version": number},
    }


def published(count, chaos=None):
    """Batches of version numbers that a publisher sends for `count` events."""
    batches = []

    def send(entries):
        batches.append([json.loads(entry["Detail"])["version"] for entry in entries])

    publisher = Publisher(send, chaos)
    publisher.publish([event(number) for number in range(count)])
    publisher.close()
    return batches


def test_events_are_sent_in_order_ten_at_most_together():
    """PutEvents takes ten entries."""
    batches = published(37)
    assert [number for batch in batches for number in batch] == list(range(37))
    assert max(len(batch) for batch in batches) <= 10


def test_chaos_never_makes_a_batch_too_large():
    """Copies and overtaken events count too."""
    batches = published(60, Chaos(seed=3, duplicate=1.0, reorder=0.5))
    assert max(len(batch) for batch in batches) <= 10
    assert {number for batch in batches for number in batch} == set(range(60))


@pytest.mark.slow
def test_a_refused_batch_is_sent_again_before_the_next():
    """ECS's delivery is guaranteed, and one refusal changes no order."""
    sent, refused = [], threading.Event()

    def send(entries):
        if not refused.is_set():
            refused.set()
            raise RuntimeError("the bus is not there yet")
        sent.extend(json.loads(entry["Detail"])["version"] for entry in entries)

    publisher = Publisher(send)
    publisher.publish([event(0)])
    assert refused.wait(PATIENCE_S)
    publisher.publish([event(1)])
    wait_until(lambda: len(sent) >= 2)
    publisher.close()
    assert sent == [0, 1]


def stream(chaos, count=200):
    disturbance = Disturbance(chaos)
    out = [e["detail"]["version"] for n in range(count) for e in disturbance.admit(event(n))]
    return out + [e["detail"]["version"] for e in disturbance.release()]


def test_chaos_duplicates_reorders_and_drops_by_its_shares():
    """Each knob does its own harm and no other."""
    everything = list(range(200))
    assert stream(Chaos()) == everything
    assert stream(Chaos(duplicate=1.0)) == [n for n in everything for _ in range(2)]
    reordered = stream(Chaos(seed=1, reorder=0.5))
    assert sorted(reordered) == everything
    assert reordered != everything
    assert max(abs(place - number) for place, number in enumerate(reordered)) == 1
    dropped = stream(Chaos(seed=1, drop=0.5))
    assert dropped == sorted(dropped)
    assert 0 < len(dropped) < 200


def test_the_same_seed_makes_the_same_chaos():
    """A bad order that found something can be had again."""
    chaos = Chaos(seed=7, duplicate=0.3, reorder=0.3, drop=0.1)
    assert stream(chaos) == stream(chaos)
    assert stream(chaos) != stream(Chaos(seed=8, duplicate=0.3, reorder=0.3, drop=0.1))


@pytest.fixture
def bus():
    """A bus that notes what it is asked, on loopback."""
    asked = []

    class Bus(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((dict(self.headers), body))
            failed = sum("refuse" in entry["Source"] for entry in body["Entries"])
            answer = {"FailedEntryCount": failed, "Entries": [{"EventId": "1"} for _ in body["Entries"]]}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Bus)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


def test_put_events_says_who_it_is_and_sends_valid_entries(bus):
    """The user agent is what admits `aws.*` sources; botocore has checked the entry."""
    url, asked = bus
    event_bridge(url, "us-east-1", KEYS)([entry_of(event(5))])
    headers, body = asked[0]
    assert headers["X-Amz-Target"] == "AWSEvents.PutEvents"
    assert "gpu-recovery-sandbox" in headers["User-Agent"]
    assert body["Entries"][0]["Source"] == "aws.ecs"
    assert json.loads(body["Entries"][0]["Detail"]) == {"version": 5}


def test_a_bus_that_refuses_an_entry_is_an_error(bus):
    """FailedEntryCount is read: HTTP 200 is not acceptance."""
    url, _ = bus
    with pytest.raises(RuntimeError, match="refused"):
        event_bridge(url, "us-east-1", KEYS)([entry_of(event(5) | {"source": "refuse"})])

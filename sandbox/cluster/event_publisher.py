"""Event publisher: sends the cluster's events to EventBridge in order, or disturbed (duplicate, reorder, drop)."""

import json
import queue
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

USER_AGENT = "gpu-recovery-sandbox"  # the sandbox's MiniStack accepts `aws.*` sources from this user agent
ENTRIES_MAX = 10
EVENTS_MAX = 5000
RETRY_AFTER_S = 1.0
Event = dict[str, Any]


@dataclass(frozen=True)
class Chaos:
    """Shares (0 to 1) of the events that are sent twice, sent after the next event, or lost.

    The same seed selects the same events.
    """

    seed: int = 0
    duplicate: float = 0.0
    reorder: float = 0.0
    drop: float = 0.0


class Disturbance:
    """Applies `Chaos` to a stream of events."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos, self._random = chaos, random.Random(chaos.seed)
        self._held: Event | None = None

    def admit(self, event: Event) -> list[Event]:
        """Return the events to send now that `event` has arrived."""
        if self._random.random() < self._chaos.drop:
            return []
        copies = [event, event] if self._random.random() < self._chaos.duplicate else [event]
        if self._held is None and self._random.random() < self._chaos.reorder:
            self._held = event
            return copies[1:]
        return copies + self.release()

    def release(self) -> list[Event]:
        """Return the event that `admit` has blocked, if there is such an event."""
        held, self._held = self._held, None
        return [] if held is None else [held]


def entry_of(event: Event) -> dict[str, Any]:
    """Return the PutEvents entry of an event. The bus sets id, account and region."""
    return {
        "Source": event["source"],
        "DetailType": event["detail-type"],
        "Time": event["time"],
        "Resources": event["resources"],
        "Detail": json.dumps(event["detail"]),
    }


def event_bridge(endpoint_url: str, region: str, keys: Mapping[str, str]) -> Callable[[list[dict[str, Any]]], None]:
    """Return a `send` function for the publisher. The function raises RuntimeError if the bus refuses an entry."""
    client = boto3.client(
        "events",
        endpoint_url=endpoint_url,
        region_name=region,
        aws_access_key_id=keys["aws_access_key_id"],
        aws_secret_access_key=keys["aws_secret_access_key"],
        config=Config(user_agent_extra=USER_AGENT, retries={"mode": "standard", "total_max_attempts": 3}),
    )

    def send(entries: list[dict[str, Any]]) -> None:
        answer = client.put_events(Entries=entries)
        if answer["FailedEntryCount"]:
            raise RuntimeError(f"the bus refused: {[e for e in answer['Entries'] if e.get('ErrorCode')]}")

    return send


class Publisher:
    """Sends events in batches from its own thread, and saves the last `EVENTS_MAX` events for the control API.

    The delivery of ECS is guaranteed, so the publisher repeats a batch until the bus accepts it or the sandbox ends.
    """

    def __init__(self, send: Callable[[list[dict[str, Any]]], None] | None, chaos: Chaos | None = None) -> None:
        self._send, self._disturbance = send, Disturbance(chaos or Chaos())
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self.emitted: deque[Event] = deque(maxlen=EVENTS_MAX)
        self.emitted_count = 0
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish(self, events: list[Event]) -> None:
        """Queue events. The caller holds the driver's lock, so the queue has the order of the changes."""
        for event in events:
            self.emitted.append(event)
            self.emitted_count += 1
            self._queue.put(event)

    def close(self) -> None:
        """Send the queued events, try each batch once, and stop."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join(timeout=5)

    def _next_batch(self) -> tuple[list[Event], bool]:
        batch: list[Event] = []
        while len(batch) < ENTRIES_MAX - 2:  # an event may become three: itself, its copy and the event held back
            try:
                event = self._queue.get(timeout=0.2) if not batch else self._queue.get_nowait()
            except queue.Empty:
                return batch or self._disturbance.release(), False
            if event is None:
                return batch + self._disturbance.release(), True
            batch += self._disturbance.admit(event)
        return batch, False

    def _run(self) -> None:
        is_last = False
        while not is_last:
            batch, is_last = self._next_batch()
            if batch and self._send is not None:
                self._deliver([entry_of(event) for event in batch])

    def _deliver(self, entries: list[dict[str, Any]]) -> None:
        while True:
            try:
                self._send(entries)  # type: ignore[misc]
            except (BotoCoreError, ClientError, RuntimeError) as error:
                print(f"events not delivered, trying again: {error}", file=sys.stderr, flush=True)
                if self._closing.wait(RETRY_AFTER_S):
                    return
            else:
                return

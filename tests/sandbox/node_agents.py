"""A node agent as a real process on an instance of the sandbox, and the road from it to the API."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandbox.cluster import agents
from tests.sandbox.patience import PATIENCE_S

ANOTHER_CLOCK = Path(__file__).parent / "another_clock"
"""A folder for PYTHONPATH: processes that begin with it take the wall's clock from the file $WALL_SHIFT_FILE."""


def post(
    state: dict[str, Any], path: str, body: Any, token: str | None = None, method: str = "POST", kind: str = ""
) -> tuple[int, dict[str, Any], Message]:
    """(status, body, headers) of a call, made with nothing but the standard library, as agents make it."""
    headers = {"Content-Type": kind or "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"{state['api_url']}{path}", raw, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer), answer.headers
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read() or b"{}"), refusal.headers


@dataclass
class Road:
    """Between an agent and the API. While it is `closed` whoever comes is sent away without an answer.

    told: (body of a report, status of its answer), of every report that was answered.
    """

    api_url: str
    closed: threading.Event = field(default_factory=threading.Event)
    turned_away: int = 0
    told: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    url: str = ""

    def carry(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """(status, body, headers) of the API's answer."""
        parts = urlsplit(self.api_url)
        request = urllib.request.Request(f"{parts.scheme}://{parts.netloc}{path}", body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                found = answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as refusal:
            found = refusal.code, refusal.read(), dict(refusal.headers)
        self.told.append((json.loads(body), found[0]))
        return found


@contextmanager
def road_to(api_url: str) -> Iterator[Road]:
    """A road that is open, for as long as the block."""
    road = Road(api_url)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if road.closed.is_set():
                road.turned_away += 1
                return
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            wanted = ("Authorization", "Content-Type")
            status, body, headers = road.carry(self.path, {name: self.headers[name] for name in wanted}, sent)
            with suppress(BrokenPipeError, ConnectionResetError):  # the agent waits for an answer no longer than 5 s
                self.send_response(status)
                for name in ("Content-Type", "Retry-After"):
                    if name in headers:
                        self.send_header(name, headers[name])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing: what went over the road is in `told`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        road.url = f"http://127.0.0.1:{server.server_address[1]}{urlsplit(api_url).path}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield road
        finally:
            server.shutdown()


class Node:
    """The agent of one instance: `machine` as the cluster shows it. Its files lie in `folder`."""

    def __init__(self, machine: dict[str, Any], token: str, api_url: str, folder: Path) -> None:
        self.instance_id, self.place = machine["instance_id"], Path(machine["folder"])
        self.ranks, self.folder = self.place / "ranks", folder
        self.log, self.token_file, self.wall_shift = folder / "agent.log", folder / "token", folder / "wall"
        self.api_url = api_url
        self.processes: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        self.token_file.write_text(token)
        self.wall_shift.write_text("0")

    def start(self) -> subprocess.Popen[bytes]:
        """An agent, that goes on where the one before it was."""
        more = {"GPU_RECOVERY_INTERVAL_MS": "2000", "WALL_SHIFT_FILE": str(self.wall_shift)}
        return self.run(agents.COMMAND, ANOTHER_CLOCK, more)

    def run(self, command: Sequence[str], first: Path, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """An agent by another command, with `first` as the first folder of its modules, and with further variables."""
        environment = agents.environment(self.place, self.folder, self.api_url, self.token_file)
        environment |= {"GPU_RECOVERY_LOOK_MS": "200", "PYTHONPATH": f"{first}:{environment['PYTHONPATH']}", **more}
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """kill -9 of the agent that was started last."""
        self.processes[-1].send_signal(signal.SIGKILL)
        self.processes[-1].wait()

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def end(self) -> None:
        """Ends every agent that was started here."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()

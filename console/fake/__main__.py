"""Program that serves a fake deployment until it is interrupted: `python -m console.fake --instances 10000`."""

from __future__ import annotations

import argparse
import time

from console.fake.model import Size
from console.fake.server import running


def main() -> None:
    """Serve, and print the address of the console. Any text is accepted as a token."""
    parser = argparse.ArgumentParser(prog="python -m console.fake", description=__doc__)
    parser.add_argument("--instances", type=int, default=Size.instances)
    parser.add_argument("--jobs", type=int, default=Size.jobs)
    parser.add_argument("--events-a-second", type=float, default=Size.events_a_second)
    parser.add_argument("--port", type=int, default=8_099)
    options = parser.parse_args()
    size = Size(options.instances, options.jobs, options.events_a_second)
    with running(size, options.port) as server:
        print(f"{server.url}  (sign in with any text)", flush=True)
        try:
            while True:
                time.sleep(3_600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()

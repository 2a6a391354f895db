"""`python -m sandbox up|down|status|fault|mail`: the sandbox from a shell. Answers are JSON on standard output."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from sandbox import sandbox
from sandbox.processes import SandboxError


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    parser.add_argument("--directory", type=Path, default=sandbox.DEFAULT_DIRECTORY)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="start, deploy, leave running")
    up.add_argument("--instances", type=int, default=2)
    up.add_argument("--gpus", type=int, default=8)
    up.add_argument("--speed", type=float, default=sandbox.SCHEDULE_SPEED, help="of rate(...) schedules")
    up.add_argument("--preset", default="adaptive")
    for verb in ("down", "status", "mail"):
        verbs.add_parser(verb)
    fault = verbs.add_parser("fault", help="make an instance fail")
    fault.add_argument("--instance", required=True)
    fault.add_argument("--kind", required=True)
    fault.add_argument("--cured-by")
    fault.add_argument("--reboot")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    wanted = _arguments(argv)
    try:
        answer = _answer(wanted)
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return 130
    print(json.dumps(answer, indent=1))
    return 0


def _answer(wanted: argparse.Namespace) -> object:
    directory: Path = wanted.directory
    if wanted.verb == "up":
        return sandbox.up(
            directory, instances=wanted.instances, gpus=wanted.gpus, speed=wanted.speed, preset=wanted.preset,
            progress=lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
    if wanted.verb == "fault":
        return sandbox.fault(directory, wanted.instance, wanted.kind, wanted.cured_by, wanted.reboot)
    if wanted.verb == "mail":
        return sandbox.read_mailbox(directory)
    if wanted.verb == "status":
        return sandbox.status(directory)
    return {"ended": sandbox.down(directory)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

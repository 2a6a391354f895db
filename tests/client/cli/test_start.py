"""What the command line imports before it prints: the time that every call costs, counted in modules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
import httpx
class Answers(httpx.BaseTransport):
    def handle_request(self, request):
        return httpx.Response(200, json={"jobs": [], "next_cursor": None, "unreadable": []})
for name in [name for name in sys.modules if name.split(".")[0] in ("click", "rich", "pygments")]:
    del sys.modules[name]
from gpu_recovery_client.cli.app import app
try:
    app(sys.argv[1:], obj=Answers(), prog_name="gpu-recovery")
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
EVERY_HELP = """
import json, sys
from gpu_recovery_client.cli.app import VERBS, app
for verb in VERBS.keys() - {"simulate"}:  # it passes --help on to the simulator
    try:
        app([verb, "--help"], prog_name="gpu-recovery")
    except SystemExit:
        pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
QUICK = """
import json, sys
from gpu_recovery_client.cli.app import app
try:
    app(sys.argv[1:], prog_name="gpu-recovery")
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = {"httpx", "rich", "yaml", "pydantic", "gpu_recovery", "botocore", "tomli_w", "keyring"}
"""Packages that take 20 ms and more each."""
CONNECT = {"GPU_RECOVERY_API_URL": "https://api.example.test", "GPU_RECOVERY_TOKEN": "a-token"}


def imported(program: str, *arguments: str, **environment: str) -> set[str]:
    """The modules that a new interpreter has at the end of a call."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return set(json.loads(ended.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("list", "--help")], ids=" ".join)
def test_help_imports_no_library_that_it_does_not_need(arguments: tuple[str, ...]) -> None:
    """Neither the HTTP library nor the diagnosis: 0.1 s of processor time, measured once."""
    modules = imported(QUICK, *arguments)
    needed = {"rich"} if arguments[0] == "list" else set[str]()  # the module of the verb has a table
    allowed = needed | ({"gpu_recovery"} if arguments[0] == "list" else set())
    assert HEAVY & modules <= allowed
    assert not any(name.startswith("gpu_recovery.core.diagnosis") for name in modules)


def test_the_help_of_no_verb_imports_what_only_a_call_needs() -> None:
    """The HTTP library takes 80 ms, pydantic 100 ms. All verbs together do not import them for their help."""
    modules = imported(EVERY_HELP)
    assert not modules & {"httpx", "pydantic", "botocore", "keyring", "tomli_w", "sandbox.sandbox"}


def test_help_of_the_program_imports_no_verb() -> None:
    """The list of verbs is a table."""
    modules = imported(QUICK, "--help")
    own = {name for name in modules if name.startswith("gpu_recovery_client.")}
    assert not own & {f"gpu_recovery_client.cli.{verb}" for verb in ("submit", "diagnose", "job_list", "sandbox")}
    assert len(own) <= 16


def test_a_list_of_jobs_imports_neither_pydantic_nor_the_rules_of_the_core() -> None:
    """Typer converts plain options with pydantic, which takes a third of the time of a list."""
    modules = imported(PROGRAM, "list", **CONNECT)
    assert not modules & {"pydantic", "yaml", "gpu_recovery.core.job.record", "gpu_recovery.core.policy"}
    assert len([name for name in modules if name.startswith("gpu_recovery.")]) <= 8

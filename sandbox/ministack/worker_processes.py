"""Patches of MiniStack for the processes that run functions: fewer starts, and less work at each start.

A function that raises keeps its process, as on AWS. Processes are forked from one that has imported boto3. Those of
one function start one after the other. Packages and layers are unpacked once per sandbox: for the deployed functions
these are 1,500 files, which take as much processor time as the start of a new interpreter.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ministack.core import lambda_runtime  # type: ignore[import-untyped]
from ministack.services import lambda_svc  # type: ignore[import-untyped]

from sandbox.ministack.fork_server import ForkServer

_ERROR = '{"status": "error", "error": str(e), "trace": traceback.format_exc()}'
_RAISED = '{"status": "ok", "raised": ' + _ERROR + "}"
_unpacking = threading.Lock()
TURN_POLL_S = 0.05
"""Seconds between two looks of a call that waits for a process. The end of another call brings the look forward."""


def raising_keeps_the_process() -> None:
    """Let a function's process live on after an exception of the handler.

    Plain MiniStack ends the process, so that each retry is a cold start. AWS ends it only after a timeout, or if the
    process itself ends.

    Raises:
        RuntimeError: The worker script of MiniStack reports exceptions in another way.
    """
    if lambda_runtime._PYTHON_WORKER_SCRIPT.count(_ERROR) != 1:
        raise RuntimeError("the worker script of MiniStack no longer reports an exception as it did")
    lambda_runtime._PYTHON_WORKER_SCRIPT = lambda_runtime._PYTHON_WORKER_SCRIPT.replace(_ERROR, _RAISED)
    plain = lambda_runtime.Worker.invoke

    def invoke(self: Any, *given: Any, **named: Any) -> dict[str, Any]:
        response: dict[str, Any] = plain(self, *given, **named)
        raised: dict[str, Any] = response.pop("raised", {})
        return response | raised

    lambda_runtime.Worker.invoke = invoke


class SharedPackage(zipfile.ZipFile):
    """Zip file whose content is unpacked at most once: `extractall` links its target to the unpacked files.

    The hash of the zip file names the folder with the files. As on AWS, no function may write into its package.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        self._folder = Path(tempfile.gettempdir()) / f"package-{digest}"

    def namelist(self) -> list[str]:
        """Return the names of the files. Empty once they are unpacked: MiniStack checks each name before it unpacks."""
        return [] if self._folder.exists() else super().namelist()

    def extractall(self, path: Any = None, members: Any = None, pwd: bytes | None = None) -> None:
        """Replace the empty folder `path` by a link to the unpacked files."""
        with _unpacking:
            if not self._folder.exists():
                draft = tempfile.mkdtemp()
                super().extractall(draft)
                leave_out_foreign_binaries(Path(draft))
                os.rename(draft, self._folder)
        os.rmdir(path)
        os.symlink(self._folder, path)


def leave_out_foreign_binaries(layer: Path) -> None:
    """Remove the Python packages of an unpacked layer whose extension modules are for another interpreter.

    The own layer has binaries for the functions' Python and processor. This interpreter has the same releases of these
    packages (tests/infra/test_layer.py), and imports them in place of those that it cannot load.
    """
    own = {suffix.removeprefix(".") for suffix in EXTENSION_SUFFIXES}
    for binary in list((layer / "python").rglob("*.so")):
        if binary.name.partition(".")[2] not in own:
            shutil.rmtree(layer / "python" / binary.relative_to(layer / "python").parts[0], ignore_errors=True)


def packages_are_shared() -> None:
    """Let all processes of functions share their unpacked packages. Plain MiniStack unpacks them for each process."""
    lambda_runtime.zipfile = SimpleNamespace(
        ZipFile=SharedPackage, BadZipFile=zipfile.BadZipFile, LargeFileError=zipfile.LargeZipFile
    )


def processes_are_forked() -> None:
    """Fork the processes of Python functions from a server that has imported boto3. See `fork_server`.

    Plain MiniStack starts a new interpreter for each. On AWS a function waits for its start just as well, but not on
    the processors of this computer. Only Linux has what this needs; elsewhere each process is a new interpreter.
    """
    if sys.platform != "linux":
        return
    server = ForkServer()
    server.start()
    lambda_runtime.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": server.popen})


def processes_start_in_turn() -> None:
    """Let a call wait while a process of its function starts. It then takes a free process, or starts the next one.

    Plain MiniStack starts a process for each call that finds none free. On AWS each start has a processor of its own.
    Here the starts share the processors of this computer: the first reports of nine node agents took longer than the
    agents wait for an answer, and each repeated report started a further process.
    """
    plain_acquire, plain_release = lambda_runtime.acquire_worker, lambda_runtime.release_worker
    turns = threading.Condition()

    def acquire(
        func_name: str, config: dict[str, Any], code_zip: bytes, qualifier: str = "$LATEST", **named: Any
    ) -> Any:
        key = lambda_runtime._worker_key(func_name, config, qualifier)

        def must_wait() -> bool:
            workers = list(lambda_runtime._workers.get(key, ()))
            return all(worker.in_use for worker in workers) and any(worker._cold for worker in workers)

        with turns:
            while must_wait():
                turns.wait(TURN_POLL_S)
            return plain_acquire(func_name, config, code_zip, qualifier, **named)

    def release(worker: Any) -> None:
        plain_release(worker)
        with turns:
            turns.notify_all()

    for module in (lambda_runtime, lambda_svc):
        module.acquire_worker, module.release_worker = acquire, release

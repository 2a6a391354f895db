"""Stand-ins for the programs that the health check starts: small scripts in a folder that is put on PATH."""

from __future__ import annotations

import sys
from pathlib import Path

# A host engine that listens on the Unix socket it is told, notes that it runs, and stays until it is ended.
HOST_ENGINE = """
import os, socket, sys
address = sys.argv[sys.argv.index("--domain-socket") + 1]
listener = socket.socket(socket.AF_UNIX)
listener.bind(address)
listener.listen()
open(os.path.join(HERE, "engine.pid"), "w").write(str(os.getpid()))
while True:
    listener.accept()[0].close()
"""

# The engine of an instance's AMI: it listens on a socket of its own, and on the default port if the port is free. It
# notes each client and never answers.
ENGINE_OF_THE_HOST = """
import os, select, socket, sys
listeners = [socket.socket(socket.AF_UNIX), socket.socket()]
listeners[0].bind(os.path.join(HERE, "host", "nv-hostengine"))
try:
    listeners[1].bind(("127.0.0.1", 5555))
except OSError:
    listeners.pop()
for listener in listeners:
    listener.listen()
open(os.path.join(HERE, "host", "ready"), "w").close()
while True:
    for listener in select.select(listeners, [], [])[0]:
        listener.accept()
        open(os.path.join(HERE, "host", "client"), "w").close()
"""


# A dcgmi that uses the engine of the host. Its test runs outside of the check, as in that engine, and only the SIGTERM
# that dcgmi gets ends the test (dcgmi/Diag.cpp of DCGM 4.6).
DCGMI_OF_THE_HOST = """
import os, signal, subprocess, sys, time
if sys.argv[1] == "-v":
    sys.stdout.write("Version : 4.6.0\\n\\nHostengine build info:\\nVersion : 4.6.0")
    sys.exit()
sleeps = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
test = subprocess.Popen(sleeps, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
def stop(*_):
    test.kill()
    test.wait()
    error = "Error: Unable to complete diagnostic. Return: (-53) : The DCGM diagnostic was killed by a signal"
    sys.stdout.write('{"DCGM Diagnostic": {"version": "4.6.0", "runtime_error": "%s"}}' % error)
    sys.stdout.flush()
    sys.exit(203)
signal.signal(signal.SIGTERM, stop)
open(os.path.join(HERE, "test.pid.new"), "w").write(str(test.pid))
os.rename(os.path.join(HERE, "test.pid.new"), os.path.join(HERE, "test.pid"))
time.sleep(600)
"""


def install(folder: Path, name: str, body: str) -> Path:
    """An executable Python script; `HERE` in its body is the folder, for notes that it leaves to the test.

    It starts without the installed packages, in half of the time.
    """
    path = folder / name
    path.write_text(f"#!{sys.executable} -S\nHERE = {str(folder)!r}\n{body}", encoding="utf-8")
    path.chmod(0o755)
    return path


def install_dcgmi(folder: Path, text: str, exit_code: int) -> Path:
    """A `dcgmi` that notes its arguments, prints a text and exits with a code."""
    body = (
        "import os, sys\n"
        'open(os.path.join(HERE, "arguments"), "a").write(" ".join(sys.argv[1:]) + "\\n")\n'
        f"sys.stdout.write({text!r})\n"
        f"sys.exit({exit_code})\n"
    )
    return install(folder, "dcgmi", body)


def install_nvidia_smi(folder: Path, text: str) -> Path:
    """An `nvidia-smi` that prints a text."""
    return install(folder, "nvidia-smi", f"import sys\nsys.stdout.write({text!r})\n")


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than an entry that waits to be collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
